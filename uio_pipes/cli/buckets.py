"""``uio buckets``: finds boundaries for ``bucket_batch``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uio_pipes.cli.common import Fields, Json, field_names, keep_inputs, local_file, parsed, print_json, verdict
from uio_pipes.cli.pipeline_argument import load_named, names_pipeline
from uio_pipes.cli.tables import check_suffix, print_tables, say

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline
    from uio_pipes.reports.buckets import FoundBuckets
    from uio_pipes.reports.page import PageTable


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
    """Find the boundaries of buckets that leave the least padding, by frames, or by frames and tokens."""
    many = parsed("--num-buckets", _numbers, num_buckets)
    check_suffix(out, ".json")
    if out is not None:
        local_file(Path(out))
    keep_inputs([data, symbols], [out])
    graph = _graph(data, symbols, fields, isinstance(many, tuple))
    from uio_pipes.reports.buckets import find_buckets, shuffled

    random_order = sample is not None and not names_pipeline(data)
    found = find_buckets(shuffled(graph) if random_order else graph, many, sample)
    if out is not None:
        from uio_pipes.prep.writing.files import write_lines

        write_lines(Path(out), [json.dumps(found.summary())])
    if as_json:
        print_json(found.summary())
    else:
        print_tables(tables(found))
        say(f"bucket_boundaries={found.boundaries}")
        if out is not None:
            say(f"{out}: .bucket_batch({out!r}, …) takes it")
        for report in found.reports[:5]:
            say(f"failed: {report}")
    verdict(not found.failures)


def tables(found: FoundBuckets) -> list[PageTable]:
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
    if names_pipeline(data):
        if symbols is not None or fields is not None:
            raise typer.BadParameter("--symbols and --fields are for data; a pipeline of your own has its own stages")
        return load_named(data)
    from uio_pipes.prep.recognize import recognize

    known = recognize(data, fields=field_names(fields))
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
