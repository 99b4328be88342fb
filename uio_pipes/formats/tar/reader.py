"""Utterances from a tar shard: consecutive members of one prefix. Never silently short, resumable between any two.

One damaged spot is one error. A complete utterance before it is delivered first; an incomplete one that touches it
is dropped with it. Reading goes on after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from uio_pipes.audio.containers import sniff_codec
from uio_pipes.base.errors import DataError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.advice import leaves, named_otherwise
from uio_pipes.formats.naming import TEXTLESS, finding
from uio_pipes.formats.tar.members import BLOCK, MAX_MEMBER, Member, TarMembers
from uio_pipes.io.references import Payload, Ref
from uio_pipes.io.stream import ByteSource

AUDIO_SUFFIXES = frozenset({"wav", "flac", "mp3", "m4a", "ogg", "opus", "wma", "aac"})
PAYLOADS = AUDIO_SUFFIXES | {"npy"}
# The archive is sound: only one member is of no use, or nothing is known to be wrong.
_INTACT = frozenset({"unsupported_member", "bad_member_name", "unclear_end"})
# The source failed, not the archive: trying again may help.
UNREADABLE = frozenset({"missing_file", "unreadable_file", "unopenable", "changed_file", "hung"})

META = re.compile(r"__[^/]*__($|/)")  # as in webdataset's tariterators

Grouping = Literal["wenet", "webdataset"]


class TarUtterance(NamedTuple):
    """One utterance: members by suffix in lower case (``txt``, …); ``offset``: of its first header, in bytes."""

    key: str
    offset: int
    fields: dict[str, Payload]


class TarReader:
    """Reader of ``source`` from the ``offset``, ``damaged`` and ``last`` that an earlier reader's ``tell()`` gave.

    ``grouping``: the rule that cuts a name into key and suffix, see ``split_name``; "webdataset" also passes over its
    own members (``__…__``). ``largest``: limit of a member, in bytes. ``text``: suffix of the transcript, "" if there
    is none. ``payloads``: suffixes of which an utterance has at least one; None for any. ``members``: what reads
    headers.
    """

    def __init__(
        self,
        url: str,
        source: ByteSource,
        grouping: Grouping = "wenet",
        offset: int = 0,
        damaged: bool = False,
        last: str = "",
        *,
        largest: int = MAX_MEMBER,
        text: str = "txt",
        payloads: frozenset[str] | None = PAYLOADS,
        members: TarMembers | None = None,
    ) -> None:
        if grouping not in ("wenet", "webdataset"):
            raise ValueError(f"grouping must be 'wenet' or 'webdataset', not {grouping!r}")
        self._url, self._source, self._grouping = url, source, grouping
        self._members = members or TarMembers(url, source, offset, damaged, largest)
        self._position = (offset, damaged)
        self._text, self._payloads = text, payloads
        self._last = last  # key of the last utterance delivered
        self._group: TarUtterance | None = None
        self._touched = damaged  # the group under way, or the next one, borders on damage
        self._ahead: tuple[Member, str, str] | None = None  # read, but it begins the next group; its key and suffix
        self._error: DataError | None = None  # met, but a group had to be delivered first
        self._over = False

    def tell(self) -> tuple[int, bool, str]:
        """Return (offset, damaged, last key) of the next utterance: a new reader with these yields exactly the rest,
        errors included.

        A source that fails to read (``UNREADABLE``) is not passed over: it is tried again.
        """
        return *self._position, self._last

    def next(self) -> TarUtterance:
        """Return the next utterance. Raises: StopIteration at the end, again and again.

        Raises ``DataError`` and may then be called again: ``bad_header``, ``truncated``, ``missing_end``,
        ``zeros``, ``corrupt_stream``, ``unsupported_member``, ``bad_member_name``, ``huge_member``, ``unsafe_name``,
        ``missing_audio``, ``missing_text``, ``duplicate_key``, or what the source raises; and ``unclear_end``, which is
        no failure.
        """
        if self._error is not None:
            raise self._raised(self._error)
        while not self._over:
            try:
                utterance = self._step()
            except DataError as error:
                return self._interrupted(error)
            if utterance is not None:
                return self._checked(utterance)
        raise StopIteration

    @property
    def sound(self) -> int | None:
        """The offset of the damaged part of a compressed stream, once the damage has been met."""
        return self._source.sound

    @property
    def unchecked(self) -> bool:
        """True if the bytes came from a compressed stream without checksums."""
        return self._source.unchecked

    def close(self) -> None:
        """End the reading and close the source."""
        self._over, self._error = True, None
        self._source.close()

    def _step(self) -> TarUtterance | None:
        """Take in one member; return the group that ends before it."""
        group = self._group
        if self._ahead is not None:
            member, key, suffix = self._ahead
            self._ahead = None
        elif (found := self._members.next()) is None:
            if self._members.note is not None:
                raise self._members.note
            return self._finished(self._members.start)
        else:
            member = found
            if self._grouping == "webdataset" and META.match(member.name):
                return None
            parts = split_name(member.name, self._grouping)
            if parts is None:
                message = f"a member needs a name KEY.SUFFIX (grouping={self._grouping!r}): rename or remove it"
                raise DataError("bad_member_name", message, url=self._url, member=member.name, offset=member.start)
            key, suffix = parts
        if group is None:
            group = self._group = tuple.__new__(TarUtterance, (key, member.start, {}))
        elif group.key != key or suffix in group.fields:
            self._ahead = member, key, suffix
            return self._finished(member.start)
        payload = self._source.payload(member.offset, member.size)
        if payload is None:
            self._group = None  # never delivered without the members that it has lost
            raise self._members.cut_short("a payload", member.start, member.offset + member.size)
        group.fields[suffix] = payload.read() if suffix == self._text and isinstance(payload, Ref) else payload
        return None

    def _finished(self, offset: int) -> TarUtterance | None:
        """Return the group that ends before ``offset``; None if there is none, or damage made it incomplete."""
        group, touched = self._group, self._touched
        if group is None:
            return None
        self._group, self._touched, self._position = None, False, (offset, False)
        return None if touched and self._lacks(group) else group

    def _checked(self, group: TarUtterance) -> TarUtterance:
        key = group.key
        if ".." in key or key[0] == "/" or not key.isascii():
            self._check_key(group)
        if lacks := self._lacks(group):
            what = "audio (wav, flac, …) or npy" if lacks == "missing_audio" else self._text
            ours = ["wav"] * (lacks == "missing_audio") + ["txt"] * (
                bool(self._text) and self._text not in group.fields
            )
            remedy = TEXTLESS if lacks == "missing_text" else "all members of an utterance must stand together"
            there = named_otherwise(ours[0], seen_in(group.fields), *ours[1:])
            raise self._bad(lacks, f"the utterance has no {what}: {there}; {remedy}", group)
        if group.key == self._last:
            message = "the utterance before it has the same key: remove one, or name them differently"
            raise self._bad("duplicate_key", message, group)
        self._last = group.key
        return group

    def _lacks(self, group: TarUtterance) -> str:
        """Return ``missing_audio``, ``missing_text`` or ``""``."""
        if self._payloads is not None and self._payloads.isdisjoint(group.fields):
            return "missing_audio"
        return "" if not self._text or self._text in group.fields else "missing_text"

    def _check_key(self, group: TarUtterance) -> None:
        """Refuse a key that would lead out of a folder, or that cannot be written in UTF-8. Raises: DataError."""
        if group.key[0] == "/" or ".." in group.key.split("/"):
            message = "an absolute name, or one with '..': pack with relative names (tar -C FOLDER .)"
            raise self._bad("unsafe_name", message, group)
        try:
            group.key.encode()
        except UnicodeEncodeError:
            raise self._bad("bad_member_name", "the name is not UTF-8: pack it under another", group) from None

    def _bad(self, reason: str, message: str, group: TarUtterance) -> DataError:
        return finding(reason, message, self._url, group.key, group.offset)

    def _interrupted(self, error: DataError) -> TarUtterance:
        """Deliver the group that ends before ``error``, if there is one, and raise ``error`` now or next time."""
        group = self._group
        if group is not None and error.reason == "zeros" and _ends_in_zeros(group):
            error.key = group.key  # the zeros began within it
        elif group is not None and (error.reason in _INTACT or not self._lacks(group)):
            self._error = error
            if (finished := self._finished(self._members.start)) is not None:
                return self._checked(finished)
        raise self._raised(error)

    def _raised(self, error: DataError) -> DataError:
        """Account for ``error``, which is about to be raised."""
        self._error = self._group = None
        if error.reason in UNREADABLE:
            self._over = True
        else:
            self._touched = error.reason not in _INTACT
            self._position = (self._members.at, self._touched or self._members.damaged)
        return error


def seen_in(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members or fields that advice can name: audio as b"", text, and the fields of ``json`` (nested ones,
    too) by the names that ``fields`` takes. Of anything else it has only the name."""
    found = {
        name: value if isinstance(value, (str, Mapping, list)) else b"" if _is_audio(value) else None
        for name, value in members.items()
    }
    with suppress(DataError, ValueError):  # what is wrong with it is not the matter here
        read = parse_json(_bytes(members.get("json")))
        found |= leaves(read, "json:") if isinstance(read, dict) else {}
    return found


