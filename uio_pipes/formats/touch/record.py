"""One record of ``NAME.bin``, not read yet: of audio, video or whatever else a TouchDataset holds."""

from __future__ import annotations

from typing import ClassVar
from zlib import crc32

from uio_pipes.formats.touch.checksums import bad_crc
from uio_pipes.io.local import RandomFile, Ref

_PIECE = 1 << 20  # bytes of a long record that are compared at a time


class StoredRecord(Ref):
    """The bytes of a record, for instance a video file. It is fetched when it is read, never early."""

    __slots__ = ()
    early: ClassVar[bool] = False

    def __init__(self, file: RandomFile, offset: int, size: int, crc: int | None = None) -> None:
        super().__init__(file, offset, size, crc=crc)

    def compare(self) -> None:
        """Compare the whole record with its CRC32, once, if that is known. Raises: DataError ``bad_crc``."""
        if self.crc is None:
            return
        crc = 0
        for at in range(0, self.size, _PIECE):
            crc = crc32(self.file.read(self.offset + at, min(_PIECE, self.size - at)), crc)
        self._found(crc)

    def read(self) -> bytes:
        return self._compared(self.read_at(0, self.size))

    def _compared(self, data: bytes) -> bytes:
        if self.crc is not None:
            self._found(crc32(data))
        return data

    def _found(self, crc: int) -> None:
        if crc != self.crc:
            raise bad_crc(self.file.path, self.offset)
        self.crc = None  # of a long recording, the next segment reads its own bytes only
