"""The utterances that hurt, by the record of a run: those of the highest losses, and those that stay behind others."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import ListError
from uio_pipes.formats.lists.quarantine import QuarantineEntry, line_of
from uio_pipes.inspect.record import COLUMNS, read_record
from uio_pipes.tools.reports.page import Chart, PageTable

Measures = Literal["last", "mean", "behind"]
WINDOW = 200  # rows, at least, whose median is what is usual at a time of the run; fewer if an epoch has fewer
WINDOWS = 100  # most of them
GROUPS = ("source", "shard", "speaker", "length", "sample rate", "tokens a frame")
PARTS = 5  # of the range of lengths, equally many utterances in each
NAMED = 12  # groups of a table
POINTS = 12  # most of a curve
LossArray = npt.NDArray[np.float64]


class HurtUtterance(NamedTuple):
    """An utterance with its losses. ``shard``: or list; ``first`` and ``last``: of the times that it was trained on.

    ``behind``: by how much less its loss has fallen from its first to its last time than what was usual then.
    """

    key: str
    source: str
    shard: str
    item: int | None
    offset: int | None
    speaker: str
    times: int
    mean: float
    first: float
    last: float
    behind: float


@dataclass(frozen=True)
class WorstUtterances:
    """What a record tells. ``found``: the worst first; ``groups``: tables; ``charts``: losses over the steps.

    ``mean``: of the losses that are finite.
    """

    number: str
    rows: int
    utterances: int
    mean: float
    found: list[HurtUtterance]
    groups: list[PageTable]
    charts: list[Chart]


def find_worst(
    folder: str | os.PathLike[str], by: Measures = "last", number: str | None = None, most: str = "20"
) -> WorstUtterances:
    """Find the worst utterances of a record.

    Args:
        folder: that of the recorders.
        by: the measure: the last loss, the mean, or how far they are behind the others. Early in a training all losses
            are high, which blurs the mean. Default: "last".
        number: the recorded number to go by. Default: None, "loss" if there is one, else the first.
        most: how many to return, or a share, as in "4%".

    Raises: ListError if there is no record, or no such number in it.
    """
    table = read_record(folder)
    numbers = [name for name in table.column_names if name not in COLUMNS]
    number = number or ("loss" if "loss" in numbers else numbers[0])
    if number not in numbers:
        raise ListError(f"the record in {folder} has no number {number!r}; it has {', '.join(numbers)}")
    table = table.filter(table[number].is_valid()).sort_by([("epoch", "ascending"), ("step", "ascending")])
    if not len(table):
        raise ListError(f"the record in {folder} has no {number!r} of any utterance")
    loss = table[number].to_numpy().astype(np.float64)
    loss[~np.isfinite(loss)] = np.inf  # the worst there is
    usual = _usual(loss, table["epoch"].to_numpy())
    of, first = _numbered(table)
    count = len(first)
    times = np.bincount(of, minlength=count)
    mean = _mean(loss, of, count)
    begin, end = _ends(of, count)
    with np.errstate(invalid="ignore"):
        behind = np.nan_to_num((loss - usual)[end] - (loss - usual)[begin], nan=np.inf, posinf=np.inf, neginf=0)
    measure = {"mean": mean, "last": loss[end], "behind": behind}[by]
    best = np.lexsort((_breaks(loss, of, count), -measure))[: _count(most, count)]
    picked = table.take(first[best]).to_pylist()
    found = [
        HurtUtterance(
            row["key"], row["source"] or "", row["shard"] or "", row["item"], row["offset"], row["speaker"] or "",
            *(int(times[n]), float(mean[n]), float(loss[begin[n]]), float(loss[end[n]]), float(behind[n])),
        )
        for row, n in zip(picked, best, strict=True)
    ]  # fmt: skip
    groups = _groups(table.take(first), mean, number)
    charts = [_chart(found[:8], best[:8], of, loss, number, int(np.median(times)))] if len(loss) > count else []
    finite = loss[np.isfinite(loss)]
    of_all = float(finite.mean()) if len(finite) else np.inf
    return WorstUtterances(number, len(loss), count, of_all, found, groups, charts)


def _usual(loss: LossArray, epochs: npt.NDArray[np.int64]) -> LossArray:
    """Return, for each of the losses in their order, what was usual when it came."""
    begins, windows = np.flatnonzero(np.diff(epochs)) + 1, min(WINDOWS, len(loss) // WINDOW)
    parts = np.split(loss, begins) if windows <= len(begins) else np.array_split(loss, windows)
    return np.concatenate([np.full(len(part), np.median(part)) for part in parts])


def _numbered(table: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the number of the utterance of each row, and the first row of each utterance."""
    names = ["source", "shard", "key"]
    codes = np.zeros(len(table), np.int64)
    for name in names:
        column = table[name].combine_chunks().dictionary_encode("encode")
        codes = codes * (len(column.dictionary) + 1) + column.indices.to_numpy()
        _, codes = np.unique(codes, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    return codes, first


def _mean(values: LossArray, of: npt.NDArray[np.int64], count: int) -> LossArray:
    return np.asarray(np.bincount(of, values, count) / np.maximum(np.bincount(of, minlength=count), 1))


def _ends(of: npt.NDArray[np.int64], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first and last row of each utterance."""
    rows = np.arange(len(of))
    begin, end = np.empty(count, np.int64), np.empty(count, np.int64)
    begin[of[::-1]], end[of] = rows[::-1], rows
    return begin, end


def _breaks(loss: LossArray, of: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Return the row of the first loss of each utterance that is not finite: the first of all may be the cause."""
    rows = np.flatnonzero(np.isinf(loss))[::-1]
    found = np.full(count, len(loss))
    found[of[rows]] = rows
    return found


def _count(most: str, of: int) -> int:
    text = most.strip()
    try:
        count = round(of * float(text[:-1]) / 100) if text.endswith("%") else int(text)
    except ValueError as error:
        raise ListError(f"how many must be a number or a share, as 20 or 4%, not {most!r}") from error
    return max(1, count)


def _groups(utterances: Any, mean: LossArray, number: str) -> list[PageTable]:
    """Return a table of each property by which there are several groups: the worst ones first."""
    columns: dict[str, Sequence[Any]] = {name: utterances[name].to_pylist() for name in GROUPS[:3]}
    frames, tokens = (utterances[name].to_numpy().astype(np.float64) for name in ("frames", "tokens"))
    columns["length"] = _ranges(frames, "frames", 0)
    columns["sample rate"] = utterances["sample_rate"].to_pylist()
    columns["tokens a frame"] = _ranges(np.where(frames > 0, tokens / np.maximum(frames, 1), np.nan), "", 3)
    found: list[PageTable] = []
    for name, values in columns.items():
        names, of = np.unique([str("" if value is None else value) for value in values], return_inverse=True)
        if len(names) < 2:
            continue
        means, counts = _mean(mean, of, len(names)), np.bincount(of)
        order = np.argsort(-means, kind="stable")
        rows = [(str(names[n]), f"{counts[n]:,}", f"{means[n]:.3f}") for n in order[:NAMED]]
        title = f"By {name}" + (f": the worst {NAMED} of {len(names):,}" if len(names) > NAMED else "")
        found.append((title, (name, "utterances", f"mean {number}"), rows))
    return found


def _ranges(values: LossArray, unit: str, digits: int) -> list[str]:
    """Return, for each of these values, the name of the range that it is in; all of them hold equally many."""
    known = values[np.isfinite(values) & (values > 0)]
    if not len(known):
        return [""] * len(values)
    edges = np.unique(np.quantile(known, np.linspace(0, 1, PARTS + 1)))
    at = np.clip(np.searchsorted(edges, values, "right") - 1, 0, max(0, len(edges) - 2))
    names = [f"{a:.{digits}f} to {b:.{digits}f} {unit}".strip() for a, b in pairwise(edges)]
    return [names[n] if names and value > 0 else "" for n, value in zip(at, values, strict=True)]


def _chart(
    worst: Sequence[HurtUtterance],
    numbers: npt.NDArray[np.int64],
    of: npt.NDArray[np.int64],
    loss: LossArray,
    number: str,
    times: int,
) -> Chart:
    """Return the losses of the worst utterances in the course of the run, beside the usual ones."""
    parts = np.array_split(np.arange(len(loss)), min(POINTS, max(2, times)))

    def mean(values: LossArray) -> float:
        return float(values.mean()) if len(values) else float("nan")

    series = {"all (median)": [float(np.median(loss[part])) for part in parts]}
    for one, n in zip(worst, numbers, strict=True):
        series[one.key] = [mean(loss[part][of[part] == n]) for part in parts]
    done = [100 * (int(part[-1]) + 1) / len(loss) for part in parts]
    return Chart(f"{number} of the worst utterances", done, series, ("% of the record", number))


def exclusions(worst: WorstUtterances) -> bytes:
    """Return the content of a list that ``.exclude`` and ``loader.exclude`` read."""
    return b"".join(map(line_of, _entries(worst)))


def _entries(worst: WorstUtterances) -> Iterator[QuarantineEntry]:
    for one in worst.found:
        message = (
            f"{worst.number}: mean {one.mean:.3f} of {one.times}, last {one.last:.3f}; that of all {worst.mean:.3f}"
        )
        place = {"url": one.shard, "member": "", "offset": one.offset, "key": one.key, "item": one.item}
        yield {"reason": "high_loss", **place, "message": message, "stage": "record"}


def tables(worst: WorstUtterances) -> list[PageTable]:
    """Return the tables of the terminal."""
    rows = [
        (one.key, one.source, one.shard, one.speaker, one.times, *(f"{x:.3f}" for x in one[7:])) for one in worst.found
    ]
    heads = ("key", "source", "shard", "speaker", "times", "mean", "first", "last", "behind")
    empty = [n for n, head in enumerate(heads) if head in ("source", "speaker") and not any(row[n] for row in rows)]
    kept = [n for n in range(len(heads)) if n not in empty]
    mean = f"whose mean is {worst.mean:.3f}" if np.isfinite(worst.mean) else "which is never finite"
    title = f"The worst {len(rows):,} of {worst.utterances:,} by {worst.number}, {mean}"
    shown = (title, [heads[n] for n in kept], [[row[n] for n in kept] for row in rows])
    return [shown, *worst.groups]


RecordedNumbers = dict[str, float | None]  # of an utterance, by name


class RecordedBatch(NamedTuple):
    """Of a batch, the step that the trainer gave it, and the numbers of its utterances by their keys."""

    step: int
    numbers: dict[str, RecordedNumbers]


def recorded(folder: str | os.PathLike[str], epoch: int) -> dict[tuple[int, int, int], RecordedBatch]:
    """Return what was recorded of the batches of an epoch, by lane, pass and k. Raises: ListError."""
    import pyarrow.compute as pc

    table = read_record(folder)
    found: dict[tuple[int, int, int], RecordedBatch] = {}
    for row in table.filter(pc.equal(table["epoch"], epoch)).to_pylist():
        of_batch = found.setdefault((row["lane"], row["pass"], row["k"]), RecordedBatch(row["step"], {}))
        of_batch.numbers[row["key"]] = {name: value for name, value in row.items() if name not in COLUMNS}
    return found


def told(numbers: Iterable[RecordedNumbers]) -> str:
    """Return the means of numbers as a text; "" without any."""
    found: dict[str, list[float]] = {}
    for one in numbers:
        for name, value in one.items():
            found.setdefault(name, []).extend([] if value is None else [value])
    return ", ".join(f"{name} {sum(values) / len(values):.3f}" for name, values in found.items() if values)
