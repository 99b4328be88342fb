"""``uio verify``: reads all data once, to find what is wrong before the training does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any, cast

import typer

from uio_pipes.base.printable import counted, printable
from uio_pipes.cli.common import Fields, Json, field_names, keep_inputs, print_json, show_problems, verdict
from uio_pipes.cli.index import check_reading


def verify(
    paths: Annotated[
        list[str],
        typer.Argument(help="Lists, globs, shards, manifests, Parquet files, texts, folders, URLs."),
    ],
    decode: Annotated[bool, typer.Option("--decode", help="Decode all audio, read all features.")] = False,
    crc: Annotated[
        bool, typer.Option("--crc", help="Demand an index of all data, and compare with its CRC32s.")
    ] = False,
    rate: Annotated[int | None, typer.Option(min=1, help="Sample rate in Hz that all audio must have.")] = None,
    quarantine: Annotated[str | None, typer.Option(help="File to which each finding is appended, once.")] = None,
    confirm: Annotated[
        str | None, typer.Option(help="Look only at what this quarantine file names, and report what is still bad.")
    ] = None,
    grouping: Annotated[
        str, typer.Option(help="How names are cut into key and suffix: wenet or webdataset.")
    ] = "wenet",
    text: Annotated[str, typer.Option(help="Suffix of the text, or json:NAME for a field of a JSON member.")] = "txt",
    fields: Fields = None,
    indexes: Annotated[str | None, typer.Option(help="Folder of `uio index --into`.")] = None,
    allow_pipes: Annotated[bool, typer.Option("--allow-pipes", help="Run a Kaldi folder's commands.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")] = os.cpu_count() or 1,
    json: Json = False,
) -> None:
    """Check structure, manifests, indexes, headers, texts, keys; exit code 1 if anything is bad."""
    from uio_pipes.prep.checking.shard import WantedChecks

    check_reading(grouping, text)
    if confirm is not None and quarantine is not None:
        raise typer.BadParameter("cannot be given with --confirm", param_hint="--quarantine")
    keep_inputs(paths, [quarantine])
    names = field_names(fields)
    wanted = WantedChecks(decode or confirm is not None, crc, rate, cast(Any, grouping), text, indexes, names)
    if confirm is not None:
        bad = _confirm(paths, confirm, wanted, jobs, json)
    else:
        bad = _verify(paths, wanted, quarantine, jobs, allow_pipes, json)
    verdict(not bad)


def _verify(paths: list[str], wanted: Any, quarantine: str | None, jobs: int, allow_pipes: bool, json: bool) -> bool:
    from uio_pipes.formats.lists.quarantine import Quarantine, entry_of
    from uio_pipes.prep.verify import verify as run

    reports = run(paths, wanted, jobs=jobs, allow_pipes=allow_pipes)
    file = None if quarantine is None else Quarantine(quarantine)  # if it cannot be written, it is an error now
    report = _last(reports)
    entries = [entry_of(found, "verify") for found in report.findings]
    if file is not None:
        for entry in entries:
            file.add(entry)
        file.close()
    if json:
        counts = {"items": report.items, "utterances": report.utterances, "bytes": report.bytes}
        print_json({**counts, "reasons": report.reasons, "findings": entries, "notes": report.notes})
    else:
        found = ", ".join(f"{count} {reason}" for reason, count in report.reasons.items()) or "nothing is wrong"
        read = f"{counted(report.utterances, 'utterance')} of {counted(report.items, 'item')}"
        for line in (f"{read}, {report.bytes / 1e6:.1f} MB: {found}", *report.notes):
            typer.echo(printable(line))
        show_problems(report.findings)
    return bool(report.findings)


def _confirm(paths: list[str], path: str, wanted: Any, jobs: int, json: bool) -> bool:
    from uio_pipes.formats.lists.quarantine import read_quarantine
    from uio_pipes.prep.verify import confirm

    result = confirm(paths, read_quarantine(path), wanted, jobs=jobs)
    if json:
        print_json(vars(result))
    else:
        elsewhere = f", {len(result.elsewhere)} of shards on none of the lists" if result.elsewhere else ""
        typer.echo(f"{_number(result.bad)} still bad, {_number(result.well)} well now{elsewhere}")
        for entry in result.bad[:20]:
            where = f"{entry['url']}: {entry.get('key') or entry.get('member')} [{entry['reason']}]"
            typer.echo(printable(where), err=True)
    return bool(result.bad)


def _number(entries: list[Any]) -> str:
    return f"{len(entries)} {'is' if len(entries) == 1 else 'are'}"


def _last(reports: Iterator[Any]) -> Any:
    """Return the last report, and show a progress bar until then."""
    from uio_pipes.prep.common.progress_bar import progress_bar

    last = None
    with progress_bar() as bar:
        task = bar.add_task("verifying", total=None)
        for last in reports:
            bar.update(task, completed=last.checked, total=last.items)
    return last
