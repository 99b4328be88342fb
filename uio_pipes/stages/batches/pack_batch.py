"""The batch of ``pack``: rows of utterances as tensors. Here everything deferred is computed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.chain import audio_names, recordings
from uio_pipes.core.lane import Lane
from uio_pipes.core.node import Node
from uio_pipes.core.realize import measure_of, realize
from uio_pipes.core.sample import Sample
from uio_pipes.stages.batches.rows import check_kept, joined, odd_ones

if TYPE_CHECKING:
    from uio_pipes.stages.batches.pack import Pack


LAYOUTS = ("segments", "touchnet")
_OF_ROWS = ("tokens", "labels", "position_ids", "segment_ids", "cu_seqlens", "max_seqlen", "input_ids", "sentence_lens")
MADE = frozenset([*_OF_ROWS, "keys", "feats", "pcm", "wav", "feat", "label"])  # names that ``keep`` cannot have


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
        batch = _GrowingRows(self.stage, len(rows.ends), max(self.stage.max_tokens, *planned.values()))
        realized = list(realize(copies, self.lane, read=self.stage.keep))
        made = [sample for sample, _ in realized]
        odd = odd_ones(made, self.lane, self.stage.name)
        frames, sizes = [], []
        for sample, length in (one for i, one in enumerate(realized) if i not in odd):
            try:
                size = self.measured(sample.finished())
                batch.add(sample, row_of[id(sample)], size, planned[id(sample)])
            except DataError as error:
                self.lane.ledger.handle(sample.failure(error, self.stage.name), self.stage.name)
            else:
                frames.append(length)
                sizes.append(size)
        self.lane.ledger.delivered(frames, sizes, padded=0, padded_tokens=batch.tokens.size)
        return batch.made() if sizes else {}


class _GrowingRows:
    """Rows to which the parts of a batch are added one after the other."""

    def __init__(self, stage: Pack, rows: int, width: int) -> None:
        self.stage, self.width = stage, width
        self.tokens = np.full((rows, width), stage.pad, np.int64)
        self.labels = np.full((rows, width), stage.ignore, np.int64)
        self.positions, self.segments = (np.zeros((rows, width), np.int64) for _ in range(2))
        self.filled = [0] * rows
        self.bounds: list[list[int]] = [[] for _ in range(rows)]  # where parts end, in each row
        self.parts: list[tuple[Sample, int, int]] = []  # the utterance, first place, places that are not tokens

    def add(self, sample: Sample, row: int, size: int, planned: int) -> None:
        """Add a part of ``size`` places, of which it was planned that there are ``planned``. Raises: DataError."""
        tokens = _numbers(sample.fields, "label") if "label" in sample.fields else np.empty(0, np.int64)
        if size > planned or len(tokens) > size:
            raise DataError(
                "length_mismatch", f"it has {size} places with {len(tokens)} tokens, planned were {planned}"
            )
        labels = _numbers(sample.fields, "labels") if "labels" in sample.fields else tokens
        if len(labels) != len(tokens):
            raise DataError("length_mismatch", f"it has {len(labels)} labels and {len(tokens)} tokens")
        first, end = self.filled[row], self.filled[row] + size
        text = end - len(tokens)
        self.tokens[row, text:end], self.labels[row, text:end] = tokens, labels
        self.positions[row, first:end] = np.arange(size)
        self.bounds[row].append(end)
        self.segments[row, first:end] = len(self.bounds[row])
        self.filled[row] = end
        self.parts.append((sample, row * self.width + first, text - first))

    def made(self) -> dict[str, Any]:
        """Return the batch (see :class:`~uio_pipes.stages.batches.pack.Pack`)."""
        order = sorted(range(len(self.parts)), key=lambda i: self.parts[i][1])
        parts = [self.parts[i] for i in order]
        samples = [sample for sample, _, _ in parts]
        batch: dict[str, Any] = {"keys": [sample.key for sample in samples]}
        batch |= self._segments() if self.stage.layout == LAYOUTS[0] else self._touchnet()
        for of in dict.fromkeys(["", *(of for sample in samples for of in sample.chain.named)]):
            if found := _audio(samples, of):
                name, lengths = (f"{of}_{found[0]}" if of else found[0]), found[2]
                batch |= {name: found[1], f"{name}_lengths": torch.tensor(lengths, dtype=torch.int32)}
                if not of or any(f"{of}_places" in sample.fields for sample in samples):
                    batch[f"{name}_places"] = _places(parts, of, len(lengths))
            if of and any(f"{of}_label" in sample.fields for sample in samples):
                batch |= joined(f"{of}_target", [sample.fields.get(f"{of}_label", []) for sample in samples])
        for name in self.stage.keep:
            kept = joined(name, [sample.fields.get(name) for sample in samples])
            check_kept(self.stage.name, name, batch, kept)
            batch |= kept
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


def _numbers(fields: dict[str, Any], name: str) -> npt.NDArray[np.int64]:
    """Return a field of whole numbers. Raises: DataError ``bad_label``."""
    try:
        numbers = np.asarray(fields[name])
        if numbers.ndim == 1 and (numbers.dtype.kind in "iu" or not len(numbers)):
            return numbers.astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise DataError("bad_label", f"its {name} is not a list of whole numbers")


def _places(parts: list[tuple[Sample, int, int]], of: str, count: int) -> torch.Tensor:
    """Return the first place, of all rows, and the number of places of each of ``count`` recordings in a stream.

    Those of the usual stream are the free ones before the tokens, unless the utterance says where in its tokens they
    are.
    """
    places = []
    for sample, first, free in parts:
        told = sample.fields.get(f"{of or 'wav'}_places")
        if told is None:
            places.append((first, 0 if of else free))
        else:
            places += [(first + free + int(at), int(many)) for at, many in told]
    if len(places) != count:
        raise PipelineError(
            f"pack: there are {count} recordings of {of or 'wav'!r} and {len(places)} places; each needs one"
        )
    return torch.tensor(places).reshape(-1, 2)


def _audio(samples: list[Sample], of: str) -> tuple[str, torch.Tensor, list[int]] | None:
    """Return "feats" and the features of all recordings one after the other, or else "pcm" and their waveforms, and
    the lengths of each.

    Raises: PipelineError if they cannot be put together.
    """
    found = [(sample.key, *one) for sample in samples for one in _recordings(sample.fields, of)]
    if all(feat is None for _, feat, _ in found):
        name, rows = "pcm", [None if wav is None else _mono(key, torch.as_tensor(wav)) for key, _, wav in found]
    else:
        name, rows = "feats", [None if feat is None else torch.as_tensor(feat) for _, feat, _ in found]
        for key, feat, wav in found:
            if feat is None and wav is not None:
                raise PipelineError(f"pack: {key} has audio without features; others in its batch have some")
    there = [row for row in rows if row is not None]
    if len({row.shape[1:] for row in there}) > 1:
        widths = sorted({row.shape[-1] for row in there})
        raise PipelineError(f"pack: features of {' and '.join(map(str, widths))} bins cannot share a batch")
    if not there:
        return None
    return name, torch.cat(there), [0 if row is None else len(row) for row in rows]


def _recordings(fields: dict[str, Any], of: str) -> list[tuple[Any, Any]]:
    """Return features and waveform of each recording in the stream, or None where there is none."""
    names = audio_names(of) if of else {"wav": "wav", "feat": "feat"}
    count = recordings(fields, names)
    feats, waves = (fields.get(names[name]) for name in ("feat", "wav"))
    if count is None:
        none = feats is None and waves is None and f"{of or 'wav'}_places" in fields  # of a conversation without audio
        count, feats, waves = (0, [], []) if none else (1, [feats], [waves])
    nothing = [None] * count
    if of and names["sample_rate"] not in fields:  # arrays without a rate are no audio: codes, an embedding
        waves = nothing
    waves = [wav if isinstance(wav, (torch.Tensor, np.ndarray)) else None for wav in waves or nothing]
    return list(zip(feats or nothing, waves, strict=True))


def _mono(key: str, wav: torch.Tensor) -> torch.Tensor:
    if wav.ndim == 2 and wav.shape[0] != 1:
        raise PipelineError(f"pack: {key} has {wav.shape[0]} channels; put .mono() before, or choose one")
    return wav.reshape(-1)
