"""One pass over a tar shard: its index, the CRC32 of the file, and all findings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np

from uio_pipes.audio.length import audio_info, npy_shape
from uio_pipes.base.errors import NOTES, DataError
from uio_pipes.formats.naming import finding
from uio_pipes.formats.tar.fields import member_of, payloads_under, text_of, under_our_names
from uio_pipes.formats.tar.index import FRAME_RATE, PER_MEMBER, PER_UTTERANCE, ShardIndex, ShardStamp
from uio_pipes.formats.tar.members import BLOCK
from uio_pipes.formats.tar.reader import (
    AUDIO_SUFFIXES,
    UNREADABLE,
    Grouping,
    TarReader,
    TarUtterance,
    suspect,
    unchecked,
)
from uio_pipes.io.access import Access
from uio_pipes.io.compression import detect
from uio_pipes.io.local import AudioInfo, Payload
from uio_pipes.io.opening import identity, open_binary
from uio_pipes.io.stream import StreamBytes

_CHUNK = 1 << 20


@dataclass(frozen=True)
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
    """A shard that is read from its beginning to its end. After that, :meth:`index` has what reading the shard would
    report as its ``errors``; ``bad``: notes, and utterances with a bad header."""

    def __init__(
        self,
        url: str,
        access: Access | None = None,
        grouping: Grouping = "wenet",
        text: str = "txt",
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.url, self._access, self._grouping, self._text, self._names = url, access, grouping, text, names
        self._before = identity(url, access)
        self._file = _Counted(open_binary(url, access))
        source: Any = _Placing(self._file, url)  # type: ignore[arg-type]
        self._reader = TarReader(url, source, grouping, text=member_of(text), payloads=payloads_under(names))
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
                    (self.bad if error.reason in NOTES else self.errors).append(error)
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
            raise DataError("changed_file", "the shard changed while it was read: try again", url=self.url)

    def index(self) -> ShardIndex:
        """Return the index, after the last utterance."""
        form = detect(self._file.head, self.url)
        size, stamp = self._before
        shard = ShardStamp(self._file.size or size, stamp, self._file.crc, form.name if form else "")
        return self._columns.index(shard, self._grouping, self._text, self.errors)

    def _look(self, utterance: TarUtterance, txt: str) -> Looked:
        looked = Looked(utterance, txt, self._names)
        try:
            return replace(looked, info=looked.measured())
        except DataError as found:
            error = finding(found.reason, found.message, self.url, utterance.key, utterance.offset)
            self.bad.append(error)
            return replace(looked, error=error)


def scan_shard(
    url: str, access: Access | None = None, grouping: Grouping = "wenet", text: str = "txt"
) -> tuple[ShardIndex, list[DataError]]:
    """Read the shard once; return its index, and what is ``bad``. Raises: DataError if it cannot be read at all."""
    reading = Scanning(url, access, grouping, text)
    for _ in reading:
        pass
    return reading.index(), reading.bad


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
