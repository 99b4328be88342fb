"""The batch of ``pack``: rows of utterances as tensors. Here everything deferred is computed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from uio_pipes.base.errors import DataError
from uio_pipes.core.lane import Lane
from uio_pipes.core.lengths import measure_of
from uio_pipes.core.node import Node
from uio_pipes.core.realize import realize
from uio_pipes.core.sample import Sample
from uio_pipes.stages.pad_rows import joined

if TYPE_CHECKING:
    from uio_pipes.stages.pack import Pack

LAYOUTS = ("segments", "touchnet")


class PackedRows(list[Sample]):
    """The utterances of a batch, row after row. ``ends``: how many there are up to the end of each row."""

    def __init__(self, rows: Iterable[list[Sample]]) -> None:
        super().__init__()
        self.ends: list[int] = []
        for row in rows:
            self.extend(row)
            self.ends.append(len(self))


class RowsNode(Node):
    """Makes the tensors of rows."""

    def __init__(self, source: Node, lane: Lane, stage: Pack) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage
        self.measured = measure_of(stage.sized_by)

    def next(self) -> Any:
        rows: PackedRows = self.source.next()
        if self.lane.mode.skimming:
            return rows
        copies = [sample.copy() for sample in rows]  # because a node of the user's may give the same samples again
        planned = {id(sample): self.measured(sample) for sample in copies}
        row_of = {id(sample): bisect_right(rows.ends, i) for i, sample in enumerate(copies)}
        batch = _Rows(self.stage, len(rows.ends), max(self.stage.max_tokens, *planned.values()))
        lengths = []
        for sample, length in realize(copies, self.lane, read=self.stage.keep):
            most = planned[id(sample)]
            try:
                batch.add(sample, row_of[id(sample)], self.measured(sample.bare()), most)
            except DataError as error:
                self.lane.ledger.handle(sample.failure(error, "pack"), "pack")
            else:
                lengths.append(length or most)
        self.lane.ledger.delivered(lengths)
        return batch.made() if lengths else {}


class _Rows:
    """Rows to which the parts of a batch are added one after the other."""

    def __init__(self, stage: Pack, rows: int, width: int) -> None:
        self.stage, self.width = stage, width
        self.tokens = np.full((rows, width), stage.pad, np.int64)
        self.labels = np.full((rows, width), stage.ignore, np.int64)
        self.positions, self.segments = (np.zeros((rows, width), np.int64) for _ in range(2))
        self.filled = [0] * rows
        self.bounds: list[list[int]] = [[] for _ in range(rows)]  # where parts end, in each row
        self.parts: list[tuple[dict[str, Any], int, int]] = []  # fields, first place, places that are not tokens

    def add(self, sample: Sample, row: int, size: int, planned: int) -> None:
        """Add a part of ``size`` places, of which it was planned that there are ``planned``. Raises: DataError."""
        fields = sample.fields
        tokens = np.asarray(fields.get("label", ()), np.int64)
        if size > planned or len(tokens) > size:
            raise DataError(
                "length_mismatch", f"it has {size} places with {len(tokens)} tokens, planned were {planned}"
            )
        labels = np.asarray(fields.get("labels", tokens), np.int64)
        if len(labels) != len(tokens):
            raise DataError("length_mismatch", f"it has {len(labels)} labels and {len(tokens)} tokens")
        first, end = self.filled[row], self.filled[row] + size
        text = end - len(tokens)
        self.tokens[row, text:end], self.labels[row, text:end] = tokens, labels
        self.positions[row, first:end] = np.arange(size)
        self.bounds[row].append(end)
        self.segments[row, first:end] = len(self.bounds[row])
        self.filled[row] = end
        self.parts.append((fields, row * self.width + first, text - first))

    def made(self) -> dict[str, Any]:
        """Return the batch (see :class:`~uio_pipes.stages.pack.Pack`)."""
        order = sorted(range(len(self.parts)), key=lambda i: self.parts[i][1])
        parts = [self.parts[i] for i in order]
        batch: dict[str, Any] = {"keys": [str(fields["key"]) for fields, _, _ in parts]}
        batch |= self._segments() if self.stage.layout == LAYOUTS[0] else self._touchnet()
        for name, field in (("feats", "feat"), ("pcm", "wav")):
            there = [(fields[field], first, count) for fields, first, count in parts if field in fields]
            if there and (name == "feats" or "feats" not in batch):
                audio = [torch.as_tensor(value) for value, _, _ in there]
                audio = [one.reshape(-1) for one in audio] if name == "pcm" else audio
                batch[name] = torch.cat(audio)
                batch[f"{name}_lengths"] = torch.tensor([len(one) for one in audio], dtype=torch.int32)
                batch[f"{name}_places"] = torch.tensor([[first, count] for _, first, count in there])
        for name in self.stage.keep:
            batch |= joined(name, [fields.get(name) for fields, _, _ in parts])
        return batch

    def _segments(self) -> dict[str, Any]:
        ends = [0]
        for row, bounds in enumerate(self.bounds):
            ends += [row * self.width + end for end in bounds]
            if ends[-1] < (row + 1) * self.width:
                ends.append((row + 1) * self.width)
        return {
            "tokens": torch.from_numpy(self.tokens),
            "labels": torch.from_numpy(self.labels),
            "position_ids": torch.from_numpy(self.positions),
            "segment_ids": torch.from_numpy(self.segments),
            "cu_seqlens": torch.tensor(ends, dtype=torch.int32),
            "max_seqlen": int(np.diff(ends).max()),
        }

    def _touchnet(self) -> dict[str, Any]:
        lens = np.zeros_like(self.tokens)
        for row, bounds in enumerate(self.bounds):
            for first, end in zip([0, *bounds], bounds, strict=False):
                lens[row, first:end] = end - first
        return {
            "input_ids": torch.from_numpy(self.tokens),
            "labels": torch.from_numpy(self.labels),
            "position_ids": torch.from_numpy(self.positions),
            "sentence_lens": torch.from_numpy(lens),
        }
