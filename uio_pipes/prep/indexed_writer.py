"""Writing TouchDatasets byte for byte: a pair of files, and a folder of two pairs that is complete or not there."""

from __future__ import annotations

import json
import os
import shutil
from array import array
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.errors import DataError
from uio_pipes.sources.indexed_file import DTYPES, HEADER, MAGIC, VERSION

__all__ = ["FolderWriter", "PairWriter"]

LONGEST = 2**31 - 1  # items: lengths are 4 bytes
_CODES = {dtype: code for code, dtype in DTYPES.items()}


class PairWriter:
    """Writes ``PREFIX.bin`` item by item and, on :meth:`close`, ``PREFIX.idx``; each item is a document of its own.

    Both appear when they are complete, the index last. Used as a context, nothing is left where the block fails.
    """

    def __init__(self, prefix: Path, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._code = _CODES[self.dtype]
        self._lengths = array("i")
        self._places = [Path(f"{prefix}{suffix}") for suffix in (".bin", ".idx")]
        self._temporary = [path.with_name(f".{path.name}.{os.getpid()}") for path in self._places]
        self._file = self._temporary[0].open("wb")

    def add(self, items: npt.NDArray[Any] | bytes) -> None:
        """One item: an array of the dtype, or its bytes. Raises: DataError ``too_long``."""
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
        """Leave nothing of what is not complete."""
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


class FolderWriter:
    """Writes one folder of a TouchDataset: ``audio`` (int16) and ``metainfo``. Used as a context.

    The folder is written beside its place and moved there when the block ends well.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._temporary = folder.with_name(f".{folder.name}.{os.getpid()}")

    def __enter__(self) -> FolderWriter:
        shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary.mkdir(parents=True)
        self.audio = PairWriter(self._temporary / "audio", np.int16)
        self.metainfo = PairWriter(self._temporary / "metainfo", np.uint8)
        return self

    def add(self, samples: npt.NDArray[np.int16], metadata: Mapping[str, Any]) -> None:
        """One utterance; ``metadata`` has ``key``, ``txt`` and ``sample_rate``."""
        text = json.dumps(metadata, ensure_ascii=False).encode("utf-8")
        self.audio.add(samples)
        self.metainfo.add(text)

    def note(self, name: str, content: Mapping[str, Any]) -> None:
        """Put a small JSON file into the folder."""
        (self._temporary / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.audio.close()
                self.metainfo.close()
                os.rename(self._temporary, self.folder)
        finally:
            self.audio.abandon()
            self.metainfo.abandon()
            shutil.rmtree(self._temporary, ignore_errors=True)
