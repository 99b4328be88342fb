"""``uio worst``: the utterances that hurt, by the record of a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from uio_pipes.tools.cli.common import check_suffix, print_report, say
from uio_pipes.tools.cli.options import Fields, Json, Page, load_named

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

KALDI = ("wav.scp", "feats.scp", "segments")  # lists of a folder in which the texts are, too


def worst(
    record: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder that uio.Recorder writes to.")],
    by: Annotated[
        Literal["last", "mean", "behind"],
        typer.Option(help="last: the newest; mean: of all times; behind: how much less it fell than was usual."),
    ] = "last",
    number: Annotated[
        str | None, typer.Option(help="The recorded number to go by; loss, or the first one, if not given.")
    ] = None,
    top: Annotated[str, typer.Option(help="How many, or a share of all utterances, as 4%.")] = "20",
    exclude: Annotated[
        str | None, typer.Option(help="Write them as a list for .exclude(…) and loader.exclude(…): a .jsonl file.")
    ] = None,
    html: Page = None,
    pipeline: Annotated[
        str | None, typer.Option(help="The run's pipeline, as train.py:pipeline: the page shows the features it makes.")
    ] = None,
    fields: Fields = None,
    as_json: Json = False,
) -> None:
    """Find the utterances that hurt a training.

    They are those of the highest loss, and those whose loss does not fall while that of others does; by source, shard,
    speaker and length, too.
    """
    check_suffix(exclude, ".jsonl")
    from uio_pipes.tools.reports import worst as reports

    found = reports.find_worst(record, by, number, top)
    if exclude is not None:
        from uio_pipes.io.files import write_bytes

        write_bytes(Path(exclude), reports.exclusions(found))
    if html is not None:
        from uio_pipes.tools.reports.audio_page import media_of
        from uio_pipes.tools.reports.page import save

        media = media_of(found.found, partial(_opened, fields), load_named(pipeline) if pipeline else None)
        save(html, f"The record in {record}", reports.tables(found, media), found.charts)
    report = {name: getattr(found, name) for name in ("number", "rows", "utterances", "mean")}
    print_report(reports.tables(found), report | {"worst": [one._asdict() for one in found.found]}, as_json)
    if exclude is not None and not as_json:
        say(f'{exclude}: leave them out by loader.exclude("{exclude}") in this run, by .exclude(…) in the next one')


def _opened(fields: dict[str, str] | None, shard: str) -> Pipeline:
    from uio_pipes.tools.data.recognize import recognize

    folder, _, name = shard.rpartition("/")
    return recognize(folder or "." if name in KALDI else shard, fields=fields).pipeline
