"""``pad``: makes the tensors of a batch. Here everything deferred is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from uio_pipes.base.checks import check_names, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core import batch_memory
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.realize import realize
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage, added
from uio_pipes.stages.rates import mixed_rates, odd_rates, rate_of

IGNORE = -1  # WeNet's padding of targets
_OF_BATCH = ("keys", "feats", "feats_lengths", "pcm", "pcm_length", "target", "target_lengths", "langs", "tasks")
_MADE = frozenset([*_OF_BATCH, "wav", "feat", "label", "speaker"])  # names that ``keep`` cannot have


@dataclass(frozen=True)
class Pad(Stage):
    """Make the padded batch that a model takes, longest utterance first, with WeNet's names. Decoding happens here.

    A dict of ``keys`` (list of str); ``feats`` (B, T, F) float32, padded by 0, and ``feats_lengths`` (B,) int32; if
    there are no features, ``pcm`` (B, S) float32 and ``pcm_length`` (B,) int32 instead; if there are labels,
    ``target`` (B, U) int64, padded by -1, and ``target_lengths`` (B,) int32; and if all utterances have them,
    ``speaker`` (B,) int32 and the lists ``langs`` and ``tasks``. Other fields come as lists if they are named.

    The audio of a batch has one rate. Utterances of another rate than most of their batch (of equally many, than the
    lower) are the failure ``mixed_rates``: put ``.resample(16_000)`` before the features. Precomputed features have
    no rate.

    Args:
        pcm: whether to have the waveforms as ``pcm`` although there are features. Default: False.
        keep: names of other fields, such as ["txt", "video"], which the batch has as lists of the utterances' values,
            None for one without such a field. Default: (), none.
    """

    name: ClassVar[str] = "pad"
    takes: ClassVar[tuple[str, ...]] = ("batch",)
    gives: ClassVar[str] = "padded batch"
    note: ClassVar[str] = "makes the batch: decoding and features happen here"
    one_each: ClassVar[bool] = True
    on_tensors: ClassVar[bool] = True
    one_rate: ClassVar[bool] = True

    pcm: bool = False
    keep: Sequence[str] = added(())

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep != ():
            check_names(self.name, "keep", self.keep)
        rule = "keep must name other fields than those that the batch has anyway"
        require(_MADE.isdisjoint(self.keep), self.name, rule, self.keep, 'try ["txt"]')
        object.__setattr__(self, "keep", tuple(self.keep))

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _PadNode(source, lane, self)


class _PadNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Pad) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage

    def next(self) -> dict[str, Any]:
        samples: list[Sample] = self.source.next()
        if self.lane.mode.skimming:
            return {}
        batch = _Batch(len(samples), self.stage.pcm, self.stage.keep)
        # Copies, because a node of the user's may give the same samples again.
        copies = [sample.copy() for sample in sorted(samples, key=_planned, reverse=True)]
        made: list[tuple[Sample, int]] = []
        for sample, length in realize(copies, self.lane, read=self.stage.keep):
            sample.fields = batch.add(sample.fields)  # frees memory for the next one, which is still in the cache
            made.append((sample, length))
        odd = self._odd([sample for sample, _ in made]) if batch.audible else frozenset[int]()
        self.lane.ledger.delivered([length for i, (_, length) in enumerate(made) if i not in odd])
        return batch.made(odd)

    def _odd(self, samples: list[Sample]) -> frozenset[int]:
        """Fail the utterances whose rate differs from that of most in the batch, and return their numbers."""
        rates = [rate_of(sample.fields) for sample in samples]
        kept, odd = odd_rates(rates)
        for i in sorted(odd):
            like = samples[rates.index(kept)]
            self.lane.ledger.handle(samples[i].failure(mixed_rates(rates[i], kept, like.key), Pad.name), Pad.name)
        if not odd:
            self.lane.ledger.fine(Pad.name)
        return odd


def _planned(sample: Sample) -> float:
    try:
        plan = sample.planned()
    except DataError:  # reported when the sample is realized
        return 0
    return plan.duration_frames if plan is not None else 0


class _Batch:
    """A batch to which utterances are added one by one, the longest first if plans are right."""

    def __init__(self, most: int, pcm: bool, keep: Sequence[str] = ()) -> None:
        self.pcm, self.keep = pcm, keep
        self.fields: list[dict[str, Any]] = []  # without audio, features and labels
        self.sizes: list[int] = []
        self.feats, self.waves = _Rows(most, 2, 0.0, torch.float32), _Rows(most, 1, 0.0, torch.float32)
        self.labels = _Rows(most, 1, IGNORE, torch.int64)

    @property
    def audible(self) -> bool:
        """True if it holds audio or features."""
        return bool(self.feats.lengths or self.waves.lengths)

    def add(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Add an utterance and return its other fields. Raises: PipelineError if it does not fit the others."""
        if "key" not in fields:
            raise PipelineError("pad: an utterance has no key; the function given to .map(…) must keep it")
        waves = "wav" in fields and (self.pcm or "feat" not in fields)
        self._put(self.feats, "feat", fields, torch.as_tensor(fields["feat"]) if "feat" in fields else None)
        self._put(self.labels, "label", fields, _labels(fields) if "label" in fields else None)
        self._put(self.waves, "wav", fields, _mono(fields) if waves else None)
        self.sizes.append((self.feats.lengths or self.waves.lengths or self.labels.lengths or [0])[-1])
        rest = {name: value for name, value in fields.items() if name not in ("wav", "feat", "label")}
        self.fields.append(rest)
        return rest

    def made(self, without: frozenset[int] = frozenset()) -> dict[str, Any]:
        """Return the batch (see :class:`Pad`) ``without`` the utterances of these numbers; ``{}`` if it is empty."""
        if not self.fields:
            return {}
        order = sorted(range(len(self.sizes)), key=self.sizes.__getitem__, reverse=True)
        order = [i for i in order if i not in without] if without else order
        fields = [self.fields[i] for i in order]
        batch: dict[str, Any] = {"keys": [str(f["key"]) for f in fields]}
        for name, lengths, rows in (
            ("feats", "feats_lengths", self.feats),
            ("pcm", "pcm_length", self.waves),
            ("target", "target_lengths", self.labels),
        ):
            if rows.lengths:
                batch[name], batch[lengths] = rows.made(order)
        if all(isinstance(f.get("speaker"), int) for f in fields):
            batch["speaker"] = torch.tensor([f["speaker"] for f in fields], dtype=torch.int32)
        for name, field in (("langs", "lang"), ("tasks", "task")):
            if all(field in f for f in fields):
                batch[name] = [f[field] for f in fields]
        batch.update((name, [f.get(name) for f in fields]) for name in self.keep)
        return batch

    def _put(self, rows: _Rows, name: str, fields: dict[str, Any], row: torch.Tensor | None) -> None:
        """Add the utterance's ``row``. Raises: PipelineError unless it is like that of the first utterance."""
        if self.fields and (row is None) == bool(rows.lengths):
            one, other = (self._first, fields["key"]) if row is None else (fields["key"], self._first)
            raise PipelineError(f"pad: {one} has a {name}, {other} has none; they cannot share a batch")
        if row is None:
            return
        if row.ndim < rows.ndim:
            shape = tuple(row.shape)
            raise PipelineError(f"pad: the {name} of {fields['key']} has the shape {shape}: a dimension is missing")
        if rows.lengths and row.shape[1:] != rows.tail:
            one, other = ("×".join(map(str, tail)) or "no" for tail in (rows.tail, row.shape[1:]))
            widths = f"{self._first} has a {name} of {one} bins, {fields['key']} one of {other}"
            raise PipelineError(f"pad: {widths}; they cannot share a batch")
        rows.add(row)

    @property
    def _first(self) -> str:
        return str(self.fields[0]["key"])


