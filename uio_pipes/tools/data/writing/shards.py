"""The parts of packed and converted data (tars, folders of TouchDatasets or of audio files): each is moved to its place
when it is complete, and then noted in the journal."""

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
from typing import Any, BinaryIO, ClassVar, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import zstandard

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import redact
from uio_pipes.formats.touchdataset import DTYPES, HEADER, MAGIC, VERSION
from uio_pipes.io.folders import Folder
from uio_pipes.tools.data.reading.utterance_lists import Utterance
from uio_pipes.tools.data.writing.cutting import Audio, CutResult, Failure, FileForm, encode, frames_of
from uio_pipes.tools.data.writing.journal import LIST, Finished, note

BLOCK, RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE
TARS = (".tar", ".tar.zst")  # suffixes of shards
FRAME = 1 << 17  # bytes of a tar, or more, that are compressed together: whole utterances, with a checksum
HEAD_OF_WAV = 44  # bytes, in the files that cutting makes; the rate is at byte 24
LONGEST = 2**31 - 1  # items: lengths are 4 bytes
UPLOADS = 4  # shards on their way to a remote folder at a time
_CODES = {dtype: code for code, dtype in DTYPES.items()}


SomePart = TypeVar("SomePart", bound="Part")


class Converted(NamedTuple):
    """A decoded utterance. ``metadata``: ``key``, ``wav`` (its former place), ``txt`` if there is one, ``sample_rate``,
    and all fields that can be written as JSON; ``dropped``: the names of the others."""

    metadata: dict[str, Any]
    samples: npt.NDArray[np.int16]
    dropped: list[str]

    @property
    def frames(self) -> int:
        return frames_of(len(self.samples), int(self.metadata["sample_rate"]))

    def encoded(self, form: FileForm) -> bytes:
        return encode(self.samples, self.metadata["sample_rate"], form)


class Kept(NamedTuple):
    """An utterance whose audio file is kept as it is. ``metadata``, ``dropped``: as of :class:`Converted`."""

    metadata: dict[str, Any]
    audio: Audio
    dropped: list[str]


class Part:
    """A shard or a folder under way: counts its utterances, and those that failed. Used as a context: it is moved to
    its place, and ``done``, when the block ends without an error; if nothing is in it, it is removed."""

    keeps: ClassVar[frozenset[str] | None] = None  # fields that it has a place for; None: all
    done: Finished

    def __init__(self, out: Folder, name: str) -> None:
        self.out, self.name = out, name
        self.utterances = self.frames = self.bytes = 0
        self.failed, self.dropped = list[list[str]](), set[str]()
        self.stack = ExitStack()

    def add(self, one: Any) -> None:
        """Add one utterance: :class:`Converted`, or what else the part can hold."""
        self.dropped.update(one.dropped)
        self.store(one)
        self.utterances += 1
        self.frames += one.frames

    def store(self, one: Any) -> None:
        raise NotImplementedError

    def finish(self) -> Finished:
        """Move it to its place, or remove it if it is empty."""
        self.stack.close()
        if not self.utterances:
            self.out.remove_folder(self.name)
        return Finished(self.name, self.bytes, self.utterances, self.frames, "", self.failed)

    def abandon(self, kind: Any, error: Any, trace: Any) -> None:
        """Remove what is incomplete."""
        self.stack.__exit__(kind or GeneratorExit, error or GeneratorExit(), trace)

    def __enter__(self: SomePart) -> SomePart:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.abandon(kind, error, trace)
        else:
            self.done = self.finish()


class PackedPart(Part, ABC):
    """What recordings are cut into: a shard, or a folder of a TouchDataset."""

    def __init__(self, out: Folder, name: str) -> None:
        super().__init__(out, name)
        self.seen, self._keys = 0, set[str]()

    def add_cut(self, utterance: Utterance, audio: CutResult) -> None:
        """Add one utterance, or its failure."""
        self.seen += 1
        audio = self._checked(utterance.key, audio)
        if isinstance(audio, Failure):
            self.failed.append([utterance.key, audio.reason, audio.detail])
            return
        self._keys.add(utterance.key)
        self.store_cut(utterance, audio)
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
    def store_cut(self, utterance: Utterance, audio: Audio) -> None: ...


