"""``decode_audio``, ``decode_video`` and ``mono``: the waveform of an audio file, the frames of a video, one channel of
several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from uio_pipes.audio.containers import DECLARED, LONGEST, TRIMMED, Declared, check_channel, decoding
from uio_pipes.audio.forms import channel_numbers
from uio_pipes.audio.length import TICKS, Plan, planned_by_duration
from uio_pipes.audio.recording import Recording, as_waveform, decoded, of_channels
from uio_pipes.audio.video import ReadBytes, decode_video
from uio_pipes.base.checks import is_whole, refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.graph import Graph
from uio_pipes.core.roles import OfStream, Op, sees_all
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage, Trait, least, must_be
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.touchdataset import StoredRecord
from uio_pipes.io.opening import open_file
from uio_pipes.io.references import Ref


@dataclass(frozen=True)
class DecodeAudio(OfStream):
    """Decode ``wav`` to float32 of shape (1, S) in [-1, 1], and set ``sample_rate`` in Hz.

    Formats: wav, flac, ogg, opus and mp3; with ``pip install 'uio_pipes[codecs]'`` also m4a, aac and wma. They are
    recognized by their first bytes. If the utterance has ``start`` and ``end`` (seconds), that segment is cut out.
    The planned length comes from the header, so that nothing is decoded before the batch is made; mp3, m4a, aac and
    wma have no reliable length there and are decoded when it is first needed. Samples that are arrays or tensors
    already, of shape (S,) or (C, S), are only converted; integers are taken as PCM of their width.

    Failures: ``bad_audio``, ``truncated_audio``, ``empty_audio``, ``nan_audio``, ``bad_segment``, ``no_such_channel``,
    ``missing_codec``, ``too_long_to_decode``.

    Args:
        channel: number of the channel to keep, counted from 0, or a list of them in rising order, as ``[0, 1]`` for
            stereo, (C, S); or the name of the field that has this number or list of each utterance; None keeps all
            channels, however many there are. Tables have chosen the ``channel`` of a row already. Default: 0.
        longest: seconds that are decoded for one utterance, which takes 230 MB an hour at 16 kHz; a longer one is the
            failure ``too_long_to_decode``. Segments of longer recordings are no matter. None: no bound. Default:
            3600.0.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "decode_audio"
    note: ClassVar[str] = "when the batch is made (mp3, m4a, aac, wma: when its length is needed)"
    writes = ("wav", "sample_rate")
    may_lack = ("start", "end", "duration", DECLARED)
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE | Trait.TAKES_PCM | Trait.LOCAL

    channel: int | str | Sequence[int] | None = 0
    longest: float | None = LONGEST

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.channel
        if not isinstance(given, (str, int, type(None))):
            ok = isinstance(given, (list, tuple)) and all(map(is_whole, given)) and sorted({*given}) == [*given] != []
            require(ok and given[0] >= 0, self.name, "channel must list numbers in rising order", given, "as in [0, 1]")
            object.__setattr__(self, "channel", tuple(given))
            given = None
        ok = given is None or (bool(given) if isinstance(given, str) else given >= 0)
        bounded = self.longest is None or self.longest > 0
        require(bounded, self.name, "longest must be above 0 seconds, or None for no bound", self.longest, "try 7200")
        rule = "channel must be 0 or more, None for all, or the name of a field that contains it"
        require(ok, self.name, rule, self.channel, "WeNet keeps channel 0")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["wav", *self.may_lack, *([self.channel] if isinstance(self.channel, str) else [])])

    def check(self, before: Sequence[Stage]) -> None:
        super().check(before)
        for stage in () if self.of else Graph(tuple(before))._every_stage():
            sentence = f"{stage.name} takes the channel that a row names, so that decode_audio need not"
            again = Trait.TAKES_CHANNEL in stage.traits and self.channel == "channel"
            refuse(again, self.name, sentence, "leave channel out")
            given = getattr(stage, "fields", None) or getattr(stage, "names", None)
            named = (
                "channel" in (dict(given) if given and not isinstance(stage, Op) else {})
                and Trait.TAKES_CHANNEL not in stage.traits
            )
            sentence = f"fields of {stage.name} names a channel, but decode_audio keeps channel 0 of every utterance"
            refuse(named and self.channel == 0, self.name, sentence, 'say decode_audio(channel="channel")')

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is not None or "wav" not in sample.fields:
            return plan
        sample.compute_now(self.name, self.of)
        wav = sample.fields["wav"]
        return Plan(int(wav.shape[-1]), sample.fields["sample_rate"])

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        wav = fields.get("wav")
        if wav is None:
            instead = ", but features: leave out what makes them from audio" if "feat" in fields else ""
            there = named_otherwise("wav", fields)
            raise DataError("missing_audio", f"the utterance has no audio to decode{instead}: {there}")
        channel = self.channel
        if channel is not None and not isinstance(channel, int):
            numbers = _numbers(fields, channel) if isinstance(channel, str) else [*channel]
            wav, channel = _of_channels(wav, numbers)
        if isinstance(wav, (torch.Tensor, np.ndarray)):
            fields["wav"] = as_waveform(wav, channel)
            return
        start, end, declared = fields.get("start"), fields.get("end"), Declared.of(fields)
        with decoding(self.longest, sample.as_stored and not isinstance(wav, Recording), declared) as within:
            waveform, rate = decoded(wav, channel, start, end)
        if declared.trim and start is None and end is None and (plan := planned_by_duration(fields)) is not None:
            most = plan.samples * rate // plan.sample_rate
            within.trimmed = max(within.trimmed, (waveform.shape[-1] - most) / rate)
            waveform = waveform[:, :most]
        if within.trimmed:
            fields[TRIMMED] = round(within.trimmed, 3)
        _check_rate("its entry", fields.get("sample_rate"), rate)
        if isinstance(wav, Ref) and wav.info is not None:
            _check_rate("the index", wav.info.sample_rate, rate)
        fields["wav"], fields["sample_rate"] = waveform, rate


