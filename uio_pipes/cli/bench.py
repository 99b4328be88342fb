"""``uio bench``: measures the throughput of a pipeline, stage by stage."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.common import Json, print_json
from uio_pipes.cli.pipeline_argument import Conf, Data, DataTypeOption, Named, Symbols, load
from uio_pipes.cli.tables import check_suffix, print_tables, say

if TYPE_CHECKING:
    from uio_pipes.reports.bench import Bench, Speed
    from uio_pipes.reports.page import PageTable

MOST = 30  # rows of stages that a table shows


def bench(
    pipeline: Named = None,
    data_type: DataTypeOption = "shard",
    data: Data = None,
    conf: Conf = None,
    symbols: Symbols = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to run; with --workers, as long again.")] = 10.0,
    workers: Annotated[int, typer.Option(min=0, help="Also measure with this number of worker processes.")] = 0,
    seed: Annotated[int, typer.Option(help="The loader's seed.")] = 0,
    out: Annotated[str | None, typer.Option(help="Draw it: a .png or .html file.")] = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline, show where its time goes, stage by stage, and advise what to do."""
    check_suffix(out, ".png", ".html")
    graph = load(pipeline, data_type, data, conf, symbols)
    import logging

    from uio_pipes.reports import bench as measure

    logger = logging.getLogger("uio_pipes")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        result = measure.bench(graph, seconds=seconds, num_workers=workers, seed=seed)
    finally:
        logger.setLevel(level)
    if out is not None:
        from uio_pipes.reports.charts import of_bench
        from uio_pipes.reports.page import save

        save(out, "Where the time goes", [*tables(result), ("Next", ("",), _notes(result))], of_bench(result))
    if as_json:
        print_json(asdict(result) | {"advice": result.advice})
        return
    print_tables(tables(result))
    *failed, (advice,) = _notes(result)
    for (text,) in failed:
        say(text)
    say(f"next: {advice}")


def _notes(result: Bench) -> list[tuple[str]]:
    """Return notes, the last one on what to do next."""
    failed = f"{counted(result.failures, 'utterance')} failed in the last epoch: uio inspect shows which"
    return [(failed,), (result.advice,)] if result.failures else [(result.advice,)]


def tables(result: Bench) -> list[PageTable]:
    """Return the tables that the terminal and the page show."""
    from uio_pipes.reports.bench import StageCost
    from uio_pipes.reports.page import Bar

    most = max(r.share for r in result.rows) or 1.0
    named, others = result.rows[:MOST], result.rows[MOST:]
    if others:
        microseconds, share = sum(r.microseconds for r in others), sum(r.share for r in others)
        named = [*named, StageCost(f"… {counted(len(others), 'other')}", microseconds, share)]
    rows = [(r.stage, f"{r.microseconds:,.1f}", f"{r.share:.1%}", Bar(min(1, r.share / most))) for r in named]
    speeds = [_speed("this process", result.alone)]
    if result.workers is not None:
        speeds.append(_speed(counted(result.num_workers, "worker"), result.workers))
    found: list[PageTable] = [
        ("Where the time of one process goes", ("stage", "µs per utterance", "share", ""), rows),
        ("Speed", ("", "utterances/s", "hours/s", "batches/s", "first batch after"), speeds),
    ]
    if result.workers is not None:
        handed = [("from worker to trainer", f"{result.handed:,.1f}")]
        found.append(("Handing over", ("", "µs per utterance"), handed))
    return found


def _speed(name: str, speed: Speed) -> tuple[str, ...]:
    per = speed.seconds or 1.0
    rates = (f"{speed.per_second:,.0f}", f"{speed.hours / per:.3f}", f"{speed.batches / per:.1f}")
    return (name, *rates, f"{speed.first_batch:.2f} s")
