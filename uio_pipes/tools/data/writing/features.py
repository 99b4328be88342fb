"""Features as .npy files: computed of audio by the stages that training has, or read from Kaldi's arks by one or more
``feats.scp`` with their ``text``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.core.lane import Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.realize import compute
from uio_pipes.core.roles import Op
from uio_pipes.core.sample import NOTHING, Sample
from uio_pipes.core.stage_link import StageLink
from uio_pipes.io.access import PLAIN
from uio_pipes.io.command import Piped
from uio_pipes.io.local import RandomFile
from uio_pipes.io.opening import Whole, is_local, open_file
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import one_thread
from uio_pipes.sources.kaldi.ark import ArkMatrix, ark_audio, parse_pointer, points_at_features
from uio_pipes.sources.kaldi.tables import KaldiLines, is_folder
from uio_pipes.stages.audio.effects import Resample
from uio_pipes.tools.data.reading.data_list import exists, read_lines, read_tables
from uio_pipes.tools.data.reading.utterance_lists import KaldiUtterances, Utterance, digest_of
from uio_pipes.tools.data.writing.cutting import Audio, CutResult, Dtype, Failure, in_ark
from uio_pipes.wenet import STEPS, apply_steps, read_conf

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


def make_features(utterances: list[Utterance], conf: Mapping[str, Any] | None, dtype: Dtype) -> list[CutResult]:
    """Return for each utterance its features as a .npy file, or its failure."""
    source = _Arks() if conf is None else extractor(conf)
    with one_thread():
        return [_cut(one, source, dtype) for one in utterances]


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


UNKNOWN, UNREADABLE = -1, -2  # numbers of frames
HEAD = 1 << 16  # bytes of an scp whose lines show what it points at


class FeatureTables(KaldiUtterances):
    """The utterances of several ``feats.scp``, as if all were one; ``wav`` of an utterance is its pointer into an ark.

    ``sources``: scps, or folders with ``feats.scp``. ``texts``: tables of transcripts, which may name the keys in
    any order; without any, the ``text`` beside each scp; None if there need be none. ``utt2spk`` and
    ``utt2num_frames`` beside the scps are used.
    ``measured``: give each utterance its ``frames``, by the header of its matrix if no table says it.

    Raises: ListError, also for a key that comes twice, in one file or in two.
    """

    def __init__(self, sources: Sequence[str], texts: Sequence[str] | None = (), measured: bool = False) -> None:
        scps = [f"{source}/feats.scp" if is_folder(source) else source for source in sources]
        contents = [(name, b"".join(read_lines(name))) for name in scps]
        for name, data in contents:
            head = data if len(data) <= HEAD else data[:HEAD].rpartition(b"\n")[0]
            if not points_at_features(KaldiLines(name, head, 1), PLAIN):
                raise ListError(f"{name} does not point at features: to pack audio, name the folder with wav.scp")
        scp, beside = KaldiLines.joined(contents, 1), _beside(scps, "text")
        text = _optional(beside, 0, None) if texts is None else read_tables([*texts] or beside, 0)
        speakers, frames = (_optional(_beside(scps, name)) for name in ("utt2spk", "utt2num_frames"))
        self._frames = np.full(len(scp), UNKNOWN, np.int64) if frames is None else _told(frames, scp)
        super().__init__(scp, text, None, speakers)
        digest, self._needs_text = digest_of(scp, text, speakers, frames), texts is not None
        self._arks: dict[str, RandomFile] = {}
        if measured:
            self._measure()
            digest.update(self._frames.data)  # the utterances' places depend on it
        self.digest = digest.hexdigest()

    def one(self, number: int) -> Utterance:
        line = self.recording(number)  # none, for what only has a text
        key, txt = self.key(line), self.text(line)
        frames = int(self._frames[number])
        if frames == UNREADABLE:
            frames = self._matrix(number).frames  # fails again
        speaker = self.find("speaker", number) or ""
        return Utterance(key, self._pointer(number), txt, speaker=speaker, frames=None if frames < 0 else frames)

    def _pointer(self, number: int) -> str:
        value = self.scp.value(number)
        if value.endswith("|"):
            message = "a command in place of an ark: write its output to one (copy-feats … ark,scp:feats.ark,feats.scp)"
            raise DataError("pipe_not_allowed", message, url=self.scp.place(number))
        return value

    def _matrix(self, number: int) -> ArkMatrix:
        pointer = parse_pointer(self._pointer(number))
        file = self._arks.get(pointer.path) or self._arks.setdefault(pointer.path, open_file(pointer.path))
        return ArkMatrix(file, pointer)

    def _measure(self) -> None:
        for number in np.flatnonzero(self._frames == UNKNOWN):
            try:
                self._frames[number] = self._matrix(int(number)).frames
            except DataError:
                self._frames[number] = UNREADABLE


def _beside(scps: Sequence[str], name: str) -> list[str]:
    folders = (scp.rpartition("/")[0] for scp in scps)
    return list(dict.fromkeys(f"{folder}/{name}" if folder else name for folder in folders))


def _optional(urls: list[str], least: int = 1, most: int | None = 1) -> KaldiLines | None:
    found = [url for url in urls if exists(url)]
    return read_tables(found, least, most) if found else None


def _told(table: KaldiLines, scp: KaldiLines) -> npt.NDArray[np.int64]:
    """Return the numbers of frames that ``utt2num_frames`` gives. Raises: ListError."""
    lines, frames = table.find(scp), table.numbers(0)
    if len(bad := np.flatnonzero((frames < 1) | (frames != np.floor(frames)))):
        raise ListError(f"{table.place(int(bad[0]))}: frames are counted from 1 on: make {table.name} again")
    return np.where(lines < 0, UNKNOWN, frames[lines]).astype(np.int64)
