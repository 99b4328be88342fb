"""Quarantine files: failures, a JSON object a line; written by loaders and ``uio verify``, read by ``exclude``."""

from __future__ import annotations

import json
import os
import re
import weakref
from collections.abc import Iterator
from typing import Any

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import redact
from uio_pipes.io.local import open_regular

_LINE = re.compile(r", (line|row group \d+, row|row) \d+$")

QuarantineEntry = dict[str, Any]


def entry_of(error: DataError, stage: str = "", **where: Any) -> QuarantineEntry:
    """Return the entry of one failure. ``where``: epoch, rank and so on."""
    return {
        "reason": error.reason,
        "url": error.url,
        "member": error.member,
        "offset": error.offset,
        "key": error.key,
        "item": error.item,
        "message": error.message,
        "stage": stage,
        **where,
    }


def _spot(reason: str, url: str, member: str, offset: int | None) -> tuple[Any, ...]:
    """Identify a damaged spot. With an offset the member does not count: it is the last one before the damage, which a
    resumed reader has not read."""
    return reason, url, member if offset is None else "", offset


def _spot_of(entry: QuarantineEntry) -> tuple[Any, ...]:
    return _spot(entry["reason"], home(entry.get("url", "")), entry.get("member", ""), entry.get("offset"))


def _identity(entry: QuarantineEntry) -> tuple[Any, ...]:
    return (*_spot_of(entry), entry.get("url"), entry.get("key"))


class Quarantine:
    """A file to which any number of processes of a machine append failures, each failure once.

    Raises: OSError if it cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._number = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.close = weakref.finalize(self, os.close, self._number)
        self._read = 0
        self._known: set[tuple[Any, ...]] = set()
        self._catch_up()

    def add(self, entry: QuarantineEntry) -> bool:
        """Append an entry and return True, unless the file has the same failure already."""
        self._catch_up()
        if (identity := _identity(entry)) in self._known:
            return False
        self._known.add(identity)
        os.write(self._number, line_of(entry))  # one write: lines of several processes do not mix
        return True

    def _catch_up(self) -> None:
        """Read the entries that other processes have appended."""
        size = os.fstat(self._number).st_size
        if size <= self._read:
            return
        data = os.pread(self._number, size - self._read, self._read)
        if data[-1:] != b"\n":
            if self._read == 0 or b"\n" not in data:
                os.write(self._number, b"\n")  # a line was cut off by a full disk or a crash
            data = data[: data.rfind(b"\n") + 1]
        self._read += len(data)
        self._known.update(_identity(entry) for _, entry in _entries(data))


def line_of(entry: QuarantineEntry) -> bytes:
    """Return the line of an entry in a file."""
    try:
        return (json.dumps(entry, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # a name that is not UTF-8
        return (json.dumps(entry) + "\n").encode()


def _entries(data: bytes) -> Iterator[tuple[int, QuarantineEntry]]:
    """Yield line numbers and entries; other lines are passed over."""
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            entry = parse_json(line, halves=True) if line.strip() else None
        except ValueError:
            continue
        if isinstance(entry, dict) and _fits(entry):
            yield number, entry


def _fits(entry: QuarantineEntry) -> bool:
    texts = all(isinstance(entry.get(name, ""), str) for name in ("reason", "url", "member", "key"))
    return texts and bool(entry.get("reason")) and isinstance(entry.get("offset"), (int, type(None)))


def read_quarantine(path: str | os.PathLike[str]) -> list[QuarantineEntry]:
    """Read the entries of a file. Raises: ListError naming the line that is not an entry."""
    try:
        with open_regular(path) as file:
            data = file.read()
    except (DataError, OSError) as error:
        why = error.message if isinstance(error, DataError) else error.strerror
        raise ListError(f"cannot read the quarantine file {os.fspath(path)}: {why}") from error
    found = list(_entries(data))
    known = {number for number, _ in found}
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip() and number not in known:
            raise ListError(
                f"the quarantine file {os.fspath(path)} is damaged (line {number}: no failure with a reason): remove "
                "the line, or recreate the file with uio verify --quarantine"
            )
    return [entry for _, entry in found]


def home(url: str) -> str:
    """Return the shard, or the list without the line number: lines move when a list is edited. Without credentials."""
    return redact(_LINE.sub("", url))


class Known:
    """The failures of a quarantine file, to be looked up."""

    def __init__(self, entries: list[QuarantineEntry]) -> None:
        whole = (e for e in entries if e.get("key") and e["reason"] != "duplicate_key")  # of two, the first one stays
        self._keys = frozenset((home(e.get("url", "")), e["key"]) for e in whole)
        self._spots = frozenset(map(_spot_of, entries))

    def utterance(self, url: str, key: str) -> bool:
        """Return whether this utterance is to be left out."""
        return (home(url), key) in self._keys

    def failure(self, error: DataError) -> bool:
        """Return whether this failure is known."""
        spot = _spot(error.reason, home(error.url), error.member, error.offset)
        return spot in self._spots or bool(error.key and self.utterance(error.url, error.key))
