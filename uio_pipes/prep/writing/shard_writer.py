"""Writing shards: each is moved to its place when it is complete, and then noted in the journal."""

from __future__ import annotations

import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import BinaryIO
from zlib import crc32

import zstandard

from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import Audio, Cut, Failure
from uio_pipes.prep.writing.folder import Folder
from uio_pipes.prep.writing.journal import Finished, note

__all__ = ["TARS", "ShardWriter", "Unit", "open_unit", "write_shard"]

BLOCK, RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE
TARS = (".tar", ".tar.zst")  # suffixes of shards
FRAME = 1 << 17  # bytes of a tar, or more, that are compressed together: whole utterances, with a checksum
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

    def add(self, shard: str, utterance: Utterance, audio: Cut) -> None:
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


class Unit(ABC):
    """One shard under way: counts its utterances, and those that failed."""

    def __init__(self, out: Folder, name: str) -> None:
        self.out, self.name = out, name
        self.seen, self.utterances, self.frames = 0, 0, 0
        self.failed, self._keys = list[list[str]](), set[str]()
        self._stack = ExitStack()

    def add(self, utterance: Utterance, audio: Cut) -> None:
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

    def _checked(self, key: str, audio: Cut) -> Cut:
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


class ShardFile(Unit):
    """One tar of ``KEY.txt``, ``KEY.wav`` (or another suffix) and, if it is known, ``KEY.speaker``.

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


def write_shard(out: Folder, name: str, mark: str, content: Iterable[tuple[Utterance, Cut]]) -> Finished:
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
    from uio_pipes.prep.writing.indexed_shard import ShardFolder

    return ShardFolder(out, name, mark)
