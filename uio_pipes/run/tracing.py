"""Writes what the processes of a loader do as a trace, which Perfetto and chrome://tracing open.

The file is an array of Chrome's trace events, one a line. Such an array may lack its end: if the trainer is killed,
what has been written by then still opens.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from uio_pipes.base import clock
from uio_pipes.base.checks import require_whole
from uio_pipes.base.clock import KeptSpans, now
from uio_pipes.base.errors import PipelineError
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.ranks import RankPlace

logger = logging.getLogger("uio_pipes")
ENOUGH = 1000  # lines that are written at once


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
        self._lines = ["[", _about("process", os.getpid(), 0, f"trainer, rank {place.rank}")]
        try:
            self._file = where.open("w")
            _write(self._file, self._lines)
        except OSError as error:
            raise PipelineError(f"trace: {where} cannot be written ({error.strerror}): choose another path") from error
        self._batches = self.left = batches
        self._began, self._returned = now(), 0
        self._starts: dict[tuple[int, Any], str] = {}  # how lines begin, by process and name
        self._named = {(os.getpid(), 0)}  # processes, and their threads
        self.end = weakref.finalize(self, _end, self._file, self._lines, os.getpid())
        clock.start()

    def next(self, batches: Iterator[Any]) -> Any:
        """Return the next one of ``batches``; note how long that took, and the trainer's step before it."""
        if self._returned:
            clock.note("training step", self._returned)
        began, self._returned = now(), 0
        clock.detail((self._batches - self.left) % clock.DETAILED == 0)
        batch = next(batches)
        if self.left and clock.running is not None:
            clock.note("next batch", began)
            self._add(os.getpid(), clock.running.taken())
            self.left -= 1
            if self.left:
                self._returned = now()
            else:
                self.end()
        return batch

    def hear(self, message: Message, progress: object, options: Any) -> None:
        """Add what the worker did that made a message, if it is of the loader that is traced."""
        if self.left and message.spans is not None and options.tracing is self:
            self._add(*message.spans)

    def _add(self, process: int, spans: KeptSpans) -> None:
        base, starts, lines = self._began, self._starts, self._lines
        for name, began, ended in zip(*[iter(spans)] * 3, strict=True):
            start = starts.get((process, name)) or self._start(process, name)
            at = (began - base) // 1000  # microseconds
            lines.append(f'{start}{at},"dur":{(ended - base) // 1000 - at}}}')
        if len(lines) >= ENOUGH:
            try:
                _write(self._file, lines)
            except OSError as error:
                logger.warning("the trace ends, as it cannot be written (%s); training continues", error)
                self.left = 0
                self.end()

    def _start(self, process: int, span: str | tuple[str, str, int]) -> str:
        """Return how the lines of a span begin. The names of its process and thread come before the first of them."""
        name, thread, number = (span, "main", process) if isinstance(span, str) else span
        for kind, at, called in (("process", 0, "worker"), ("thread", number, thread)):
            if (process, at) not in self._named:
                self._named.add((process, at))
                self._lines.append("," + _about(kind, process, at, called))
        where = f'"pid":{process},"tid":{number},"name":{json.dumps(name)}'
        return self._starts.setdefault((process, span), f',{{"ph":"X",{where},"ts":')


def _about(kind: str, process: int, thread: int, name: str) -> str:
    """Return the event that names a process or a thread."""
    return json.dumps({"ph": "M", "pid": process, "tid": thread, "name": f"{kind}_name", "args": {"name": name}})


def _write(file: TextIO, lines: list[str]) -> None:
    file.write("\n".join(lines) + "\n")
    file.flush()  # whole lines, however this process ends
    lines.clear()


def _end(file: TextIO, lines: list[str], process: int) -> None:
    """End the clock and the file, but not in a process that was forked since."""
    if os.getpid() == process:
        clock.stop()
        with contextlib.suppress(OSError), file:
            _write(file, [*lines, "]"])
