"""``uio bench``, ``uio buckets`` and ``uio simulate``: the speed of a pipeline, its buckets, and an epoch by plan."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uio_pipes.base.urls import counted
from uio_pipes.tools.cli import options
from uio_pipes.tools.cli.common import (
    check_suffix,
    keep_inputs,
    local_file,
    parsed,
    print_json,
    print_tables,
    say,
    verdict,
)
from uio_pipes.tools.cli.options import Conf, Data, DataTypeOption, Draw, Fields, Json, Named, Seed, Symbols

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline
    from uio_pipes.tools.reports.bench import Bench, Speed
    from uio_pipes.tools.reports.page import PageTable
    from uio_pipes.tools.reports.simulation import FoundBuckets, Simulation


MOST_STAGES = 30  # rows of stages that a table shows


def bench(
    pipeline: Named = None,
    data_type: DataTypeOption = "shard",
    data: Data = None,
    conf: Conf = None,
    symbols: Symbols = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to run; with --workers, as long again.")] = 10.0,
    workers: Annotated[int, typer.Option(min=0, help="Also measure with this number of worker processes.")] = 0,
    seed: Seed = 0,
    out: Draw = None,
    as_json: Json = False,
) -> None:
    """Find what makes a pipeline slow, and what to do about it.

    It is run, with a clock on every stage.
    """
    check_suffix(out, ".html")
    graph = options.load(pipeline, data_type, data, conf, symbols)
    import logging

    from uio_pipes.tools.reports import bench as measure

    logger = logging.getLogger("uio_pipes")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        result = measure.bench(graph, seconds=seconds, num_workers=workers, seed=seed)
    finally:
        logger.setLevel(level)
    if out is not None:
        from uio_pipes.tools.reports.page import machine, save

        tables = [("Next", ("",), _notes(result)), *bench_tables(result)]
        save(out, f"Where the time goes in {pipeline or data}", tables, about=machine())
    if as_json:
        print_json(asdict(result) | {"given": sorted(result.given), "advice": result.advice})
        return
    for (text,) in _notes(result):
        say(text)
    say("")
    print_tables(bench_tables(result))


def _notes(result: Bench) -> list[tuple[str]]:
    """Return notes, the first one on what to do next."""
    failed = f"{counted(result.failures, 'utterance')} failed in the last epoch: uio inspect or simulate shows which"
    return [(f"{result.advice}.",), *[(f"{failed}.",)] * bool(result.failures)]


def bench_tables(result: Bench) -> list[PageTable]:
    """Return the tables that the terminal and the page show."""
    from uio_pipes.tools.reports.bench import StageCost
    from uio_pipes.tools.reports.page import Bar

    most = max(r.share for r in result.rows) or 1.0
    named, others = result.rows[:MOST_STAGES], result.rows[MOST_STAGES:]
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


def buckets(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="Any data that `uio inspect` knows, or a pipeline: train.py:pipeline. The file is run."
        ),
    ],
    num_buckets: Annotated[
        str, typer.Option(metavar="N[,N]", help="Buckets; 10,3: 10 by frames, each of them 3 by tokens.")
    ] = "10",
    sample: Annotated[
        int | None, typer.Option(min=1, help="Look at this number of utterances only; of DATA, in a random order.")
    ] = None,
    symbols: Annotated[
        str | None, typer.Option(help="A dictionary (lang_char.txt) for the tokens of DATA. If not given, characters.")
    ] = None,
    fields: Fields = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Write a .json file that bucket_batch(bucket_boundaries=…) takes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the buckets of lengths that leave the least padding.

    They go by frames, or by frames and tokens.
    """
    many = parsed("--num-buckets", _numbers, num_buckets)
    check_suffix(out, ".json")
    if out is not None:
        local_file(Path(out))
    keep_inputs([data, symbols], [out])
    graph = _graph(data, symbols, fields, isinstance(many, tuple))
    from uio_pipes.tools.reports.simulation import find_buckets, shuffled

    random_order = sample is not None and not options.names_pipeline(data)
    found = find_buckets(shuffled(graph) if random_order else graph, many, sample)
    if out is not None:
        from uio_pipes.io.files import write_lines

        write_lines(Path(out), [json.dumps(found.summary())])
    if as_json:
        print_json(found.summary())
    else:
        print_tables(bucket_tables(found))
        say(f"bucket_boundaries={found.boundaries}")
        if out is not None:
            say(f"{out}: .bucket_batch({out!r}, …) takes it")
        for report in found.reports[:5]:
            say(f"failed: {report}")
    verdict(not found.failures)


def bucket_tables(found: FoundBuckets) -> list[PageTable]:
    """Return the tables that the terminal shows."""
    shares = [[f"{share:.1%}" for share in bucket.padding] for bucket in found.buckets]
    rows = [
        (" × ".join(map(str, bucket.longest)), f"{bucket.utterances:,}", f"{bucket.frames / 360_000:.3f}", *share)
        for bucket, share in zip(found.buckets, shares, strict=True)
    ]
    hours = sum(bucket.frames for bucket in found.buckets) / 360_000
    rows.append(("all", f"{found.utterances:,}", f"{hours:.3f}", *(f"{share:.1%}" for share in found.padding)))
    names = [f"padding of {unit}" for unit in found.units]
    title = "Buckets, each padded to its longest"
    shown: list[PageTable] = [(title, (f"longest {' × '.join(found.units)}", "utterances", "hours", *names), rows)]
    left = [(reason, f"{n:,}") for reason, n in found.left_out.items()]
    return [*shown, ("Utterances left out", ("reason", "count"), left)] if left else shown


