"""Read archives from elsewhere: nothing is written outside the folder, and a damaged archive is always an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from uio_pipes.base.errors import DataError
from uio_pipes.formats.tar.members import TarMembers
from uio_pipes.io.files import write_bytes
from uio_pipes.io.references import Ref
from uio_pipes.io.stream import StreamBytes

__all__ = ["UnpackFailed", "read_members", "unpack"]


class UnpackFailed(Exception):
    """The archive is damaged or another one; the message says which and what to do."""


def read_members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the regular files that are ``wanted``; links and devices are skipped.

    The archive is read to its last byte, checksums included. Raises: UnpackFailed.
    """
    try:
        source = StreamBytes(archive.open("rb"), str(archive))
        members = TarMembers(str(archive), source, 0, False)
        while True:
            try:
                member = members.next()
            except StopIteration:
                return
            if member is None:
                continue  # the end mark; what follows is still read, for the checksum
            name = _safe(member.name, archive)
            if wanted(name):
                content = source.payload(member.offset, member.size)
                if content is None:
                    raise members.cut_short("a payload", member.start, member.offset + member.size)
                yield name, content.read() if isinstance(content, Ref) else content
    except DataError as error:
        raise UnpackFailed(f"{archive} cannot be unpacked ({error}); delete it and get it again") from error


def _safe(name: str, archive: Path) -> str:
    """Return ``./a/b`` as ``a/b``. Raises: UnpackFailed for a name that leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise UnpackFailed(f"{archive} holds a file named {name!r}, which leads out of its folder; do not unpack it")
    return str(path)


def unpack(archive: Path, folder: Path, wanted: Callable[[str], bool]) -> None:
    """Write the ``wanted`` members under ``folder``, each complete or not at all. Raises: UnpackFailed."""
    for name, content in read_members(archive, wanted):
        write_bytes(folder / name, content)
