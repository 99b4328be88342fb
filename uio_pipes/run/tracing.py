"""Writes what the processes of a loader do as a trace, which Perfetto and chrome://tracing open.

The file is an array of Chrome's trace events, one a line. Such an array may lack its end: if the trainer is killed,
what has been written by then still opens.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from uio_pipes.base import clock
from uio_pipes.base.checks import require_whole
from uio_pipes.base.clock import now
from uio_pipes.base.errors import PipelineError
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.ranks import RankPlace

logger = logging.getLogger("uio_pipes")
OFTEN = 500_000_000  # nanoseconds after which what there is is written: a trainer may be killed


class Tracing:
    """A trace of ``left`` more batches, the next ones. As a listener, it hears what workers did.

    Raises: PipelineError if it cannot be written, or another one is under way in this process.
    """

    origins = False

    def __init__(self, path: str | os.PathLike[str], batches: int, place: RankPlace) -> None:
        require_whole("trace: batches", batches, 1)
        if clock.running is not None:
            raise PipelineError("trace: another one is under way in this process: begin this one when that has ended")
        suffix = f"-{place.rank}" * (place.world_size > 1) + f"-{place.peer}" * (place.peer > 0)
        where = Path(path).with_name(f"{Path(path).stem}{suffix}{Path(path).suffix}")
        try:
            self._file = where.open("w", buffering=1)  # whole lines, however this process ends
            self._file.write("[" + clock.about("process", 0, f"trainer, rank {place.rank}")[1:])
        except OSError as error:
            raise PipelineError(f"trace: {where} cannot be written ({error.strerror}): choose another path") from error
        self._batches = self.left = batches
        self._returned, self._written, self._lines = 0, 0, list[str]()
        self.end = weakref.finalize(self, _end, self._file, self._lines, os.getpid())
        clock.start().named.add(("process", 0))

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of the loader is not traced

    def next(self, batches: Iterator[Any]) -> Any:
        """Return the next one of ``batches``; note how long that took, and the trainer's step before it."""
        if self._returned:
            clock.note("training step", self._returned)
        began, self._returned = now(), 0
        clock.detail((self._batches - self.left) % clock.DETAILED == 0)
        batch = next(batches)
        if self.left and clock.running is not None:
            clock.note("next batch", began)
            self._add(clock.running.lines())
            self.left -= 1
            if self.left:
                self._returned = now()
            else:
                self.end()
        return batch

    def hear(self, message: Message, progress: object, options: Any) -> None:
        """Add what the worker did that made a message, if it is of the loader that is traced."""
        if self.left and message.spans and options.tracing is self:
            self._add(message.spans)

    def _add(self, lines: str) -> None:
        self._lines.append(lines)
        if (at := now()) - self._written < OFTEN:
            return
        try:
            self._file.write("".join(self._lines))
            self._lines.clear()
            self._written = at
        except OSError as error:
            logger.warning("the trace ends, as it cannot be written (%s); training continues", error)
            self.left = 0
            self.end()


def _end(file: TextIO, lines: list[str], process: int) -> None:
    """End the clock and the file, but not in a process that was forked since."""
    if os.getpid() == process:
        clock.stop()
        with contextlib.suppress(OSError), file:
            file.write("".join(lines) + "\n]\n")
