"""``watch(loader)``: gives the batches of a loader and shows its progress on the terminal, or writes it to files."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist

from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.urls import plural
from uio_pipes.core.statistics import NodeStats, RunRecord, Stats, append, memory
from uio_pipes.inspect.metrics import PREFIXES, exporter_for
from uio_pipes.run.loader import Loader
from uio_pipes.run.ranks import is_grouped
from uio_pipes.run.stall import HEARERS

logger = logging.getLogger("uio_pipes")
REFRESH = 0.25  # seconds between two updates of a live line
WINDOW = 10.0  # seconds that speeds are measured over
PATIENCE = 0.2  # seconds that a training waits for a record to be written


class _Moment(NamedTuple):
    time: float
    frames: int
    waited: float
    nodes: dict[str, NodeStats]


class _Line:
    """The counts of a loader as one line of text, with the speed of the last ``WINDOW`` seconds."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self.moments: deque[_Moment] = deque([self._moment(loader.stats())])

    def _moment(self, stats: Stats) -> _Moment:
        return _Moment(time.perf_counter(), stats.frames, stats.waited, stats.nodes)

    def text(self) -> str:
        loader, stats = self.loader, self.loader.stats()
        now = self._moment(stats)
        while len(self.moments) > 1 and now.time - self.moments[1].time > WINDOW:
            self.moments.popleft()
        first = self.moments[0]
        self.moments.append(now)
        seconds = max(now.time - first.time, 1e-9)
        speed = (now.frames - first.frames) / 360_000 / seconds
        waiting = min(1.0, (now.waited - first.waited) / seconds)
        parts = [
            f"epoch {loader.epoch}",
            f"{stats.utterances:,} utterances",
            f"{speed:.3g} h/s",
            f"padding {stats.padding_ratio:.1%}",
            f"skipped {sum(stats.skipped.values()):,}",
            f"waiting {waiting:.0%}",
        ]
        if stats.workers is not None:
            parts.append(plural(stats.workers, "worker"))
        parts += [_node(name, node, first.nodes.get(name)) for name, node in sorted(stats.nodes.items())]
        if any(stats.left_out):  # the ranks have ended the epoch
            parts.append(f"delivered {stats.delivered_share:.0%}")
        return " | ".join(parts) + (f" (rank 0 of {loader.world_size})" if loader.world_size > 1 else "")


def _node(name: str, now: NodeStats, before: NodeStats | None) -> str:
    """Return how fast actors of a node work, and how many were lost."""
    before = before or NodeStats()
    lately = NodeStats(utterances=now.utterances - before.utterances, seconds=now.seconds - before.seconds)
    restarts = f" ({plural(now.restarts, 'restart')})" if now.restarts else ""
    return f"{name} {lately.speed or now.speed:,.0f}/s{restarts}"


class Watched:
    """A loader that shows its progress during iteration. All else (``set_epoch``, ``len``) is the loader's."""

    def __init__(self, loader: Loader, every: float, recorder: _Recorder | None = None) -> None:
        self.loader, self.every, self.recorder = loader, every, recorder

    def __iter__(self) -> Iterator[Any]:
        if self.recorder is not None:
            return _recorded(self.loader, self.recorder)
        return _watched(self.loader, self.every) if _rank_of(self.loader) == 0 else iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not set yet, while a copy is made
            raise AttributeError(name)
        return getattr(self.loader, name)


def watch(loader: Loader, every: float = 30.0, to: str | os.PathLike[str] | None = None) -> Watched:
    """Show progress while a loader is iterated over: ``for batch in uio.watch(loader)``, in any number of epochs.

    A line on stderr shows utterances, hours of audio per second (over the last 10 s; a frame is 10 ms), padding,
    skipped utterances, and the share of the time that the trainer waited for batches. With ``num_workers="auto"`` it
    shows the workers that there are by now; with ``RayWorkers`` the utterances that an actor of each node makes in a
    second of its work, and the restarts. After an epoch that ranks ended together it also shows the share of all
    utterances that was delivered, unless it is all of them. The other counts are those of rank 0; other ranks show
    nothing. Batches, ``loader.state_dict()`` in the loop, ``break`` and exceptions work as without it.

    Args:
        loader: the loader to iterate over.
        every: seconds between two lines if stderr is not a terminal; on a terminal one line is updated in place.
            Default: 30.0.
        to: a folder on this machine or one that all hosts share, to which every rank appends a line of JSON every
            ``every`` seconds, instead of showing anything here; ``uio watch FOLDER`` shows all ranks. A resumed run
            goes on in the same files, each of which stays below about 1 MB. "prometheus:PORT" serves metrics to
            Prometheus, of the rank with ``LOCAL_RANK`` n at PORT + n; "textfile:FOLDER" writes them to a file for each
            rank, for its node exporter. They are renewed every ``every`` seconds. Default: None, a line on stderr.

    Raises:
        PipelineError: ``every`` is not above 0, ``to`` is none of these, or ``loader`` is not a loader; a port is not
            free, or prometheus-client is missing.
    """
    if not isinstance(loader, Loader):
        raise PipelineError(f"watch takes a Loader, not {type(loader).__name__}; see uio.Loader(pipeline)")
    if not is_number(every) or not every > 0:
        raise PipelineError(f"every must be a number of seconds above 0, not {every!r}; 30 is the default")
    if to is not None and (not isinstance(to, (str, os.PathLike)) or "://" in str(to)):
        raise PipelineError(f"to must be a local or shared folder, not {to!r}; see uio watch --help")
    if to is None:
        return Watched(loader, every)
    metrics = str(to).startswith(PREFIXES)
    write = exporter_for(loader, str(to), _rank_of(loader)).add if metrics else partial(append, Path(to))
    return Watched(loader, every, _Recorder(loader, write, str(to), every))


