"""The stages from decoding to features that a WeNet YAML describes, as statistics and packed features are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uio_pipes.pipeline import Pipeline
from uio_pipes.wenet import apply_steps
from uio_pipes.wenet.conf import read_conf
from uio_pipes.wenet.table import STEPS

STAGES = {"decode_audio", "resample", "fbank", "mfcc", "log_mel_spectrogram"}


def with_features(pipeline: Pipeline, conf: Mapping[str, Any]) -> Pipeline:
    """Return ``pipeline`` with the stages of a ``dataset_conf`` up to the features, never with dither.

    Raises: PipelineError naming the key.
    """
    values = read_conf(conf) | {"fbank_conf.dither": 0.0, "mfcc_conf.dither": 0.0}
    return apply_steps(pipeline, (step for step in STEPS if step.stage in STAGES), values)
