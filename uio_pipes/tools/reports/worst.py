"""The utterances that hurt, by the record of a run: those of the highest losses, and those that stay behind others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import ListError
from uio_pipes.formats.lists.quarantine import line_of
from uio_pipes.inspect.record import COLUMNS, read_record
from uio_pipes.tools.reports.page import Chart, PageTable

Measures = Literal["last", "mean", "behind"]
WINDOW = 200  # rows, at least, whose median is what is usual at a time of the run; fewer if an epoch has fewer
WINDOWS = 100  # most of them
GROUPS = ("source", "shard", "speaker", "length", "sample rate", "tokens a frame")
UTTERANCE = ("source", "shard", "key")  # what tells utterances apart
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
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = [name for name in table.column_names if name not in COLUMNS]
    number = number or ("loss" if "loss" in numbers else numbers[0])
    if number not in numbers:
        raise ListError(f"the record in {folder} has no number {number!r}; it has {', '.join(numbers)}")
    table = table.filter(table[number].is_valid()).sort_by([("epoch", "ascending"), ("step", "ascending")])
    if not len(table):
        raise ListError(f"the record in {folder} has no {number!r} of any utterance")
    loss = table[number].to_numpy().astype(np.float64)
    loss[~np.isfinite(loss)] = np.inf  # the worst there is
    with np.errstate(invalid="ignore"):
        begins, windows = np.flatnonzero(np.diff(table["epoch"].to_numpy())) + 1, min(WINDOWS, len(loss) // WINDOW)
        pieces = np.split(loss, begins) if windows <= len(begins) else np.array_split(loss, windows)
        rest = loss - np.concatenate([np.full(len(part), np.median(part)) for part in pieces])
    rows = np.arange(len(loss))
    broken = np.where(np.isinf(loss), rows, len(loss))  # the first of all may be the cause
    given = {"loss": loss, "rest": rest, "row": rows, "broken": broken}
    each = pa.table({name: table[name] for name in UTTERANCE} | given).group_by([*UTTERANCE], use_threads=False)
    counted = ("loss", "count"), ("loss", "mean"), ("loss", "first"), ("loss", "last")
    each = each.aggregate([*counted, *(("rest", end) for end in ("first", "last")), ("broken", "min"), ("row", "list")])
    times, mean, first, last, was, now, at = (
        each[name].to_numpy() for name in each.column_names if name not in (*UTTERANCE, "row_list")
    )
    rows_of = each["row_list"].combine_chunks()
    with np.errstate(invalid="ignore"):
        behind = np.nan_to_num(now - was, nan=np.inf, posinf=np.inf, neginf=0)
    measure = {"mean": mean, "last": last, "behind": behind}[by]
    text = most.strip()
    try:
        count = round(len(each) * float(text[:-1]) / 100) if text.endswith("%") else int(text)
    except ValueError as error:
        raise ListError(f"how many must be a number or a share, as 20 or 4%, not {most!r}") from error
    best = np.lexsort((at, -measure))[: max(1, count)].tolist()
    utterances = table.take(pc.list_element(rows_of, 0))
    found = [
        HurtUtterance(
            row["key"], row["source"] or "", row["shard"] or "", row["item"], row["offset"], row["speaker"] or "",
            *(int(times[n]), float(mean[n]), float(first[n]), float(last[n]), float(behind[n])),
        )
        for row, n in zip(utterances.take(best).to_pylist(), best, strict=True)
    ]  # fmt: skip
    groups = _groups(utterances, mean, number)
    charts = []
    if len(loss) > len(each):
        parts = np.array_split(loss, min(POINTS, max(2, int(np.median(times)))))
        drawn = {one.key: rows_of[n].values.to_numpy() for one, n in zip(found[:8], best, strict=False)}
        charts = [_chart(drawn, parts, number)]
    finite = loss[np.isfinite(loss)]
    of_all = float(finite.mean()) if len(finite) else np.inf
    return WorstUtterances(number, len(loss), len(each), of_all, found, groups, charts)


def _groups(utterances: Any, mean: LossArray, number: str) -> list[PageTable]:
    """Return a table of each property by which there are several groups: the worst ones first."""
    import pyarrow as pa

    columns: dict[str, Sequence[Any]] = {name: utterances[name].to_pylist() for name in GROUPS[:3]}
    frames, tokens = (utterances[name].to_numpy().astype(np.float64) for name in ("frames", "tokens"))
    columns["length"] = _ranges(frames, "frames", 0)
    columns["sample rate"] = utterances["sample_rate"].to_pylist()
    columns["tokens a frame"] = _ranges(np.where(frames > 0, tokens / np.maximum(frames, 1), np.nan), "", 3)
    found: list[PageTable] = []
    for name, values in columns.items():
        each = pa.table({name: [str("" if value is None else value) for value in values], "mean": mean})
        each = each.group_by(name).aggregate([("mean", "count"), ("mean", "mean")])
        if len(each) < 2:
            continue
        worst = each.sort_by([("mean_mean", "descending"), (name, "ascending")]).slice(0, NAMED).to_pylist()
        rows = [(one[name], f"{one['mean_count']:,}", f"{one['mean_mean']:.3f}") for one in worst]
        title = f"By {name}" + (f": the worst {NAMED} of {len(each):,}" if len(each) > NAMED else "")
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


def _chart(worst: dict[str, npt.NDArray[np.int64]], parts: list[LossArray], number: str) -> Chart:
    """Return the losses of the worst utterances in the course of the run, beside the usual ones.

    ``worst``: the rows of each by its key. ``parts``: the losses in order.
    """
    loss, ends = np.concatenate(parts), np.cumsum([len(part) for part in parts])
    series = {"all (median)": [float(np.median(part)) for part in parts]}
    for key, rows in worst.items():
        own = [loss[rows[(end - len(part) <= rows) & (rows < end)]] for part, end in zip(parts, ends, strict=True)]
        series[key] = [float(one.mean()) if len(one) else float("nan") for one in own]
    return Chart(
        f"{number} of the worst utterances", (100 * ends / len(loss)).tolist(), series, ("% of the record", number)
    )


def exclusions(worst: WorstUtterances) -> bytes:
    """Return the content of a list that ``.exclude`` and ``loader.exclude`` read."""
    found = b""
    for one in worst.found:
        message = f"{worst.number}: mean {one.mean:.3f} of {one.times}, last {one.last:.3f}"
        place = {"url": one.shard, "member": "", "offset": one.offset, "key": one.key, "item": one.item}
        entry = {
            "reason": "high_loss",
            **place,
            "message": f"{message}; that of all {worst.mean:.3f}",
            "stage": "record",
        }
        found += line_of(entry)
    return found


def tables(worst: WorstUtterances, media: Sequence[Sequence[object]] = ()) -> list[PageTable]:
    """Return the tables. ``media``: of each of the worst its transcript, audio and features, for a page."""
    heads = ["key", "source", "shard", "speaker", "times", "mean", "first", "last", "behind"]
    rows: list[list[object]] = [
        [one.key, one.source, one.shard, one.speaker, one.times, *(f"{x:.3f}" for x in one[7:])] for one in worst.found
    ]
    if media:
        heads[1:1] = ["transcript", "audio", "features"]
        for row, seen in zip(rows, media, strict=True):
            row[1:1] = seen
    kept = [n for n, head in enumerate(heads) if head not in ("source", "speaker") or any(row[n] for row in rows)]
    mean = f"whose mean is {worst.mean:.3f}" if np.isfinite(worst.mean) else "which is never finite"
    title = f"The worst {len(rows):,} of {worst.utterances:,} by {worst.number}, {mean}"
    return [(title, [heads[n] for n in kept], [[row[n] for n in kept] for row in rows]), *worst.groups]
