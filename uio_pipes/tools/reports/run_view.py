"""The tables and charts of a running training, from the files that its ranks write (``uio.watch(loader, to=…)``)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from itertools import compress, pairwise
from math import nan
from operator import add
from pathlib import Path
from statistics import fmean

from uio_pipes.base.errors import ListError
from uio_pipes.core.statistics import NodeStats, RunRecord, Stats, Waits, files_of, read
from uio_pipes.tools.reports.page import Alarm, Bar, Chart, PageTable, in_groups

LATELY = 5  # records that the present speed is measured over
PATIENCE = 10.0  # seconds, beyond three times those between records, before a rank is silent
POINTS = 150  # of a curve
COLUMNS = ("rank", "is", "host", "batches", "speed", "waiting", "p50/p95/p99", "padding", "failures", "GB", "workers")
MISSING = 3  # most ranks without a record that are named


@dataclass(frozen=True)
class RecordedStretch:
    """What a rank did between two of its records."""

    first: RunRecord
    last: RunRecord

    @property
    def seconds(self) -> float:
        return max(self.last.time - self.first.time, 1e-9)

    def gained(self, name: str) -> float:
        """By how much a count of the statistics grew."""
        return float(getattr(self.last.stats, name) - getattr(self.first.stats, name))

    @property
    def speed(self) -> float:
        """Hours of audio per second."""
        return self.gained("frames") / 360_000 / self.seconds

    @property
    def waiting(self) -> float:
        """Share of the time that the trainer waited for batches."""
        return min(1.0, self.gained("waited") / self.seconds)

    @property
    def memory(self) -> float:
        """GB."""
        return self.last.memory / 1e9


@dataclass(frozen=True)
class RankRecords:
    """The records of one rank, in order."""

    records: list[RunRecord]

    @property
    def last(self) -> RunRecord:
        return self.records[-1]

    @property
    def lately(self) -> RecordedStretch:
        """Its last records, as far as they belong together."""
        found = RankRecords(self.records[-2 * LATELY :]).stretches[-LATELY:]
        last = found[-1].last if found else self.last
        return RecordedStretch(next((s.first for s in found if _goes_on(s.first, last)), last), last)

    @property
    def stretches(self) -> list[RecordedStretch]:
        return [RecordedStretch(a, b) for a, b in pairwise(self.records) if _goes_on(a, b)]

    def silent(self, now: float) -> bool:
        """Whether its next record is long overdue."""
        return self.last.state == "running" and now - self.last.time > 3 * self.last.every + PATIENCE

    def urgency(self, now: float) -> int:
        """Return 2 for a rank that left the loop within the epoch (an exception, a ``break``), 1 for one that hangs."""
        return 2 if self.last.state == "left" else int(self.silent(now) or self.last.state.startswith("hung"))


def _goes_on(before: RunRecord, after: RunRecord) -> bool:
    """Return whether the counts of two records are those of the same process and epoch."""
    same = (before.pid, before.host, before.epoch) == (after.pid, after.host, after.epoch)
    return same and before.stats.batches <= after.stats.batches and before.time < after.time


def ranks_in(folder: str, last: int | None = None) -> list[RankRecords]:
    """Read the files in a folder, or only the ``last`` bytes of each, without ranks that the newest run does not have.

    Raises: ListError if there are none.
    """
    found = [read(path) if last is None else read(path, last) for path in files_of(Path(folder))]
    ranks = [RankRecords(records) for records in found if records]
    if not ranks:
        raise ListError(
            f"{folder} has no files of ranks (rank-00000.jsonl, …): the trainer writes them if it iterates over "
            f"uio.watch(loader, to={folder!r})"
        )
    world_size = _world_size(ranks)
    return sorted((rank for rank in ranks if rank.last.rank < world_size), key=lambda rank: rank.last.rank)


def _world_size(ranks: list[RankRecords]) -> int:
    """Return the number of ranks that the newest record tells."""
    return max((rank.last for rank in ranks), key=lambda record: record.time).world_size


def tables(ranks: list[RankRecords], now: float, wide: bool = True) -> list[PageTable]:
    """Return the tables, the rows that matter most first. ``wide``: False if a line has less than 100 columns."""
    own = [rank for rank in ranks if not rank.last.peer]  # the others get batches that are counted there
    stats = _total(own)
    found = [_ranks(ranks, own, now, wide)]
    if sources := Counter(stats.sources):
        largest, whole = max(sources.values()), sources.total()
        shares = [(name, f"{n:,}", f"{n / whole:.1%}", Bar(n / largest)) for name, n in sources.most_common()]
        found.append(("Shares of the sources", ("source", "utterances", "share", ""), shares))
    seen = stats.utterances + sum(stats.skipped.values())
    left = [(reason, f"{n:,}", f"{n / seen:.2%}") for reason, n in Counter(stats.skipped).most_common()]
    found.append(("Left out in this epoch", ("reason", "count", "of the utterances"), left or [("none", "0", "")]))
    nodes: dict[str, NodeStats] = {}
    for name, node in (pair for rank in own for pair in rank.last.stats.nodes.items()):
        nodes[name] = NodeStats(*map(add, astuple(nodes.get(name, NodeStats())), astuple(node)))
    if nodes:
        rows = [(name, f"{n.utterances:,}", f"{n.speed:,.0f}", n.restarts) for name, n in sorted(nodes.items())]
        found.append(("Nodes", ("node", "utterances", "utterances/s of an actor", "restarts"), rows))
    return found


def _total(ranks: Iterable[RankRecords]) -> Stats:
    total = Stats()
    for rank in ranks:
        total.add(vars(rank.last.stats))
    return total


def _ranks(ranks: list[RankRecords], own: list[RankRecords], now: float, wide: bool) -> PageTable:
    working = [rank for rank in own if rank.last.state == "running" and not rank.silent(now)]
    working = working or [rank for rank in own if rank.last.state == "over"]
    missing = sorted(set(range(_world_size(ranks))) - {rank.last.rank for rank in ranks})
    all_left = all(rank.last.state == "left" for rank in ranks)
    rows = [["all", _whole(ranks, now, missing), "", *_cells(own, working)]]
    if missing:
        named = ", ".join(map(str, missing[:MISSING])) + ", …" * (len(missing) > MISSING)
        they_have = "has" if len(missing) == 1 else f"{len(missing):,} have"
        rows.append([named, Alarm(f"{they_have} written nothing"), *[""] * (len(COLUMNS) - 2)])
    rows += [
        [rank.last.rank, _state(rank, now, all_left), rank.last.host, *_cells([rank], [rank])]
        for rank in sorted(ranks, key=lambda rank: (-rank.urgency(now), -rank.lately.waiting))
    ]
    shown = [wide or name != "p50/p95/p99" for name in COLUMNS]
    shown[-1] = any(row[-1] for row in rows)  # most runs do not choose the number of workers
    title = f"Ranks in epoch {max(rank.last.epoch for rank in ranks)}, first those that do not run or wait most"
    return title, tuple(compress(COLUMNS, shown)), [list(compress(row, shown)) for row in rows]


def _cells(ranks: list[RankRecords], working: list[RankRecords]) -> list[object]:
    """Return the counts of ranks, and what those of them that work do at present."""
    stats, lately = _total(ranks), [rank.lately for rank in working]
    waits = sum(
        (Counter(s.last.stats.waits.counts) - Counter(s.first.stats.waits.counts) for s in lately), Counter[int]()
    )
    hours, tokens = sum(s.speed for s in lately), sum(s.gained("tokens") / s.seconds for s in lately)
    return [
        f"{max((rank.last.stats.batches for rank in ranks), default=0):,}",
        f"{hours:.3g} h/s" if stats.frames or not stats.tokens else f"{tokens:,.0f} tokens/s",
        f"{fmean(s.waiting for s in lately):.0%}" if lately else "",
        str(Waits(waits)) if waits else "",
        f"{stats.padding_ratio:.1%}",
        f"{stats.failures:,}",
        f"{sum(s.memory for s in lately):.2f}",
        sum(rank.last.stats.workers or 0 for rank in working) or "",
    ]


def _state(rank: RankRecords, now: float, all_left: bool) -> str:
    ago = _ago(now - rank.last.time)
    if rank.last.state == "left":  # of a run that was ended after some steps, all ranks left
        return f"left {ago} ago" if all_left else Alarm(f"left {ago} ago")
    if rank.silent(now):
        return Alarm(f"no record for {ago}")
    if rank.last.state.startswith("hung"):
        return Alarm(f"{rank.last.state}, {ago} ago")
    return "epoch over" if rank.last.state == "over" else rank.last.state


def _whole(ranks: list[RankRecords], now: float, missing: list[int]) -> str:
    """Return the state of the whole run."""
    states = {rank.last.state.partition(":")[0] for rank in ranks}
    state = "running" if states & {"running", "hung"} else "epoch over" if "over" in states else "left"
    gone = 0 if state == "left" else sum(rank.urgency(now) > 0 for rank in ranks)
    size = len(ranks) + len(missing)
    return Alarm(f"{size - gone - len(missing)} of {size} {state}") if gone or missing else state


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


# Curves


def charts(ranks: list[RankRecords]) -> list[Chart]:
    """Return the curves of the whole run; none before a rank has written two records."""
    own = [stretches for rank in ranks if not rank.last.peer and (stretches := rank.stretches)]
    if not own:
        return []
    begin, end = min(s[0].first.time for s in own), max(s[-1].last.time for s in own)
    unit, length = ("hours", 3600) if end - begin > 7200 else ("minutes", 60)
    at = [begin + (end - begin) * (i + 0.5) / POINTS for i in range(POINTS)]
    there = [[s for s in (_at(stretches, moment) for stretches in own) if s is not None] for moment in at]
    x = [(moment - begin) / length for moment in at]

    def curve(tell: Callable[[list[RecordedStretch]], float]) -> list[float]:
        return [tell(some) if some else nan for some in there]

    def both(name: str, worst: str) -> dict[str, list[float]]:
        mean = curve(lambda some: fmean(getattr(s, name) for s in some))
        return {"mean": mean, worst: curve(lambda some: max(getattr(s, name) for s in some))}

    real, whole = ("frames", "padded") if own[-1][-1].last.stats.padded else ("tokens", "padded_tokens")
    speed = {"all ranks": curve(lambda some: sum(s.speed for s in some))}
    padding = {"all ranks": curve(lambda some: 1 - _gained(some, real) / (_gained(some, whole) or nan))}
    failures = {"all ranks": curve(lambda some: sum(s.gained("failures") / s.seconds for s in some) * 3600)}
    found = [
        ("Throughput", speed, "hours of audio / s"),
        ("Waiting for batches", both("waiting", "the rank that waits most"), "share"),
        ("Padding", padding, "share"),
        ("Failures", failures, "an hour"),
        ("Memory of a rank", both("memory", "the largest"), "GB"),
    ]
    drawn = [Chart(title, x, series, (unit, label)) for title, series, label in found]
    shares = _mix(there)
    return drawn + ([Chart("Shares of the sources", x, shares, (unit, "share"), "areas")] if shares else [])


def _gained(stretches: Iterable[RecordedStretch], name: str) -> float:
    return sum(stretch.gained(name) for stretch in stretches)


def _at(stretches: list[RecordedStretch], moment: float) -> RecordedStretch | None:
    """Return the stretch that a moment is in."""
    number = bisect_left(stretches, moment, key=lambda stretch: stretch.last.time)
    return stretches[number] if number < len(stretches) and stretches[number].first.time <= moment else None


def _mix(there: list[list[RecordedStretch]]) -> dict[str, list[float]]:
    """Return the share of each source along the run, those with the most by name."""
    gained = []
    for some in there:
        counts = Counter[str]()
        for stretch in some:
            counts.update(stretch.last.stats.sources)
            counts.subtract(stretch.first.stats.sources)
        gained.append(counts)
    names = [name for name, n in sum(gained, Counter[str]()).most_common() if n]
    return {
        group: [sum(counts[name] for name in of) / (counts.total() or 1) for counts in gained]
        for group, of in in_groups(names).items()
    }
