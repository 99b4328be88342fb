"""The training configurations that WeNet publishes, as far as data goes (and a little of what stands around it)."""

from __future__ import annotations

from typing import Any

import yaml

__all__ = ["YAMLS", "dataset_conf"]

AISHELL = """
encoder: conformer
tokenizer: char
dataset: asr
dataset_conf:
    filter_conf:
        max_length: 40960
        min_length: 0
        token_max_length: 200
        token_min_length: 1
    resample_conf:
        resample_rate: 16000
    speed_perturb: true
    fbank_conf:
        num_mel_bins: 80
        frame_shift: 10
        frame_length: 25
        dither: 0.1
    spec_aug: true
    spec_aug_conf:
        num_t_mask: 2
        num_f_mask: 2
        max_t: 50
        max_f: 10
    shuffle: true
    shuffle_conf:
        shuffle_size: 1500
    sort: true
    sort_conf:
        sort_size: 500  # at most the shuffle's
    batch_conf:
        batch_type: 'static' # static or dynamic
        batch_size: 16
grad_clip: 5
"""

WENETSPEECH = """
encoder: conformer
dataset_conf:
    filter_conf:
        max_length: 1200
        min_length: 10
        token_max_length: 100
        token_min_length: 1
    resample_conf:
        resample_rate: 16000
    speed_perturb: true
    fbank_conf:
        num_mel_bins: 80
        frame_shift: 10
        frame_length: 25
        dither: 1.0
    spec_aug: true
    spec_aug_conf:
        num_t_mask: 2
        num_f_mask: 2
        max_t: 50
        max_f: 30
    shuffle: true
    shuffle_conf:
        shuffle_size: 1500
    sort: true
    sort_conf:
        sort_size: 1000
    batch_conf:
        batch_type: static
        batch_size: 32
"""

U2PP = """
encoder: conformer
decoder: bitransformer
dataset_conf:
    filter_conf:
        max_length: 1200
        min_length: 10
        token_max_length: 100
        token_min_length: 1
        max_output_input_ratio: 0.25
    resample_conf:
        resample_rate: 16000
    speed_perturb: true
    fbank_conf:
        num_mel_bins: 80
        frame_shift: 10
        frame_length: 25
        dither: 1.0
    spec_aug: true
    spec_aug_conf:
        num_t_mask: 2
        num_f_mask: 2
        max_t: 50
        max_f: 30
    spec_sub: true
    spec_sub_conf:
        num_t_sub: 3
        max_t: 30
    spec_trim: false
    shuffle: true
    shuffle_conf:
        shuffle_size: 5000
    sort: true
    sort_conf:
        sort_size: 1000
    batch_conf:
        batch_type: dynamic
        max_frames_in_batch: 36000
"""

YAMLS = {"aishell": AISHELL, "wenetspeech": WENETSPEECH, "u2pp": U2PP}


def dataset_conf(name: str) -> dict[str, Any]:
    """The block that WeNet's trainer hands on."""
    conf: dict[str, Any] = yaml.safe_load(YAMLS[name])["dataset_conf"]
    return conf
