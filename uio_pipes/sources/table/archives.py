"""Audio in archives, read in the order of the rows, or in the order of the archives."""

from __future__ import annotations

import glob
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.memory import Lru, bytes_in
from uio_pipes.base.urls import folder_of, inside, redact
from uio_pipes.core.items import without_traceback
from uio_pipes.formats.archives.archive import is_reachable
from uio_pipes.formats.archives.directory import Archives, hash_of, is_template, same_name
from uio_pipes.formats.expressions import TABLE, compiled
from uio_pipes.formats.naming import FieldNames
from uio_pipes.formats.tables.rows import Row, RowIndex, Rows
from uio_pipes.formats.tar.checks import has_sidecar
from uio_pipes.io.opening import is_local
from uio_pipes.io.references import Payload
from uio_pipes.sources.table.records import TableRecords

_FILLED = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")  # expressions in the name of an archive


def located(names: Sequence[str], root: str | None, table: str) -> list[str]:
    """Return the names of archives with the folder that they are in: ``root``, or else the folder of the table or, if
    there is nothing such, the working directory."""
    folders = [folder_of(table), ""] if root is None else [root]
    return [_located(name, folders) for name in names]


def _located(name: str, folders: list[str]) -> str:
    if "://" in name or name.startswith(("/", "~")):
        return os.path.expanduser(name)
    paths = [inside(folder, name) for folder in folders]
    there = (path for path in paths if is_local(path) is None or files_named(path))
    return next(there, paths[0])


def files_named(path: str) -> list[str]:
    """Return the local files that the name of archives stands for, with anything in place of what rows fill in."""
    pattern = "*".join(map(glob.escape, _FILLED.split(path))) if is_template(path) else path
    return [path] if os.path.exists(path) else glob.glob(pattern, recursive=True)


def streams(names: Sequence[str], root: str | None, table: str) -> bool:
    """Return whether archives must be read in their order, as far as that is known without asking a server."""
    return any(not all(map(is_reachable, files_named(name) or [name])) for name in located(names, root, table))


