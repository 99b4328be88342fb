"""The rows of a batch: what differs in length from utterance to utterance, padded, ragged or nested, at one sample
rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core import realize as batch_memory
from uio_pipes.core.lane import Lane
from uio_pipes.core.sample import Sample

MIXED = "mixed_rates"


def rates_of(fields: Mapping[str, Any], of: str = "") -> list[int]:
    """Return the rate in Hz of each recording in a stream, or of the audio of its features; 0 if unknown."""
    rates = fields.get(f"{of}_sample_rate" if of else "sample_rate")
    return [rate if isinstance(rate, int) else 0 for rate in (rates if isinstance(rates, list) else [rates])]


def odd_rates(rates: Sequence[int]) -> tuple[int, frozenset[int]]:
    """Return the rate that most of a batch have (in a tie the lowest), and the numbers of those with another rate.

    It depends only on the batch, neither on its order nor on other batches.
    """
    if not rates or rates.count(rates[0]) == len(rates):
        return (rates[0] if rates else 0), frozenset()
    counts = Counter(rate for rate in rates if rate)
    kept = max(counts, key=lambda rate: (counts[rate], -rate))
    return kept, frozenset(i for i, rate in enumerate(rates) if rate not in (0, kept))


def mixed_rates(rate: int, kept: int, like: str) -> DataError:
    """Return the failure of an utterance of another rate; ``like``: the key of one that stays."""
    return DataError(
        MIXED,
        f"its audio has {rate} Hz, that of {like!r} and others in its batch {kept} Hz; they cannot share one: put "
        ".resample(16_000) before the features",
    )


def odd_ones(samples: Sequence[Sample], lane: Lane, stage: str) -> frozenset[int]:
    """Fail the utterances of a batch whose rate differs from that of most, in any stream; return their numbers."""
    found: dict[int, tuple[int, int, str]] = {}
    for of in ("", *dict.fromkeys(of for sample in samples for of in sample.chain.streams)):
        rates = [(i, rate) for i, sample in enumerate(samples) for rate in rates_of(sample.fields, of)]
        kept, odd = odd_rates([rate for _, rate in rates])
        others = [i for i, rate in rates if rate == kept]
        for at in odd:
            i, rate = rates[at]
            found[i] = rate, kept, samples[next((other for other in others if other != i), i)].key
    for i, (rate, kept, like) in sorted(found.items()):
        lane.ledger.handle(samples[i].failure(mixed_rates(rate, kept, like), stage), stage)
    if not found:
        lane.ledger.fine(stage)
    return frozenset(found)


PADDED = "padded"
LAYOUTS = (PADDED, "ragged", "nested")


class PaddedRows:
    """Rows in the memory of the batch. They have ``ndim`` or more dimensions, of which the first may differ."""

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
        place = self.out.numpy()[at]  # NumPy copies past the cache, in two thirds of torch's time
        place[:length], place[length:] = row.to(self.dtype).numpy(force=True), self.padding
        self.lengths.append(length)

    def _widen(self, shape: tuple[int, ...]) -> None:
        narrow, self.out = self.out, batch_memory.empty(shape, self.dtype)
        if at := len(self.lengths):
            self.out[:at, : narrow.shape[1]] = narrow[:at]
            self.out[:at, narrow.shape[1] :] = self.padding

    def made(self, order: Sequence[int], layout: str) -> tuple[Any, torch.Tensor]:
        """Return the rows in ``order``, and their lengths (B,) int32."""
        lengths = [self.lengths[i] for i in order]
        if layout != PADDED:
            rows = [self.out[i, :length] for i, length in zip(order, lengths, strict=True)]
            return _unpadded(rows, layout), torch.tensor(lengths, dtype=torch.int32)
        out = self.out[: len(order)]
        if list(order) != list(range(len(order))):
            out = self.out[order]
        if len(order) < len(self.lengths):
            out = out[:, : max(lengths)].contiguous()
        return out, torch.tensor(lengths, dtype=torch.int32)


def _unpadded(rows: list[torch.Tensor], layout: str) -> Any:
    if layout == "ragged":
        return [row.clone() for row in rows]
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def together(name: str, values: list[Any], layout: str, padding: tuple[float, float]) -> dict[str, Any]:
    """Return a batch's fields for these values: numbers as a tensor, arrays as rows with lengths, others as a list.

    ``padding``: of floats, and of whole numbers.
    """
    rows = _arrays(values)
    if rows is None:
        return {name: _plain(values)}
    floats = rows[0].is_floating_point()
    made = PaddedRows(len(rows), 1, padding[not floats], torch.float32 if floats else torch.int64)
    for row in rows:
        made.add(row)
    out, lengths = made.made(range(len(rows)), layout)
    return {name: out, f"{name}_lengths": lengths}


def joined(name: str, values: list[Any]) -> dict[str, Any]:
    """As :func:`together`, but with arrays one after the other."""
    rows = _arrays(values)
    if rows is None:
        return {name: _plain(values)}
    return {name: torch.cat(rows), f"{name}_lengths": torch.tensor([len(row) for row in rows], dtype=torch.int32)}


def check_kept(stage: str, name: str, batch: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Raises: PipelineError if a field that is kept would replace a tensor of the batch."""
    if taken := batch.keys() & kept.keys():
        raise PipelineError(
            f"{stage}: keep has {name!r}, but {', '.join(sorted(taken))} is in the batch anyway: give the field "
            "another name, or leave it out"
        )


def _plain(values: list[Any]) -> Any:
    plain = [value.item() if getattr(value, "ndim", 1) == 0 else value for value in values]
    numbers = all(isinstance(value, bool) or is_number(value) for value in plain)
    return torch.tensor(plain) if numbers else values


def _arrays(values: list[Any]) -> list[torch.Tensor] | None:
    """Return values that are arrays which differ in their first dimension only; None if they are something else."""
    rows = [row for row in map(_array, values) if row is not None]
    tails = {row.shape[1:] for row in rows if row.numel()} or {row.shape[1:] for row in rows[:1]}
    if not rows or len(rows) < len(values) or len(tails) > 1:
        return None
    (tail,) = tails
    rows = [row if row.shape[1:] == tail else row.new_zeros((0, *tail)) for row in rows]  # [] has no width
    floats = any(row.is_floating_point() and row.numel() for row in rows)
    return [row.to(torch.float32 if floats else torch.int64) for row in rows]


def _array(value: Any) -> torch.Tensor | None:
    """Return an array or a list of numbers, or of such lists, as a tensor; None for anything else."""
    if not _are_numbers(value) and not isinstance(value, (torch.Tensor, np.ndarray)):
        return None
    if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
        return None
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # numbers that no tensor holds
        return None
    if tensor.is_complex():
        return None
    return tensor if tensor.ndim in (1, 2) else None  # frames of a video are no sequence of numbers


def _are_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(is_number(one) or _are_numbers(one) for one in value)
