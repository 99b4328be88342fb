"""The chunks of one recording, and a batch of the chunks of several."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from uio_pipes.audio.containers import Pcm16
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.errors import DataError
from uio_pipes.core.chain import audio_names
from uio_pipes.core.sample import MEASURED, Sample
from uio_pipes.stages.features.grid import USUAL, grid_of

if TYPE_CHECKING:
    from uio_pipes.stages.batches.chunks import Chunks

OF_CHUNK = ("chunk_lengths", "reset", "position")  # fields that a chunk has beside those of its recording
LANE = "lane"  # the same for the number of the lane, which all rows have in common
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


class OpenRecording:
    """A recording of which everything is computed, to be cut into chunks.

    Raises: DataError ``length_mismatch`` if a field does not lie along its features.
    """

    def __init__(self, sample: Sample, stage: Chunks, lane: int) -> None:
        fields, self.seconds, self.sample, self.lane = sample.fields, stage.seconds, sample, lane
        self.tracks = dict[str, Track]()
        for of in ("", *sample.chain.streams):
            names = audio_names(of) if of else _USUAL
            framed = fields.get(names["feat"]) is not None
            if of and not framed and names["sample_rate"] not in fields:  # no audio, but codes, which along may name
                continue
            rate = float(fields.get(names["sample_rate"], USUAL))
            if framed:
                fields.pop(names["wav"], None)  # it takes more memory than all else
                rate = 1 / grid_of(stage, sample, stage.shift, round(rate), of).shift
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

    def chunk(self, number: int) -> Sample | None:
        """Return chunk ``number``, counted from 0; None behind the end."""
        at, until = number * self.seconds, (number + 1) * self.seconds
        return self._part(number, at, until) if round(at * self.tracks[self.main].rate) < self.length else None

    def masked(self) -> Sample:
        """Return what stands in a row without a chunk: it has no frames and no key."""
        return self._part(None, 0.0, 0.0)

    def _part(self, number: int | None, at: float, until: float) -> Sample:
        rate = self.tracks[self.main].rate
        first, end = round(at * rate), min(round(until * rate), self.length)
        fields = {name: value if number is not None else _nothing(value) for name, value in self.others.items()}
        for name, track in self.tracks.items():
            start = round(at * track.rate)
            fields[name] = track.piece(self.sample.fields[name], start, round(until * track.rate) - start)
        fields |= {n: value.cut(at, until) for n, value in self.others.items() if isinstance(value, Timeline)}
        part = self.sample.child(number or 0)
        part.fields = fields | dict(zip(OF_CHUNK, (end - first, number == 0, first), strict=True)) | {LANE: self.lane}
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
