"""Metadata of TouchDatasets, read and edited without touching audio.

    for fields in metainfo.read("data/indexed/data.list"):
        print(fields["key"], fields["txt"])
    metainfo.rewrite("data/indexed/data.list", lambda fields: fields | {"txt": fields["txt"].lower()})

The new metadata is chosen by ``from_indexed(…, metainfo="metainfo_v2")`` or in a data list by
``FOLDER audio+metainfo_v2``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from uio_pipes.base.errors import DataError, ListError, PipelineError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.touchdataset import IndexedFile
from uio_pipes.io.access import PLAIN
from uio_pipes.io.folders import Folder
from uio_pipes.sources.touchdataset.folder import METAINFO, folders
from uio_pipes.tools.data.writing.parts import PairWriter

Edit = Callable[[dict[str, Any]], dict[str, Any]]


def read(dirs: str | os.PathLike[str], metainfo: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the metadata of each utterance. ``dirs``: as for ``from_indexed``. Raises: ListError, DataError."""
    for folder, name in _folders(dirs, metainfo):
        yield from _entries(f"{folder}/{name}")


def rewrite(
    dirs: str | os.PathLike[str], edit: Edit, *, to: str = f"{METAINFO}_v2", metainfo: str | None = None
) -> int:
    """Write ``edit(fields)`` of each utterance as the metadata ``to``; return their number.

    In each folder the new files are written completely or not at all. Raises: ListError if ``to`` is there already,
    DataError for metadata that cannot be read, PipelineError if ``edit`` returns no fields of an utterance.
    """
    count = 0
    for folder, name in _folders(dirs, metainfo):
        parent, _, last = folder.rpartition("/")
        place = Folder(parent or ("/" if folder.startswith("/") else "."))
        if to == name or place.exists(f"{last}/{to}.idx"):
            raise ListError(f"{folder}/{to}.idx is there already; choose another name, or delete it yourself")
        with place.staged_folder(last, f"{to}.{os.getpid()}") as path, PairWriter(path / to, np.uint8) as writer:
            for fields in _entries(f"{folder}/{name}"):
                writer.add(_checked(edit(fields), edit))
            count += len(writer)
    return count


def _folders(dirs: str | os.PathLike[str], metainfo: str | None) -> Iterator[tuple[str, str]]:
    for folder, name, _ in folders((os.fspath(dirs),), metainfo, PLAIN):
        if not name:
            raise ListError(f"{folder} holds the ids of tokens, without metadata")
        yield folder.rstrip("/"), name


def _entries(prefix: str) -> Iterator[dict[str, Any]]:
    file = IndexedFile(prefix)
    for number in range(len(file)):
        try:
            fields = parse_json(file.read(number))
            if not isinstance(fields, dict):
                raise ValueError("not a JSON object")
        except ValueError as error:
            offset = file.span(number)[0]
            raise DataError("bad_line", f"utterance {number}: {error}", url=f"{prefix}.bin", offset=offset) from error
        yield fields


def _checked(fields: Any, edit: Edit) -> bytes:
    if not isinstance(fields, dict) or not isinstance(fields.get("key"), str) or not isinstance(fields.get("txt"), str):
        raise PipelineError(
            f'metainfo.rewrite: {getattr(edit, "__name__", edit)} must return a dict with "key" and "txt", not '
            f"{fields!r:.80}"
        )
    try:
        return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise PipelineError(f"metainfo.rewrite: the result for {fields['key']!r} is not JSON: {error}") from error
