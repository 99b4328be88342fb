"""``uio cache``: fills, shows, checks and prunes a folder in which ``.cache`` keeps what is computed once."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from uio_pipes.base.urls import plural
from uio_pipes.tools.cli.common import parsed, print_json, print_report, say, verdict
from uio_pipes.tools.cli.options import Json, RunArgument, load_model, load_named

if TYPE_CHECKING:
    from uio_pipes.io.folders import Folder

app = typer.Typer(help="What .cache and .encoded keep: fill, show, verify, prune.", no_args_is_help=True)
CacheFolder = Annotated[str, typer.Argument(metavar="FOLDER", help="The folder given to .cache. Path or URL.")]


@app.command()
def fill(
    pipeline: RunArgument,
    model: Annotated[str, typer.Option(help="A model, or a function that returns one: train.py:model.")],
    device: Annotated[str, typer.Option(help="Where the model runs: cuda:1, cpu; a GPU if there is one.")] = "",
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode.")] = 0,
    split: Annotated[str, typer.Option(help="i/n: only the i-th of n shares, for an array of n jobs.")] = "1/1",
    as_json: Json = False,
) -> None:
    """Run a frozen model over a pipeline's batches, and keep what it makes for .encoded.

    What has been encoded is passed over: if it was killed, the same command goes on.
    """
    from dataclasses import asdict

    from uio_pipes.tools.data.placement import parse_split

    share = parsed("--split", parse_split, split)
    graph, frozen = load_named(pipeline), load_model(model)
    from uio_pipes.run.encode import encode_share

    found = encode_share(graph, frozen, device, workers, share.index - 1, share.count)
    if as_json:
        print_json(asdict(found))
    else:
        new, before = plural(found.utterances, "utterance"), found.skipped.get("encoded", 0)
        say(f"{new} encoded, {before:,} before; {plural(found.failures, 'failure')}")
    verdict(not found.failures)


@app.command()
def show(folder: CacheFolder, as_json: Json = False) -> None:
    """Show of each pipeline how many records there are, how large, and since when."""
    from uio_pipes.io.folders import Folder
    from uio_pipes.io.shelf import ABOUT, ROW_BYTES

    cache, by_mark = Folder(folder), dict[str, dict[str, dict[str, int]]]()
    for (mark, name), files in _written(folder).items():
        by_mark.setdefault(mark, {})[name] = files
    found = []
    for mark, written in by_mark.items():
        records = sum(files.get("index", 0) for files in written.values()) // ROW_BYTES
        size = sum(sum(files.values()) for files in written.values())
        stages = cache.read([f"{mark}/{ABOUT}"])[0].decode() if cache.exists(f"{mark}/{ABOUT}") else ""
        newest = re.sub(r"(....)(..)(..)T(..)(..)(..).*", r"\1-\2-\3 \4:\5:\6 UTC", max(written))
        found.append((mark, records, size, len(written), newest, stages))
    names = ("fingerprint", "records", "bytes", "files", "newest", "stages")
    rows = [
        (mark[:8], f"{count:,}", f"{size:,}", of, at, text.replace("\n", " → "))
        for mark, count, size, of, at, text in found
    ]
    print_report([(folder, names, rows)], [dict(zip(names, one, strict=True)) for one in found], as_json)


@app.command()
def verify(folder: CacheFolder) -> None:
    """Read all records and compare their checksums; the exit code is 1 if one is damaged and was not computed again."""
    from uio_pipes.io.folders import Folder
    from uio_pipes.io.shelf import DATA, INDEX, ROW_BYTES, rows_of

    cache, good, bad = Folder(folder), 0, Counter[str]()
    damaged: dict[tuple[str, int, int], str] = {}  # the data files of damaged records, by fingerprint and key
    written = _written(folder)
    for mark, name in written:
        path = f"{mark}/{name}"
        index = cache.read([path + INDEX])[0]
        rows = rows_of(index).tolist()
        bad[path + INDEX] = -(-len(index) // ROW_BYTES) - len(rows)
        for row in rows:
            if _is_sound(cache, path, row):
                good += 1
            else:
                damaged[mark, row[0], row[1]] = path + DATA
    for mark, name in written if damaged else ():
        for row in rows_of(cache.read([f"{mark}/{name}{INDEX}"])[0]).tolist():
            if (mark, row[0], row[1]) in damaged and _is_sound(cache, f"{mark}/{name}", row):
                del damaged[mark, row[0], row[1]]  # it was found damaged by a run, and computed again
    bad += Counter(damaged.values())
    for path, count in bad.items():
        if count:
            say(f"{cache.join(path)}: {plural(count, 'record')} damaged or cut off")
    say(f"{plural(good, 'sound record')}")
    verdict(not any(bad.values()))


def _is_sound(cache: Folder, path: str, row: list[int]) -> bool:
    from uio_pipes.base.errors import DataError
    from uio_pipes.io.shelf import DATA, entry_of, read_record

    try:
        return read_record(entry_of(row, cache.join(path + DATA))) is not None
    except DataError:
        return False


@app.command()
def prune(
    folder: CacheFolder,
    size: Annotated[str | None, typer.Option(help='Keep the newest files up to so many bytes, as "200GB".')] = None,
    fingerprint: Annotated[str | None, typer.Option(help="Remove what this pipeline keeps, as show has it.")] = None,
) -> None:
    """Remove whole files, the oldest first; a run that is under way computes again what it had found there."""
    if size is None and fingerprint is None:
        raise typer.BadParameter("say what to remove: --size or --fingerprint")
    from uio_pipes.io.folders import Folder

    left = None if size is None else parsed("--size", _size, size)
    written = _written(folder)
    marks = {mark for mark, _ in written if fingerprint and mark.startswith(fingerprint)}
    if fingerprint is not None and len(marks) != 1:
        known = ", ".join(sorted({mark[:8] for mark, _ in written}))
        raise typer.BadParameter(f"{len(marks)} fingerprints begin with {fingerprint!r}; there are {known}")
    cache, removed, kept = Folder(folder), 0, 0
    for (mark, name), files in sorted(written.items(), key=lambda one: one[0][1], reverse=True):
        bytes_ = sum(files.values())
        if mark in marks or (left is not None and kept + bytes_ > left):
            for kind in sorted(files, reverse=True):  # the index first
                cache.remove(f"{mark}/{name}.{kind}")
            removed += bytes_
        else:
            kept += bytes_
    say(f"removed {removed / 1e6:,.1f} MB, kept {kept / 1e6:,.1f} MB")


def _written(folder: str) -> dict[tuple[str, str], dict[str, int]]:
    """Return the sizes of data and index of what each process wrote, by fingerprint and name."""
    from uio_pipes.io.folders import Folder

    found: dict[tuple[str, str], dict[str, int]] = {}
    for path, size in Folder(folder).sizes().items():
        mark, _, rest = path.rpartition("/")
        name, _, kind = rest.rpartition(".")
        if kind in ("data", "index") and "/" not in mark:
            found.setdefault((mark, name), {})[kind] = size
    if not found:
        raise typer.BadParameter(f"{folder} holds nothing that .cache has kept")
    return found


def _size(text: str) -> int:
    from uio_pipes.io.access import as_bytes

    if not (size := as_bytes(text)):
        raise ValueError("give bytes, or a size like 200GB")
    return size