def _rank_of(loader: Loader) -> int:
    """Return the number of this process among all of the run."""
    rank = dist.get_rank() if is_grouped() else int(os.environ.get("RANK", "0"))
    return max(rank, loader.rank)  # which may have been given


class _Recorder:
    """Writes records of a loader to where they are wanted. What cannot be written does not disturb the training, and a
    shared folder that hangs does not hold it up: records are left out until it goes on."""

    def __init__(self, loader: Loader, write: Callable[[RunRecord], None], to: str, every: float) -> None:
        self.written, self.to, self.every, self.reported = write, to, every, False
        self.loader = loader
        HEARERS.add(self)
        # Asked now, as the group may be gone when the last record is written.
        world = dist.get_world_size() if is_grouped() else int(os.environ.get("WORLD_SIZE", "1"))
        self.writing = threading.Thread()
        self.place = (loader.peer, _rank_of(loader), max(world, loader.world_size))

    def write(self, loader: Loader, state: str) -> None:
        if self.writing.is_alive():
            return
        process = (socket.gethostname(), os.getpid(), *self.place)
        record = RunRecord(time.time(), self.every, *process, loader.epoch, state, memory(), loader.stats())
        self.writing = threading.Thread(target=self._append, args=[record], name="uio-watches", daemon=True)
        self.writing.start()
        self.writing.join(PATIENCE)

    def hear_stall(self, text: str) -> None:
        """Record what hangs: nothing comes to the training, which would write the next record."""
        self.write(self.loader, f"hung: {text}")

    def _append(self, record: RunRecord) -> None:
        try:
            self.written(record)
        except OSError as error:
            if not self.reported:
                logger.warning("watch cannot write to %s (%s); training continues", self.to, error)
            self.reported = True


def _recorded(loader: Loader, recorder: _Recorder) -> Iterator[Any]:
    batches, state = iter(loader), "left"
    recorder.write(loader, "running")
    due = time.monotonic() + recorder.every
    try:
        for batch in batches:
            yield batch
            del batch  # only the trainer shall keep its memory
            if time.monotonic() >= due:
                recorder.write(loader, "running")
                due = time.monotonic() + recorder.every
        state = "over"
    finally:
        recorder.write(loader, state)


def _watched(loader: Loader, every: float) -> Iterator[Any]:
    batches = iter(loader)
    with ExitStack() as stack:
        show, pause = _display(stack, every)
        line = _Line(loader)
        due = time.monotonic() + pause
        try:
            for batch in batches:
                yield batch
                del batch  # only the trainer shall keep its memory
                if time.monotonic() >= due:
                    due = time.monotonic() + pause if _shown(show, line) else inf
        finally:
            _shown(show, line)


def _display(stack: ExitStack, every: float) -> tuple[Callable[[str], None], float]:
    """Return a function that shows a line, and the seconds between two lines."""
    if not sys.stderr.isatty():
        return _print, every
    from rich.console import Console
    from rich.errors import LiveError
    from rich.live import Live
    from rich.text import Text

    live = Live(console=Console(stderr=True), auto_refresh=False, redirect_stdout=sys.stdout.isatty())
    try:
        stack.enter_context(live)  # one line, updated in place; what the program prints appears above it
    except LiveError:  # the user has a display of their own already
        return _print, every
    return lambda text: live.update(Text(text), refresh=True), REFRESH


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _shown(show: Callable[[str], None], line: _Line) -> bool:
    """Show the line. If it cannot be written (a closed pipe), return False: training continues without it."""
    try:
        show(line.text())
    except (OSError, ValueError) as error:
        logger.warning("watch stops reporting: %s", error)
        return False
    return True