def _numbers(fields: Mapping[str, Any], name: str) -> list[int]:
    """Return the numbers of channels that the field ``name`` gives. Raises: DataError ``bad_value``."""
    given = fields.get(name)
    if given is None:
        problem = (
            f"the utterance has no {name!r}, by which decode_audio(channel={name!r}) chooses, but {', '.join(fields)}"
        )
        raise DataError("bad_value", f"{problem}: correct the name, or the row")
    given = given.read() if isinstance(given, Ref) else given
    return channel_numbers(given.decode("utf-8", "replace").strip() if isinstance(given, bytes) else given)


def _of_channels(wav: Any, numbers: list[int]) -> tuple[Any, int | None]:
    """Return audio, and the one of its channels to decode, or None for all. Raises: DataError ``no_such_channel``."""
    if len(numbers) == 1:
        return wav, numbers[0]
    if isinstance(wav, (torch.Tensor, np.ndarray)):
        check_channel(numbers[-1], 1 if wav.ndim < 2 else len(wav))
        return wav[numbers], None
    return of_channels(wav, numbers, None), None


def _check_rate(what: str, known: Any, rate: int) -> None:
    """Raises: DataError if the list or the index states a sample rate that the audio does not have."""
    if isinstance(known, (int, float)) and known > 0 and known not in (rate, TICKS):  # which are seconds
        raise DataError("wrong_rate", f"{what} says {known} Hz, the audio has {rate}: correct one of them")


@dataclass(frozen=True)
class DecodeVideo(Op):
    """Decode a video to RGB frames, uint8 of shape (T, C, H, W), when the batch is made.

    The video is the bytes of a file (mp4, mkv, webm, …: what FFmpeg reads) in a TouchDataset's record, a shard's
    member, or a path or URL. If the utterance has ``start`` and ``end`` (seconds), only the frames of that span are
    decoded, from the last key frame before it on, and only the bytes that this takes are read. Lengths are planned by
    the audio alone. ``pad`` delivers the frames if it is told to: ``pad(keep=["video"])``. Needs
    ``pip install 'uio_pipes[video]'``.

    Failures: ``missing_video``, ``bad_video``, ``truncated_video``, ``bad_segment``, ``missing_codec``.

    Args:
        fps: frames per second; each is the one that is shown at its time, so that a span has as many as its length
            says. Default: None, all frames that begin within the span.
        size: (height, width) in pixels, to which frames are scaled. Default: None, their own size.
        field: name of the field with the video, in whose place the frames come. Default: "video".
    """

    name: ClassVar[str] = "decode_video"
    may_lack = ("start", "end")

    fps: float | None = must_be(None, "above 0", lambda n: n is None or n > 0, "try 25")
    size: Sequence[int] | None = None
    field: str = must_be("video", "the name of a field", bool, 'try "video"')

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = self.size is None or (len(self.size) == 2 and all(is_whole(n) and n > 0 for n in self.size))
        require(pair, self.name, "size must be (height, width) in pixels, above 0", self.size, "try (96, 96)")
        object.__setattr__(self, "size", None if self.size is None else tuple(self.size))

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset([self.field, "start", "end"])

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset([self.field])

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        video: Any = fields.get(self.field)
        if isinstance(video, str):
            file = open_file(video)
            video = Ref(file, 0, file.size)
        if isinstance(video, StoredRecord):
            video.compare()
        if not isinstance(video, (Ref, bytes)):
            what = "no" if video is None else f"{type(video).__name__} for"
            raise DataError("missing_video", f"the utterance has {what} {self.field} to decode: name its field")
        read: ReadBytes = video.read_at if isinstance(video, Ref) else lambda offset, count: video[offset:][:count]
        size = video.size if isinstance(video, Ref) else len(video)
        shape = None if self.size is None else (self.size[0], self.size[1])
        frames = decode_video(read, size, fields.get("start"), fields.get("end"), self.fps, shape)
        fields[self.field] = torch.from_numpy(frames)


@dataclass(frozen=True)
class Mono(OfStream):
    """Reduce ``wav`` from (C, S) to one channel, (1, S).

    This is for recordings decoded by ``decode_audio(channel=None)``. To keep one channel from the start,
    ``decode_audio(channel=0)``, which is its default, costs less. A channel that does not exist is the failure
    ``no_such_channel``.

    Args:
        channel: number of the channel to keep, counted from 0; None takes the average of all. Default: None.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "mono"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE | Trait.LOCAL
    reads = ("wav",)
    writes = ("wav",)

    channel: int | None = least(0, None, "count from 0; None is the average")

    def check(self, before: Sequence[Stage]) -> None:
        super().check(before)
        kept = next(
            (stage.channel for stage in reversed(before) if isinstance(stage, DecodeAudio) and stage.of == self.of),
            None,
        )
        if isinstance(kept, int) and sees_all(before):
            raise PipelineError(
                f"mono: decode_audio keeps only channel {kept} already; leave mono out, or let it choose with "
                "decode_audio(channel=None)"
            )

    def apply(self, sample: Sample, draws: Draws) -> None:
        wav = torch.as_tensor(sample.fields["wav"])
        wav = wav if wav.ndim == 2 else wav.reshape(1, -1)
        if self.channel is not None:
            check_channel(self.channel, len(wav))
            wav = wav[self.channel : self.channel + 1]
        elif len(wav) > 1:
            wav = wav.mean(dim=0, keepdim=True)
        sample.fields["wav"] = wav
