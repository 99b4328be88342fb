"""The parts of packed and converted data (tars, folders of TouchDatasets or of audio files): each is moved to its place
when it is complete, and then noted in the journal."""

from __future__ import annotations

import json
import os
import tarfile
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from zlib import crc32

import numpy as np
import numpy.typing as npt
import zstandard

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import redact
from uio_pipes.formats.touchdataset import DTYPES, HEADER, MAGIC, VERSION
from uio_pipes.io.folders import Folder
from uio_pipes.tools.data.reading import Bad
from uio_pipes.tools.data.writing.journal import LIST, Finished
from uio_pipes.tools.data.writing.making import Made

if TYPE_CHECKING:
    from uio_pipes.tools.data.placement import To

BLOCK, RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE
FRAME = 1 << 17  # bytes of a tar, or more, that are compressed together: whole utterances, with a checksum
HEAD_OF_WAV = 44  # bytes, in the files that cutting makes
LONGEST = 2**31 - 1  # items: lengths are 4 bytes
UPLOADS = 4  # shards on their way to a remote folder at a time
_CODES = {dtype: code for code, dtype in DTYPES.items()}


class Part:
    """A shard or a folder under way: counts its utterances, and those that failed."""

    def __init__(self, out: Folder, name: str, mark: str) -> None:
        self.out, self.name, self.mark = out, name, mark
        self.utterances = self.frames = self.bytes = 0
        self.first, self.seen = "", 0  # the key of the first utterance, and how many there were
        self.failed, self.dropped = list[list[str]](), set[str]()
        self.stack = ExitStack()

    def add(self, key: str, one: Any) -> None:
        """Add one utterance, as it was made, or its failure."""
        self.first = self.first or key
        self.seen += 1
        if (failure := one if isinstance(one, Bad) else self.refused(key)) is not None:
            self.failed.append([*astuple(failure)])
            return
        self.dropped.update(one.dropped)
        self.store(one)
        self.utterances += 1
        self.frames += max(one.audio.frames, 0)

    def refused(self, key: str) -> Bad | None:
        """Return the failure of an utterance that cannot be here."""
        return None

    def store(self, one: Any) -> None:
        raise NotImplementedError

    def finish(self) -> Finished:
        """Move it to its place, or remove it if it is empty."""
        self.stack.close()
        if not self.utterances:
            self.remove()
            self.bytes = 0
        failed, dropped = self.failed, sorted(self.dropped)
        return Finished(self.name, self.bytes, self.utterances, self.frames, "", failed, self.first, dropped)

    def remove(self) -> None:
        self.out.remove_folder(self.name)


class TarPart(Part):
    """One tar of ``KEY.wav`` (or another suffix) and, as far as they are known, ``KEY.txt`` and ``KEY.speaker``.

    With the suffix .zst it is compressed in small frames, each with a checksum: readers give out nothing damaged.
    """

    def __init__(self, out: Folder, name: str, mark: str) -> None:
        super().__init__(out, name, mark)
        self.crc = self._length = 0  # of the file; of the tar in it
        self._keys = set[str]()
        self._frame: bytearray | None = bytearray() if name.endswith(".zst") else None
        temporary = self.stack.enter_context(out.staged(name, mark))
        self._file: BinaryIO = self.stack.enter_context(temporary.open("wb", 1 << 20))

    def refused(self, key: str) -> Bad | None:
        if key.startswith("/") or ".." in key.split("/") or not key.isprintable():
            message = f"{key!r} cannot be a name in a tar: it must not begin with / nor hold .. or breaks"
            return Bad(key, "bad_key", message)
        if key in self._keys:
            return Bad(key, "duplicate_key", f"{self.name} has an utterance {key!r} already: readers would join them")
        self._keys.add(key)
        return None

    def store(self, one: Made) -> None:
        if one.txt is not None:
            self._member(f"{one.key}.txt", one.txt.encode())
        if speaker := one.more.get("speaker"):
            self._member(f"{one.key}.speaker", str(speaker).encode())
        self._member(f"{one.key}.{one.audio.suffix}", one.audio.data)
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
        self.bytes += len(data)
        self.crc = crc32(data, self.crc)

    def finish(self) -> Finished:
        self._write(bytes(2 * BLOCK))
        self._write(bytes(-self._length % RECORD))
        if self._frame is not None:
            self._compress(self._frame)
        done = super().finish()
        return replace(done, crc32=f"{self.crc:08x}") if done.utterances else done

    def remove(self) -> None:
        self.out.remove(self.name)


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

    def __enter__(self) -> PairWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self._file.close()
            for temporary in self._temporary:
                temporary.unlink(missing_ok=True)


