"""One pass over a tar: its index, the CRC32 of the file, and all findings."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO, Literal
from zlib import crc32

import numpy as np

from uio_pipes.audio.length import audio_info, npy_shape
from uio_pipes.base.errors import NOTES, DataError
from uio_pipes.formats.naming import finding
from uio_pipes.formats.tar.fields import member_of, payloads_under, text_of, under_our_names
from uio_pipes.formats.tar.index import FRAME_RATE, PER_GROUP, PER_MEMBER, PER_UTTERANCE, ArchiveIndex, ShardStamp
from uio_pipes.formats.tar.members import BLOCK, Member, TarMembers
from uio_pipes.formats.tar.reader import (
    AUDIO_SUFFIXES,
    META,
    UNREADABLE,
    Grouping,
    TarReader,
    TarUtterance,
    split_name,
    suspect,
    unchecked,
)
from uio_pipes.io.compression import FRAME
from uio_pipes.io.opening import identity, open_binary
from uio_pipes.io.references import AudioInfo, Payload
from uio_pipes.tools.data.points import Framed, SeekPoint, seek_points

_CHUNK = 1 << 20


@dataclass
class Looked:
    """One scanned utterance: its payloads, and the length that its header gives, or the header's error.

    ``names``: our names of members, with their suffixes.
    """

    utterance: TarUtterance
    txt: str
    names: Mapping[str, str] | None = None
    info: AudioInfo | None = None
    error: DataError | None = None

    @cached_property
    def members(self) -> dict[str, Payload]:
        """The members under our names."""
        return under_our_names(self.utterance.fields, self.names)

    @property
    def audio(self) -> tuple[str, bytes] | None:
        """The suffix and the bytes of the audio."""
        given = (self.names or {}).get("wav")
        found = ((given or s, data) for s, data in self.members.items() if s in AUDIO_SUFFIXES)
        return next(((suffix, data) for suffix, data in found if isinstance(data, bytes)), None)

    @property
    def features(self) -> bytes | None:
        """The bytes of the features."""
        found = self.members.get("feat", self.members.get("npy"))
        return found if isinstance(found, bytes) else None

    def measured(self) -> AudioInfo | None:
        """Return the length that the features' header gives, as frames at 100 Hz, or else that of the audio.

        Without ``names`` (an index, read by whoever names them), an array beside audio need not be features.
        Raises: DataError.
        """
        if self.features is not None:
            try:
                frames, bins = npy_shape(self.features, len(self.features))
            except DataError:
                if self.names is not None or self.audio is None:
                    raise
            else:
                return AudioInfo(frames, FRAME_RATE, bins)
        return None if self.audio is None else audio_info(self.audio[1], {})


class Scanning:
    """An archive that is read from its beginning to its end. After that, :meth:`index` has what reading it would report
    as its ``errors``; ``bad``: notes, and utterances with a bad header.

    ``grouping``: "" for members only; ``seekable``: whether to look for points in a compressed archive.
    """

    def __init__(
        self,
        url: str,
        grouping: Grouping | Literal[""] = "wenet",
        text: str = "txt",
        names: Mapping[str, str] | None = None,
        *,
        seekable: bool = False,
    ) -> None:
        self.url, self._grouping, self._text, self._names = url, grouping, text, names
        self._before, self._seekable = identity(url), seekable
        self._file = _Counted(open_binary(url))
        self._source = Framed(self._file, url)
        self._columns = _Columns()
        self._members = _Noting(url, self._source, self._columns, grouping or "wenet")
        options: Any = {"text": member_of(text), "payloads": payloads_under(names), "members": self._members}
        self._reader = TarReader(url, self._source, grouping, **options) if grouping else None
        self.errors: list[DataError] = []
        self.bad: list[DataError] = []
        self._points: list[SeekPoint] = []
        self._ends: list[int] = []  # of the utterances

    def __iter__(self) -> Iterator[Looked]:
        """Yield each utterance. Raises: DataError if the archive cannot be read, or changes meanwhile."""
        try:
            while True:
                try:
                    looked = self._next()
                except StopIteration:
                    break
                except DataError as error:
                    if error.reason in UNREADABLE:
                        raise
                    (self.bad if error.reason in NOTES else self.errors).append(error)
                    continue
                if looked is not None:
                    yield looked
            self._file.drain()
            if self._reader is not None and self._reader.sound is not None:
                self.bad += self._columns.suspects(self.url, bisect_right(self._ends, self._reader.sound))
            if self._source.unchecked:
                self.bad.append(unchecked(self.url))
            self._points = list(seek_points(self.url, self._source)) if self._seekable else []
        finally:
            self._file.end()
        if identity(self.url) != self._before:
            raise DataError("changed_file", "the shard changed while it was read: try again", url=self.url)

    def _next(self) -> Looked | None:
        if self._reader is None:
            self._members.skip()
            self._columns.settle()
            return None
        utterance = self._reader.next()
        looked = Looked(utterance, text_of(utterance, self.url, self._text), self._names)
        try:
            looked.info = looked.measured()
        except DataError as found:
            looked.error = finding(found.reason, found.message, self.url, utterance.key, utterance.offset)
            self.bad.append(looked.error)
        self._ends.append(self._reader.tell()[0])
        self._columns.add(looked, self._ends[-1])
        return looked

    def index(self) -> ArchiveIndex:
        """Return the index, after the last utterance."""
        size, stamp = self._before
        form = self._source.form
        shard = ShardStamp(self._file.size or size, stamp, self._file.crc, form)
        points, made = self._points, self._columns
        made.settle()
        numbers: dict[str, Any] = {
            **made.numbers,
            "compressed": [point.compressed for point in points],
            "content": [point.content for point in points],
            "bits": [point.bits for point in points],
            "window_crc": [crc32(point.window) for point in points],
        }
        return ArchiveIndex(
            shard,
            self._grouping,
            self._text if self._grouping else "",
            list(made.tails),
            {name: np.array(values, np.uint64) for name, values in numbers.items()},
            bytes(made.keys),
            bytes(made.txts),
            self._source.size if form else shard.size,
            self.errors,
            [point.window for point in points if point.bits != FRAME],
        )

    def whole(self) -> ArchiveIndex:
        """Read all of it, and return the index. Raises: DataError."""
        for _ in self:
            pass
        return self.index()


class _Columns:
    """The columns of an index, as lists that grow."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {name: [] for name in (*PER_MEMBER, *PER_GROUP, *PER_UTTERANCE)}
        self.keys, self.txts = bytearray(), bytearray()
        self.tails: dict[str, int] = {}
        self._waiting: deque[tuple[int, str]] = deque()  # start and key of the members that are in no group yet

    def note(self, member: Member, key: str, crc: int) -> None:
        self._waiting.append((member.start, key))
        tail = self.tails.setdefault(member.name[len(key) :], len(self.tails))
        self._append(tail=tail, offset=member.offset // BLOCK, size=member.size, crc=crc)

    def settle(self, end: int | None = None) -> None:
        """Make groups of the members that begin before ``end``: they are of no utterance."""
        while self._waiting and (end is None or self._waiting[0][0] < end):
            self._group([self._waiting.popleft()])

    def _group(self, members: list[tuple[int, str]]) -> None:
        self.keys += members[0][1].encode("utf-8", "surrogateescape")
        done = len(self.numbers["tail"]) - len(self._waiting)
        self._append(key_ends=len(self.keys), member_ends=done)

    def add(self, looked: Looked, end: int) -> None:
        """Add an utterance, whose members begin before the offset ``end``."""
        utterance, info = looked.utterance, looked.info or AudioInfo(0, 0, 0)
        self.settle(utterance.offset)
        members = list[tuple[int, str]]()
        while self._waiting and self._waiting[0][0] < end:
            members.append(self._waiting.popleft())
        self._group(members)
        self.txts += looked.txt.encode()
        group = len(self.numbers["key_ends"]) - 1
        self._append(group=group, starts=utterance.offset // BLOCK, txt_ends=len(self.txts))
        self._append(samples=info.samples, sample_rates=info.sample_rate, channels=info.channels)

    def suspects(self, url: str, first: int) -> Iterator[DataError]:
        """Yield notes for the utterances from number ``first`` on."""
        ends = [0, *self.numbers["key_ends"]]
        for group, start in zip(self.numbers["group"][first:], self.numbers["starts"][first:], strict=True):
            yield suspect(url, self.keys[ends[group] : ends[group + 1]].decode(), start * BLOCK)

    def _append(self, **values: int) -> None:
        for name, value in values.items():
            self.numbers[name].append(value)


class _Noting(TarMembers):
    """Notes each member with the CRC32 of its bytes."""

    def __init__(self, url: str, source: Framed, columns: _Columns, grouping: Grouping) -> None:
        super().__init__(url, source, 0, False)
        self._columns, self._grouping = columns, grouping

    def next(self) -> Member | None:
        member, self.whole = super().next(), True
        if member is not None:
            payload = self._source.payload(member.offset, member.size)
            self.whole = isinstance(payload, bytes)
            if isinstance(payload, bytes) and not (self._grouping == "webdataset" and META.match(member.name)):
                key, _ = split_name(member.name, self._grouping) or (member.name, "")
                tail = member.name[len(key) :]
                readable = tail.encode("utf-8", "ignore").decode() == tail
                self._columns.note(member, key if readable else member.name, crc32(payload))
        return member

    def skip(self) -> None:
        """Read a member. Raises: StopIteration, DataError."""
        member = self.next()
        if member is not None and not self.whole:
            raise self.cut_short("a payload", member.start, member.offset + member.size)


class _Counted:
    """A file whose bytes are counted as they are read, to its end even if its reader closes it earlier."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = self.crc = 0

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.size += len(data)
        self.crc = crc32(data, self.crc)
        return data

    def close(self) -> None:
        """Do nothing: a damaged stream is given up before its end, see :meth:`end`."""

    def drain(self) -> None:
        while self.read(_CHUNK):
            pass

    def end(self) -> None:
        self._file.close()
