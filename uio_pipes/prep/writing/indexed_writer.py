"""Writing a pair of files of a TouchDataset, ``NAME.bin`` and ``NAME.idx``, byte for byte."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError
from uio_pipes.formats.touch.file import DTYPES, HEADER, MAGIC, VERSION

LONGEST = 2**31 - 1  # items: lengths are 4 bytes
_CODES = {dtype: code for code, dtype in DTYPES.items()}


class PairWriter:
    """Writes ``PREFIX.bin`` item by item and, on :meth:`close`, ``PREFIX.idx``; each item is a document of its own.

    Both appear when they are complete, the index last. Used as a context, it leaves nothing if the block fails.
    """

    def __init__(self, prefix: Path, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._code = _CODES[self.dtype]
        self._lengths = array("i")
        self._places = [Path(f"{prefix}{suffix}") for suffix in (".bin", ".idx")]
        self._temporary = [path.with_name(f".{path.name}.{os.getpid()}") for path in self._places]
        self._file = self._temporary[0].open("wb")

    def add(self, items: npt.NDArray[Any] | bytes) -> None:
        """Add one item: an array of the dtype, or its bytes. Raises: DataError ``too_long``."""
        data = items if isinstance(items, bytes) else np.ascontiguousarray(items, self.dtype).data
        size = memoryview(data).nbytes // self.dtype.itemsize
        if size > LONGEST:
            raise DataError("too_long", f"{size} items, above {LONGEST}: cut the recording")
        self._file.write(data)
        self._lengths.append(size)

    def __len__(self) -> int:
        return len(self._lengths)

    def close(self) -> None:
        """Write the index, and move both into their place."""
        lengths = np.array(self._lengths, "<i4")
        offsets = np.zeros(len(lengths) + 1, "<i8")
        np.cumsum(lengths, out=offsets[1:])
        self._file.close()
        with self._temporary[1].open("wb") as file:
            file.write(HEADER.pack(MAGIC, VERSION, self._code, len(lengths), len(offsets)))
            for column in (lengths, offsets[:-1] * self.dtype.itemsize, np.arange(len(offsets), dtype="<i8")):
                file.write(column.tobytes())
        for temporary, place in zip(self._temporary, self._places, strict=True):
            os.replace(temporary, place)

    def abandon(self) -> None:
        """Remove incomplete files."""
        self._file.close()
        for temporary in self._temporary:
            temporary.unlink(missing_ok=True)

    def __enter__(self) -> PairWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.abandon()
