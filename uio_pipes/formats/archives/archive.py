"""One archive, and its members in any order where its index, directory or headers allow it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import cached_property
from struct import Struct
from typing import ClassVar, cast
from zlib import crc32
from zlib import error as ZlibError

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import is_named, redact
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.tar.checks import check_fresh, has_sidecar, read_sidecar, sidecar_path
from uio_pipes.formats.tar.index import ArchiveIndex, MemberPlace
from uio_pipes.formats.tar.members import TarMembers
from uio_pipes.io.access import Access
from uio_pipes.io.compression import FRAME, WINDOW, SeekableFile, SeekPoints, detect, fast_zlib
from uio_pipes.io.local import Positioned
from uio_pipes.io.opening import identity, is_local, open_file, reference, version
from uio_pipes.io.references import RandomFile, Ref
from uio_pipes.io.stream import StreamBytes, open_source

_LOCAL_HEADER = Struct("<4s22xHH")  # of a zip: magic, lengths of the name and of what follows it


ArchiveVersion = tuple[int, str]  # by which a file is told from what it was before it changed
_SUFFIXES = (*ARCHIVES, ".zip")
CUT = frozenset(["truncated", "corrupt_stream", "bomb", "missing_end"])  # the rest of an archive is lost
DAMAGED = CUT | {"bad_header", "zeros", "huge_member", "unsupported_member"}  # of an archive, not of an utterance
_METHODS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd"}  # of zips, which are not read


def is_zip(url: str) -> bool:
    return is_named(url.lower(), ".zip")


def is_archive(url: str) -> bool:
    """Return whether the name is that of an archive; a file of another name is its own only member."""
    return is_named(url.lower(), _SUFFIXES)


def is_reachable(url: str) -> bool:
    """Return whether members can be read in any order, as far as that is known without asking a server."""
    if not is_archive(url) or is_zip(url):
        return True
    if is_local(url) is None:
        return False
    try:
        return is_named(url.lower(), ".tar") or (has_sidecar(url) and read_sidecar(url, members=True).seekable)
    except ListError:
        return True  # reading it says why


def is_hidden(name: str) -> bool:
    """Return whether a member is what macOS writes beside the real ones."""
    return name.rpartition("/")[2].startswith("._") or "__MACOSX/" in name


class Archive:
    """The archive at ``url``, or a plain file. Nothing is opened before it is asked for.

    ``damage``: what was found to be damaged when the members were listed.
    """

    def __init__(self, url: str, access: Access | None = None) -> None:
        self.url, self._access = url, access
        self.damage: list[DataError] = []

    def version(self) -> ArchiveVersion | None:
        """Return the version of the file; None if it cannot be read."""
        try:
            return version(self.url, self._access)
        except DataError:
            return None

    @cached_property
    def file(self) -> RandomFile:
        """The file, or the content of a compressed archive."""
        file, index = open_file(self.url, self._access), self._index
        if index is None or not index.shard.compression:
            return file
        columns, sidecar = index.columns, open_file(sidecar_path(self.url), self._access)
        crcs = columns["window_crc"][columns["bits"] != FRAME]

        def window(number: int) -> bytes:
            return Ref(sidecar, index.windows_at + number * WINDOW, WINDOW, crc=int(crcs[number])).read()

        form = detect(file.read_upto(0, 512), self.url)
        assert form is not None
        points = SeekPoints(columns["compressed"], columns["content"], columns["bits"], index.content, window)
        return SeekableFile(file, form, points)

    def members(self) -> Iterator[MemberPlace]:
        """Yield all regular members; damage is recorded in ``damage``.

        Raises: DataError if the archive cannot be read, or only in its order; ListError if its index is stale.
        """
        self.damage = []
        if not is_archive(self.url):
            return iter([MemberPlace(self.url, 0, -1)])
        if is_zip(self.url):
            return self._directory()
        if self._index is None:
            return self._headers()
        self.damage += (error for error in self._index.errors if error.reason in DAMAGED)
        return self._index.places()

    def names(self) -> list[str] | None:
        """Return the names of the members by the directory of a zip or the index of another archive; None if only
        reading the archive shows them. Raises: ListError if its index is damaged or stale."""
        try:
            if not is_archive(self.url) or is_zip(self.url):
                return [place.name for place in self.members()]
            index = self._known
        except DataError:
            return None  # reading it will show why
        sound = index is not None and not any(error.reason in DAMAGED for error in index.errors)
        return [place.name for place in index.places()] if index is not None and sound else None

    def reference(self, place: MemberPlace) -> Ref | str:
        """Return a reference to the bytes of a member, or the path of a plain local file."""
        if not is_archive(self.url):
            return reference(self.url, self._access)
        if is_zip(self.url):
            return (ZipMember if place.packed < 0 else DeflatedMember)(self.file, place)
        return Ref(self.file, place.offset, place.size, crc=place.crc)

    @cached_property
    def _known(self) -> ArchiveIndex | None:
        """The index. Raises: DataError if the archive cannot be read; ListError if the index is damaged or stale."""
        if is_zip(self.url) or not is_archive(self.url) or not has_sidecar(self.url, self._access):
            return None
        index = read_sidecar(self.url, self._access, members=True)
        identity(self.url, self._access)
        check_fresh(index, self.url, self._access)
        return index

    @property
    def _index(self) -> ArchiveIndex | None:
        """The index, by which members can be read in any order. Raises: DataError, ListError."""
        index = self._known
        if index is not None and not index.seekable:
            raise self._sequential("and its index has no points to begin at")
        return index

    def _sequential(self, why: str) -> DataError:
        message = (
            f"the archive is compressed, {why}, so that its members can only be read in order: do so "
            f"(stream=True), index it (uio index --members {redact(self.url)}), or unpack it"
        )
        return DataError("compressed_tar", message, url=self.url)

    def _directory(self) -> Iterator[MemberPlace]:
        """Yield the members of a zip."""
        try:
            with zipfile.ZipFile(cast(str, Positioned(self.file.read_upto, self.file.size))) as opened:
                listed = opened.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            message = f"the zip's directory cannot be read ({error}): the file is cut off or damaged, fetch it again"
            raise DataError("bad_zip", message, url=self.url) from error
        for info in listed:
            if not 0 <= info.header_offset < self.file.size:
                message = f"its directory says that a member begins at byte {info.header_offset}: fetch the zip again"
                raise DataError("bad_zip", message, url=self.url, member=info.filename)
            if info.is_dir():
                continue
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                how = (
                    "encrypted"
                    if info.flag_bits & 1
                    else f"compressed by {_METHODS.get(info.compress_type, 'another method')}"
                )
                message = f"a member is {how}, and only stored and deflated ones are read: unpack the zip (7z x)"
                self.damage.append(DataError("unsupported_member", message, url=self.url, member=info.filename))
                continue
            packed = -1 if info.compress_type == zipfile.ZIP_STORED else info.compress_size
            yield MemberPlace(info.filename, info.header_offset, info.file_size, info.CRC, packed)

    def _headers(self) -> Iterator[MemberPlace]:
        """Read the headers of a tar; payloads of a local one are skipped."""
        source = open_source(self.url, self._access)
        try:
            if isinstance(source, StreamBytes):
                raise self._sequential("and it has no index")
            self.file.size  # noqa: B018  by which a file that is replaced after this is told
            members = TarMembers(self.url, source, 0, False)
            while True:
                try:
                    member = members.next()
                except StopIteration:
                    return
                except DataError as error:
                    if source.failure is not None:
                        raise
                    self.damage.append(error)
                    continue
                if members.note is not None:
                    self.damage.append(members.note)
                if member is not None:
                    yield MemberPlace(member.name, member.offset, member.size)
        finally:
            source.close()


class ZipMember(Ref):
    """A member of a zip that is not compressed. Where its bytes begin shows only in its own header."""

    __slots__ = ("_begin", "place")

    def __init__(self, file: RandomFile, place: MemberPlace) -> None:
        self.file, self.place, self.size = file, place, place.size
        self.head, self.info, self.crc = b"", None, place.crc
        self._begin: int | None = None

    @property
    def offset(self) -> int:  # type: ignore[override]
        if self._begin is None:
            header = self.file.read(self.place.offset, 30)
            magic, name, extra = _LOCAL_HEADER.unpack(header)
            if magic != b"PK\3\4":
                raise self._damaged("its header is not where the directory of the zip says")
            self._begin = self.place.offset + 30 + name + extra
        return self._begin

    def _damaged(self, what: str) -> DataError:
        message = f"the member is damaged, {what}: fetch the file again"
        return DataError("bad_zip", message, url=self.file.path, member=self.place.name, offset=self.place.offset)


class DeflatedMember(ZipMember):
    """A compressed member of a zip: its beginning is inflated to see a header, all of it to decode the audio."""

    __slots__ = ()
    early: ClassVar[bool] = False  # its bytes in the file are others

    def read(self) -> bytes:
        data = self.read_at(0, self.size)
        if self.crc is not None and crc32(data) != self.crc:
            raise DataError("bad_crc", "the bytes differ from those that were packed: fetch the file again",
                            url=self.file.path, member=self.place.name, offset=self.place.offset)  # fmt: skip
        return data

    def read_at(self, start: int, size: int) -> bytes:
        end = min(start + size, self.size)
        packed = self.place.packed if end == self.size else min(self.place.packed, end + 4096)
        inflate = fast_zlib.decompressobj(wbits=-15)
        try:
            data: bytes = inflate.decompress(self.file.read(self.offset, packed), end)
            while len(data) < end and packed < self.place.packed:
                more = min(packed, self.place.packed - packed)
                fed = inflate.unconsumed_tail + self.file.read(self.offset + packed, more)
                data, packed = data + inflate.decompress(fed, end - len(data)), packed + more
        except (ZlibError, fast_zlib.error) as error:
            raise self._damaged(str(error)) from error
        if len(data) < end:
            raise self._damaged(f"it has {len(data)} bytes instead of {self.size}")
        return data[start:end]
