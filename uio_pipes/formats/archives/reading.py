"""The members of an archive with their bytes, in order, including those of archives within it."""

from __future__ import annotations

import io
from typing import ClassVar, NamedTuple

from uio_pipes.base.urls import folder_of
from uio_pipes.formats.archives.archive import Archive, is_archive, is_hidden, is_zip
from uio_pipes.formats.tar.index import MemberPlace
from uio_pipes.formats.tar.members import TarMembers
from uio_pipes.io.access import Access
from uio_pipes.io.opening import Opened
from uio_pipes.io.references import Payload
from uio_pipes.io.stream import ByteSource, StreamBytes, open_source

MemberStart = tuple[int, ...]  # offset of a header, and within an archive that is a member, that of one of its own


class ArchiveMember(NamedTuple):
    """A member that has been reached. ``start``: where its header begins."""

    name: str
    start: MemberStart
    payload: Payload | str


class _Listed:
    """Reads a zip, by its directory, or a plain file: see :class:`_Tar`."""

    sound: ClassVar[list[MemberStart]] = []
    unchecked = False

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        places = archive.members()
        self._places: list[MemberPlace] = sorted(places, key=lambda place: place.offset)
        self._damage = iter(archive.damage)
        self._given = 0

    @property
    def at(self) -> MemberStart:
        return (self._given,)

    read = at

    def next(self) -> ArchiveMember:
        for error in self._damage:
            raise error
        if self._given == len(self._places):
            raise StopIteration
        place, self._given = self._places[self._given], self._given + 1
        return ArchiveMember(place.name, (self._given - 1,), self._archive.reference(place))

    def close(self) -> None:
        """Do nothing: descriptors are shared."""


class _Tar:
    """Reads a tar, and those that are its members."""

    def __init__(self, url: str, source: ByteSource) -> None:
        self._url, self._source = url, source
        self._members = TarMembers(url, source, 0, False)
        self._inner: _Tar | None = None  # an archive that is a member
        self._outer: tuple[str, int] = ("", 0)  # its folder, and where it begins
        self._sound, self._unchecked = list[MemberStart](), False  # of those that are members

    @property
    def at(self) -> MemberStart:
        """Where the next member begins."""
        return (self._outer[1], *self._inner.at) if self._inner else (self._members.at,)

    @property
    def read(self) -> MemberStart:
        """Up to where the content has been read; within an archive that is a member, up to where in that one, too."""
        return (self._members.at, *(self._inner.read if self._inner else ()))

    @property
    def sound(self) -> list[MemberStart]:
        """For each compressed stream that proved damaged, up to where it is known to be sound, as ``read`` counts."""
        own = self._source.sound
        return [*self._sound, *([(own,)] if own is not None else [])]

    @property
    def unchecked(self) -> bool:
        """True if something came from a compressed stream without checksums."""
        return self._source.unchecked or self._unchecked

    def next(self) -> ArchiveMember:
        """Return the next member. Raises: StopIteration at the end; DataError."""
        while True:
            if self._inner is not None:
                try:
                    inner = self._inner.next()
                except StopIteration:
                    self._sound += [(self._members.at, *at) for at in self._inner.sound]
                    self._unchecked |= self._inner.unchecked
                    self._inner = None
                    continue
                folder, begin = self._outer  # its name is as if the archive within were unpacked at its place
                name = f"{folder}/{inner.name.removeprefix('./')}" if folder else inner.name
                return ArchiveMember(name, (begin, *inner.start), inner.payload)
            member = self._members.next()
            if member is None:
                if self._members.note is not None:
                    raise self._members.note
                continue
            payload = self._source.payload(member.offset, member.size)
            if payload is None:
                raise self._members.cut_short("a payload", member.start, member.offset + member.size)
            if not is_archive(member.name) or is_zip(member.name) or is_hidden(member.name):
                return ArchiveMember(member.name, (member.start,), payload)
            data = payload if isinstance(payload, bytes) else payload.read()
            self._outer = folder_of(member.name), member.start
            self._inner = _Tar(f"{self._url}/{member.name}", StreamBytes(io.BytesIO(data), member.name))

    def close(self) -> None:
        self._source.close()


ArchiveReader = _Listed | _Tar  # after a DataError, ``next`` may be called again, unless the file cannot be read


def open_reader(url: str, access: Access, opened: Opened | None = None) -> ArchiveReader:
    """Open an archive, or a plain file. ``opened``: what reads it, if there is that already. Raises: DataError."""
    if is_zip(url) or not is_archive(url):
        return _Listed(Archive(url, access))
    return _Tar(url, open_source(url, access, opened))
