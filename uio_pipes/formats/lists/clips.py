"""Lists of audio clips: noises, impulse responses. A line is an audio file, or a tar shard of them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from uio_pipes.base.checks import is_number, require
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import is_named
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.formats.tar.members import Member, TarMembers
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, split_name
from uio_pipes.io.references import Payload
from uio_pipes.io.stream import open_source


class ClipTable(ItemTable):
    """Lists of audio files or shards of them; audio files themselves may be named too."""

    direct = (*ARCHIVES, *(f".{s}" for s in AUDIO_SUFFIXES), *(f".{s.upper()}" for s in AUDIO_SUFFIXES))


class ClipPlace(NamedTuple):
    """The audio of a clip: a path or URL, bytes, or a reference; perhaps only a segment of it, in seconds."""

    key: tuple[int, int]
    name: str
    audio: Payload | str
    start: float | None = None
    end: float | None = None


def parse(table: ItemTable, number: int) -> ClipPlace | str:
    """Parse a line: return the name of a shard, or the place of an audio file.

    An audio file is named alone, after a key (as in Kaldi), or as ``wav`` of a JSON object.
    """
    line = table[number]
    if is_named(line, ARCHIVES):
        return line
    start = end = None
    if line.startswith("{"):
        wav, start, end = _parse_json(line, table.place(number))
    else:
        first, *rest = line.split(maxsplit=1)
        wav = rest[0] if rest and "/" not in first else line
    if wav.endswith("|"):
        raise ListError(f"{table.place(number)} is a shell command: {line[:80]!r}; run it and list the files it makes")
    return ClipPlace((number, 0), wav, wav, start, end)


def _parse_json(line: str, place: str) -> tuple[str, float | None, float | None]:
    try:
        fields: dict[str, Any] = parse_json(line)
        wav = fields["wav"]
    except (ValueError, KeyError) as error:
        raise ListError(f'{place} is not a JSON object with a "wav": {line[:80]!r}') from error
    start, end = fields.get("start"), fields.get("end")
    if not isinstance(wav, str) or not all(v is None or is_number(v) for v in (start, end)):
        raise ListError(f'{place} must have a path as "wav", and seconds as "start" and "end", if any: {line[:80]!r}')
    return wav, start, end


def entries(stage: str, name: str, paths: Any) -> tuple[str, ...]:
    """Return ``paths``, a stage's parameter ``name``, as a tuple of strings. Raises: PipelineError."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    ok = isinstance(given, (list, tuple)) and all(isinstance(p, (str, os.PathLike)) and os.fspath(p) for p in given)
    rule = f"{name} must be a list file, an audio file or a tar shard, or several of them"
    require(ok and bool(given), stage, rule, paths, 'give a list, or a glob of files ("noise/**/*.wav")')
    return tuple(os.fspath(p) for p in given)


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
        raise DataError("empty_shard", f"the shard contains no audio ({', '.join(sorted(AUDIO_SUFFIXES))})")
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
    """Read a member that was too large to be kept, by reading its stream again from the beginning."""
    source = open_source(url)
    try:
        payload = source.payload(offset, size)
    finally:
        source.close()
    if payload is None:
        raise DataError("truncated", f"the shard ends before byte {offset + size}; fetch it again")
    return payload
