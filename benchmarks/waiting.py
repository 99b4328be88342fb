"""Claim: a trainer waits for batches only if workers cannot keep up: never while a buffer refills.

Each step of the trainer takes as long as the loader needs for a batch on average, times a factor (1.0: exactly as long,
so that any unevenness shows; 1.25: a fifth of the worker's time to spare). Two epochs, one worker, shuffle 1,500 and
sort 500. Reported are the waits as ``loader.stats()`` has them, and apart from those the wait for the first batch of an
epoch. The steps are sleeps; one worker leaves a core for the trainer, which would otherwise wait for its turn on one:
``python -m benchmarks.waiting``.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, older, parser, rounds, spread
from benchmarks.corpus import prepare

MODULE = "benchmarks.waiting"
STEPS = (1.0, 1.25)  # of the mean time of a batch
EPOCHS = 2


def measure(data: str, workers: int, prefetch: int, step: float) -> dict[str, Any]:
    """Measure the shares of the trainer's time."""
    import uio_pipes as uio
    from benchmarks.peers.uio import pipeline

    graph = pipeline(prepare(Path(data)).list("tar"))
    free = _epoch(uio.Loader(graph, seed=7, num_workers=workers, prefetch_factor=prefetch), 0.0)
    each = sum(free[1:]) / (len(free) - 1)
    loader = uio.Loader(graph, seed=7, num_workers=workers, prefetch_factor=prefetch)
    began, waits, told, firsts = time.perf_counter(), [], 0.0, 0.0
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        first, *later = _epoch(loader, each * step)
        waits += later
        firsts += first / EPOCHS
        told += loader.stats().waited
    total = time.perf_counter() - began
    return {
        "batch_ms": each * 1e3,
        "share": sum(waits) / (total - EPOCHS * firsts),
        "told": told / total,
        "first": firsts,
        "waited": sum(wait > 0.1 * each for wait in waits) / len(waits),
        "longest": max(waits) / each,
        "usual_ms": statistics.median(waits) * 1e3,
    }


def _epoch(loader: Any, step: float) -> list[float]:
    """Return how long the trainer waited for each batch."""
    waits, asked = [], time.perf_counter()
    for _ in loader:
        waits.append(time.perf_counter() - asked)
        time.sleep(step)
        asked = time.perf_counter()
    return waits


def main() -> None:
    """Measure all and write results/waiting.md."""
    arguments = begin(measure, parser(__doc__, repeats=3))
    prepare(arguments.data)
    report = Report("waiting", "The trainer's waiting")
    jobs = {
        f"step {step} × a batch's time, prefetch={prefetch}": {
            "workers": 1,
            "prefetch": prefetch,
            "step": step,
        }
        for step in STEPS
        for prefetch in (2, 8)
    }
    jobs |= older(jobs, arguments.old)
    results = rounds(MODULE, jobs, arguments.repeats, data=arguments.data)
    rows = []
    for name, runs in report.ran(results).items():
        shares = [f"{100 * median(runs, field):.1f} %" for field in ("share", "waited", "told")]
        usual = spread(runs, "usual_ms")
        rows.append(
            [name, spread(runs, "batch_ms", ".0f"), *shares, usual, spread(runs, "longest"), spread(runs, "first")]
        )
    columns = [
        "one worker",
        "batch, ms",
        "waiting after the first",
        "batches waited for",
        "stats().waited",
        "usual, ms",
    ]
    report.table("Waiting", [*columns, "longest, in batches", "first batch, s"], rows, plot=[2])
    spare = results[f"step {STEPS[1]} × a batch's time, prefetch=2"]
    share, longest, each = (median(spare, field) for field in ("share", "longest", "batch_ms"))
    report.target(
        "with a fifth to spare, no wait longer than a tenth of a batch's time", longest <= 0.1, f"{longest:.2f}"
    )
    report.target(
        "with a fifth to spare, at most 1 % of the time waiting",
        share <= 0.01,
        f"{100 * share:.2f} %: {share * STEPS[1] * each:.2f} ms a batch",
    )
    usual = median(spare, "usual_ms")
    report.target("a batch is handed over in 0.2 ms", usual <= 0.2, f"{usual:.2f} ms")
    report.write()


if __name__ == "__main__":
    main()
