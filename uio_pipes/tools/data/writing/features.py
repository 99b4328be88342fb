"""Utterances that need torch: features, and audio that decodes itself, made by the stages that training has."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import DataError
from uio_pipes.core.items import LOAD_FEATURES
from uio_pipes.core.lane import Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.realize import compute as compute_fields
from uio_pipes.core.roles import Op
from uio_pipes.core.sample import NOTHING, Sample
from uio_pipes.core.stage_link import StageLink
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import one_thread
from uio_pipes.sources.lhotse.recording import Recorded
from uio_pipes.stages.audio.effects import Resample
from uio_pipes.tools.data.reading import Bad, Utterance
from uio_pipes.tools.data.writing.cutting import Audio, Dtype, failure_of, to_int16
from uio_pipes.tools.data.writing.making import Made, described
from uio_pipes.wenet import STEPS, apply_steps, read_conf

if TYPE_CHECKING:
    from uio_pipes.tools.data.placement import PackSettings

STAGES = {"decode_audio", "resample", "fbank", "mfcc", "log_mel_spectrogram"}
_RUN_KEY = b""  # no draws are made, since there is no dither
_LARGEST = float(np.finfo(np.float16).max)


def with_features(pipeline: Pipeline, conf: Mapping[str, Any]) -> Pipeline:
    """Return ``pipeline`` with the stages of a ``dataset_conf`` up to the features, never with dither.

    Raises: PipelineError naming the key.
    """
    values = read_conf(conf) | {"fbank_conf.dither": 0.0, "mfcc_conf.dither": 0.0}
    return apply_steps(pipeline, (step for step in STEPS if step.stage in STAGES), values)


class Stages:
    """The stages of a pipeline, run on one utterance at a time."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.stages = tuple(stage for stage in pipeline.stages if isinstance(stage, Op))
        self._chain = NOTHING
        for stage in self.stages:
            self._chain = self._chain.then(StageLink(stage, Site(stage.name, 0)))

    def frames(self, seconds: float) -> int:
        """Return the number of frames that ``seconds`` of audio have, by the stages' own rules."""
        rate = next(stage.resample_rate for stage in self.stages if isinstance(stage, Resample))
        plan: Plan | None = Plan(round(seconds * rate), rate)
        sample = Sample({}, Origin(0), _RUN_KEY, self._chain, "")
        for stage in self.stages:
            plan = stage.plan(plan, sample, sample.draws(0))
        return (plan and plan.frames) or 0

    def run(self, one: Utterance) -> Sample:
        """Return an utterance of which all is computed. Raises: DataError."""
        fields = dict(one.fields)
        if isinstance(one.wav, Recorded) and "supervisions" in fields:
            fields["supervisions"] = one.wav.of_first(fields["supervisions"])
        sample = Sample(fields, Origin(0), _RUN_KEY, self._chain, one.place)
        compute_fields(sample)
        return sample


def extractor(conf: Mapping[str, Any]) -> Stages:
    """Return the stages from decoding to features, made once in a process. Raises: PipelineError naming the key."""
    return _of_conf(json.dumps(conf, default=str))


@lru_cache(maxsize=8)
def _of_conf(conf: str) -> Stages:
    return Stages(with_features(Pipeline(()), json.loads(conf)))


@lru_cache(maxsize=8)
def _decoder(sample_rate: int | None) -> Stages:
    decoded = Pipeline(()).decode_audio(longest=None)
    return Stages(decoded if sample_rate is None else decoded.resample(sample_rate))


def compute(one: Utterance, settings: PackSettings) -> Made | Bad:
    """Return an utterance with its features or, if none are wanted, its decoded audio; or its failure."""
    wanted = settings.features
    try:
        with one_thread():
            if wanted is not None and wanted.conf is None:
                if (feat := one.fields.get("feat")) is None:
                    raise DataError("missing_features", "the utterance has no features")
                sample = Sample(
                    {"key": one.key, "feat": feat}, Origin(0), _RUN_KEY, NOTHING.then(LOAD_FEATURES), one.place
                )
                declared = getattr(feat, "frames", None)
                features = sample["feat"].numpy()
                if declared not in (None, len(features)):
                    message = f"its table says {declared} frames, {len(features)} are stored: make both again"
                    raise DataError("length_mismatch", message)
                return described(one, _npy(features, wanted.dtype), one.fields, settings)
            if one.wav is None:
                raise DataError("missing_audio", "the utterance has no audio")
            if wanted is not None:
                sample = extractor(wanted.conf or {}).run(one)
                return described(one, _npy(sample["feat"].numpy(), wanted.dtype), sample.fields, settings)
            sample = _decoder(settings.sample_rate).run(one)
            samples = to_int16(sample["wav"][0].numpy())
            audio = Audio.of(samples, sample["sample_rate"], "flac" if settings.form == "flac" else "wav")
            return described(one, audio, sample.fields, settings)
    except DataError as error:
        error.member = error.member or one.key
        return failure_of(one, error)


def _npy(features: np.ndarray[Any, np.dtype[np.float32]], dtype: Dtype) -> Audio:
    """Return a .npy file. Raises: DataError ``bad_features``."""
    if not np.isfinite(features).all():
        raise DataError("bad_features", "some features are not numbers (NaN or infinite): make them again")
    if dtype == "float16" and (largest := float(np.abs(features).max())) > _LARGEST:
        raise DataError("bad_features", f"{largest:g} is too large for float16 ({_LARGEST:g}): pack them as float32")
    file = io.BytesIO()
    np.save(file, features.astype("<f2" if dtype == "float16" else "<f4", copy=False), allow_pickle=False)
    return Audio(file.getvalue(), "npy", len(features))
