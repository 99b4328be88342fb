"""Writing shards and folders of TouchDatasets: each is moved to its place when it is complete, and then noted in the
journal."""

from __future__ import annotations

import json
import os
import tarfile
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from struct import unpack_from
from types import TracebackType
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
import numpy.typing as npt
import zstandard

from uio_pipes.base.errors import DataError
from uio_pipes.formats.touchdataset import DTYPES, HEADER, MAGIC, VERSION
from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import Audio, CutResult, Failure
from uio_pipes.prep.writing.files import Folder
from uio_pipes.prep.writing.journal import Finished, note


class Unit(ABC):
    """One shard under way: counts its utterances, and those that failed."""

    def __init__(self, out: Folder, name: str) -> None:
        self.out, self.name = out, name
        self.seen, self.utterances, self.frames = 0, 0, 0
        self.failed, self._keys = list[list[str]](), set[str]()
        self._stack = ExitStack()

    def add(self, utterance: Utterance, audio: CutResult) -> None:
        """Add one utterance, or its failure."""
        self.seen += 1
        audio = self._checked(utterance.key, audio)
        if isinstance(audio, Failure):
            self.failed.append([utterance.key, audio.reason, audio.detail])
            return
        self._keys.add(utterance.key)
        self._store(utterance, audio)
        self.utterances += 1
        self.frames += max(audio.frames, 0)

    def _checked(self, key: str, audio: CutResult) -> CutResult:
        parts = key.split("/")
        if key.startswith("/") or ".." in parts or not key.isprintable():
            return Failure(
                "bad_key", f"{key!r} cannot be a name in a tar: it must not begin with / nor hold .. or breaks"
            )
        if key in self._keys:
            return Failure("duplicate_key", f"{self.name} has an utterance {key!r} already: readers would join them")
        return audio

    @abstractmethod
    def _store(self, utterance: Utterance, audio: Audio) -> None: ...

    @abstractmethod
    def finish(self) -> Finished:
        """Move the shard to its place, or remove it if it is empty."""

    def abandon(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the incomplete shard."""
        self._stack.__exit__(kind or GeneratorExit, error or GeneratorExit(), trace)


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


_HEADER = 44  # of the wav files that cutting makes; the rate is at byte 24


class ShardFolder(Unit):
    """``audio.bin``, ``audio.idx``, ``metainfo.bin``, ``metainfo.idx`` in a folder ``name``."""

    def __init__(self, out: Folder, name: str, mark: str) -> None:
        super().__init__(out, name)
        folder = self._stack.enter_context(out.staged_folder(name, mark))
        self._audio = self._stack.enter_context(PairWriter(folder / "audio", np.int16))
        self._metainfo = self._stack.enter_context(PairWriter(folder / "metainfo", np.uint8))
        self._samples = 0

    def _store(self, utterance: Utterance, audio: Audio) -> None:
        (rate,) = unpack_from("<I", audio.data, 24)
        known: dict[str, Any] = {"key": utterance.key, "wav": utterance.wav}
        known |= {"sample_rate": rate} if utterance.txt is None else {"txt": utterance.txt, "sample_rate": rate}
        if utterance.speaker:
            known["speaker"] = utterance.speaker
        samples = np.frombuffer(audio.data, "<i2", offset=_HEADER)
        self._audio.add(samples)
        self._metainfo.add(json.dumps(known, ensure_ascii=False).encode())
        self._samples += len(samples)

    def finish(self) -> Finished:
        self._stack.close()
        size = 2 * self._samples
        if not self.utterances:
            self.out.remove_folder(self.name)
        return Finished(self.name, size, self.utterances, self.frames, "", self.failed)


UPLOADS = 4  # shards on their way to a remote folder at a time


class ShardWriter:
    """Writer of shards, a few open at a time; ``finished`` is called, in this thread, for each that is in its place."""

    def __init__(
        self, out: Folder, mark: str, count: Callable[[str], int], finished: Callable[[Finished], None]
    ) -> None:
        self.out, self.mark, self._count, self._finished = out, mark, count, finished
        self._open: dict[str, Unit] = {}
        self._pool = None if out.path is not None else ThreadPoolExecutor(UPLOADS)
        self._uploads: list[Future[Finished]] = []

    def add(self, shard: str, utterance: Utterance, audio: CutResult) -> None:
        """Add one utterance, or its failure; the last one of a shard finishes it."""
        current = self._open.get(shard)
        if current is None:
            current = self._open[shard] = open_unit(self.out, shard, self.mark)
        current.add(utterance, audio)
        if current.seen == self._count(shard):
            self._finish(self._open.pop(shard))

    def _finish(self, shard: Unit) -> None:
        if self._pool is None:
            self._finished(shard.finish())
            return
        while len(self._uploads) >= UPLOADS:
            self._finished(self._uploads.pop(0).result())
        self._uploads.append(self._pool.submit(shard.finish))

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for shard in self._open.values():
            shard.abandon(kind, error, trace)
        try:
            for upload in self._uploads:
                self._finished(upload.result())
        finally:
            if self._pool is not None:
                self._pool.shutdown()


def write_shard(out: Folder, name: str, mark: str, content: Iterable[tuple[Utterance, CutResult]]) -> Finished:
    """Write one whole shard, and note it in the journal."""
    unit = open_unit(out, name, mark)
    try:
        for utterance, audio in content:
            unit.add(utterance, audio)
        done = unit.finish()
    except BaseException as error:
        unit.abandon(type(error), error, error.__traceback__)
        raise
    note(out, done, mark)
    return done


def open_unit(out: Folder, name: str, mark: str) -> Unit:
    """Open a shard to be written: by its name a tar, or the folder of a TouchDataset."""
    if name.endswith(TARS):
        return ShardFile(out, name, mark)
    return ShardFolder(out, name, mark)