class NamesInRows:
    """The names in rows: a member, and perhaps its archive. ``names``: our fields with their expressions."""

    def __init__(self, rows: Rows, archives: Archives, names: FieldNames | None) -> None:
        ours = dict(names or ())
        self.rows, self.archives, self._names = rows, archives, names
        self._wav = compiled(ours.get("wav", "wav"))
        filled_in = archives.filled_in
        known = filled_in or ()
        self._filled_in = None if filled_in is None else {name: compiled(ours.get(name, name)) for name in known}

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What these names follow from: the rows, the files of which may name archives, too (``table``), and the
        archives as they are now."""
        archives = self.archives
        filled_in = [path for name in archives.templates for path in files_named(name)]
        versions = archives.versions([*archives.urls, *filled_in])
        return self.rows.digest, self._names, archives.digest, versions, *archives.urls, *self.rows.files

    def member(self, row: Row) -> str | None:
        """Return the member that a row names, as names are compared; None if there is none, or the row is damaged."""
        try:
            name = self._wav(row)
        except DataError:
            return None
        return same_name(name) if isinstance(name, str) and name else None

    def archive(self, number: int, row: Row | None = None) -> str | None:
        """Return the archive that a row names; None if it may be in any. Raises: DataError."""
        if self._filled_in is None:
            return None
        row = {TABLE: self.rows.file(number), **(self.rows.row(number) if row is None else row)}
        return self.archives.of({name: expression(row) for name, expression in self._filled_in.items()})

    def all(self) -> Iterator[tuple[str | None, str | None]]:
        """Yield archive and member of every row."""
        for number, row in enumerate(self.rows.scan()):
            member = archive = None
            if not isinstance(row, DataError):
                with suppress(DataError):
                    archive = self.archive(number, row)
                    member = self.member(row)
            yield archive, member


ANYWHERE = -1  # the home of a row that may be in any archive
# What is made of all rows of a table; workers have it from the process that they were forked from.
_kept = Lru("rows by archive", most=4)


class AudioInArchives:
    """Members of archives, in the order of the rows."""

    def __init__(self, names: NamesInRows) -> None:
        self._names = names

    @property
    def digest(self) -> str:
        return self._names.archives.digest

    def find(self, name: str, number: int, fields: Mapping[str, Any]) -> Any:
        return self._names.archives.reference(name, self._names.archive(number))

    @property
    def leftover(self) -> Counter[str]:
        return self._unused[0]

    @property
    def damage(self) -> list[DataError]:
        return self._unused[1]

    @property
    def _unused(self) -> tuple[Counter[str], list[DataError]]:
        return _kept.get(("leftover", *self._names.key), self._look_through, bytes_in)

    def _look_through(self) -> tuple[Counter[str], list[DataError]]:
        """Return how many members no row names, and how many have the name of another; and why archives are lost."""
        hashes: dict[str | None, array[int]] = {}
        for url, member in self._names.all():
            if member is not None:
                hashes.setdefault(url, array("Q")).append(hash_of(member))
        found, damage = Counter[str](), list[DataError]()
        for url, wanted in hashes.items():
            try:
                places = self._names.archives.places(url)
            except DataError as error:
                if error.reason == "compressed_tar":  # as stream=False wants it
                    raise ListError(f"{error.url}: {error.message}") from error
                continue  # each of its rows fails
            found += places.leftover(np.frombuffer(wanted, np.uint64))
            known = (error for archive in places.archives for error in archive.damage)
            damage += [
                error
                for error in known
                if error.reason != "unsupported_member"  # each of its rows says so
                and not self._names.archives.may_lack(error)
            ]
        return found, damage


class _Passing:
    """The member of an archive that has been reached; without ``payload``, none is that of the row."""

    digest = ""
    leftover: ClassVar[Counter[str]] = Counter()
    damage: ClassVar[list[DataError]] = []

    def __init__(self, archives: Archives, urls: Sequence[str], payload: Payload | str | None) -> None:
        self._archives, self._urls, self._payload = archives, urls, payload

    def find(self, name: str, number: int, fields: Mapping[str, Any]) -> Any:
        if self._payload is None:
            raise self._archives.missing(name, self._urls)
        return self._payload


class _Index:
    """``rows``: by the members that they name; ``urls``: the archives; ``homes``: that of each row by its number, -1
    for any that only reading shows. Rows whose audio is in none, or that name none, count as of the first archive.

    Beside these, 12 bytes a row, it takes as good as nothing while it is made."""

    def __init__(self, names: NamesInRows, count: int) -> None:
        self._numbers = {url: number for number, url in enumerate(names.archives.urls)}
        self.homes = np.zeros(count, np.int32)
        self.rows = RowIndex(self._members(names), count)
        self.urls = list(self._numbers)

    def _members(self, names: NamesInRows) -> Iterator[str | None]:
        found, begin = names.all(), 0
        homes_of = names.archives.homes() if len(self._numbers) > 1 else None
        while some := list(islice(found, _AT_ONCE)):
            for number, (archive, _) in enumerate(some, begin):
                if archive is not None:
                    self.homes[number] = self._numbers.setdefault(archive, len(self._numbers))
            if homes_of is not None:
                anywhere = [n for n, (archive, member) in enumerate(some) if archive is None and member is not None]
                self.homes[begin + np.array(anywhere, np.int64)] = homes_of([str(some[n][1]) for n in anywhere])
            yield from (member for _, member in some)
            begin += len(some)


_AT_ONCE = 1 << 14  # rows


class ArchiveTable:
    """The archives that the rows of a table name members of, in their order, with the rows by these names.

    ``digest``: of the rows and of the archives. ``homes``: the number of the archive of each row, or ANYWHERE.
    """

    weights = None

    def __init__(self, records: TableRecords, names: NamesInRows) -> None:
        """Raises: ListError if there are no archives."""
        self.records, self.archives, self._names = records, names.archives, names
        self.digest, self.notes = records.digest, records.notes
        self._index: _Index = _kept.get(
            ("index", *names.key, *(is_local(url) is not None and has_sidecar(url) for url in names.archives.urls)),
            lambda: _Index(names, len(records)),
            bytes_in,
        )
        self.urls, self.homes = self._index.urls, self._index.homes
        if not self.urls:
            raise ListError("no row leads to an archive, and every path in archives= contains {…}: correct archives=")

    def __len__(self) -> int:
        return len(self.urls)

    def place(self, number: int) -> str:
        return redact(self.urls[number])

    def rows_of(self, member: str, archive: int) -> list[int]:
        """Return the numbers of the rows that name this member of an archive."""
        return [number for number in self._named(member) if self.homes[number] in (archive, ANYWHERE)]

    def is_elsewhere(self, member: str) -> bool:
        """Return whether rows name this member that are read from another archive, which has it, too."""
        return self.archives.filled_in is None and bool(self._named(member))

    def _named(self, member: str) -> list[int]:
        row = self.records.rows.row
        return [number for number in self._index.rows.find(member) if self._names.member(row(number)) == member]

    def rows_in(self, archive: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the rows that are in this archive, if anywhere, or :data:`ANYWHERE`; those that cannot
        be read count as of the first one."""
        return np.flatnonzero(self.homes == archive)

    def members(self, archive: int, count: int) -> list[str]:
        """Return the names in a few of the first rows that may be in this archive."""
        may_be = np.flatnonzero(np.isin(self.homes, (archive, ANYWHERE)))[: 10 * count].tolist()
        found = list[str]()
        for row in may_be:
            if len(found) == count:
                break
            with suppress(DataError):
                if (name := self._names.member(self.records.rows.row(row))) is not None:
                    found.append(name)
        return found

    def fields(self, number: int, archive: int, payload: Payload | str | None) -> dict[str, Any]:
        """Return the fields of a row with its audio; None if there is none. Raises: DataError, LeftOut."""
        urls = self.archives.urls if self.archives.filled_in is None else [self.urls[archive]]
        return self.records.fields(number, _Passing(self.archives, urls, payload))

    def missed(self, numbers: Iterable[int], archive: int) -> Iterator[DataError]:
        """Yield the failures of rows whose audio did not come."""
        for number in numbers:
            lost: DataError | None = None
            try:
                self.fields(number, archive, None)
            except DataError as error:
                lost = without_traceback(error)
            if lost is not None:
                lost.key = "" if isinstance(lost, LeftOut) else self.key(number, lost)
                yield lost

    def key(self, number: int, error: DataError) -> str:
        """Return the key of the utterance of a row that failed, as far as it is known."""
        return error.key or error.member or self.records.place(number)
