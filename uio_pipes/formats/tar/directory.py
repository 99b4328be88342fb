"""The places of a tar's members by name: from its index, or else from its headers, read when first asked for.

Per member three numbers are kept, not its name: names are found by 64-bit hashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import NOTES, DataError, ListError
from uio_pipes.base.urls import redact
from uio_pipes.formats.tar.checks import identity, open_sidecar
from uio_pipes.formats.tar.members import TarMembers
from uio_pipes.io.access import Access
from uio_pipes.io.local import RandomFile, Ref
from uio_pipes.io.opening import open_file
from uio_pipes.io.stream import StreamBytes, open_source


class TarDirectory:
    """The members of the uncompressed tar at ``url``. Nothing is opened before a member is looked for.

    Suffixes are compared in lower case, and a leading ``./`` does not count. Of equal names the first member counts.
    """

    def __init__(self, url: str, access: Access | None = None) -> None:
        self.url, self._access = url, access
        self.damage: list[DataError] = []

    @cached_property
    def file(self) -> RandomFile:
        return open_file(self.url, self._access)

    def known_size(self) -> int | None:
        """Return the size of the tar in bytes; None if it cannot be read."""
        try:
            return identity(self.url, self._access)[0]
        except DataError:
            return None

    def find(self, names: tuple[str, ...]) -> tuple[int, int]:
        """Return offset and size of the first of these members that is there.

        Raises: DataError ``missing_member``, or if the tar cannot be read.
        """
        hashes, offsets, sizes = self._places
        for name in names:
            wanted = np.uint64(_hash(name))
            at = int(np.searchsorted(hashes, wanted))
            if at < len(hashes) and hashes[at] == wanted:
                return int(offsets[at]), int(sizes[at])
        why = f" (it is damaged: {self.damage[0].message})" if self.damage else ""
        offset = self.damage[0].offset if self.damage else None
        message = f"the tar has no member {names[0]!r}{why}: pack it again, or leave the row out"
        raise DataError("missing_member", message, url=self.url, member=names[0], offset=offset)

    def members(self) -> Iterator[tuple[str, int, int]]:
        """Yield name, offset and size of every member; what is damaged is noted in ``damage``.

        Raises: DataError if the tar cannot be read, or is compressed.
        """
        try:
            index = open_sidecar(self.url, self._access)
        except ListError:
            yield from self._headers()
            return
        if index.errors or index.shard.compression:
            yield from self._headers()
            return
        for number in range(len(index)):
            for member in index.members(number):
                yield f"{index.key(number)}.{member.suffix}", member.offset, member.size

    @cached_property
    def _places(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        found = [(_hash(name), offset, size) for name, offset, size in self.members()]
        hashes = np.array([each[0] for each in found], np.uint64)
        order = np.argsort(hashes, kind="stable")
        places = np.array([each[1:] for each in found], np.int64).reshape(-1, 2)[order]
        return hashes[order], places[:, 0], places[:, 1]

    def _headers(self) -> Iterator[tuple[str, int, int]]:
        """Read the headers; payloads of a local tar are skipped."""
        source = open_source(self.url, self._access)
        try:
            if isinstance(source, StreamBytes):
                message = (
                    "the tar is compressed, so that its members can only be read one after the other: unpack it "
                    "(gzip -d), or repack it as a WeNet shard and read it with from_shard_list"
                )
                raise DataError("compressed_tar", message, url=self.url)
            self.damage = []
            members = TarMembers(self.url, source, 0, False)
            while True:
                try:
                    member = members.next()
                except StopIteration:
                    return
                except DataError as error:
                    if source.failure is not None:
                        raise
                    self.damage += [] if error.reason in NOTES else [error]
                    continue
                if member is not None:
                    yield member.name, member.offset, member.size
        finally:
            source.close()


class MemberRef(Ref):
    """A reference to the first of the members ``names`` that there is. It is looked for when it is first needed."""

    __slots__ = ("_place", "directory", "names")

    def __init__(self, directory: TarDirectory, names: tuple[str, ...]) -> None:
        self.directory, self.names = directory, names
        self.head, self.info, self.crc = b"", None, None
        self._place: tuple[int, int] | None = None

    @property
    def file(self) -> RandomFile:  # type: ignore[override]
        return self.directory.file

    @property
    def offset(self) -> int:  # type: ignore[override]
        return self._found()[0]

    @property
    def size(self) -> int:  # type: ignore[override]
        return self._found()[1]

    def _found(self) -> tuple[int, int]:
        if self._place is None:
            self._place = self.directory.find(self.names)
        return self._place

    def __repr__(self) -> str:
        return f"MemberRef({redact(self.directory.url)!r}, {self.names[0]!r})"


def same_name(name: str) -> str:
    """Return a name as names are compared."""
    stem, dot, suffix = name.removeprefix("./").rpartition(".")
    return f"{stem}{dot}{suffix.lower()}"


def _hash(name: str) -> int:
    same = same_name(name).encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(same, digest_size=8).digest(), "little")
