"""The chunks of one recording, and a batch of the chunks of several."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from uio_pipes.audio.containers import Declared, Pcm16
from uio_pipes.audio.length import TICKS, Plan, audio_info, segment_samples
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.errors import DataError
from uio_pipes.core.chain import audio_names
from uio_pipes.core.sample import MEASURED, Sample
from uio_pipes.core.stage import Trait
from uio_pipes.stages.features.frame_labels import FrameLabels
from uio_pipes.stages.features.grid import USUAL, grid_of

if TYPE_CHECKING:
    from uio_pipes.stages.batches.chunks import Chunks

OF_CHUNK = ("chunk_lengths", "reset", "position")  # fields that a chunk has beside those of its recording
LANE = "lane"  # the same for the number of the lane, which all rows have in common
PART = 30.0  # seconds of audio that are computed at once, of files that can be read in parts
_USUAL = {name: name for name in ("wav", "feat", "sample_rate")}


class Track(NamedTuple):
    """A field that lies along time: ``rate`` entries a second along its ``axis``; a piece of it has context of so many
    entries ``before`` and ``after`` it."""

    rate: float
    axis: int = 0
    before: int = 0
    after: int = 0

    def piece(self, array: Any, first: int, count: int) -> torch.Tensor:
        """Return a copy of ``count`` entries from ``first`` on, and their context: zeros before the beginning, nothing
        behind the end."""
        low, end = (max(0, first - self.before), first + count + self.after) if count else (first, first)
        cut = array[..., low:end] if self.axis else array[low:end]
        tensor = torch.from_numpy(cut / np.float32(32768)) if isinstance(cut, Pcm16) else torch.as_tensor(cut)
        shape = [*tensor.shape]
        shape[self.axis] = self.before - (first - low) if count else 0
        return torch.cat([tensor.new_zeros(shape), tensor], self.axis)


def outline(sample: Sample) -> Sample | None:
    """Return a recording as if its audio were computed: of its true length, but without memory, so that all else can be
    computed. None if it is short, or if parts of its audio cannot be computed by themselves."""
    chain, fields = sample.chain, sample.fields
    made = chain.writers("wav") | chain.writers("feat")
    for number, link in enumerate(chain.links):
        stage = getattr(link, "stage", None)
        besides = isinstance(stage, FrameLabels) or link.reads.isdisjoint(["wav", "feat", "*"])
        if not (Trait.LOCAL in getattr(stage, "traits", Trait.NONE) if made >> number & 1 else besides):
            return None
    wav, info = fields.get("wav"), None
    if made and not made & sample.done and not chain.streams and wav is not None and not hasattr(wav, "shape"):
        with suppress(DataError):  # which decoding says
            info = audio_info(wav, fields)
    if info is None or info.sample_rate == TICKS or Declared.of(fields).trim:
        return None
    plan: Any = Plan(segment_samples(info, fields.get("start"), fields.get("end")), info.sample_rate)
    if plan.samples <= PART * plan.sample_rate:
        return None
    for number, link in chain.rules:
        plan = link.plan(plan, sample) if made >> number & 1 else plan
    copy, nothing = sample.copy(), torch.zeros(1, 1)
    copy.fields |= {"wav": nothing.expand(1, plan.samples), "sample_rate": plan.sample_rate}
    copy.fields |= {} if plan.frames is None else {"feat": nothing.expand(plan.frames, 1)}
    copy.done |= made
    return copy


class OpenRecording:
    """A recording to be cut into chunks, of which everything is computed; but the audio, or its features, are
    computed in parts if it is ``stored``, and one part is held.

    Raises: DataError ``length_mismatch`` if a field does not lie along its features; or if the first part fails.
    """

    def __init__(self, sample: Sample, stage: Chunks, lane: int, stored: Sample | None) -> None:
        fields, self.seconds, self.sample, self.lane = sample.fields, stage.seconds, sample, lane
        self.stored, self.per, self.part, self.first = stored, stage.per, -1, 0
        self.error: DataError | None = None
        self.tracks = dict[str, Track]()
        for of in ("", *sample.chain.streams):
            names = audio_names(of) if of else _USUAL
            framed = fields.get(names["feat"]) is not None
            if of and not framed and names["sample_rate"] not in fields:  # no audio, but codes, which along may name
                continue
            rate = float(fields.get(names["sample_rate"], USUAL))
            if framed:
                fields.pop(names["wav"], None)  # it takes more memory than all else
                self.grid = grid_of(stage, sample, stage.shift, round(rate), of)
                rate = 1 / self.grid.shift
            context = round(stage.left * rate), round(stage.right * rate)
            self.tracks[names["feat" if framed else "wav"]] = Track(rate, 0 if framed else -1, *context)
        (self.main, track), *_ = self.tracks.items()
        self.length = fields[self.main].shape[track.axis]
        for name, own in stage.rates.items():
            if name not in fields:
                raise DataError("missing_field", f"it has no {name!r}, which chunks is to cut along")
            if own is None and len(fields[name]) != self.length:
                lengths = f"{len(fields[name])} entries, and there are {self.length} frames"
                raise DataError(
                    "length_mismatch", f"{name} has {lengths}: give its rate, as in along={{{name!r}: 12.5}}"
                )
            self.tracks[name] = Track(own or track.rate)
        gone = {*self.tracks, *MEASURED, "label", "labels"}
        self.others = {name: value for name, value in fields.items() if name not in gone or name == "sample_rate"}
        if (error := self.load(0)) is not None:
            raise error

    def load(self, part: int) -> DataError | None:
        """Compute a part of ``per`` chunks with their context, unless it is held. Return why that fails."""
        track = self.tracks[self.main]
        first, end = (round(n * self.per * self.seconds * track.rate) for n in (part, part + 1))
        if self.stored is None or first >= self.length:
            return None
        if part == self.part:
            return self.error
        self.part, self.error = part, None
        self.first, end = max(0, first - track.before), min(end + track.after, self.length)
        rate = self.sample.fields["sample_rate"]
        hop, span = (round(n * rate) for n in (self.grid.shift, 2 * self.grid.first)) if track.axis == 0 else (1, 1)
        sample = self.stored.copy()
        sample.as_stored, fields = sample.chain.takes_pcm, sample.fields
        begin = round((fields.get("start") or 0.0) * rate)
        fields |= {"start": (begin + self.first * hop) / rate, "end": (begin + (end - 1) * hop + span) / rate}
        try:
            self.sample.fields[self.main] = made = sample[self.main]
            if made.shape[track.axis] != end - self.first:
                message = f"{self.first} to {end} of its {self.main} were wanted, {made.shape[track.axis]} are there"
                raise sample.failure(DataError("length_mismatch", message), "chunks")
        except DataError as error:
            self.error = error
        return self.error

    def chunk(self, number: int, reset: bool) -> Sample | None:
        """Return chunk ``number``, counted from 0, whose part is loaded; None behind the end."""
        at, until = number * self.seconds, (number + 1) * self.seconds
        there = round(at * self.tracks[self.main].rate) < self.length
        return self._part(number, at, until, reset) if there else None

    def masked(self) -> Sample:
        """Return what stands in a row without a chunk: it has no frames and no key."""
        return self._part(None, 0.0, 0.0, False)

    def _part(self, number: int | None, at: float, until: float, reset: bool) -> Sample:
        rate = self.tracks[self.main].rate
        first, end = round(at * rate), min(round(until * rate), self.length)
        fields = {name: value if number is not None else _nothing(value) for name, value in self.others.items()}
        for name, track in self.tracks.items():
            start, held = round(at * track.rate), self.first if name == self.main else 0
            fields[name] = track.piece(self.sample.fields[name], start - held, round(until * track.rate) - start)
        fields |= {n: value.cut(at, until) for n, value in self.others.items() if isinstance(value, Timeline)}
        part = self.sample.child(number or 0)
        part.fields = fields | dict(zip(OF_CHUNK, (end - first, reset, first), strict=True)) | {LANE: self.lane}
        part.done = (1 << len(part.chain.links)) - 1
        return part

    @property
    def widths(self) -> dict[str, int]:
        """Entries of whole rows, by field."""
        return {n: ceil(round(self.seconds * t.rate, 6)) + t.before + t.after for n, t in self.tracks.items()}


def _nothing(value: Any) -> Any:
    """Return what stands for a value of which there is none: "", 0, None; arrays are as wide as others."""
    if isinstance(value, (str, int, float)):
        return type(value)()
    return value if isinstance(value, (torch.Tensor, np.ndarray)) else None


class ChunkRows(list[Sample]):
    """A batch of chunks, one in each row; a row without one has a masked one.

    ``kept``: fields that the batch has without being asked; ``widths``: entries of whole rows, by field.
    """

    kept: tuple[str, ...] = ()
    widths: Mapping[str, int] = {}

    @property
    def frames(self) -> list[int]:
        """The frames of each chunk that is there."""
        return [count for chunk in self if (count := chunk.fields["chunk_lengths"])]
