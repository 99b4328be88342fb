"""The files of one shard of a Lhotse Shar, each read forward: lines of JSON, or pairs of data and manifest."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from uio_pipes.base.errors import DataError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import name_of
from uio_pipes.formats.tar.members import Member, TarMembers
from uio_pipes.io.access import Access
from uio_pipes.io.local import Payload, Ref
from uio_pipes.io.stream import open_source

CHUNK = 1 << 18
StreamPosition = list[int]  # offset, and 1 if the bytes before it are damaged; or a number of lines


class Value(NamedTuple):
    """One field of one cut: ``suffix`` of the member (``flac``, ``npy``, …), "" for a value of a JSON line.

    ``data``: None where the writer left a placeholder. ``meta``: the manifest.
    """

    key: str
    suffix: str
    data: Payload | Any
    meta: dict[str, Any]


class ValueStream(Protocol):
    """Values in the order of the cuts. After a DataError, ``next`` may be called again."""

    def next(self) -> Value: ...
    def tell(self) -> StreamPosition: ...
    def close(self) -> None: ...


class JsonLines:
    """The lines of a JSONL file, plain or compressed, from line ``first`` on."""

    def __init__(self, url: str, access: Access, first: int = 0) -> None:
        self.url, self.number = url, 0
        self._source = open_source(url, access)
        self._rest, self._at, self._ended = b"", 0, False
        for _ in range(first):
            self.next()

    def next(self) -> bytes:
        """Return the next line. Raises: StopIteration at the end, DataError if the file cannot be read to its end."""
        while b"\n" not in self._rest and not self._ended:
            piece = self._source.read_upto(self._at, CHUNK)
            self._at += len(piece)
            self._rest += piece
            self._ended = len(piece) < CHUNK
        if b"\n" not in self._rest:
            if self._source.failure is not None:  # a line of which the end is missing
                error, self._source.failure, self._rest = self._source.failure, None, b""
                raise error
            if not self._rest:
                raise StopIteration
        line, _, self._rest = self._rest.partition(b"\n")
        self.number += 1
        return line

    def parse(self, line: bytes) -> dict[str, Any]:
        """Parse a line. Raises: DataError ``bad_line``."""
        try:
            found = parse_json(line)
        except ValueError as error:
            raise self._bad(f"damaged JSON: {error}") from error
        if not isinstance(found, dict):
            raise self._bad("not a JSON object")
        return found

    def _bad(self, message: str) -> DataError:
        return DataError("bad_line", message, url=f"{self.url}, line {self.number}")

    def close(self) -> None:
        self._source.close()


class _JsonValues:
    """Values of a JSONL file, ``{"cut_id": …, NAME: value}`` a line; a line without the value is a placeholder."""

    def __init__(self, name: str, lines: JsonLines) -> None:
        self._name, self._lines = name, lines

    def next(self) -> Value:
        found = self._lines.parse(self._lines.next())
        return Value(str(found.get("cut_id", "")), "", found.get(self._name), {})

    def tell(self) -> StreamPosition:
        return [self._lines.number]

    def close(self) -> None:
        self._lines.close()


class _TarValues:
    """Values of a tar: ``KEY.flac`` (or another suffix) and ``KEY.json``, or ``KEY.nodata`` and ``KEY.nometa``."""

    def __init__(self, url: str, access: Access, position: StreamPosition) -> None:
        self._url = url
        self._source = open_source(url, access)
        offset, damaged = position or (0, 0)
        self._members = TarMembers(url, self._source, offset, bool(damaged))
        self._position = [offset, damaged]
        self._ahead: Member | None = None  # the data of the next pair, read while looking for a manifest

    def next(self) -> Value:
        try:
            first, self._ahead = self._ahead or self._member(), None
            key, suffix = _split(first.name)
            if suffix in ("json", "nometa"):
                raise self._lone(first, "its data")
            second = self._member()
            if _split(second.name) not in ((key, "json"), (key, "nometa")):
                self._ahead = second
                raise self._lone(first, "its manifest (.json)")
            value = Value(key, suffix, None, {})
            if suffix != "nodata":
                value = Value(key, suffix, self._payload(first), self._manifest(second))
        except DataError as error:
            damaged = error.reason not in ("bad_pair", "bad_line")
            self._position = [self._ahead.start if self._ahead else self._members.at, int(damaged)]
            raise
        self._position = [self._members.at, 0]
        return value

    def _member(self) -> Member:
        while (member := self._members.next()) is None:
            pass
        return member

    def _payload(self, member: Member) -> Payload:
        payload = self._source.payload(member.offset, member.size)
        if payload is None:
            raise self._members.cut_short("a payload", member.start, member.offset + member.size)
        return payload

    def _manifest(self, member: Member) -> dict[str, Any]:
        payload = self._payload(member)
        try:
            found = parse_json(payload.read() if isinstance(payload, Ref) else payload)
        except ValueError as error:
            raise self._error("bad_line", f"damaged JSON: {error}", member) from error
        return found if isinstance(found, dict) else {}

    def _lone(self, member: Member, without: str) -> DataError:
        return self._error("bad_pair", f"the member comes without {without}: write the shard again", member)

    def _error(self, reason: str, message: str, member: Member) -> DataError:
        return DataError(reason, message, url=self._url, member=member.name, offset=member.start)

    def tell(self) -> StreamPosition:
        return self._position

    def close(self) -> None:
        self._source.close()


def _split(name: str) -> tuple[str, str]:
    key, _, suffix = name.rpartition(".")
    return key, suffix.lower()


def is_lines(field: str, url: str) -> bool:
    """Return whether a field's file is read by lines; otherwise it is a tar."""
    return field == "cuts" or ".jsonl" in name_of(url)


def open_stream(field: str, url: str, access: Access, position: StreamPosition) -> ValueStream:
    """Open the values of ``field`` from ``position`` on ([]: from the beginning). Raises: DataError."""
    if is_lines(field, url):
        return _JsonValues(field, JsonLines(url, access, position[0] if position else 0))
    return _TarValues(url, access, position)