class TarPart(PackedPart):
    """One tar of ``KEY.wav`` (or another suffix) and, as far as they are known, ``KEY.txt`` and ``KEY.speaker``.

    With the suffix .zst it is compressed in small frames, each with a checksum: readers give out nothing damaged.
    """

    keeps: ClassVar[frozenset[str]] = frozenset(["key", "wav", "txt", "sample_rate", "speaker"])

    def __init__(self, out: Folder, name: str, mark: str, form: FileForm = "wav") -> None:
        super().__init__(out, name)
        self.form, self.crc = form, 0  # the latter, as the number of bytes, of the file
        self._length = 0  # of the tar
        self._frame: bytearray | None = bytearray() if name.endswith(".zst") else None
        temporary = self.stack.enter_context(out.staged(name, mark))
        self._file: BinaryIO = self.stack.enter_context(temporary.open("wb", 1 << 20))

    def add(self, one: Converted | Kept) -> None:  # counted as what is cut
        known = one.metadata
        self.dropped.update(one.dropped, known.keys() - self.keeps)
        utterance = Utterance(known["key"], known["wav"], known.get("txt"), speaker=str(known.get("speaker", "")))
        kept = one.audio if isinstance(one, Kept) else Audio(one.encoded(self.form), self.form, one.frames)
        self.add_cut(utterance, kept)

    def store_cut(self, utterance: Utterance, audio: Audio) -> None:
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
        self.bytes += len(data)
        self.crc = crc32(data, self.crc)

    def finish(self) -> Finished:
        self._write(bytes(2 * BLOCK))
        self._write(bytes(-self._length % RECORD))
        if self._frame is not None:
            self._compress(self._frame)
        self.stack.close()
        if not self.utterances:
            self.out.remove(self.name)
            return Finished(self.name, 0, 0, 0, "", self.failed)
        return Finished(self.name, self.bytes, self.utterances, self.frames, f"{self.crc:08x}", self.failed)


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

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.abandon()


class IndexedPart(PackedPart):
    """``audio.bin``, ``audio.idx``, ``metainfo.bin``, ``metainfo.idx`` in a folder ``name``."""

    def __init__(self, out: Folder, name: str, mark: str) -> None:
        super().__init__(out, name)
        folder = self.stack.enter_context(out.staged_folder(name, mark))
        self._audio = self.stack.enter_context(PairWriter(folder / "audio", np.int16))
        self._metainfo = self.stack.enter_context(PairWriter(folder / "metainfo", np.uint8))

    def store(self, one: Converted) -> None:
        known = one.metadata | {"wav": redact(one.metadata["wav"])}  # where it came from, which is not read again
        text = json.dumps(known, ensure_ascii=False).encode("utf-8", "surrogatepass")
        self._audio.add(one.samples)
        self._metainfo.add(text)
        self.bytes += one.samples.nbytes

    def store_cut(self, utterance: Utterance, audio: Audio) -> None:
        known: dict[str, Any] = {"key": utterance.key, "wav": utterance.wav}
        known |= {} if utterance.txt is None else {"txt": utterance.txt}
        known["sample_rate"] = unpack_from("<I", audio.data, 24)[0]
        known |= {"speaker": utterance.speaker} if utterance.speaker else {}
        self.store(Converted(known, np.frombuffer(audio.data, "<i2", offset=HEAD_OF_WAV), []))


class RawPart(Part):
    """A folder of audio files, and the lines of the raw list."""

    def __init__(self, out: Folder, name: str, mark: str, form: FileForm) -> None:
        super().__init__(out, name)
        self.form = form
        self._folder: Path = self.stack.enter_context(out.staged_folder(name, mark))
        self._list = self.stack.enter_context((self._folder / LIST).open("w", encoding="utf-8"))

    def store(self, one: Converted) -> None:
        self.write_line(one.metadata | {"wav": self.write_audio(one)})

    def write_audio(self, one: Converted) -> str:
        """Write an utterance's audio file; return its path."""
        file, data = f"{self.utterances:06d}.{self.form}", one.encoded(self.form)
        (self._folder / file).write_bytes(data)
        self.bytes += len(data)
        return self.out.join(f"{self.name}/{file}")

    def write_line(self, line: dict[str, Any]) -> None:
        """Add a line to the list."""
        self._list.write(json.dumps(line, ensure_ascii=False) + "\n")


class ShardWriter:
    """Writer of shards, a few open at a time; ``finished`` is called, in this thread, for each that is in its place."""

    def __init__(
        self, out: Folder, mark: str, count: Callable[[str], int], finished: Callable[[Finished], None]
    ) -> None:
        self.out, self.mark, self._count, self._finished = out, mark, count, finished
        self._open: dict[str, PackedPart] = {}
        self._pool = None if out.path is not None else ThreadPoolExecutor(UPLOADS)
        self._uploads: list[Future[Finished]] = []

    def add(self, shard: str, utterance: Utterance, audio: CutResult) -> None:
        """Add one utterance, or its failure; the last one of a shard finishes it."""
        current = self._open.get(shard)
        if current is None:
            current = self._open[shard] = open_part(self.out, shard, self.mark)
        current.add_cut(utterance, audio)
        if current.seen == self._count(shard):
            self._finish(self._open.pop(shard))

    def _finish(self, shard: PackedPart) -> None:
        if self._pool is None:
            self._finished(shard.finish())
            return
        while len(self._uploads) >= UPLOADS:
            self._finished(self._uploads.pop(0).result())
        self._uploads.append(self._pool.submit(shard.finish))

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
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
    with open_part(out, name, mark) as part:
        for utterance, audio in content:
            part.add_cut(utterance, audio)
    note(out, part.done, mark)
    return part.done


def open_part(out: Folder, name: str, mark: str, form: FileForm = "wav") -> PackedPart:
    """Open a shard to be written: by its name a tar, or the folder of a TouchDataset. ``form``: of converted audio."""
    return TarPart(out, name, mark, form) if name.endswith(TARS) else IndexedPart(out, name, mark)
