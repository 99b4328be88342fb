"""``uio index``: random access and exact lengths for tar shards that exist already; checksums for TouchDatasets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeVar, cast

import typer

from uio_pipes.base.printable import printable
from uio_pipes.cli.common import Json, keep_inputs, parsed, print_json

__all__ = ["check_reading", "index", "show"]

T = TypeVar("T")


def index(
    paths: Annotated[list[str], typer.Argument(help="Lists, globs, shards, TouchDataset folders; local or URLs.")],
    into: Annotated[str | None, typer.Option(help="Folder for the indexes, instead of beside the data.")] = None,
    grouping: Annotated[str, typer.Option(help="Names are cut as 'wenet' or as 'webdataset' does.")] = "wenet",
    text: Annotated[str, typer.Option(help="The text's suffix, or json:NAME, a field of a JSON member.")] = "txt",
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Write the lists' manifests, even if there is one.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Index anew what has an index that fits.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")] = os.cpu_count() or 1,
    json: Json = False,
) -> None:
    """Index tar shards: a small file for each, nothing is repacked. Lists without a manifest get one.

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
        show(report.problems)
    if report.problems:
        raise typer.Exit(1)


def check_reading(grouping: str, text: str) -> None:
    """Raises: typer.BadParameter."""
    from uio_pipes.sources.load_from_tar import LoadFromTar

    if grouping not in ("wenet", "webdataset"):
        raise typer.BadParameter("must be 'wenet' or 'webdataset'", param_hint="--grouping")
    parsed("--text", lambda text: LoadFromTar(text=text), text)


def show(problems: list[Any], most: int = 20) -> None:
    """Failures, a line each, on stderr."""
    for error in problems[:most]:
        typer.echo(printable(str(error)), err=True)
    if len(problems) > most:
        typer.echo(f"… {len(problems)} in all: --json shows them", err=True)


def _follow(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    from uio_pipes.prep.common.progress_bar import follow

    return follow(((item, 1) for item in items), what, total)