class IndexedPart(Part):
    """``audio.bin``, ``audio.idx``, ``metainfo.bin``, ``metainfo.idx`` in a folder ``name``."""

    def __init__(self, out: Folder, name: str, mark: str) -> None:
        super().__init__(out, name, mark)
        folder = self.stack.enter_context(out.staged_folder(name, mark))
        self._audio = self.stack.enter_context(PairWriter(folder / "audio", np.int16))
        self._metainfo = self.stack.enter_context(PairWriter(folder / "metainfo", np.uint8))

    def store(self, one: Made) -> None:
        known = _line(one, redact(one.file))  # where it came from, which is not read again
        text = json.dumps(known, ensure_ascii=False).encode("utf-8", "surrogatepass")
        samples = np.frombuffer(one.audio.data, "<i2", offset=HEAD_OF_WAV)
        self._audio.add(samples)
        self._metainfo.add(text)
        self.bytes += samples.nbytes


class RawPart(Part):
    """A folder of audio files, and the lines of the raw list."""

    def __init__(self, out: Folder, name: str, mark: str) -> None:
        super().__init__(out, name, mark)
        self._folder: Path = self.stack.enter_context(out.staged_folder(name, mark))
        self._list = self.stack.enter_context((self._folder / LIST).open("w", encoding="utf-8"))

    def store(self, one: Made) -> None:
        self.write_line(_line(one, self.write_audio(one)))

    def write_audio(self, one: Made) -> str:
        """Write an utterance's audio file; return its path."""
        file = f"{self.utterances:06d}.{one.audio.suffix}"
        (self._folder / file).write_bytes(one.audio.data)
        self.bytes += len(one.audio.data)
        return self.out.join(f"{self.name}/{file}")

    def write_line(self, line: dict[str, Any]) -> None:
        """Add a line to the list."""
        self._list.write(json.dumps(line, ensure_ascii=False) + "\n")


def _line(one: Made, wav: str) -> dict[str, Any]:
    """Return what is known of an utterance whose audio is in ``wav``."""
    text = {} if one.txt is None else {"txt": one.txt}
    return {"key": one.key, "wav": wav, **text, "sample_rate": one.audio.sample_rate, **one.more}


class PartWriter:
    """Writer of parts, a few open at a time; ``finished`` is called, in this thread, for each that is in its place.
    ``count`` says how many utterances belong in a part: with the last one it is finished, or else at the end."""

    def __init__(
        self, out: Folder, to: To, mark: str, count: Callable[[str], int], finished: Callable[[Finished], None]
    ) -> None:
        self.out, self.to, self.mark, self._count, self._finished = out, to, mark, count, finished
        self._open: dict[str, Part] = {}
        self._pool = None if out.path is not None else ThreadPoolExecutor(UPLOADS)
        self._uploads: list[Future[Finished]] = []

    def add(self, name: str, key: str, one: Any, counted: bool = True) -> None:
        """Add one utterance, or its failure; one that is not ``counted`` has no place in the part, and only failed."""
        current = self._open.get(name)
        if current is None:
            current = self._open[name] = open_part(self.out, self.to, name, self.mark)
        if not counted:
            current.failed.append([*astuple(one)])
            return
        current.add(key, one)
        if current.seen == self._count(name):
            self._finish(self._open.pop(name))

    def _finish(self, part: Part) -> None:
        if self._pool is None:
            self._finished(part.finish())
            return
        while len(self._uploads) >= UPLOADS:
            self._finished(self._uploads.pop(0).result())
        self._uploads.append(self._pool.submit(part.finish))

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for name in list(self._open):
            part = self._open.pop(name)
            if kind is None:
                self._finish(part)
            else:
                part.stack.__exit__(kind, error, trace)  # what is incomplete is removed
        try:
            for upload in self._uploads:
                self._finished(upload.result())
        finally:
            if self._pool is not None:
                self._pool.shutdown()


def open_part(out: Folder, to: To, name: str, mark: str) -> Part:
    """Open a part to be written."""
    if to == "cuts":
        from uio_pipes.tools.data.writing.references import CutsPart  # only here: it needs torch

        return CutsPart(out, name, mark)
    return {"shards": TarPart, "indexed": IndexedPart, "raw": RawPart}[to](out, name, mark)
