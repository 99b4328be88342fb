"""The training configurations that WeNet publishes, as far as data goes (and a little of what stands around it)."""

from typing import Any

import yaml

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

U2PP = WENETSPEECH
for old, new in (
    ("encoder: conformer\n", "encoder: conformer\ndecoder: bitransformer\n"),
    ("token_min_length: 1\n", "token_min_length: 1\n        max_output_input_ratio: 0.25\n"),
    (
        "    shuffle: true",
        "    spec_sub: true\n    spec_sub_conf: {num_t_sub: 3, max_t: 30}\n    spec_trim: false\n    shuffle: true",
    ),
    ("shuffle_size: 1500", "shuffle_size: 5000"),
    ("batch_type: static\n        batch_size: 32", "batch_type: dynamic\n        max_frames_in_batch: 36000"),
):
    assert old in U2PP
    U2PP = U2PP.replace(old, new)

YAMLS = {"aishell": AISHELL, "wenetspeech": WENETSPEECH, "u2pp": U2PP}


def dataset_conf(name: str) -> dict[str, Any]:
    """The block that WeNet's trainer hands on."""
    conf: dict[str, Any] = yaml.safe_load(YAMLS[name])["dataset_conf"]
    return conf
