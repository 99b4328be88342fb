"""The manifest of a list of shards: what each shard must hold, so that one that became shorter is noticed.

It lies beside the list, ``X.list.manifest``: JSON lines, the first one ``{"manifest": 1, "shards": n, "crc32": …}``,
which tells how many follow and the CRC32 of their bytes, so that a manifest that is cut is noticed; then for each shard
``{"shard": its line in the list, "utterances": n, "frames": n, "bytes": n, "crc32": "8 hex digits"}``: frames of
10 ms, bytes and CRC32 of the whole file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple
from zlib import crc32

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.lines import Lines
from uio_pipes.io.access import Access

__all__ = ["VERSION", "Manifest", "ShardEntry", "manifest_path", "read_manifest"]

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


class Manifest:
    """The manifest of a list, entry by entry: of one of ten million shards no more is kept than of its list."""

    def __init__(self, list_path: str, lines: Lines) -> None:
        self.url, self._lines = manifest_path(list_path), lines
        begin = _parsed(self.url, 1, lines[0] if len(lines) else "")
        if begin.get("manifest") is True or begin.get("manifest") != VERSION:
            raise _damaged(self.url, 1, f'no {{"manifest": {VERSION}}}')
        if (begin.get("shards"), begin.get("crc32")) != (len(self), f"{_body_crc32(lines):08x}"):
            raise _damaged(self.url, 1, "what follows is not what was written: cut off, or changed by hand")

    @classmethod
    def of(cls, list_path: str, access: Access | None = None) -> Manifest | None:
        """None if the list has no manifest. Raises: ListError if it is damaged or cannot be read."""
        url = manifest_path(list_path)
        try:
            return cls(list_path, Lines.known(url, access))
        except ListError as error:
            if not isinstance(cause := error.__cause__, DataError):
                raise
            if cause.reason == "missing_file" or "permission denied" in cause.message:  # S3's of what is not there
                return None
            raise ListError(f"cannot read the manifest {url}: {cause.message}") from cause

    def __len__(self) -> int:
        return len(self._lines) - 1

    def __iter__(self) -> Iterator[ShardEntry]:
        return (_entry(self.url, number, line) for number, line in enumerate(self._lines, 1) if number > 1)

    def entry(self, number: int, shard: str) -> ShardEntry | None:
        """Of ``shard``, probably entry ``number``; None if it is not in the manifest."""
        entry = self._at(number) if number < len(self) else None
        if entry is not None and entry.shard == shard:
            return entry
        return self._at(self._numbers[shard]) if shard in self._numbers else None

    def _at(self, number: int) -> ShardEntry:
        return _entry(self.url, number + 2, self._lines[number + 1])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {entry.shard: number for number, entry in enumerate(self)}


def read_manifest(list_path: str, access: Access | None = None) -> dict[str, ShardEntry] | None:
    """The shards of a list by their lines; None if it has no manifest. Raises: ListError if it is damaged."""
    manifest = Manifest.of(list_path, access)
    return None if manifest is None else {entry.shard: entry for entry in manifest}


def _body_crc32(lines: Lines) -> int:
    """Of all but the first line."""
    crc = 0
    for number, (_, chunk) in enumerate(lines.chunks()):
        crc = crc32(chunk.partition(b"\n")[2] if number == 0 else chunk, crc)
    return crc


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
