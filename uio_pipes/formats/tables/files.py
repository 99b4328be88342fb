"""The files of tables one after the other, decompressed: from folders, or out of archives of tar and zip."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, cast

from braceexpand import braceexpand

from uio_pipes.base.errors import NOTES, DataError, ListError
from uio_pipes.base.urls import name_of, redact, stem_of
from uio_pipes.formats.tar.members import TarMembers
from uio_pipes.io.access import Access
from uio_pipes.io.local import Positioned
from uio_pipes.io.opening import open_file
from uio_pipes.io.stream import ByteSource, open_source

_SHOWN = 5  # members in a message
_BUFFER = 1 << 18  # bytes


class TableFile(NamedTuple):
    """A file of a table: its ``name``, and its decompressed ``content``, to be read before the next file is taken."""

    name: str
    content: BinaryIO

    @property
    def stem(self) -> str:
        """The base name without its suffix."""
        return stem_of(self.name)


def files_of(names: Sequence[str], access: Access) -> Iterator[TableFile]:
    """Yield files by their paths or URLs. Raises: ListError."""
    for name in names:
        try:
            source = open_source(name, access)
        except DataError as error:
            raise ListError(f"cannot read the table {redact(name)}: {error.message}") from error
        try:
            yield TableFile(name, _reader(source, 0, None))
        finally:
            source.close()


class MissingTable(ListError):
    """A table is not in the archive that it should be in."""


def files_in(archives: Sequence[str], patterns: Sequence[str], access: Access) -> Iterator[TableFile]:
    """Yield the members of archives whose names match a pattern, in the order of the archive.

    ``patterns``: ``*`` and ``?`` stand for anything but ``/``, ``**`` for anything; one without ``/`` is about base
    names. Raises: MissingTable if one matches nothing, ListError if an archive is damaged.
    """
    wanted = {p: re.compile(_pattern(p)) for each in patterns for p in braceexpand(each)}
    for archive in archives:
        found, seen = set[str](), list[str]()
        try:
            for name, content in _members(archive, access):
                plain = name.removeprefix("./")
                hits = {p for p, pattern in wanted.items() if pattern.fullmatch(plain)}
                found |= hits
                if hits:
                    yield TableFile(plain, content())
                elif len(seen) < _SHOWN:
                    seen.append(plain)
        except (zipfile.BadZipFile, DataError) as error:
            raise ListError(f"the archive {redact(archive)} cannot be read: {error}: fetch it again") from error
        if missing := [p for p in wanted if p not in found]:
            others = f"it has {', '.join(seen)}, …" if seen else "it has no files but those that other paths name"
            remedy = "correct the paths of the table, or fetch what is missing"
            raise MissingTable(f"no member of {redact(archive)} matches {missing[0]!r}; {others}: {remedy}")


Open = Callable[[], BinaryIO]


def _members(archive: str, access: Access) -> Iterator[tuple[str, Open]]:
    """Yield the names of the files in an archive, and what opens each; no shadows that macOS leaves there."""
    is_zip = open_file(archive, access).read_upto(0, 4)[:2] == b"PK"
    for name, content in _in_zip(archive, access) if is_zip else _in_tar(archive, access):
        if not name_of(name).startswith("._") and not name.startswith("__MACOSX/"):
            yield name, content


def _in_tar(archive: str, access: Access) -> Iterator[tuple[str, Open]]:
    source = open_source(archive, access)
    try:
        members = TarMembers(archive, source, 0, False)
        while True:
            try:
                member = members.next()
            except StopIteration:
                return
            except DataError as error:
                if error.reason in NOTES:
                    continue
                raise
            if member is not None:
                yield member.name, lambda m=member: _reader(source, m.offset, m.size)  # type: ignore[misc]
    finally:
        source.close()


def _in_zip(archive: str, access: Access) -> Iterator[tuple[str, Open]]:
    file = open_file(archive, access)
    with zipfile.ZipFile(cast(BinaryIO, Positioned(file.read_upto, file.size))) as opened:
        for info in opened.infolist():
            if not info.is_dir():
                yield info.filename, lambda info=info: opened.open(info)  # type: ignore[misc]


def _reader(source: ByteSource, offset: int, size: int | None) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Stretch(source, offset, size), _BUFFER))


class _Stretch(io.RawIOBase):
    """``size`` bytes of a source from ``offset`` on, or all that follow. Raises: DataError where the source breaks."""

    def __init__(self, source: ByteSource, offset: int, size: int | None) -> None:
        self._source, self._at, self._left = source, offset, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = len(buffer) if self._left is None else min(len(buffer), self._left)
        data = self._source.read_upto(self._at, wanted)
        if len(data) < wanted and (self._source.failure is not None or self._left is not None):
            raise self._source.failure or DataError("truncated", f"it ends after byte {self._at + len(data)}")
        buffer[: len(data)] = data
        self._at += len(data)
        self._left = None if self._left is None else self._left - len(data)
        return len(data)


def _pattern(glob: str) -> str:
    """Return the regular expression of a glob."""
    any_folder = "" if "/" in glob else "(?:.*/)?"
    pieces = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    found = re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|[^*?\[]+|\[", glob.removeprefix("./"))
    return any_folder + "".join(pieces.get(p) or (p if len(p) > 1 and p[0] == "[" else re.escape(p)) for p in found)
