"""``uio simulate``: plans an epoch of a pipeline without decoding."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.common import Json, print_json
from uio_pipes.cli.pipeline_argument import Conf, Data, DataTypeOption, Named, Symbols, load
from uio_pipes.cli.tables import check_suffix, print_tables, say

if TYPE_CHECKING:
    from uio_pipes.reports.page import PageTable
    from uio_pipes.reports.simulation import Simulation

MOST = 16  # most ranks that a table shows
SOURCES, BAR = 4, 10  # sources that a table shows, and characters of a full share


class UnevenOption(Enum):
    """The ways to end an epoch in which some ranks have more batches than others."""

    stop = "stop"
    join = "join"
    repeat = "repeat"


def simulate(
    pipeline: Named = None,
    data_type: DataTypeOption = "shard",
    data: Data = None,
    conf: Conf = None,
    symbols: Symbols = None,
    world_size: Annotated[int, typer.Option(min=1, help="Ranks (GPUs) in all.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes of each rank.")] = 0,
    lanes: Annotated[int | None, typer.Option(min=1, help="Lanes; ranks × workers if not given.")] = None,
    seed: Annotated[int, typer.Option(help="The loader's seed.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Plan only so many steps of each rank, as of a stream that has no end.")
    ] = None,
    uneven: Annotated[UnevenOption | None, typer.Option(help="The loader's; stop if not given.")] = None,
    out: Annotated[str | None, typer.Option(help="Draw it: a .png or .html file.")] = None,
    as_json: Json = False,
) -> None:
    """Plan an epoch without making it: steps per rank, padding, frames per batch, skew, buckets, what is left out."""
    check_suffix(out, ".png", ".html")
    graph = load(pipeline, data_type, data, conf, symbols)
    from rich.console import Console
    from rich.progress import Progress

    from uio_pipes.reports import simulate as plan

    if plan.reads_headers(graph):
        typer.echo(
            "note: reads the headers in every shard, which is slower than an index: uio index, from_tar_index", err=True
        )
    typer.echo("note: what fails only in decoding is not known here: it is planned as if it were good", err=True)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("lanes")
        run = plan.simulate(
            graph, world_size=world_size, num_workers=workers, lanes=lanes, seed=seed, epoch=epoch,
            uneven=None if uneven is None else uneven.value, steps=steps,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )  # fmt: skip
    if out is not None:
        from uio_pipes.reports.charts import of_simulation
        from uio_pipes.reports.page import save

        save(out, f"Epoch {epoch} on {counted(world_size, 'rank')}", tables(run), of_simulation(run))
    if as_json:
        print_json(run.summary())
        return
    print_tables(tables(run))
    for note in [*run.notes, *filter(None, [run.remedy])]:
        say(f"note: {note}")
    for report in run.reports[:5]:
        say(f"failed: {report}")


def tables(run: Simulation) -> list[PageTable]:
    """Return the tables that the terminal and the page show."""
    seen = run.summary()
    share = f"{run.delivered_share:.0%}; planned {seen['hours']:.2f} h"
    workers = f"{counted(run.num_workers, 'worker')} each" if run.num_workers else "no workers"
    rows: list[tuple[str, object]] = [
        ("topology", f"{counted(run.world_size, 'rank')}, {workers}, lanes={run.lanes}, uneven={run.uneven}"),
        ("steps", _range(run.steps)),
        ("utterances delivered", f"{run.utterances:,} of {len(run.lengths):,} planned ({share})"),
        (
            "padding",
            ", ".join(f"{share:.1%} of the {name}" for name, share in zip(run.units, run.padding, strict=True)),
        ),
        (
            "largest batch",
            " × ".join(
                [
                    counted(run.largest[0], "utterance"),
                    *(f"{n:,} {name}" for n, name in zip(run.largest[1:], run.units, strict=True)),
                ]
            ),
        ),
        ("skew", f"ranks wait {run.skew:.1%} of the time for the slowest"),
        ("busiest worker", f"{run.workers:.2f} × the mean"),
    ]
    if len(run.rates) > 1:
        shown = ", ".join(f"{rate}: {count:,}" for rate, count in run.rates.items())
        rows.append(("mixed sample rates (Hz)", f"{shown}; put .resample(16_000) before the features"))
    if apart := seen["neighbours_apart"]:
        rows.append(("mixing", f"neighbours of a shard come {apart['p50']:,} utterances apart (median) in their lane"))
    if run.fill is not None:
        rows.append(("fill", f"batches are {run.fill:.0%} full"))
    found: list[PageTable] = [(f"Epoch {run.epoch}", ("", "value"), rows)]
    unit = run.units[0]
    names = (f"padded_{unit}_per_batch", "utterances_per_batch", f"{unit}_per_utterance")
    spreads = [(name.replace("_", " "), *(f"{v:,.0f}" for v in seen[name].values())) for name in names if seen[name]]
    found.append(("Distributions", ("", "mean", "least", "5 %", "median", "95 %", "most"), spreads))
    if run.world_size > 1:
        ranks = [
            (f"rank {r}", own, n, own - n if n < own else 0)
            for r, (own, n) in enumerate(zip(run.own, run.steps, strict=True))
        ]
        if len(ranks) > MOST:
            by_own = sorted(ranks, key=lambda row: row[1])
            ranks = [*by_own[: MOST // 2], *by_own[-MOST // 2 :]]
        title = "Ranks" if len(ranks) == run.world_size else f"Ranks with the fewest and the most of {run.world_size}"
        found.append((title, ("", "batches of its lanes", "steps", "cut off"), ranks))
    if run.buckets:
        shares = [[f"{share:.1%}" for share in b.padding] for b in run.buckets]
        buckets = [
            (b.name, b.batches, b.utterances, "" if b.fill is None else f"{b.fill:.0%}", *share)
            for b, share in zip(run.buckets, shares, strict=True)
        ]
        headings = (" × ".join(run.units), "batches", "utterances", "fill", *(f"padding of {u}" for u in run.units))
        found.append(("Buckets", headings, buckets))
    if run.along:
        found.append(_along(run))
    left = [(reason, f"{n:,}") for reason, n in run.left_out.items()]
    if run.cut_off[0]:
        left.append(("after the common end (stop)", f"{run.cut_off[0]:,} in {counted(run.cut_off[1], 'batch')}"))
    return [*found, ("Utterances left out, as known from headers", ("reason", "count"), left or [("none", "0")])]


def _along(run: Simulation) -> PageTable:
    """Return the table of the epoch in stretches. Of many sources it shows those with the largest shares."""
    names = run.largest_sources[:SOURCES] if len(run.largest_sources) > 1 else []
    rows = [
        (f"{s.first:,} to {s.last:,}", f"{s.utterances:,.1f}", f"{s.padded:,.0f}", f"{s.longest:,}",
         *(f"{'█' * round(BAR * s.shares[name])} {s.shares[name]:.0%}".lstrip() for name in names))
        for s in run.along
    ]  # fmt: skip
    unit = run.units[0]
    return "Along the epoch", ("steps", "utterances a batch", f"padded {unit}", f"longest {unit}", *names), rows


def _range(steps: list[int]) -> str:
    low, high = min(steps), max(steps)
    return f"{low:,}{' on every rank' * (len(steps) > 1)}" if low == high else f"{low:,} to {high:,}"
