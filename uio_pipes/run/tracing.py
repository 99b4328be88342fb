"""Writes what the processes of a loader do as a trace, which Perfetto and chrome://tracing open.

The file is an array of Chrome's trace events, one a line. Such an array may lack its end: if the trainer is killed, what
has been written by then still opens.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from uio_pipes.base import clock
from uio_pipes.base.checks import require_whole
from uio_pipes.base.clock import Spans, now
from uio_pipes.base.errors import PipelineError
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.ranks import RankPlace


class Tracing:
    """A trace of ``left`` more batches, the next ones. As a listener, it hears what workers did.

    Raises: PipelineError if it cannot be written, or another one is under way in this process.
    """

    origins = False

    def __init__(self, path: str | os.PathLike[str], batches: int, place: RankPlace) -> None:
        require_whole("trace: batches", batches, 1)
        if clock.running is not None:
            raise PipelineError("trace: another one is under way in this process: begin this one when that has ended")
        self.left, self._place, self._tracks, self._names = batches, place, dict[tuple[int, str], str](), dict[str, str]()
        suffix = f"-{place.rank}" * (place.world_size > 1) + f"-{place.peer}" * (place.peer > 0)
        file = Path(path).with_name(f"{Path(path).stem}{suffix}{Path(path).suffix}")
        try:
            self._file = file.open("w")
        except OSError as error:
            raise PipelineError(f"trace: {file} cannot be written ({error.strerror}): choose another path") from error
        clock.start()
        self._began, self._returned, self._begins = now(), 0, "[\n"
        self.end = weakref.finalize(self, _end, self._file, os.getpid())

    def next(self, batches: Iterator[Any]) -> Any:
        """Return the next one of ``batches``, and note how long the trainer's step before it and its making took."""
        if self._returned:
            clock.note("training step", self._returned)
        began, self._returned = now(), 0
        batch = next(batches)
        if self.left and clock.running is not None:
            clock.note("next batch", began)
            self._write(os.getpid(), clock.running.taken())
            self.left, self._returned = self.left - 1, now()
            if not self.left:
                self.end()
        return batch

    def hear(self, message: Message, progress: object, options: Any) -> None:
        """Write what the worker did that made a message, if it is of the loader that is traced."""
        if self.left and message.spans is not None and options.tracing is self:
            self._write(*message.spans)

    def _write(self, process: int, spans: Spans) -> None:
        lines = list[str]()
        for name, thread, began, took in zip(*[iter(spans)] * 4, strict=True):
            track = self._tracks.get((process, thread)) or self._track(process, thread, lines)
            text = self._names.get(name) or self._names.setdefault(name, json.dumps(name))
            start, length = (began - self._began) / 1e3, took / 1e3  # microseconds
            lines.append(f'{{"ph":"X",{track},"ts":{start:.3f},"dur":{length:.3f},"name":{text}}}')
        if lines:
            self._file.write(self._begins + ",\n".join(lines))
            self._file.flush()  # whole lines, however this process ends
            self._begins = ",\n"

    def _track(self, process: int, thread: str, lines: list[str]) -> str:
        """Return the track of a thread, whose name, and that of its process, go before its spans."""
        count, trainer = len({number for number, _ in self._tracks}), process == os.getpid()
        if all(process != known for known, _ in self._tracks):
            name = f"trainer, rank {self._place.rank}" if trainer else f"worker {process}"
            lines += _about(process, 0, "process_name", name=name)
            lines += _about(process, 0, "process_sort_index", sort_index=0 if trainer else count + 1)
        number = 1 + sum(known == process for known, _ in self._tracks)
        lines += _about(process, number, "thread_name", name=thread)
        self._tracks[process, thread] = track = f'"pid":{process},"tid":{number}'
        return track


def _about(process: int, thread: int, what: str, **args: Any) -> list[str]:
    return [json.dumps({"ph": "M", "pid": process, "tid": thread, "name": what, "args": args})]


def _end(file: TextIO, process: int) -> None:
    """End the file and the clock, but not in a process that was forked since."""
    if os.getpid() == process:
        clock.stop()
        file.write("\n]\n")
        file.close()
