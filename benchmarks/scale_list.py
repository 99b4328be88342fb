"""Claims: a list of 7.5 million shards (ten million hours) opens, is shuffled and dealt in at most 5 s and 100 MB of
each process, its workers share what is known of it, and the next epoch begins within 1 s.

The list is a real file of 7.5 million lines; each names one of the corpus' shards, so that the loader is the real one,
as rank 5 of 1,024 with 8 workers: ``python -m benchmarks.scale_list``. The same with a list of 8,192 lines shows what
the length of the list costs.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, rounds, sized, spread
from benchmarks.corpus import prepare
from benchmarks.owned import children

MODULE = "benchmarks.scale_list"
SHARDS, FEW, RANKS, WORKERS = sized((7_500_000, 8_192, 1_024, 8), (6_000, 120, 10, 2))
MIB = 1 << 20
WAYS = {"a loader": "loader", "one process": "deal"}


def measure(data: str, shards: int, what: str) -> dict[str, Any]:
    """Measure times and memory with a list of this many shards."""
    path = _list(data, shards)
    return _loader(path) if what == "loader" else _deal(path)


def _list(data: str, shards: int) -> str:
    """Return the path of a list file of this many lines; it is made once."""
    path = Path(data) / f"list_{shards}.list"
    names = prepare(Path(data)).shards("tar")
    if not path.exists():
        lines = "".join(f"{name}\n" for name in names)
        part = path.with_suffix(".part")
        with part.open("w") as file:
            for _ in range(0, shards, len(names)):
                file.write(lines)
        part.replace(path)
    return str(path)


def _loader(path: str) -> dict[str, Any]:
    """Measure the first batch of two epochs, and the memory of each process."""
    import uio_pipes as uio
    from benchmarks.peers.uio import pipeline

    loader = uio.Loader(pipeline(path), seed=777, num_workers=WORKERS, rank=5, world_size=RANKS)
    began = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first = time.perf_counter() - began
    workers = [private(pid) for pid in children(os.getpid())]
    found = {"first": first, "worker": max(workers)}
    began = time.perf_counter()
    loader.set_epoch(1)
    batches = iter(loader)
    next(batches)
    return found | {"next": time.perf_counter() - began}


def _deal(path: str) -> dict[str, Any]:
    """Open the list, hash it, and deal this rank its shards of two epochs, all of them, as fast as possible."""
    import uio_pipes as uio
    from uio_pipes.core.lane import Lane
    from uio_pipes.core.ledger import Ledger

    before, times = private(os.getpid()), dict[str, float]()
    graph = uio.list_files(path, shuffle=True).sharding_filter()
    lanes = range(5, RANKS * WORKERS, RANKS)
    began = time.perf_counter()
    graph._list_fingerprint()
    times["opened and hashed"] = time.perf_counter() - began
    for epoch in range(2):
        began, tables = time.perf_counter(), dict[Any, Any]()
        nodes = [graph.build(Lane(Ledger(), lane, RANKS * WORKERS, 777, epoch, tables=tables)) for lane in lanes]
        for node in nodes:
            node.reset(None)
            node.next()
        times[f"epoch {epoch}: the first shard of each lane"] = time.perf_counter() - began
        dealt = len(nodes) + sum(1 for node in nodes for _ in node)
        times[f"epoch {epoch}: all {dealt:,} shards of the rank"] = time.perf_counter() - began
    return {"times": times, "private": private(os.getpid()) - before}


def private(pid: int) -> float:
    """Return the MiB that only this process holds."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(found) for found in re.findall(r"Private_\w+: +(\d+) kB", text)) / 1024


def main() -> None:
    """Measure all and write results/scale_list.md."""
    arguments = begin(measure, parser(__doc__, repeats=3))
    prepare(arguments.data)
    report = Report("scale_list", f"A list of {SHARDS:,} shards on {RANKS:,} ranks × {WORKERS} workers")
    for shards in (SHARDS, FEW):
        _list(str(arguments.data), shards)
    size = (Path(arguments.data) / f"list_{SHARDS}.list").stat().st_size / MIB
    jobs = {
        f"{name}, {shards:,} shards": {"shards": shards, "what": what}
        for name, what in WAYS.items()
        for shards in (SHARDS, FEW)
    }
    results = rounds(MODULE, jobs, arguments.repeats, data=arguments.data)
    report.ran(results)
    _tell_loader(report, {name: runs for name, runs in results.items() if name.startswith("a loader")}, size)
    _tell_deal(report, results[f"one process, {SHARDS:,} shards"])
    report.write()


def _tell_loader(report: Report, results: dict[str, list[dict[str, Any]]], size: float) -> None:
    fields = {
        "first": "first batch, s",
        "next": "first of the next epoch, s",
        "worker": "worker, MiB",
    }
    rows = [[name, *(spread(runs, field) for field in fields)] for name, runs in results.items()]
    report.table(
        f"Real loaders; the list has {size:.0f} MiB; memory that a process shares with none",
        ["", *fields.values()],
        rows,
    )
    many, few = results.values()
    epoch = median(many, "next") - median(few, "next")
    worker = median(many, "worker") - median(few, "worker")
    report.target("the next epoch within 1 s", epoch <= 1, f"{epoch:.2f} s more than with {FEW:,} shards")
    report.target(
        "workers share what is known of the list", worker <= 10, f"{worker:.1f} MiB more in a worker than with {FEW:,}"
    )


def _tell_deal(report: Report, runs: list[dict[str, Any]]) -> None:
    names = runs[0]["times"]
    rows = [[name, spread([run["times"] for run in runs], name)] for name in names]
    report.table("One process, seconds", ["", "s"], rows, plot=[1])
    took = sum(median([run["times"] for run in runs], name) for name in list(names)[:3:2])
    private = median(runs, "private")
    report.target("opened, shuffled and dealt in at most 5 s", took <= 5, f"{took:.2f} s")
    report.target("at most 100 MB of a process", private * MIB <= 100e6, f"{private:.1f} MiB")


if __name__ == "__main__":
    main()
