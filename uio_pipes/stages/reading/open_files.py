"""``open_files``: opens each line of the list as a file, through fsspec, and the next ones ahead of time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torchdata.nodes import BaseNode

from uio_pipes.base.errors import UioError
from uio_pipes.core.capabilities import Uncountable
from uio_pipes.core.items import File, Item
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import Flow
from uio_pipes.core.stage import Node, least
from uio_pipes.formats.tar.checks import no_raw_line
from uio_pipes.io.background import Job, submit
from uio_pipes.io.local import LocalFile, is_slow
from uio_pipes.io.opening import Opened, is_local
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.readahead import ReadAhead

AHEAD = 8  # files that are opened ahead on a slow disk: buffers take several at once


class _Next(NamedTuple):
    before: dict[str, Any]  # the source's state
    file: File | Exception  # or the error that the source raised
    opened: Opened | None
    opening: Job[Any] | None = None


class NextFiles:
    """``next()`` gives the source's state before a file, the file, and its reader if that was begun already."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._ahead: deque[_Next] = deque()

    def next(self) -> tuple[dict[str, Any], File, Opened | None]:
        """Return the next file. Raises what the source raises, at its turn."""
        found = self._ahead.popleft() if self._ahead else self._take()
        if isinstance(found.file, Exception):
            try:
                raise found.file
            finally:
                del found  # its traceback leads to this frame, and so to the trainer's: all would be a circle
        if found.opening is not None:
            found.opening.wait()  # if it failed, it fails again when the file is read
        return found.before, found.file, found.opened

    def prepare(self, current: Opened | None) -> None:
        """Begin the next file once all of the ``current`` one was requested, then request more of it; or of a slow
        disk, begin several at once."""
        last = self._ahead[-1] if self._ahead else None
        if last is not None and isinstance(last.opened, ReadAhead):
            last.opened.prepare()
        elif isinstance(current, ReadAhead):
            if last is None and current.near_end():
                self._begin()
        elif len(self._ahead) < AHEAD and isinstance(current, LocalFile) and is_slow(current.path):
            while len(self._ahead) < AHEAD and not (self._ahead and isinstance(self._ahead[-1].file, Exception)):
                self._begin()

    def _begin(self) -> None:
        found = self._take()
        if isinstance(file := found.file, File):
            if (path := is_local(file.url)) is not None:
                opened = LocalFile(path)
                found = found._replace(opened=opened, opening=submit(lambda _: opened.size))
            elif not file.access.cache:
                found = found._replace(opened=ReadAhead(RemoteFile(file.url, file.access)))
        self._ahead.append(found)

    def _take(self) -> _Next:
        before = self._source.get_state()
        try:
            return _Next(before, self._source.next(), None)
        except (StopIteration, UioError) as error:
            return _Next(before, error.with_traceback(None), None)

    def get_state(self) -> dict[str, Any]:
        """Return the source's state from before the next file."""
        state: dict[str, Any] = self._ahead[0].before if self._ahead else self._source.get_state()
        return state

    def clear(self) -> None:
        """Forget the next files: the source is being reset."""
        for found in self._ahead:
            if isinstance(found.opened, ReadAhead):
                found.opened.close()
        self._ahead.clear()

    def __len__(self) -> int:
        """The number of files taken from the source and not given yet."""
        return sum(isinstance(found.file, File) for found in self._ahead)


class Interleaved(Node):
    """Gives an utterance of each of several readers in turn, which take the files of one list as they need them.

    State: those of the readers, each with the list's from before its file; the list's; and whose turn it is.
    """

    def __init__(self, source: Node, count: int, make: Callable[[NextFiles], Node]) -> None:
        super().__init__(source)
        self.files = NextFiles(source)
        self.readers = [make(self.files) for _ in range(count)]
        self.turn = 0

    def next(self) -> Any:
        for _ in self.readers:
            reader = self.readers[self.turn]
            try:
                return reader.next()
            except StopIteration:
                pass
            finally:
                self.turn = (self.turn + 1) % len(self.readers)
        raise StopIteration

    def get_state(self) -> dict[str, Any]:
        states = [reader.get_state() for reader in self.readers]
        return {"source": self.files.get_state(), "readers": states, "turn": self.turn}

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        BaseNode.reset(self, initial_state)
        self.turn = 0
        for reader in self.readers if initial_state is None else ():
            reader.reset(None)
        if initial_state is not None:
            self.turn = initial_state["turn"]
            for reader, state in zip(self.readers, initial_state["readers"], strict=True):
                reader.reset(state)  # takes its file from the list again
            self.files.clear()
            self.source.reset(initial_state["source"])

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.files)


@dataclass(frozen=True)
class OpenFiles(Uncountable, Flow):
    """Treat each line of the list as a file: a path, or any URL that fsspec knows (http(s), s3, oss, gs, …).

    A file is opened when the next stage reads it, as ``list_files`` says (:class:`AccessOptions`).

    Args:
        interleave: shards that each lane reads at once, an utterance of each in turn. It mixes what is alike within a
            shard (a speaker, a book), and lets a slow shard keep up with its share. Default: 1.
    """

    name: ClassVar[str] = "open_files"
    takes: ClassVar[tuple[str, ...]] = ("item",)
    gives: ClassVar[str] = "file"

    interleave: int = least(1, 1, "try 8")

    def uncountable_reason(self, kind: str) -> str:
        return "what is in shards and other archives shows only when they are read"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _OpenNode(source, self)


class _OpenNode(Node):
    def __init__(self, source: Node, stage: OpenFiles) -> None:
        super().__init__(source)
        self.at_once = stage.interleave

    def next(self) -> File:
        item: Item = self.source.next()
        no_raw_line(item.text, item.place)
        return File(item.text, item.place, item.origin, item.access, item.expected)
