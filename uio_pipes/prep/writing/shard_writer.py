"""Writing shards: each is moved to its place when it is complete, and then noted in the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.cutting import CutResult
from uio_pipes.prep.writing.folder import Folder
from uio_pipes.prep.writing.indexed_shard import ShardFolder
from uio_pipes.prep.writing.journal import Finished, note
from uio_pipes.prep.writing.tar_shard import TARS, ShardFile
from uio_pipes.prep.writing.unit import Unit

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
