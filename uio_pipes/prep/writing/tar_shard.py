"""Writing one tar shard."""

from __future__ import annotations

import tarfile
from typing import BinaryIO
from zlib import crc32

import zstandard

from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import Audio
from uio_pipes.prep.writing.folder import Folder
from uio_pipes.prep.writing.journal import Finished
from uio_pipes.prep.writing.unit import Unit

BLOCK, RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE
TARS = (".tar", ".tar.zst")  # suffixes of shards
FRAME = 1 << 17  # bytes of a tar, or more, that are compressed together: whole utterances, with a checksum


class ShardFile(Unit):
    """One tar of ``KEY.wav`` (or another suffix) and, as far as they are known, ``KEY.txt`` and ``KEY.speaker``.

    With the suffix .zst it is compressed in small frames, each with a checksum: readers give out nothing damaged.
    """

    def __init__(self, out: Folder, name: str, mark: str) -> None:
        super().__init__(out, name)
        self.size, self.crc = 0, 0  # of the file
        self._length = 0  # of the tar
        self._frame: bytearray | None = bytearray() if name.endswith(".zst") else None
        temporary = self._stack.enter_context(out.staged(name, mark))
        self._file: BinaryIO = self._stack.enter_context(temporary.open("wb", 1 << 20))

    def _store(self, utterance: Utterance, audio: Audio) -> None:
        if utterance.txt is not None:
            self._member(f"{utterance.key}.txt", utterance.txt.encode())
        if utterance.speaker:
            self._member(f"{utterance.key}.speaker", utterance.speaker.encode())
        self._member(f"{utterance.key}.{audio.suffix}", audio.data)
        if self._frame is not None and len(self._frame) >= FRAME:
            self._compress(self._frame)

    def _member(self, name: str, data: bytes) -> None:
        member = tarfile.TarInfo(name)  # no time, no owner: equal content gives equal shards
        member.size = len(data)
        try:
            header = member.tobuf(tarfile.USTAR_FORMAT)
        except ValueError:  # a long name
            header = member.tobuf(tarfile.GNU_FORMAT)
        self._write(header)
        self._write(data)
        self._write(bytes(-len(data) % BLOCK))

    def _write(self, data: bytes) -> None:
        self._length += len(data)
        if self._frame is None:
            self._store_bytes(data)
        else:
            self._frame += data

    def _compress(self, frame: bytearray) -> None:
        self._store_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(frame))
        frame.clear()

    def _store_bytes(self, data: bytes) -> None:
        self._file.write(data)
        self.size += len(data)
        self.crc = crc32(data, self.crc)

    def finish(self) -> Finished:
        self._write(bytes(2 * BLOCK))
        self._write(bytes(-self._length % RECORD))
        if self._frame is not None:
            self._compress(self._frame)
        self._stack.close()
        if not self.utterances:
            self.out.remove(self.name)
            return Finished(self.name, 0, 0, 0, "", self.failed)
        return Finished(self.name, self.size, self.utterances, self.frames, f"{self.crc:08x}", self.failed)
