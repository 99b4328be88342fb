"""Features as .npy files: computed of audio by the stages that training has, or read from Kaldi's arks."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import DataError
from uio_pipes.core.lane import Site
from uio_pipes.core.realize import compute
from uio_pipes.core.roles import Op, StageLink
from uio_pipes.core.sample import NOTHING, Origin, Sample
from uio_pipes.io.command import Piped
from uio_pipes.io.local import RandomFile
from uio_pipes.io.lookahead import Whole
from uio_pipes.io.opening import is_local, open_file
from uio_pipes.pipeline import Pipeline
from uio_pipes.prep.packing.grouping import Dtype, FeatureSettings
from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import Audio, CutResult, Failure, in_ark
from uio_pipes.run.lane_runner import one_thread
from uio_pipes.sources.kaldi.ark import ArkMatrix, ark_audio, parse_pointer
from uio_pipes.stages.audio.speed import Resample
from uio_pipes.wenet import apply_steps
from uio_pipes.wenet.conf import STEPS, read_conf

STAGES = {"decode_audio", "resample", "fbank", "mfcc", "log_mel_spectrogram"}


def with_features(pipeline: Pipeline, conf: Mapping[str, Any]) -> Pipeline:
    """Return ``pipeline`` with the stages of a ``dataset_conf`` up to the features, never with dither.

    Raises: PipelineError naming the key.
    """
    values = read_conf(conf) | {"fbank_conf.dither": 0.0, "mfcc_conf.dither": 0.0}
    return apply_steps(pipeline, (step for step in STEPS if step.stage in STAGES), values)


Features = npt.NDArray[np.float32]
_RUN_KEY = b""  # no draws are made, since there is no dither
_LARGEST = float(np.finfo(np.float16).max)


class Extractor:
    """The stages of a ``dataset_conf`` from decoding to features. Raises: PipelineError naming the key."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        stages = with_features(Pipeline(()), conf).stages
        self.stages = tuple(stage for stage in stages if isinstance(stage, Op))
        self._chain = NOTHING
        for stage in self.stages:
            self._chain = self._chain.then(StageLink(stage, Site(stage.name, 0)))
        self._rate = next(stage.resample_rate for stage in self.stages if isinstance(stage, Resample))

    def frames(self, seconds: float) -> int:
        """Return the number of frames that ``seconds`` of audio have, by the stages' own rules."""
        plan: Plan | None = Plan(round(seconds * self._rate), self._rate)
        sample = self._sample({})
        for stage in self.stages:
            plan = stage.plan(plan, sample, sample.draws(0))
        return (plan and plan.frames) or 0

    def features(self, one: Utterance) -> Features:
        """Return the features of an utterance. Raises: DataError."""
        fields: dict[str, Any] = {"key": one.key, "wav": _audio(one)}
        fields |= {name: time for name, time in (("start", one.start), ("end", one.end)) if time is not None}
        sample = self._sample(fields, one.wav)
        compute(sample)
        found: Features = sample["feat"].numpy()
        return found

    def _sample(self, fields: dict[str, Any], url: str = "") -> Sample:
        return Sample(fields, Origin(0), _RUN_KEY, self._chain, url)


def extractor(conf: Mapping[str, Any]) -> Extractor:
    """Return the :class:`Extractor` of ``conf``, made once in a process."""
    return _made(json.dumps(conf, default=str))


@lru_cache(maxsize=8)
def _made(conf: str) -> Extractor:
    return Extractor(json.loads(conf))


class _Arks:
    """The matrices that utterances point at."""

    def __init__(self) -> None:
        self._files: dict[str, RandomFile] = {}

    def features(self, one: Utterance) -> Features:
        """Return the features of an utterance. Raises: DataError."""
        pointer = parse_pointer(one.wav)
        file = self._files.get(pointer.path) or self._files.setdefault(pointer.path, open_file(pointer.path))
        features = ArkMatrix(file, pointer).load()
        if one.frames not in (None, len(features)):
            message = f"utt2num_frames says {one.frames} frames, the ark has {len(features)}: make both again"
            raise DataError("length_mismatch", message)
        return features


def make_features(utterances: list[Utterance], settings: FeatureSettings) -> list[CutResult]:
    """Return for each utterance its features as a .npy file, or its failure."""
    source = _Arks() if settings.conf is None else extractor(settings.conf)
    with one_thread():
        return [_cut(one, source, settings.dtype) for one in utterances]


def _cut(one: Utterance, source: Extractor | _Arks, dtype: Dtype) -> CutResult:
    try:
        features = source.features(one)
        return Audio(_npy(features, dtype), "npy", len(features))
    except DataError as error:
        error.url, error.member = error.url or one.wav, error.member or one.key
        return Failure(error.reason, str(error))


def _npy(features: Features, dtype: Dtype) -> bytes:
    """Return a .npy file. Raises: DataError ``bad_features``."""
    if not np.isfinite(features).all():
        raise DataError("bad_features", "some features are not numbers (NaN or infinite): make them again")
    if dtype == "float16" and (largest := float(np.abs(features).max())) > _LARGEST:
        raise DataError("bad_features", f"{largest:g} is too large for float16 ({_LARGEST:g}): pack them as float32")
    file = io.BytesIO()
    np.save(file, features.astype("<f2" if dtype == "float16" else "<f4", copy=False), allow_pickle=False)
    return file.getvalue()


def _audio(one: Utterance) -> Any:
    if one.wav.endswith("|"):  # the list's reader lets commands through only where they are allowed
        return Piped(one.wav, shared=one.start is not None)
    if in_ark(one.wav):
        path, _, offset = one.wav.rpartition(":")
        return ark_audio(open_file(path), int(offset))
    return one.wav if is_local(one.wav) is not None else Whole(open_file(one.wav))
