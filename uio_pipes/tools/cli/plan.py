"""``uio bench``, ``trace`` and ``simulate``: the speed of a pipeline, what its processes do, and an epoch by plan."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from uio_pipes.base.urls import plural
from uio_pipes.tools.cli.common import MOST, check_suffix, print_report, say
from uio_pipes.tools.cli.options import Json, Page, RunArgument, load_named

if TYPE_CHECKING:
    from uio_pipes.tools.reports.bench import Bench
    from uio_pipes.tools.reports.page import PageTable
    from uio_pipes.tools.reports.simulation import Simulation

Seed = Annotated[int, typer.Option(help="The loader's seed.")]
SOURCES, BAR = 4, 10  # sources along an epoch that a table shows, and characters of a full share


def bench(
    pipeline: RunArgument,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to run; with --workers, as long again.")] = 10.0,
    workers: Annotated[int, typer.Option(min=0, help="Also measure with this number of worker processes.")] = 0,
    seed: Seed = 0,
    out: Page = None,
    as_json: Json = False,
) -> None:
    """Find what makes a pipeline slow, and what to do about it.

    It is run, with a clock on every stage.
    """
    graph = load_named(pipeline)
    import logging

    from uio_pipes.tools.reports.bench import bench as measure

    logger = logging.getLogger("uio_pipes")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        result = measure(graph, seconds=seconds, num_workers=workers, seed=seed)
    finally:
        logger.setLevel(level)
    title, report = f"Where the time goes in {pipeline}", asdict(result) | {"advice": result.advice}
    print_report(bench_tables(result), report, as_json, out, title, most=MOST)


def bench_tables(result: Bench) -> list[PageTable]:
    """Return the tables that the terminal and the page show, the first one on what to do next."""
    from uio_pipes.tools.reports.page import Bar

    notes, most = result.advice, max(row.share for row in result.rows) or 1.0
    if result.failures:
        failed = plural(result.failures, "utterance")
        notes = [*notes, f"{failed} failed in the last epoch: uio inspect or simulate shows which"]
    rows = [(r.stage, f"{r.microseconds:,.1f}", f"{r.share:.1%}", Bar(min(1, r.share / most))) for r in result.rows]
    measured = [("this process", result.alone)]
    if result.workers is not None:
        measured.append((plural(result.num_workers, "worker"), result.workers))
    speeds = [
        (name, f"{speed.per_second:,.0f}", f"{speed.hours / speed.seconds:.3f}",
         f"{speed.batches / speed.seconds:.1f}", f"{speed.first_batch:.2f} s")
        for name, speed in measured
    ]  # fmt: skip
    return [
        ("Next", ("",), [(f"{note}.",) for note in [*notes, measured[-1][1].held] if note]),
        ("Where the time of one process goes", ("stage", "µs per utterance", "share", ""), rows),
        ("Speed", ("", "utterances/s", "hours/s", "batches/s", "first batch after"), speeds),
    ]


def trace(
    pipeline: RunArgument,
    batches: Annotated[int, typer.Option(min=1, help="How many are traced; epoch after epoch if need be.")] = 200,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes; 0: this process runs the stages.")] = 2,
    seed: Seed = 0,
    out: Annotated[str, typer.Option(help="The file to write: a .json for https://ui.perfetto.dev.")] = "trace.json",
) -> None:
    """See what each process does at which time.

    The trainer of this trace takes batches as fast as they come; in a training, loader.trace(path) writes its own.
    """
    check_suffix(out, ".json")
    graph = load_named(pipeline)
    from uio_pipes.core.ledger import COUNTED
    from uio_pipes.run.loader import Loader
    from uio_pipes.tools.reports.bench import epochs_of

    loader = Loader(graph, seed=seed, num_workers=workers, rank=0, world_size=1, failures=COUNTED)
    loader.trace(out, batches=batches)
    deque(islice(epochs_of(loader), batches), 0)
    say(f"{out}: {plural(batches, 'batch')}; open it with https://ui.perfetto.dev or chrome://tracing")


def simulate(
    pipeline: RunArgument,
    world_size: Annotated[int, typer.Option(min=1, help="Ranks (GPUs) in all.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes of each rank.")] = 0,
    lanes: Annotated[int | None, typer.Option(min=1, help="Lanes; ranks × workers if not given.")] = None,
    seed: Seed = 0,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Plan only so many steps of each rank, as of a stream that has no end.")
    ] = None,
    uneven: Annotated[
        Literal["share", "stop", "join"] | None,
        typer.Option(help="The loader's; if not given, share (stop for chunks)."),
    ] = None,
    out: Page = None,
    as_json: Json = False,
) -> None:
    """Know steps, padding and waiting of an epoch, before you book GPUs.

    The epoch is planned and not made: steps per rank, padding, frames per batch, skew, buckets, what is left out.
    """
    graph = load_named(pipeline)
    from uio_pipes.tools.data.common import progress_bar
    from uio_pipes.tools.reports.simulate import simulate as plan
    from uio_pipes.tools.reports.simulation import of_simulation

    if graph._opens_files:
        typer.echo(
            "note: reads the headers in every shard, which is slower than an index: uio index, from_tar_index", err=True
        )
    typer.echo("note: what fails only in decoding is not known here: it is planned as if it were good", err=True)
    with progress_bar() as bar:
        task = bar.add_task("planning lanes")
        run = plan(
            graph, world_size=world_size, num_workers=workers, lanes=lanes, seed=seed, epoch=epoch,
            uneven=uneven, steps=steps,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    title = f"{pipeline}: epoch {epoch} on {plural(world_size, 'rank')}"
    charts = of_simulation(run) if out else ()
    print_report(simulation_tables(run), run.summary(), as_json, out, title, charts, MOST)


def simulation_tables(run: Simulation) -> list[PageTable]:
    """Return the tables that the terminal and the page show."""
    seen, units = run.summary(), run.units
    share = f"{run.delivered_share:.0%}; planned {seen['hours']:.2f} h"
    workers = f"{plural(run.num_workers, 'worker')} each" if run.num_workers else "no workers"
    longest = (f"{n:,} {name}" for n, name in zip(run.largest[1:], units, strict=True))
    low, high = min(run.steps), max(run.steps)
    apart = seen["neighbours_apart"]
    rates = ", ".join(f"{rate}: {count:,}" for rate, count in run.rates.items())
    values = {
        "topology": f"{plural(run.world_size, 'rank')}, {workers}, lanes={run.lanes}, uneven={run.uneven}",
        "steps": f"{low:,} to {high:,}" if low < high else f"{low:,}{' on every rank' * (run.world_size > 1)}",
        "utterances delivered": f"{run.utterances:,} of {len(run.lengths):,} planned ({share})",
        "padding": ", ".join(f"{part:.1%} of the {name}" for name, part in zip(units, run.padding, strict=True)),
        "largest batch": " × ".join([plural(run.largest[0], "utterance"), *longest]),
        "skew": f"ranks wait {run.skew:.1%} of the time for the slowest; {run.skew_squared:.1%} by length × length",
        "mixed sample rates (Hz)": f"{rates}; put .resample(16_000) before the features" * (len(run.rates) > 1),
        "mixing": f"neighbours of a shard come {apart['p50']:,} utterances apart (median) in their lane"
        if apart
        else "",
        "fill": "" if run.fill is None else f"batches are {run.fill:.0%} full",
        "bucket_boundaries for all": str(run.boundaries) if run.boundaries else "",
    }
    found: list[PageTable] = [(f"Epoch {run.epoch}", ("", "value"), [one for one in values.items() if one[1]])]
    names = (f"padded_{units[0]}_per_batch", "utterances_per_batch", f"{units[0]}_per_utterance")
    spreads = [(name.replace("_", " "), *(f"{v:,.0f}" for v in seen[name].values())) for name in names if seen[name]]
    found.append(("Distributions", ("", "mean", "least", "5 %", "median", "95 %", "most"), spreads))
    if run.world_size > 1:
        ends = enumerate(zip(run.own, run.steps, strict=True))
        ranks = [(f"rank {rank}", own, steps, max(0, own - steps)) for rank, (own, steps) in ends]
        ranks.sort(key=itemgetter(1))  # those with the fewest end first
        found.append(("Ranks", ("", "batches of its lanes", "steps", "cut off"), ranks))
    if run.buckets:
        buckets = [
            (
                b.name,
                b.batches,
                b.utterances,
                "" if b.fill is None else f"{b.fill:.0%}",
                *map("{:.1%}".format, b.padding),
            )
            for b in run.buckets
        ]
        headings = (" × ".join(units), "batches", "utterances", "fill", *(f"padding of {u}" for u in units))
        found.append(("Buckets", headings, buckets))
    if run.along:
        sources = run.largest_sources[:SOURCES] if len(run.largest_sources) > 1 else []
        stretches = [
            (f"{s.first:,} to {s.last:,}", f"{s.utterances:,.1f}", f"{s.padded:,.0f}", f"{s.longest:,}",
             *(f"{'█' * round(BAR * s.shares[name])} {s.shares[name]:.0%}".lstrip() for name in sources))
            for s in run.along
        ]  # fmt: skip
        heads = ("steps", "utterances a batch", f"padded {units[0]}", f"longest {units[0]}", *sources)
        found.append(("Along the epoch", heads, stretches))
    left: list[tuple[str, Any]] = [(reason, f"{n:,}") for reason, n in run.left_out.items()]
    if run.cut_off[0]:
        left.append(
            (f"after the common end ({run.uneven})", f"{run.cut_off[0]:,} in {plural(run.cut_off[1], 'batch')}")
        )
    found.append(("Utterances left out, as known from headers", ("reason", "count"), left or [("none", "0")]))
    notes = [*run.notes, *filter(None, [run.remedy]), *(f"failed: {report}" for report in run.reports[:5])]
    return [*found, ("Notes", ("",), [(note,) for note in notes])] if notes else found
