"""One pass over a tar shard: its index, the CRC32 of the file, and all findings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np

from uio_pipes.audio.length import audio_info, npy_shape
from uio_pipes.base.errors import NOTES, DataError
from uio_pipes.formats.findings import finding
from uio_pipes.formats.tar.fields import text_of
from uio_pipes.formats.tar.index import BLOCK, PER_MEMBER, PER_UTTERANCE, ShardIndex, ShardStamp
from uio_pipes.formats.tar.index_files import identity
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, UNREADABLE, Grouping, TarReader, TarUtterance
from uio_pipes.formats.tar.suspects import suspect, unchecked
from uio_pipes.io.access import Access
from uio_pipes.io.audio_info import AudioInfo
from uio_pipes.io.compression import detect
from uio_pipes.io.opening import open_binary
from uio_pipes.io.stream import StreamBytes

_CHUNK = 1 << 20


@dataclass
class Scan:
    """The result of scanning a shard.

    ``index.errors``: what reading the shard would report; ``bad``: notes, and utterances with a bad header.
    """

    index: ShardIndex
    bad: list[DataError] = field(default_factory=list)


@dataclass(frozen=True)
class Looked:
    """One scanned utterance: its payloads, and the length that its header gives, or the header's error."""

    utterance: TarUtterance
    txt: str
    info: AudioInfo | None
    error: DataError | None

    @property
    def audio(self) -> tuple[str, bytes] | None:
        """The suffix and the bytes of the audio."""
        members = self.utterance.fields.items()
        return next(((s, data) for s, data in members if s in AUDIO_SUFFIXES and isinstance(data, bytes)), None)


class Scanning:
    """A shard that is read from its beginning to its end; after that, call :meth:`scan`."""

    def __init__(self, url: str, access: Access | None = None, grouping: Grouping = "wenet", text: str = "txt") -> None:
        self.url, self._access, self._grouping, self._text = url, access, grouping, text
        self._before = identity(url, access)
        self._file = _Counted(open_binary(url, access))
        self._reader = TarReader(url, _Placing(self._file, url), grouping, text=text.partition(":")[0])  # type: ignore[arg-type]
        self._columns = _Columns()
        self.errors: list[DataError] = []
        self.bad: list[DataError] = []
        self._ends: list[int] = []  # of the utterances

    def __iter__(self) -> Iterator[Looked]:
        """Yield each utterance. Raises: DataError if the shard cannot be read, or changes meanwhile."""
        try:
            while True:
                try:
                    utterance = self._reader.next()
                    looked = self._look(utterance, text_of(utterance, self.url, self._text))
                except StopIteration:
                    break
                except DataError as error:
                    if error.reason in UNREADABLE:
                        raise
                    self._failed(error)
                    continue
                self._columns.add(looked)
                self._ends.append(self._reader.tell()[0])
                yield looked
            self._file.drain()
            if self._reader.sound is not None:
                self.bad += self._columns.suspects(self.url, bisect_right(self._ends, self._reader.sound))
            if self._reader.unchecked:
                self.bad.append(unchecked(self.url))
        finally:
            self._file.end()
        if identity(self.url, self._access) != self._before:
            raise DataError("changed_file", "the shard changed while it was read: do it again", url=self.url)

    def _failed(self, error: DataError) -> None:
        (self.bad if error.reason in NOTES else self.errors).append(error)

    def scan(self) -> Scan:
        """Return the result, after the last utterance."""
        form = detect(self._file.head, self.url)
        size, stamp = self._before
        shard = ShardStamp(self._file.size or size, stamp, self._file.crc, form.name if form else "")
        return Scan(self._columns.index(shard, self._grouping, self._text, self.errors), self.bad)

    def _look(self, utterance: TarUtterance, txt: str) -> Looked:
        info, error = None, None
        try:
            info = _info(utterance)
        except DataError as found:
            error = finding(found.reason, found.message, self.url, utterance.key, utterance.offset)
            self.bad.append(error)
        return Looked(utterance, txt, info, error)


def scan_shard(url: str, access: Access | None = None, grouping: Grouping = "wenet", text: str = "txt") -> Scan:
    """Read the shard once. Raises: DataError if it cannot be read at all."""
    reading = Scanning(url, access, grouping, text)
    for _ in reading:
        pass
    return reading.scan()


def _info(utterance: TarUtterance) -> AudioInfo | None:
    """Return the length that the header of the first audio member gives, or that of the features: frames, at 100 Hz."""
    npy = utterance.fields.get("npy")
    if isinstance(npy, bytes):
        frames, bins = npy_shape(npy, len(npy))
        return AudioInfo(frames, 100, bins)
    audio = next(data for suffix, data in utterance.fields.items() if suffix in AUDIO_SUFFIXES)
    return audio_info(audio, {})


class _Columns:
    """The columns of an index, as lists that grow."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {name: [] for name in (*PER_UTTERANCE, *PER_MEMBER)}
        self.keys, self.txts = bytearray(), bytearray()
        self.suffixes: dict[str, int] = {}

    def add(self, looked: Looked) -> None:
        utterance, add = looked.utterance, self._append
        self.keys += utterance.key.encode()
        self.txts += looked.txt.encode()
        for suffix, data in utterance.fields.items():
            assert isinstance(data, _Placed)
            code = self.suffixes.setdefault(suffix, len(self.suffixes))
            add(suffix=code, offset=data.offset // BLOCK, size=len(data), crc=crc32(data))
        info = looked.info or AudioInfo(0, 0, 0)
        add(key_ends=len(self.keys), txt_ends=len(self.txts), starts=utterance.offset // BLOCK)
        add(member_ends=len(self.numbers["suffix"]))
        add(samples=info.samples, sample_rates=info.sample_rate, channels=info.channels)

    def suspects(self, url: str, first: int) -> Iterator[DataError]:
        """Yield notes for the utterances from number ``first`` on."""
        ends = [0, *self.numbers["key_ends"]]
        for number in range(first, len(ends) - 1):
            key = self.keys[ends[number] : ends[number + 1]].decode()
            yield suspect(url, key, self.numbers["starts"][number] * BLOCK)

    def _append(self, **values: int) -> None:
        for name, value in values.items():
            self.numbers[name].append(value)

    def index(self, shard: ShardStamp, grouping: str, text: str, errors: list[DataError]) -> ShardIndex:
        columns: dict[str, Any] = {name: np.array(values, np.uint64) for name, values in self.numbers.items()}
        return ShardIndex(
            shard, grouping, text, list(self.suffixes), columns, bytes(self.keys), bytes(self.txts), errors
        )


class _Placed(bytes):
    """A payload that knows its offset in the shard."""

    offset = 0


class _Placing(StreamBytes):
    def payload(self, offset: int, size: int) -> _Placed | None:
        data = super().payload(offset, size)
        if not isinstance(data, bytes):
            return None
        placed = _Placed(data)
        placed.offset = offset
        return placed


class _Counted:
    """A file whose bytes are counted as they are read, to its end even if its reader closes it earlier."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size, self.crc, self.head = 0, 0, b""

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.size += len(data)
        self.crc = crc32(data, self.crc)
        if len(self.head) < BLOCK:
            self.head += data[: BLOCK - len(self.head)]
        return data

    def close(self) -> None:
        """Do nothing: a damaged stream is given up before its end, see :meth:`end`."""

    def drain(self) -> None:
        while self.read(_CHUNK):
            pass

    def end(self) -> None:
        self._file.close()
