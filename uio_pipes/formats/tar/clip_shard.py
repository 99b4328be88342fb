"""The audio clips of a tar shard, whatever else it holds."""

from __future__ import annotations

from uio_pipes.base.errors import DataError
from uio_pipes.formats.tar.members import Member, TarMembers
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, split_name
from uio_pipes.io.local import Payload
from uio_pipes.io.stream import open_source

MEMBER_BYTES = 400  # of a member in memory, without its payload

ClipMember = tuple[str, Payload | tuple[int, int]]  # name, and the audio or its offset and size


def members(url: str, most: int) -> list[ClipMember]:
    """Return the audio members of a shard.

    In a local plain tar they are references. In a stream they are bytes, at most ``most`` in all, and further members
    are their offsets and sizes.
    """
    source = open_source(url)
    found: list[ClipMember] = []
    held = 0
    try:
        reader = TarMembers(url, source, 0, False)
        for member in iter(lambda: _next_audio(reader), None):
            payload = source.payload(member.offset, member.size)
            if payload is None:
                raise reader.cut_short("a payload", member.start, member.offset + member.size)
            held += len(payload) if isinstance(payload, bytes) else 0
            fits = held <= most
            found.append((member.name, payload if fits else (member.offset, member.size)))
    finally:
        source.close()
    if not found:
        raise DataError("empty_shard", f"the shard holds no audio ({', '.join(sorted(AUDIO_SUFFIXES))})")
    return found


def _next_audio(reader: TarMembers) -> Member:
    """Return the next member with an audio suffix. Raises: StopIteration at the end."""
    while True:
        member = reader.next()
        parts = None if member is None else split_name(member.name, "wenet")
        if member is not None and parts is not None and parts[1] in AUDIO_SUFFIXES:
            return member


def weight(members: list[ClipMember]) -> int:
    return sum(MEMBER_BYTES + (len(audio) if isinstance(audio, bytes) else 0) for _, audio in members)


def read_again(url: str, offset: int, size: int) -> Payload:
    """Read a member of a stream that was too large to be kept: the stream is read again from its beginning."""
    source = open_source(url)
    try:
        payload = source.payload(offset, size)
    finally:
        source.close()
    if payload is None:
        raise DataError("truncated", f"the shard ends before byte {offset + size}; fetch it again")
    return payload
