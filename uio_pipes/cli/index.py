"""``uio index``: gives tar shards random access and exact lengths, and TouchDatasets checksums."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeVar, cast

import typer

from uio_pipes.cli.common import Json, keep_inputs, parsed, print_json, show_problems, verdict

T = TypeVar("T")


def index(
    paths: Annotated[list[str], typer.Argument(help="Lists, globs, shards, TouchDataset folders; local or URLs.")],
    into: Annotated[str | None, typer.Option(help="Folder for the indexes, instead of beside the data.")] = None,
    grouping: Annotated[
        str, typer.Option(help="How names are cut into key and suffix: wenet or webdataset.")
    ] = "wenet",
    text: Annotated[
        str, typer.Option(help="Suffix of the text, json:NAME for a field of a JSON member, or '' if there is none.")
    ] = "txt",
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Write the manifest of each list, even if it has one.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Index again what has an index that fits.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")] = os.cpu_count() or 1,
    json: Json = False,
) -> None:
    """Index tar shards by a small file for each; nothing is repacked. Lists without a manifest get one.

    TouchDatasets get checksums of their records, in a small file beside each .bin.
    """
    from uio_pipes.prep.index_lists import index_lists

    check_reading(grouping, text)
    keep_inputs(paths, [into])
    report = index_lists(
        paths,
        into=into,
        jobs=jobs,
        grouping=cast(Any, grouping),
        text=text,
        force=force,
        manifests="all" if manifest else "missing",
        follow=_follow,
    )
    if json:
        print_json(report.as_dict())
    else:
        typer.echo(str(report))
        show_problems(report.problems)
    verdict(not report.problems)


def check_reading(grouping: str, text: str) -> None:
    """Raises: typer.BadParameter if an option of reading tars is wrong."""
    from uio_pipes.sources.load_from_tar import LoadFromTar

    if grouping not in ("wenet", "webdataset"):
        raise typer.BadParameter("must be 'wenet' or 'webdataset'", param_hint="--grouping")
    if text:
        parsed("--text", lambda text: LoadFromTar(text=text), text)


def _follow(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    from uio_pipes.prep.common.progress_bar import follow

    return follow(((item, 1) for item in items), what, total)