class _Rows:
    """Padded rows in the memory of the batch. They have ``ndim`` or more dimensions, of which the first may differ."""

    def __init__(self, most: int, ndim: int, padding: float, dtype: torch.dtype) -> None:
        self.most, self.ndim, self.padding, self.dtype = most, ndim, padding, dtype
        self.lengths: list[int] = []
        self.out = torch.empty(0, 0)

    @property
    def tail(self) -> tuple[int, ...]:
        """The dimensions of a row except for the first."""
        return tuple(self.out.shape[2:])

    def add(self, row: torch.Tensor) -> None:
        at, length = len(self.lengths), row.shape[0]
        if not at or length > self.out.shape[1]:
            self._widen((self.most, length, *row.shape[1:]))
        self.out[at, :length] = row
        self.out[at, length:] = self.padding
        self.lengths.append(length)

    def _widen(self, shape: tuple[int, ...]) -> None:
        narrow, self.out = self.out, batch_memory.empty(shape, self.dtype)
        if at := len(self.lengths):
            self.out[:at, : narrow.shape[1]] = narrow[:at]
            self.out[:at, narrow.shape[1] :] = self.padding

    def made(self, order: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows in ``order``, and their lengths (B,) int32."""
        lengths = [self.lengths[i] for i in order]
        out = self.out[: len(order)]
        if order != list(range(len(order))):
            out = self.out[order]
        if len(order) < len(self.lengths):
            out = out[:, : max(lengths)].contiguous()
        return out, torch.tensor(lengths, dtype=torch.int32)


def _labels(fields: dict[str, Any]) -> torch.Tensor:
    try:
        return torch.as_tensor(fields["label"], dtype=torch.int64)
    except (TypeError, ValueError) as error:
        raise PipelineError(f"pad: the label of {fields['key']} is not a list of integers: {error}") from error


def _mono(fields: dict[str, Any]) -> torch.Tensor:
    if not isinstance(fields["wav"], (torch.Tensor, np.ndarray)):
        raise PipelineError(f"pad: the audio of {fields['key']} is not decoded; put .decode_audio() before batching")
    wav = torch.as_tensor(fields["wav"])
    if wav.ndim == 2 and wav.shape[0] != 1:
        raise PipelineError(
            f"pad: {fields['key']} has {wav.shape[0]} channels; choose one with .decode_audio(channel=…)"
        )
    return wav.reshape(-1)
