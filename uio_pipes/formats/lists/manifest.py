"""The manifest of a list of shards: the content that each shard must have, so that a loss is noticed.

It lies beside the list, as ``X.list.manifest``. The first line, ``{"manifest": 1, "shards": n, "crc32": …}``, says how
many lines follow and the CRC32 of their bytes, so that a manifest that was cut off is noticed. Then comes a line for
each shard: ``{"shard": its line in the list, "utterances": n, "frames": n, "bytes": n, "crc32": "8 hex digits"}``, with
frames of 10 ms, and bytes and CRC32 of the whole file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, islice, repeat
from typing import Any, NamedTuple
from zlib import crc32

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import beside
from uio_pipes.formats.lists.lines import Lines
from uio_pipes.io.access import Access

VERSION = 1
_CRC = re.compile(r"[0-9a-f]{8}")
_COUNT = "(0|[1-9][0-9]{0,16})"
_WRITTEN = re.compile(  # a line as we write it, in a third of the time that JSON takes
    rf'{{"shard": "([^"\\\x00-\x1f]*)", "utterances": {_COUNT}, "frames": {_COUNT}, "bytes": {_COUNT}, '
    rf'"crc32": "({_CRC.pattern})"}}'
)


class ShardEntry(NamedTuple):
    """One shard's content. ``shard``: its line in the list; ``frames``: of 10 ms; ``bytes``, ``crc32``: its file's."""

    shard: str
    utterances: int
    frames: int
    bytes: int
    crc32: str


def manifest_path(list_path: str) -> str:
    """Return the path of a list's manifest."""
    return beside(list_path, ".manifest")


class Manifest:
    """The manifest of a list, read entry by entry: it takes no more memory than the list itself."""

    def __init__(self, list_path: str, lines: Lines) -> None:
        self.url, self._lines = manifest_path(list_path), lines
        begin = _parsed(self.url, 1, lines[0] if len(lines) else "")
        if begin.get("manifest") is True or begin.get("manifest") != VERSION:
            raise _damaged(self.url, 1, f'no {{"manifest": {VERSION}}}')
        crc = 0
        for number, (_, chunk, _) in enumerate(lines.pieces()):  # of all but the first line
            crc = crc32(chunk.partition(b"\n")[2] if number == 0 else chunk, crc)
        if (begin.get("shards"), begin.get("crc32")) != (len(self), f"{crc:08x}"):
            raise _damaged(self.url, 1, "the next lines are not those that were written: cut off, or changed by hand")

    @classmethod
    def of(cls, list_path: str, access: Access | None = None) -> Manifest | None:
        """Open a list's manifest; None if it has none. Raises: ListError if it is damaged or cannot be read."""
        url = manifest_path(list_path)
        try:
            return cls(list_path, Lines.known(url, access))
        except ListError as error:
            if not isinstance(error.__cause__, DataError):
                raise
            reason, message = error.__cause__.reason, error.__cause__.message  # keeping it: a circle of frames
            if reason == "missing_file" or "permission denied" in message:  # S3's answer for a missing file
                return None
            raise ListError(f"cannot read the manifest {url}: {message}") from error.__cause__

    def __len__(self) -> int:
        return len(self._lines) - 1

    def __iter__(self) -> Iterator[ShardEntry]:
        return (_entry(self.url, number, line) for number, line in enumerate(islice(self._lines, 1, None), 2))

    def each(self, shards: Iterable[str]) -> Iterator[ShardEntry | None]:
        """Yield the entry of each of the ``shards``, which are mostly in the order of the manifest; None for one that
        is not in it."""
        for number, (shard, entry) in enumerate(zip(shards, chain(self, repeat(None)), strict=False)):
            yield entry if entry is not None and entry.shard == shard else self.entry(number, shard)

    def entry(self, number: int, shard: str) -> ShardEntry | None:
        """Return the entry of ``shard``, which is probably number ``number``; None if it is not in the manifest."""
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
    """Return a list's manifest by its lines; None if it has no manifest. Raises: ListError if it is damaged."""
    manifest = Manifest.of(list_path, access)
    return None if manifest is None else {entry.shard: entry for entry in manifest}


def _entry(url: str, number: int, line: str) -> ShardEntry:
    if (sound := _WRITTEN.fullmatch(line)) is not None:
        shard, utterances, frames, size, crc = sound.groups()
        return ShardEntry(shard, int(utterances), int(frames), int(size), crc)
    fields = _parsed(url, number, line)
    shard, crc = fields.get("shard"), fields.get("crc32")
    if not isinstance(shard, str) or not isinstance(crc, str) or not _CRC.fullmatch(crc):
        raise _damaged(url, number, '"shard" must be a line of the list, "crc32" 8 hex digits')
    counts: Any = (fields.get("utterances"), fields.get("frames"), fields.get("bytes"))
    if {*map(type, counts)} != {int} or min(counts) < 0 or max(counts) >= 1 << 60:
        raise _damaged(url, number, '"utterances", "frames" and "bytes" must be whole numbers')
    return ShardEntry(shard, counts[0], counts[1], counts[2], crc)


def _parsed(url: str, number: int, line: str) -> dict[str, Any]:
    try:
        fields = parse_json(line)
    except ValueError as error:
        raise _damaged(url, number, "not JSON") from error
    if not isinstance(fields, dict):
        raise _damaged(url, number, "not a JSON object")
    return fields


def _damaged(url: str, number: int, what: str) -> ListError:
    return ListError(f"the manifest {url} is damaged (line {number}: {what}): recreate it with uio index --manifest")
