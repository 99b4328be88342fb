"""Samples without a header, not read yet: the audio of a TouchDataset."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.bounds import check_channel, check_claims, check_finite, check_longest
from uio_pipes.audio.decode import sample_range
from uio_pipes.audio.recording import Recording
from uio_pipes.formats.touch.file import DTYPES
from uio_pipes.formats.touch.record import StoredRecord
from uio_pipes.io.audio_info import AudioInfo
from uio_pipes.io.local import RandomFile, Ref

if TYPE_CHECKING:
    import torch


class Pcm(StoredRecord, Recording):
    """Mono samples of ``dtype`` at an offset of a file. Integers are PCM of their width, floats are in [-1, 1].

    Raises: DataError ``bad_audio`` for a rate that no audio has.
    """

    __slots__ = ("dtype",)
    info: AudioInfo

    early: ClassVar[bool] = True

    def __init__(
        self, file: RandomFile, offset: int, size: int, dtype: np.dtype[Any], sample_rate: int, crc: int | None = None
    ) -> None:
        check_claims(sample_rate)
        self.file, self.offset, self.size, self.head, self.crc, self.dtype = file, offset, size, b"", crc, dtype
        self.info = AudioInfo(size // dtype.itemsize, sample_rate, 1)

    def decode(self, channel: int | None, start: float | None, end: float | None) -> tuple[torch.Tensor, int]:
        """Return the seconds from ``start`` to ``end`` as float32 (1, S), and the rate. Only their bytes are read.

        Raises: DataError as ``decode``.
        """
        import torch  # not before: dictionaries are made of metadata alone

        total, rate, _ = self.info
        whole = start is None and end is None and total > 0
        first, last = (0, total) if whole else sample_range(total, rate, start, end)
        check_longest(last - first, rate)
        check_channel(channel, 1)
        width = self.dtype.itemsize
        if whole and self.crc is not None:
            data = self._compared(self.file.read(self.offset, self.size))
        else:
            self.compare()
            data = self.file.read(self.offset + first * width, (last - first) * width)
        samples = _to_float(np.frombuffer(data, self.dtype))
        if self.dtype.kind == "f":
            check_finite(samples)
        return torch.from_numpy(samples[None]), rate

    def reading(self, bytes_: Ref) -> Pcm:
        return Pcm(_Fetched(bytes_), self.offset, self.size, self.dtype, self.info.sample_rate, self.crc)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, or on their way there."""
        return self.size if isinstance(self.file, _Fetched) else 0

    def read(self) -> bytes:
        """Return the bytes of a wav file, for functions that want those of an audio file."""
        data, dtype = self._compared(self.read_at(0, self.size)), self.dtype
        if dtype.str not in _WAV:
            data, dtype = _to_float(np.frombuffer(data, dtype)).tobytes(), np.dtype("<f4")
        rate, width = self.info.sample_rate, dtype.itemsize
        form = struct.pack("<HHIIHH", _WAV[dtype.str], 1, rate, rate * width, width, 8 * width)
        head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data))
        return b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data


class _Fetched:
    """Bytes that were fetched early, in place of the file that they came from."""

    __slots__ = ("path", "ref", "size", "stamp")

    def __init__(self, ref: Ref) -> None:
        self.ref, self.path, self.size, self.stamp = ref, ref.file.path, ref.file.size, ref.file.stamp

    def read(self, offset: int, size: int) -> bytes:
        return self.ref.read_at(offset - self.ref.offset, size)

    read_upto = read


_WAV = {"|u1": 1, "<i2": 1, "<i4": 1, "<f4": 3, "<f8": 3}  # format tags


def _to_float(samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Convert to float32 in new memory. (Two passes within the cache: NumPy's mixed multiplication takes longer.)"""
    out: npt.NDArray[np.float32] = samples.astype(np.float32)
    scale, offset = _SCALES[samples.dtype.str]
    if offset:
        out -= offset
    if scale != 1:
        out *= scale
    return out


def _scale(dtype: np.dtype[Any]) -> tuple[np.float32, np.float32]:
    half = 2.0 ** (8 * dtype.itemsize - 1)
    scale = 1 / half if dtype.kind in "iu" else 1.0
    return np.float32(scale), np.float32(half if dtype.kind == "u" else 0)


_SCALES = {dtype.str: _scale(dtype) for dtype in DTYPES.values()}
