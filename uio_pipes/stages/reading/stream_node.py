"""Nodes that read one file after the other, and can resume within a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from uio_pipes.base.errors import DataError, StateError
from uio_pipes.base.urls import redact
from uio_pipes.core.buffer import OR_RESTART, changed
from uio_pipes.core.items import SampleMaker
from uio_pipes.core.lane import ConsumedMark, Lane
from uio_pipes.core.pulse import PULSE
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage
from uio_pipes.formats.tar.reader import UNREADABLE
from uio_pipes.stages.reading.open_files import NextFiles

Stamp = str | dict[str, str]


class StreamNode(Node):
    """Gives the samples in the files of its source, file by file. Subclasses say how a file is read.

    State: the source's from before the current file, what :meth:`tell` says of the place in it, and by what the file is
    told from another one. To restore it, the source gives the file once more.

    Attributes:
        file: the current item of the source; None between two.
        opened: what reads the file; None between two.
        reader: what :meth:`open` returned; None between two files.
    """

    def __init__(self, source: Node, lane: Lane, stage: Stage, files: NextFiles | None = None) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage
        self.files, self.loaded = files or NextFiles(source), SampleMaker(lane)
        self.reader: Any = None

    def open(self, state: Mapping[str, Any] | None) -> Any:
        """Return a closable reader of the current file; ``state``: where to begin. Raises: DataError."""
        raise NotImplementedError

    def read(self) -> Sample:
        """Return the next sample of the file. Raises: StopIteration at its end; DataError, and may be called again."""
        raise NotImplementedError

    def tell(self) -> dict[str, Any]:
        """Return the place of the next sample in the file."""
        raise NotImplementedError

    def resume(self, state: Mapping[str, Any]) -> None:
        """Pass over what was read, if :meth:`open` could not begin after it. Raises: DataError, StateError."""

    def fails(self, error: DataError) -> bool:
        """Record a failure; return whether to report it."""
        return True

    def at_end(self, reached: bool) -> Iterable[DataError]:
        """Return what only the end of a file shows; ``reached``: whether it could be read up to there."""
        return ()

    def url(self) -> str:
        """Return the path of the file, for messages."""
        return str(self.file.url)

    def stamp(self) -> Stamp:
        """Return what tells the file, or by their names the files read with it, from others. Raises: DataError."""
        stamp: str = self.opened.stamp
        return stamp

    def start(self) -> None:
        self.file: Any = None
        self.opened: Any = None
        self.before: dict[str, Any] = {}  # the source's state
        self.consumed = ConsumedMark(self.lane.stall_guard)
        self.stamped: Stamp = ""

    def next(self) -> Sample:
        while True:
            try:
                if self.reader is None:
                    self.before, self.file, self.opened = self.files.next()
                    self.consumed = ConsumedMark(self.lane.stall_guard)
                    PULSE.at(self.stage.name, self.file)
                    self.reader = self.open(None)
                PULSE.at(self.stage.name, self.file, self.tell)
                sample = self.read()
            except StopIteration:
                if self.reader is None:
                    raise
                self.end()
            except DataError as error:
                self._failed(error)
            else:
                self.lane.ledger.succeeded(self.stage.name)
                return sample

    def _failed(self, error: DataError) -> None:
        if self.file is not None:
            error.item = self.file.origin.item
        lost = self.reader is None or error.reason in UNREADABLE
        if self.fails(error):
            self.lane.ledger.fail(error, self.stage.name)
        if lost:
            self.end(reached=False)

    def end(self, reached: bool = True) -> None:
        """Close the file, and report what only its end shows."""
        found = [] if self.file is None else list(self.at_end(reached))
        for error in found:
            error.item = self.file.origin.item
        self._close()
        for error in found:
            self.lane.ledger.fail(error, self.stage.name)

    def _close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader, self.file, self.opened, self.stamped = None, None, None, ""

    def get_state(self) -> dict[str, Any]:
        if self.reader is None:
            return {"source": self.files.get_state()}
        self.stamped = self.stamped or self.stamp()
        state = {"source": self.before, **self.tell(), "stamp": self.stamped, "url": redact(self.url())}
        return state | self.consumed.saved()

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.files)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        self._close()  # a node may be reset in the middle of a file
        self.files.clear()
        super().reset(None if initial_state is None else initial_state["source"])
        if initial_state is not None and len(initial_state) > 1:
            self._reopen(initial_state)
            self.consumed = ConsumedMark(self.lane.stall_guard, initial_state)
            self.stamped = initial_state["stamp"]

    def _reopen(self, state: dict[str, Any]) -> None:
        self.before = self.source.get_state()
        try:
            self.file = self.source.next()
        except StopIteration:
            raise StateError(changed(self.stage.name, "the data ended early")) from None
        try:
            self.reader = self.open(state)
            self._compare(state["stamp"], self.stamp())
            self.resume(state)
        except DataError as error:
            rule = f"the shard that was being read when the state was saved cannot be read now: {error}"
            raise StateError(f"{rule}. Restore it, {OR_RESTART}") from error

    def _compare(self, then: Stamp, now: Stamp) -> None:
        """Compare the stamps of the files in a state with those that they have now. Raises: StateError."""
        both = [{"": each} if isinstance(each, str) else each for each in (then, now)]
        for name in sorted({name for each in both for name in each}):
            old, new = (each.get(name) for each in both)
            if old != new:
                what = f"{name} of {self.url()}" if name else self.url()
                rule = f"{what} changed since the state was saved: {old} then, {new} now"
                raise StateError(f"{rule}. Restore it, {OR_RESTART}")
