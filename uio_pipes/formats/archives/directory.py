"""Members of many archives by name, or by what an expression makes of it: ``path | stem``.

Per member a few numbers are kept, not its name: names are found by 64-bit hashes.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, LeftOut
from uio_pipes.base.memory import Lru, bytes_in
from uio_pipes.base.urls import plural, redact, suffix_of, unsigned
from uio_pipes.formats.archives.archive import CUT, Archive, ArchiveVersion, is_archive, is_hidden, is_zip
from uio_pipes.formats.expressions import compiled
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.tar.checks import AT_ONCE
from uio_pipes.formats.tar.index import MemberPlace
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.references import RandomFile, Ref

AUDIO = AUDIO_SUFFIXES | {"sph", "pcm", "raw", "oga", "webm", "mp4", "mka", "mkv", "mov", "avi"}
AUDIO |= {"aif", "aiff", "au", "snd", "caf", "w64", "amr"}
Match = Callable[[str], str | None]
LOST = CUT | {"missing_file", "empty_file", "bad_zip"}  # one failure, with which all rows are lost that are not found
_AT_ONCE = 1 << 20  # values that are looked for
MOST_PLACES = 1 << 31  # bytes of places of members that a process keeps: some 64 million members
_BRACES = re.compile(r"\{[^{}|]*(,|\.\.)[^{}|]*\}")  # {a,b} and {0..7}, which are names


def same_name(name: str) -> str:
    """Return a name as names are compared: suffixes of audio in lower case, a leading ``./`` does not count."""
    plain = name.removeprefix("./")
    stem, dot, suffix = plain.rpartition(".")
    return f"{stem}.{suffix.lower()}" if dot and suffix.lower() in AUDIO else plain


def match_of(expression: str) -> Match:
    """Return the value of an expression over ``path`` for a member's name; None for a member that is not meant. Such is
    one without a suffix of audio, unless the expression keeps the suffix: otherwise a.txt would match like a.wav."""
    of = compiled(expression)

    def value(name: str) -> str | None:
        path = name.removeprefix("./")
        found, suffix = of({"path": path}), suffix_of(path)
        if suffix and suffix not in AUDIO and found == of({"path": f"{path.rpartition('.')[0]}.wav"}):
            return None
        return None if found is None else same_name(str(found))

    return same_name if expression == "path" else value


def is_template(name: str) -> bool:
    """Return whether the name of an archive is filled in by rows."""
    return "{" in _BRACES.sub("", name)


def hash_of(value: str) -> int:
    """Return the hash of a name as :func:`same_name` returns it."""
    return int.from_bytes(blake2b(value.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


class MemberPlaces:
    """The places of the members of ``archives`` by their values. Of equal ones the first counts."""

    def __init__(self, archives: Sequence[Archive], match: Match) -> None:
        """Raises: DataError if an archive cannot be read; one that is missing is noted as its damage."""
        self.archives = archives
        numbers = {name: array(code) for name, code in zip(_COLUMNS, "QIqqqqB", strict=True)}
        for number, archive in enumerate(archives):
            for place in _listed(archive):
                value = None if is_hidden(place.name) else match(place.name)
                if value is not None:
                    crc = -1 if place.crc is None else place.crc
                    is_audio = suffix_of(place.name) in AUDIO
                    row = (hash_of(value), number, place.offset, place.size, crc, place.packed, is_audio)
                    for column, cell in zip(numbers.values(), row, strict=True):
                        column.append(cell)
        columns = {name: np.frombuffer(column, column.typecode) for name, column in numbers.items()}
        order = np.argsort(columns["hash"], kind="stable")
        self._columns = {name: _smallest(column[order]) for name, column in columns.items()}

    def __len__(self) -> int:
        return len(self._columns["hash"])

    def find(self, value: str) -> Ref | str | None:
        """Return a reference to the first member with this value, or the path of a plain file; None without one."""
        hashes, wanted = self._columns["hash"], np.uint64(hash_of(value))
        at = int(np.searchsorted(hashes, wanted))
        if at == len(hashes) or hashes[at] != wanted:
            return None
        _, number, offset, size, crc, packed, _ = (int(column[at]) for column in self._columns.values())
        return self.archives[number].reference(MemberPlace(value, offset, size, None if crc < 0 else crc, packed))

    @property
    def damage(self) -> list[DataError]:
        """The damage found in the archives."""
        return [error for archive in self.archives for error in archive.damage]

    def leftover(self, values: npt.NDArray[np.uint64]) -> Counter[str]:
        """Count audio that no row names (``no_row``), and further members of the same value (``duplicate_member``).

        ``values``: hashes of all values that are asked for.
        """
        hashes, audio = self._columns["hash"], self._columns["is_audio"].astype(bool)
        first, wanted = np.ones(len(hashes), bool), np.zeros(len(hashes), bool)
        first[1:] = hashes[1:] != hashes[:-1]
        for begin in range(0, len(values) if len(hashes) else 0, _AT_ONCE):
            asked = values[begin : begin + _AT_ONCE]
            at = np.minimum(np.searchsorted(hashes, asked), len(hashes) - 1)
            wanted[at[hashes[at] == asked]] = True
        more = np.diff(np.flatnonzero(first), append=len(hashes)) - 1  # members of the same value
        return Counter(no_row=int((first & audio & ~wanted).sum()), duplicate_member=int(more[wanted[first]].sum()))


_COLUMNS = ("hash", "number", "offset", "size", "crc", "packed", "is_audio")


def _smallest(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if column.dtype.kind != "i" or not len(column):
        return column
    least, most = np.min_scalar_type(int(column.min())), np.min_scalar_type(int(column.max()))
    return column.astype(np.promote_types(least, most))


def _listed(archive: Archive) -> Iterator[MemberPlace]:
    try:
        yield from archive.members()
    except DataError as error:
        if error.reason not in LOST:
            raise
        archive.damage.append(error)


class Archives:
    """The archives that ``names`` stand for (paths, globs, URLs), in which rows name members.

    A name may hold expressions in braces, ``"audio/{shard}.tar"``: a row then fills in the name of its own archive.

    Args:
        names: of archives, or of plain files, which are members themselves by their paths.
        match: expression over the ``path`` of a member, whose value is compared with that of the row.
        access: how they are read.
        absent: reason under which a row without a member is counted; any but "no_audio" is no failure.
    """

    def __init__(
        self, names: Sequence[str], match: str = "path", access: Access = PLAIN, absent: str = "no_audio"
    ) -> None:
        self._templates = [compiled(name) for name in names if is_template(name)]
        self._names = [name for name in names if not is_template(name)]
        self.match, self.expression, self._access, self.absent = match_of(match), match, access, absent
        self._known = dict[str, ArchiveVersion | None]()

    @cached_property
    def urls(self) -> list[str]:
        """All archives whose names no row fills in. Raises: ListError if no file matches a glob."""
        return [url for name in self._names for url in expand(name, self._access)]

    @cached_property
    def digest(self) -> str:
        """A hash of the names and sizes of the archives, and of the expressions for others."""
        sizes = [None if version is None else version[0] for version in self.versions(self.urls)]
        names = [os.path.basename(unsigned(url)) for url in self.urls]
        text = repr((names, sizes, self.templates))
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def versions(self, urls: Sequence[str]) -> tuple[ArchiveVersion | None, ...]:
        """Return the versions of the archives at the first call; None for those that cannot be read."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return tuple(pool.map(self._version, urls))

    def _version(self, url: str) -> ArchiveVersion | None:
        if url not in self._known:
            self._known[url] = Archive(url, self._access).version()
        return self._known[url]

    @cached_property
    def _all(self) -> str:
        return repr(self.versions(self.urls))

    @property
    def templates(self) -> list[str]:
        """The names that rows fill in."""
        return [each.text for each in self._templates]

    @property
    def filled_in(self) -> set[str] | None:
        """The names that archives have from rows; None if no row names its archive."""
        return {name for each in self._templates for name in each.names} if self._templates else None

    def of(self, row: Mapping[str, Any]) -> str | None:
        """Return the archive that a row names; None if it names none, and its audio may be in any of ``urls``."""
        return next((found for each in self._templates if (found := each(row)) is not None), None)

    def places(self, url: str | None = None) -> MemberPlaces:
        """Return the members of one archive, or of all ``urls``. Raises: DataError if one cannot be read; ListError."""
        urls, version = (self.urls, self._all) if url is None else ([url], self._version(url))
        made = lambda: MemberPlaces([Archive(one, self._access) for one in urls], self.match)  # noqa: E731
        return _places.get((self.expression, version, *urls), made, bytes_in)

    def homes(self) -> Callable[[Sequence[str]], Any]:
        """Return the number of the archive of ``urls`` that each value is in: the first one whose index or directory
        has it. Otherwise it is -1, for any of those that only reading shows, or 0 if there is none of these.

        Raises: ListError if an index is damaged or stale.
        """
        with ThreadPoolExecutor(AT_ONCE) as pool:
            listed = list(pool.map(self._hashes_in, self.urls))
        unknown = [number for number, found in enumerate(listed) if found is None]
        other = -1 if len(unknown) > 1 else (*unknown, 0)[0]
        known = np.concatenate([np.frombuffer(found or b"", np.uint64) for found in listed])
        if not len(known):
            return lambda values: other
        numbers = np.repeat(np.arange(len(listed), dtype=np.int32), [len(found or ()) for found in listed])
        order = np.argsort(known, kind="stable")
        known, numbers = known[order], numbers[order]

        def homes_of(values: Sequence[str]) -> npt.NDArray[np.int32]:
            hashes = np.fromiter(map(hash_of, values), np.uint64, len(values))
            at = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            return np.where(known[at] == hashes, numbers[at], other)

        return homes_of

    def _hashes_in(self, url: str) -> array[int] | None:
        """Return the hashes of the values of an archive's members; None if only reading it shows these."""
        names = Archive(url, self._access).names()
        if names is None or any(is_archive(name) and not is_zip(name) for name in names):  # whose members count, too
            return None
        values = (None if is_hidden(name) else self.match(name) for name in names)
        return array("Q", (hash_of(value) for value in values if value is not None))

    def reference(self, value: str, url: str | None) -> Ref | str:
        """Return a reference to the audio of a row, which is in the archive ``url``, or in any.

        Raises: DataError ``no_audio`` or, if the archive cannot be read, others; LeftOut.
        """
        places = self.places(url)
        found = places.find(same_name(value))
        if found is None:
            raise self.missing(value, [archive.url for archive in places.archives], places.damage)
        return found

    def may_lack(self, error: DataError) -> bool:
        """Return whether a missing archive is named by rows and is allowed to be missing."""
        return error.reason == "missing_file" and self.absent != "no_audio" and self.filled_in is not None

    def missing(self, value: str, urls: Sequence[str], damage: Sequence[DataError] = ()) -> DataError:
        """Return the error for a row whose audio is in none of the archives. If one of these is lost, it is a row that
        is only counted."""
        where = redact(urls[0]) if len(urls) == 1 else f"any of {plural(len(urls), 'archive')}"
        why = f", where there is damage ({damage[0].reason})" if damage else ""
        remedy = "fetch the archive again, set match= to how members match rows, or remove the row"
        if damage and damage[0].reason == "unsupported_member":
            why, remedy = " that can be read", damage[0].message
        only_counted = self.absent != "no_audio" or any(
            error.reason in LOST for error in damage
        )  # which is the failure
        kind = LeftOut if only_counted else DataError
        return kind(self.absent, f"there is no member {value!r} in {where}{why}; {remedy}")