def _numbers(text: str) -> int | tuple[int, int]:
    numbers = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(numbers) != text.count(",") + 1 or len(numbers) > 2 or min(numbers) < 1:
        raise ValueError(f"{text!r} must be a number of buckets, or two: 10,3")
    return (numbers[0], numbers[1]) if len(numbers) == 2 else numbers[0]


def _graph(data: str, symbols: str | None, fields: str | None, by_tokens: bool) -> Pipeline:
    """Return the pipeline that is named, or that of the data, with tokens if they are asked for."""
    if options.names_pipeline(data):
        if symbols is not None or fields is not None:
            raise typer.BadParameter("--symbols and --fields are for data; a pipeline of your own has its own stages")
        return options.load_named(data)
    from uio_pipes.tools.data.recognize import recognize

    known = recognize(data, fields=options.field_names(fields))
    if known.lacks:
        raise typer.BadParameter(f"{data} has {known.lacks} ({known.kind}): name a pipeline with your tokenizer")
    graph = known.pipeline.decode_audio()
    if not by_tokens:
        if symbols is not None:
            raise typer.BadParameter("--symbols needs --num-buckets N,N")
        return graph
    if symbols is None:
        typer.echo(
            "note: counts characters as tokens; --symbols, or a pipeline with your tokenizer, counts yours", err=True
        )
        return graph.tokenize(_code_points)
    from uio_pipes.tokenizers import CharTokenizer

    return graph.tokenize(CharTokenizer(symbols))


def _code_points(text: str) -> list[int]:
    return [ord(character) for character in text]


MOST_RANKS = 16  # most ranks that a table shows
SOURCES, BAR = 4, 10  # sources that a table shows, and characters of a full share


UnevenOption = Enum("UnevenOption", {"stop": "stop", "join": "join", "repeat": "repeat"})  # run.epoch_end's UNEVEN


def simulate(
    pipeline: Named = None,
    data_type: DataTypeOption = "shard",
    data: Data = None,
    conf: Conf = None,
    symbols: Symbols = None,
    world_size: Annotated[int, typer.Option(min=1, help="Ranks (GPUs) in all.")] = 1,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes of each rank.")] = 0,
    lanes: Annotated[int | None, typer.Option(min=1, help="Lanes; ranks × workers if not given.")] = None,
    seed: Seed = 0,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Plan only so many steps of each rank, as of a stream that has no end.")
    ] = None,
    uneven: Annotated[UnevenOption | None, typer.Option(help="The loader's; stop if not given.")] = None,
    out: Draw = None,
    as_json: Json = False,
) -> None:
    """Know steps, padding and waiting of an epoch, before you book GPUs.

    The epoch is planned and not made: steps per rank, padding, frames per batch, skew, buckets, what is left out.
    """
    check_suffix(out, ".html")
    graph = options.load(pipeline, data_type, data, conf, symbols)
    from rich.console import Console
    from rich.progress import Progress

    from uio_pipes.tools.reports import simulate as plan

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
        from uio_pipes.tools.reports.page import machine, save
        from uio_pipes.tools.reports.simulation import of_simulation

        title = f"{pipeline or data}: epoch {epoch} on {counted(world_size, 'rank')}"
        save(out, title, simulation_tables(run), of_simulation(run), about=machine())
    if as_json:
        print_json(run.summary())
        return
    print_tables(simulation_tables(run))
    for note in [*run.notes, *filter(None, [run.remedy])]:
        say(f"note: {note}")
    for report in run.reports[:5]:
        say(f"failed: {report}")


def simulation_tables(run: Simulation) -> list[PageTable]:
    """Return the tables that the terminal and the page show."""
    seen = run.summary()
    share = f"{run.delivered_share:.0%}; planned {seen['hours']:.2f} h"
    workers = f"{counted(run.num_workers, 'worker')} each" if run.num_workers else "no workers"
    longest = (f"{n:,} {name}" for n, name in zip(run.largest[1:], run.units, strict=True))
    rows: list[tuple[str, object]] = [
        ("topology", f"{counted(run.world_size, 'rank')}, {workers}, lanes={run.lanes}, uneven={run.uneven}"),
        ("steps", _range(run.steps)),
        ("utterances delivered", f"{run.utterances:,} of {len(run.lengths):,} planned ({share})"),
        ("padding", ", ".join(f"{part:.1%} of the {name}" for name, part in zip(run.units, run.padding, strict=True))),
        ("largest batch", " × ".join([counted(run.largest[0], "utterance"), *longest])),
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
        if len(ranks) > MOST_RANKS:
            by_own = sorted(ranks, key=lambda row: row[1])
            ranks = [*by_own[: MOST_RANKS // 2], *by_own[-MOST_RANKS // 2 :]]
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
