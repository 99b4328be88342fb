"""Claim: once it has settled, ``num_workers="auto"`` reaches 95 % of the best fixed number of at most one per core.

The stream is endless; steps of the trainer are sleeps. Each loader runs for a while first, in which "auto" settles, and
then frames are counted: ``python -m benchmarks.auto_workers``.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread
from benchmarks.corpus import prepare
from uio_pipes.base.processes import cores

MODULE = "benchmarks.auto_workers"
STEPS = sized((0.0, 0.05, 0.2), (0.0,))  # seconds that the trainer works on a batch
CORES = cores()
WORKERS = sized((0, 1, 2, 3, "auto"), (1, "auto"))  # one more than cores are shown beside it
SETTLING, SECONDS = sized((30.0, 10.0), (0.2, 0.1))
LANES = 6  # one for each shard


def measure(data: str, workers: Any, step: float, settling: float, seconds: float) -> dict[str, Any]:
    """Measure frames per second after ``settling`` seconds."""
    import uio_pipes as uio
    from benchmarks.peers.uio import pipeline

    graph = pipeline(prepare(Path(data)).list("tar"))
    loader = uio.Loader(graph, seed=7, num_workers=workers, lanes=LANES, steps_per_epoch=10**9)
    batches, began, first = iter(loader), time.perf_counter(), 0.0
    for limit in (settling, seconds):
        since, frames = time.perf_counter(), loader.stats().frames
        while time.perf_counter() < since + limit:
            next(batches)
            first = first or time.perf_counter() - began
            time.sleep(step)
    speed = (loader.stats().frames - frames) / (time.perf_counter() - since)
    return {"speed": speed, "first": first, "workers": loader.num_workers}


def main() -> None:
    """Measure all and write results/auto_workers.md."""
    arguments = begin(measure, parser(__doc__, repeats=3))
    prepare(arguments.data)
    report = Report("auto_workers", "Workers that the loader chooses")
    for step in STEPS:
        how = {"step": step, "settling": SETTLING, "seconds": SECONDS, "data": arguments.data}
        jobs = {str(workers): {"workers": workers} for workers in WORKERS}
        results = report.ran(rounds(MODULE, jobs, arguments.repeats, **how))
        speeds = {name: median(runs, "speed") for name, runs in results.items()}
        best = max(speed for name, speed in speeds.items() if name != "auto" and int(name) <= CORES)
        rows = [
            [
                name,
                spread(runs, "speed", ",.0f"),
                ratio(speeds[name], best),
                spread(runs, "first"),
                spread(runs, "workers"),
            ]
            for name, runs in results.items()
        ]
        columns = ["num_workers", "frames/s", f"of the best up to {CORES}", "first batch, s", "workers in the end"]
        report.table(f"A trainer that works {1e3 * step:.0f} ms on a batch", columns, rows, plot=[1])
        found = speeds["auto"] / best
        claim = f"after settling, at least 95 % of the best fixed number up to {CORES}, one per core"
        report.target(claim, found >= 0.95, f"{100 * found:.0f} %")
    report.write()


if __name__ == "__main__":
    main()
