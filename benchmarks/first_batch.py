"""Claim: the first batch is there within 0.2 s of the workers' start, and at once after ``loader.start()``.

The time runs from ``iter(loader)``, which starts the workers, to the first batch; shuffle 1,500 and sort 500 are filled
in between. Each measurement is a fresh process that has imported the package and described the graph: ``python -m
benchmarks.first_batch``. In the second table a model is built before, for 5 s, and the workers may begin before that.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, rounds, spread
from benchmarks.corpus import prepare

MODULE = "benchmarks.first_batch"
LIMIT = 0.2
MODEL = 5.0  # seconds
AT_ONCE = 0.01


def measure(data: str, kind: str, workers: int, model: float = 0.0, early: bool = False) -> dict[str, Any]:
    """Measure the time to the first and to the second batch."""
    import torch

    import uio_pipes as uio
    from benchmarks.peers.uio import pipeline

    corpus = prepare(Path(data))
    for shard in corpus.shards(kind):
        Path(shard).read_bytes()
    loader = uio.Loader(pipeline(corpus.list(kind)), seed=777, num_workers=workers)
    began = time.perf_counter()
    if early:
        loader.start()
    start = time.perf_counter() - began
    while time.perf_counter() - began < model:
        torch.nn.Linear(1_000, 1_000)
    began, cpu = time.perf_counter(), time.process_time()
    batches = iter(loader)
    started = time.perf_counter() - began
    next(batches)
    first, cpu = time.perf_counter() - began, time.process_time() - cpu
    next(batches)
    second = time.perf_counter() - began - first
    return {"started": started, "first": first, "cpu": cpu, "second": second, "start": start}


def main() -> None:
    """Measure all and write results/first_batch.md."""
    arguments = begin(measure, parser(__doc__, repeats=7))
    prepare(arguments.data)
    report = Report("first_batch", "From the workers' start to the first batch")
    jobs = {
        f"{kind}, num_workers={workers}": {"kind": kind, "workers": workers}
        for kind in ("tar", "tar.gz")
        for workers in (0, 1, 2)
    }
    results = rounds(MODULE, jobs, arguments.repeats, data=arguments.data)
    fields = ("first", "started", "cpu", "second")
    rows = [[name, *(spread(runs, field) for field in fields)] for name, runs in report.ran(results).items()]
    columns = ["shards", "iter(loader) to first batch", "of which iter(loader)", "main process's CPU", "second after"]
    report.table("Seconds", columns, rows, plot=[1])
    plain = max(median(runs, "first") for name, runs in results.items() if name.startswith("tar,"))
    report.target(
        "first batch within 0.2 s of the workers' start (plain tar)", plain <= LIMIT, f"{plain:.2f} s at most"
    )
    built = {
        f"{kind}, {'after' if early else 'without'} loader.start()": {"kind": kind, "model": MODEL, "early": early}
        for kind in ("tar", "tar.gz")
        for early in (False, True)
    }
    later = rounds(MODULE, built, arguments.repeats, data=arguments.data, workers=2)
    rows = [
        [name, *(spread(runs, field, ".4f") for field in ("first", "start"))]
        for name, runs in report.ran(later).items()
    ]
    columns = ["two workers, and a model that takes 5 s to build", "iter(loader) to first batch", "loader.start()"]
    report.table("Seconds when a model is built before", columns, rows)
    at_once = max(median(later[name], "first") for name, job in built.items() if job["early"])
    report.target("first batch within 10 ms after loader.start()", at_once <= AT_ONCE, f"{at_once:.4f} s at most")
    packed = max(median(runs, "first") for name, runs in results.items() if name.startswith("tar.gz,"))
    report.text(f"On tar.gz the first 2,000 utterances have to be inflated: {packed:.2f} s at most.")
    report.write()


if __name__ == "__main__":
    main()
