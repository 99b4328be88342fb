"""The manifest of a list of shards: what each shard must hold, so that one that became shorter is noticed.

It lies beside the list, ``X.list.manifest``: JSON lines, the first one ``{"manifest": 1, "shards": n, "crc32": …}``,
which tells how many follow and the CRC32 of their bytes, so that a manifest that is cut is noticed; then for each shard
``{"shard": its line in the list, "utterances": n, "frames": n, "bytes": n, "crc32": "8 hex digits"}``: frames of
10 ms, bytes and CRC32 of the whole file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from uio_pipes.errors import DataError, ListError
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.prep.folder import write_to

__all__ = ["ShardEntry", "manifest_path", "read_manifest", "write_manifest"]

VERSION = 1
_CRC = re.compile(r"[0-9a-f]{8}")


class ShardEntry(NamedTuple):
    """What a shard holds. ``shard``: its line in the list; ``frames``: of 10 ms; ``bytes``, ``crc32``: of the file."""

    shard: str
    utterances: int
    frames: int
    bytes: int
    crc32: str


def manifest_path(list_path: str) -> str:
    """Where the manifest of a list is."""
    return f"{list_path}.manifest"


def write_manifest(list_path: str | Path, shards: Iterable[ShardEntry]) -> str:
    """Write the manifest of a list, near or far: complete, or not at all."""
    path = manifest_path(str(list_path))
    lines = [json.dumps(shard._asdict(), ensure_ascii=False) + "\n" for shard in shards]
    body = "".join(lines).encode()
    head = {"manifest": VERSION, "shards": len(lines), "crc32": f"{crc32(body):08x}"}
    write_to(path, json.dumps(head).encode() + b"\n" + body)
    return path


def read_manifest(list_path: str, access: Access | None = None) -> dict[str, ShardEntry] | None:
    """The shards of a list by their lines; None if it has no manifest. Raises: ListError if it is damaged."""
    url = manifest_path(list_path)
    if (path := is_local(url)) is not None and not Path(path).exists():
        return None
    try:
        with open_binary(url, access) as file:
            data = file.read()
    except DataError as error:
        if error.reason == "missing_file" or "permission denied" in error.message:  # S3's answer to what is not there
            return None
        raise ListError(f"cannot read the manifest {url}: {error.message}") from error
    head, _, body = data.partition(b"\n")
    try:
        begin, lines = _parsed(url, 1, head.decode()), body.decode().splitlines()
    except UnicodeDecodeError as error:
        raise _damaged(url, 1, "no UTF-8 text") from error
    if begin.get("manifest") is True or begin.get("manifest") != VERSION:
        raise _damaged(url, 1, f'no {{"manifest": {VERSION}}}')
    if (begin.get("shards"), begin.get("crc32")) != (len(lines), f"{crc32(body):08x}"):
        raise _damaged(url, 1, "what follows is not what was written: cut off, or changed by hand")
    entries = (_entry(url, number, line) for number, line in enumerate(lines, 2))
    return {entry.shard: entry for entry in entries}


def _entry(url: str, number: int, line: str) -> ShardEntry:
    fields = _parsed(url, number, line)
    shard, crc = fields.get("shard"), fields.get("crc32")
    if not isinstance(shard, str) or not isinstance(crc, str) or not _CRC.fullmatch(crc):
        raise _damaged(url, number, '"shard" must be a line of the list, "crc32" 8 hex digits')
    counts = {name: fields.get(name) for name in ("utterances", "frames", "bytes")}
    if not all(type(count) is int and 0 <= count < 1 << 60 for count in counts.values()):
        raise _damaged(url, number, '"utterances", "frames" and "bytes" must be whole numbers')
    return ShardEntry(shard=shard, crc32=crc, **counts)  # type: ignore[arg-type]


def _parsed(url: str, number: int, line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(url, number, "no JSON") from error
    if not isinstance(fields, dict):
        raise _damaged(url, number, "no JSON object")
    return fields


def _damaged(url: str, number: int, what: str) -> ListError:
    return ListError(f"the manifest {url} is damaged (line {number}: {what}): write it anew with uio index --manifest")
