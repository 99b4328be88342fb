"""Claim: a trace costs at most 2 % of a loader's CPU time while it is written, and nothing when it is not.

Epochs with and without ``loader.trace`` take turns in one process, each with a new loader: that of ``throughput.py``,
with features and as padded waveforms, without workers and with two. Their CPU time is that of trainer and workers
together. Whatever else runs on the machine only adds to it, so the quarter of the epochs that took least is compared.
``--old COMMIT`` compares the epochs without a trace with a package that has none: ``python -m
benchmarks.tracing --old 00c06bba``.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.common import Report, begin, median, older, parser, rounds, settle, sized, spread
from benchmarks.corpus import prepare

MODULE = "benchmarks.tracing"
SEED = 777
PAIRS = sized(12, 1)  # of epochs, with a trace and without
TIMES = {True: 1, False: 4}  # the corpus in an epoch, by features: each epoch takes more than a second
ENDLESS = 1_000_000  # batches: the trace ends with its loader
MOST = 2.0  # percent
KINDS = {
    f"{what}, {'two workers' if workers else 'one process'}": {"features": what == "features", "workers": workers}
    for what in ("features", "waveforms")
    for workers in (0, 2)
}


def measure(data: str, features: bool, workers: int, traces: bool = True) -> dict[str, Any]:
    """Measure the CPU microseconds for an utterance in epochs without a trace (``off``) and with one (``on``)."""
    from benchmarks.peers.uio import batched, pipeline
    from uio_pipes.api import from_shard_list

    corpus = prepare(Path(data), tar_only=True)
    with tempfile.TemporaryDirectory() as folder:
        path, shards = Path(folder, "trace.json"), Path(folder, "tar.list")
        shards.write_text(Path(corpus.list("tar")).read_text() * TIMES[features])
        graph = pipeline(str(shards)) if features else batched(from_shard_list(shards, shuffle=True).decode_audio())
        _epoch(graph, workers, None)  # the files are in the page cache, and tables are made
        settle()
        took: dict[str, list[float]] = {"off": [], "on": []} if traces else {"off": []}
        for turn in range(PAIRS):
            for name in list(took)[:: 1 if turn % 2 else -1]:
                took[name].append(_epoch(graph, workers, path if name == "on" else None))
        utterances = corpus.utterances * TIMES[features]
        size = os.path.getsize(path) / utterances if traces else 0
    shown = {name: fmean(sorted(each)[: max(1, PAIRS // 4)]) * 1e6 / utterances for name, each in took.items()}
    return {**shown, "percent": 100 * (shown["on"] / shown["off"] - 1), "bytes": size} if traces else shown


def _epoch(graph: Any, workers: int, path: Path | None) -> float:
    """Return the CPU seconds of an epoch."""
    from uio_pipes.api import Loader

    began = _cpu()
    loader = Loader(graph, seed=SEED, num_workers=workers)
    if path is not None:
        loader.trace(path, batches=ENDLESS)
    for _ in loader:
        pass
    del loader  # ends the trace, and the workers
    return _cpu() - began


def _cpu() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def main() -> None:
    """Measure all and write results/tracing.md."""
    arguments = begin(measure, parser(__doc__, repeats=3))
    prepare(arguments.data, tar_only=True)
    report = Report("tracing", "What a trace costs")
    jobs: dict[str, dict[str, object]] = {name: dict(what) for name, what in KINDS.items()}
    without = {f"{name}, no trace": {**what, "traces": False} for name, what in KINDS.items()} if arguments.old else {}
    before = older(without, arguments.old)
    results = report.ran(rounds(MODULE, {**jobs, **without, **before}, arguments.repeats, data=arguments.data))
    fields = (("off", ".0f"), ("on", ".0f"), ("percent", "+.1f"), ("bytes", ".0f"))
    rows = [[name, *(spread(runs, field, form) for field, form in fields)] for name, runs in results.items()]
    report.table("CPU time for an utterance", ["loader", "µs, no trace", "µs, traced", "percent", "bytes"], rows)
    for name in jobs:
        found = median(results.get(name, []), "percent")
        report.target(f"a trace costs at most {MOST:g} % ({name})", found <= MOST, f"{found:+.1f} %")
    for new, old in zip(without, before, strict=False):
        more = 100 * (median(results.get(new, []), "off") / median(results.get(old, []), "off") - 1)
        report.target(f"at most 1 % more than {arguments.old} ({new})", more <= 1, f"{more:+.1f} %")
    report.write()


if __name__ == "__main__":
    main()
