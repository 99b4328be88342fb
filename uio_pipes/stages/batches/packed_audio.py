"""Batches of audio without padding: features or waveforms of whole utterances, one after the other. Each is copied
once, into the memory of the batch, while it is still in the cache."""

from __future__ import annotations

from collections.abc import Collection
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from uio_pipes.base.checks import refuse
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core import realize as batch_memory
from uio_pipes.core.lane import Lane
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node
from uio_pipes.stages.batches.pad import IGNORE
from uio_pipes.stages.batches.rows import AudioRow, audio_of, mono, numbers_of, odd_ones, put_row, target_of, with_kept

if TYPE_CHECKING:
    from uio_pipes.stages.batches.pack import Pack

FRAMES = 100  # in a second


class PackedAudioNode(Node):
    """Makes the tensors of a batch."""

    def __init__(self, source: Node, lane: Lane, stage: Pack) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage

    def next(self) -> Any:
        chosen: list[Sample] = self.source.next()
        if self.lane.mode.skimming:
            return chosen
        stage, copies = self.stage, [sample.copy() for sample in chosen]  # a node of the user's may give them again
        for sample in copies:
            sample.as_stored = sample.chain.takes_pcm
        room = stage.most if stage.fixed else sum(stage.room(sample.plan.length) for sample in copies)
        rows, made = _JoinedRows(room, stage.multiple_of), list[tuple[Sample, int, int]]()  # with frames and labels
        for sample, frames in batch_memory.realize(copies, self.lane, read=stage.keep):
            try:
                labels = len(numbers_of(sample.fields, "label", least=1)) if "label" in sample.fields else 0
            except DataError as error:
                self.lane.ledger.handle(sample.failure(error, stage.name), stage.name)
                continue
            rows.take(sample)
            made.append((sample, frames, labels))
        if odd := odd_ones([sample for sample, _, _ in made], self.lane, stage.name):
            rows, made = rows.without(odd), [one for i, one in enumerate(made) if i not in odd]
        return self._batch(rows, made) if made else {}

    def _batch(self, rows: _JoinedRows, made: list[tuple[Sample, int, int]]) -> dict[str, Any]:
        samples, frames, labels = map(list, zip(*made, strict=True))
        batch = {"keys": [sample.key for sample in samples]} | rows.made(self.stage.fixed)
        padded = max(sum(frames), -(-len(batch[rows.name]) * FRAMES // rows.rates[0]))
        self.lane.ledger.delivered(frames, labels, padded, padded_tokens=sum(labels))
        for of in ("", *dict.fromkeys(of for sample in samples for of in sample.chain.named)):
            batch |= target_of(samples, of) | (audio_of(samples, of) if of else {})
        return with_kept(batch, samples, self.stage.name, self.stage.keep)


class _JoinedRows:
    """Rows one after the other in the memory of the batch, which has room for so many frames; ``multiple_of``: the
    frames that the beginnings of rows are aligned to."""

    def __init__(self, frames: int, multiple_of: int | None) -> None:
        self.frames, self.multiple_of = frames, multiple_of
        self.lengths, self.rates, self.ends = list[int](), list[int](), [0]  # where rows begin, and the end
        self.out, self.padding = torch.empty(0), 0.0

    def take(self, sample: Sample) -> None:
        """Add the features or the waveform of an utterance; it has none then, which frees memory for the next one."""
        feat, wav = (sample.fields.pop(name, None) for name in ("feat", "wav"))
        if feat is None:
            self.add(sample.key, mono("pack", sample.key, wav), int(sample.fields["sample_rate"]))
        else:
            self.add(sample.key, torch.as_tensor(feat), FRAMES)

    def add(self, key: str, row: AudioRow, rate: int) -> None:
        """Add the row of the utterance ``key``, ``rate`` of whose places are a second. Raises: PipelineError."""
        first, length, tail, dtype = self.ends[-1], row.shape[0], tuple(row.shape[1:]), batch_memory.dtype_of(row)
        if begins := not self.rates:
            aligned, self.room = (self.multiple_of or 0) * rate, -(-self.frames * rate // FRAMES)
            rule = f"multiple_of={self.multiple_of} frames of 10 ms are no whole number of samples at {rate:,} Hz"
            near = f"give a multiple of {FRAMES // gcd(FRAMES, rate)}, or put .resample(16_000) before"
            refuse(aligned % FRAMES, "pack", rule, near)
            self.name, self.step, self.tail = "feats" if tail else "pcm", max(1, aligned // FRAMES), tail
            self.dtype, self.padding = dtype, IGNORE if dtype == torch.int64 else 0.0
        if (tail, dtype) != (self.tail, self.dtype):
            kinds = ((tail, dtype), (self.tail, self.dtype))
            has, have = (f"features of {one[0]} bins ({kind})" if one else "audio" for one, kind in kinds)
            raise PipelineError(f"pack: {key} has {has}, others in its batch have {have}; they cannot share a batch")
        end = first - (-length // self.step) * self.step
        if begins or end > len(self.out):  # or the first row had audio of a lower rate
            out = batch_memory.empty((max(self.room, end), *tail), self.dtype)
            out[:first] = self.out[:first] if first else 0
            self.out, self._places = out, out.numpy()  # NumPy copies past the cache
        put_row(row, self._places[first:end], self.padding)
        self.lengths.append(length)
        self.rates.append(rate)
        self.ends.append(end)

    def without(self, odd: Collection[int]) -> _JoinedRows:
        """Return the rows but for those with these numbers."""
        left = _JoinedRows(self.frames, self.multiple_of)
        for i in sorted({*range(len(self.lengths))} - {*odd}):
            left.add("", self.out[self.ends[i] :][: self.lengths[i]], self.rates[i])
        return left

    def made(self, fixed: bool) -> dict[str, Any]:
        """Return the tensors of a batch; ``fixed``: with zeros at the end, up to the room for all frames."""
        end, longest = self.ends[-1], max(1, *np.diff(self.ends).tolist())
        total = self.room if fixed else end
        self.out[end:total] = self.padding
        ends = [*self.ends, *range(end + longest, total, longest), *([total] if total > end else [])]
        return {
            self.name: self.out[:total],
            f"{self.name}_lengths": torch.tensor(self.lengths, dtype=torch.int32),
            "cu_seqlens": torch.tensor(ends, dtype=torch.int32),
            "max_seqlen": longest,
        }