# Workers have them from the process that they were forked from.
_places = Lru("places in archives", MOST_PLACES)


class TarDirectory(Archive):
    """The members of an archive, by name. Nothing is opened before a member is looked for."""

    def known_size(self) -> int | None:
        """Return the size of the archive in bytes; None if it cannot be read."""
        return None if (version := self.version()) is None else version[0]

    def find(self, names: tuple[str, ...]) -> Ref:
        """Return a reference to the first of these members that exists.

        Raises: DataError ``missing_member``, or if the archive cannot be read.
        """
        for name in names:
            if isinstance(found := self._places.find(same_name(name)), Ref):
                return found
        if self.damage and self.damage[0].reason == "missing_file":
            raise self.damage[0]
        why = f" (it is damaged: {self.damage[0].message})" if self.damage else ""
        offset = self.damage[0].offset if self.damage else None
        message = f"the tar has no member {names[0]!r}{why}: pack it again, or remove the row"
        raise DataError("missing_member", message, url=self.url, member=names[0], offset=offset)

    @cached_property
    def _places(self) -> MemberPlaces:
        return MemberPlaces([self], same_name)


class MemberRef(Ref):
    """A reference to the first of the members ``names`` that exists. It is looked for when it is first needed."""

    __slots__ = ("_found", "directory", "names")

    def __init__(self, directory: TarDirectory, names: tuple[str, ...]) -> None:
        self.directory, self.names = directory, names
        self.head, self.info, self.crc = b"", None, None
        self._found: Ref | None = None

    @property
    def early(self) -> bool:  # type: ignore[override]
        return self.found.early

    @property
    def found(self) -> Ref:
        if self._found is None:
            self._found = self.directory.find(self.names)
        return self._found

    @property
    def file(self) -> RandomFile:  # type: ignore[override]
        return self.directory.file

    @property
    def offset(self) -> int:  # type: ignore[override]
        return self.found.offset

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.found.size

    def read(self) -> bytes:
        return self.found.read()

    def read_at(self, start: int, size: int) -> bytes:
        return self.found.read_at(start, size)

    def __repr__(self) -> str:
        return f"MemberRef({redact(self.directory.url)!r}, {self.names[0]!r})"