def _is_audio(payload: Any) -> bool:
    with suppress(DataError):
        return isinstance(payload, (bytes, Ref)) and sniff_codec(_bytes(payload, 64)) is not None
    return False


def _bytes(payload: Any, most: int | None = None) -> bytes:
    if isinstance(payload, Ref):
        return payload.read() if most is None else payload.read_at(0, min(most, payload.size))
    return payload[:most] if isinstance(payload, bytes) else b""


def _ends_in_zeros(group: TarUtterance) -> bool:
    """Return whether the last block of the last payload is nothing but zeros."""
    payload = next(reversed(group.fields.values()))
    data = payload.read() if isinstance(payload, Ref) else payload
    return bool(data) and not data[-(len(data) % BLOCK or BLOCK) :].strip(b"\0")


def split_name(name: str, grouping: Grouping) -> tuple[str, str] | None:
    """Return ``(key, suffix in lower case)``, None if either would be empty; the key keeps the directories.

    "wenet" cuts at the last dot, "webdataset" at the first dot of the base name.
    """
    base = name.rfind("/") + 1
    dot = name.rfind(".") if grouping == "wenet" else name.find(".", base)
    return (name[:dot], name[dot + 1 :].lower()) if base < dot < len(name) - 1 else None


def suspects(read: Callable[[], TarReader], sound: int, url: str) -> Iterator[DataError]:
    """Yield a note for each utterance that ends after byte ``sound``, until the damage is met again.

    ``read`` opens the shard at its beginning: nothing has to be remembered, and a resumed run finds the same.
    """
    try:
        reader = read()
    except DataError:
        return  # out of reach now: the damage itself is reported
    try:
        while reader.sound is None:
            try:
                utterance = reader.next()
            except DataError:
                continue
            if reader.tell()[0] > sound:
                yield suspect(url, utterance.key, utterance.offset)
    except StopIteration:
        return
    finally:
        reader.close()


def suspect(url: str, key: str, offset: int) -> DataError:
    """Return the note for one utterance."""
    message = "it came from the damaged part of the stream, so it may be wrong: fetch the file "
    return finding("suspect", f"{message}again, or leave it out with exclude", url, key, offset)


def unchecked(url: str) -> DataError:
    """Return the note for a shard without checksums."""
    message = (
        "the compressed stream has no checksum of its content, so damage may go unnoticed: compress with one "
        "(zstd --check, xz --check=crc64, uio pack --compress), or index it and read it with verify='crc'"
    )
    return DataError("unchecked_stream", message, url=url)
