"""Runs lanes, with the same code in the main process, in workers and in a dataset, and tracks their positions for the
trainer.

Each batch comes as a :class:`Message` that also says where the lane stands after it.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from traceback import walk_tb
from typing import Any

import torch
from torchdata.nodes import BaseNode

from uio_pipes.base.clock import timed
from uio_pipes.base.errors import StateError, UioError
from uio_pipes.base.memory import READ, totals
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import Lane, RowOrigin
from uio_pipes.core.ledger import Failures, Ledger, Tally
from uio_pipes.core.pulse import PULSE
from uio_pipes.core.realize import realize
from uio_pipes.core.sample import Sample
from uio_pipes.core.schedule import Settings
from uio_pipes.core.stage import Node
from uio_pipes.io.shelf import close_shelves
from uio_pipes.run.dealing import Turns
from uio_pipes.run.exclusions import Excluding
from uio_pipes.run.stall import Patience
from uio_pipes.run.state import LaneState

Place = tuple[int, int]  # of a lane: its pass, and how many batches of it have passed
REPLAYED = 1 << 16  # most batches that a resume passes over, unless snapshot_every is more


@dataclass(frozen=True)
class LaneOptions:
    """The options that all lanes of an epoch share; they are sent to the workers. Those of a loader are
    :class:`~uio_pipes.run.options.RunOptions`, and :func:`~uio_pipes.run.lanes.options_of` fills in the epoch's."""

    pipeline: Graph
    seed: int
    lanes: int
    failures: Failures
    snapshot_every: int = 1
    repeat: bool = False  # lanes that have ended begin again
    key_filters: tuple[Callable[[str], bool], ...] = ()  # true of the keys of utterances that are left out
    utterances: bool = False  # to give those of each batch, finished, instead of its tensors
    step_ranks: int = 1  # ranks for which steps are counted
    epoch: int = 0  # from here on: of the epoch that runs
    pass_over: Mapping[int, Place] = field(default_factory=dict)  # lane → up to where batches are not made
    excluding: Excluding | None = None
    origins: bool = False  # whether to tell those of the utterances in each batch
    turns: Turns | None = None  # which batches are this rank's, if others run the same lane
    patience: Patience | None = None  # with what hangs
    traced: int = 0  # so many batches are traced


@dataclass
class Message:
    """One batch of a lane, or its end, with the position of the lane after it."""

    lane: int
    pass_: int
    k: int  # number of the batch in its lane; at the end, how many there were
    batch: Any = None  # None: the lane's end, or all its utterances failed
    done: bool = False
    snapshot: str | None = None  # JSON of the nodes' state, with every snapshot_every-th batch
    counts: dict[str, Any] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    remaining: tuple[int, int] = (0, 0)
    settings: dict[str, Any] | None = None  # see Settings.saved; None, if they are what they were
    memory: int = 0  # bytes, estimated, in the buffers of this process; with a lane's first batch
    error: Exception | None = None
    took: float = 0.0  # seconds that it took to make
    lost: bool = False  # nothing is left of the batch, and another one takes its place in a stream
    number: int = 0  # of the batch that comes next on the rank, in its epoch
    copied: Any = None  # a CUDA event, after the copy of the batch to the trainer's device
    tallies: dict[str, Tally] = field(default_factory=dict)  # counted since the message before
    origins: list[RowOrigin] = field(default_factory=list)  # of its utterances, and perhaps others, if wanted
    remembered: tuple[int, int] = (0, 0)  # open files and bytes of caches of the process that made it
    read: tuple[int, int] = (0, 0)  # bytes, and requests made again, of this process since the message before
    others: bool = False  # it belongs to another rank that runs the same lane
    closes: bool = False  # with it, each of these ranks has had a turn
    over: bool = False  # it is not wanted, and passed over as a step of all ranks
    spans: str = ""  # the lines of a trace: what the process of a worker did

    @property
    def is_step(self) -> bool:
        """True if with it, this rank takes part in a step."""
        return self.batch is not None or self.over


class LaneRunner:
    """Runs one lane of one epoch, from ``state`` on."""

    def __init__(self, options: LaneOptions, lane: int, state: LaneState, tables: dict[Hashable, Any]) -> None:
        self.options, self.lane, self.tables = options, lane, tables
        self.k = state.k
        self.pass_ = state.pass_
        self.done = state.done
        self.ledger = Ledger(options.failures)
        if state.counts:
            self.ledger.load(state.counts)
        self.settings = Settings(state.settings, lane, options.lanes, options.step_ranks)
        PULSE.begin(lane, self.settings, restoring=True)
        self._build()
        if not self.done:
            with self.context.stall_guard.while_restoring():
                self._restore(state)

    def _build(self) -> None:
        options = self.options
        place = (self.lane, options.lanes, options.seed, options.epoch, self.pass_)
        shared: Any = {"tables": self.tables, "settings": self.settings, "key_filters": options.key_filters}
        shared["origins"] = [] if options.origins else None
        if options.excluding is not None:
            shared["excluded"] = options.excluding.follow(self.settings, self.pass_)
        lane = Lane(self.ledger, *place, **shared)
        self.context = lane
        self.node = options.pipeline.build(lane)

    def _restore(self, state: LaneState) -> None:
        """Bring the nodes to where the lane stood. Nothing is decoded or counted on the way."""
        with one_thread(), self.context.replay(skimming=self.options.pipeline._skims):
            self._reset(state.node_states)
            try:
                for k in range(state.k - _replayed(state, self.lane, self.options), state.k):
                    self.settings.position = k
                    self.node.next()
            except StopIteration:
                raise StateError(
                    f"lane {self.lane} ended before the batch where its state was saved: its shards changed. Restore "
                    'them, or begin the epoch again with Loader(on_change="restart")'
                ) from None

    def _reset(self, nodes: dict[str, Any] | None) -> None:
        if nodes is None:
            self.node.reset(None)
            return
        try:
            self.node.reset(nodes)
        except StateError as error:
            raise StateError(f"lane {self.lane}: {error}") from error
        except (LookupError, TypeError, ValueError, ArithmeticError, StopIteration) as error:
            node = _node_in(error, self.node)
            raise StateError(
                f"lane {self.lane}: {node} cannot restore what it saved ({type(error).__name__}: {error}): it has "
                "changed since, or its reset() contains a bug"
            ) from error

    def next_pass(self) -> None:
        """Begin the lane once more, as the next pass of a stream."""
        self.settings.next_pass(self.k)
        self.pass_, self.k, self.done = self.pass_ + 1, 0, False
        self._build()
        self.node.reset(None)

    def next(self, others: bool = False) -> Message:
        """Return the next batch of the lane, or its end. ``others``: it is another rank's, which counts it."""
        k, given = self.k, self.context.stall_guard.given
        passing = others or (self.pass_, k) < self.options.pass_over.get(self.lane, (0, 0))
        turns = self.options.turns
        self.ledger.quiet = others or (turns is not None and turns.again)
        self.context.mode.skimming = (passing or self.options.utterances) and self.options.pipeline._skims
        self.settings.begin(k)
        with one_thread():
            try:
                item = self.node.next()
                batch = None if passing else self._deliver(item)
            except StopIteration:
                self.done = True
                if starved := self.context.stall_guard.starved_stage:
                    self.ledger.reports.append(f"{starved}: nothing came of a whole round of this lane's data: it ends")
                return self._message(k, None, None)
        if passing and not others:  # some near its utterances may have been lost
            self.ledger.passed += len(item) if isinstance(item, list) else int(isinstance(item, Sample))
        self.k += 1
        if batch is None and not passing:
            self.context.stall_guard.given = given  # of what came out, nothing was left
        snapshot = _dump(self.node.get_state(), self.lane) if self.k % self.options.snapshot_every == 0 else None
        return self._message(k, batch, snapshot)

    def _deliver(self, item: Any) -> Any:
        """Return what goes to the trainer, with all deferred fields computed; None if nothing is left of it."""
        if isinstance(item, Sample):
            made = self._computed([item])
            return made[0] if made else None
        if isinstance(item, list) and item and isinstance(item[0], Sample):
            return self._computed(item) or None
        return None if isinstance(item, (list, dict)) and not item else item

    def _computed(self, samples: list[Sample]) -> list[dict[str, Any]]:
        realized = [
            (dict(sample), length, sample.labels) for sample, length in realize(samples, self.context, whole=True)
        ]
        self.ledger.delivered([length for _, length, _ in realized], [labels for _, _, labels in realized])
        return [fields for fields, _, _ in realized]

    def _message(self, k: int, batch: Any, snapshot: str | None) -> Message:
        reports, self.ledger.reports = self.ledger.reports, []
        tallies, self.ledger.tallies = self.ledger.tallies, {}
        counts = self.ledger.save()
        remaining = self.node.remaining()
        memory = self.node.memory() if k == 0 else 0
        rest = (counts, reports, remaining, self.settings.news(), memory)
        origins = list(self.context.origins or ())
        if origins and self.context.origins is not None:
            self.context.origins.clear()
        message = Message(self.lane, self.pass_, k, batch, self.done, snapshot, *rest, tallies=tallies, origins=origins)
        message.remembered, message.read, READ[:] = totals(), (READ[0], READ[1]), (0, 0)
        return message


def _replayed(state: LaneState, lane: int, options: LaneOptions) -> int:
    """Return the batches from the lane's snapshot to where it stands. Raises: StateError if there are too many."""
    count = state.k - state.at
    most = max(options.snapshot_every, REPLAYED)
    if count > most:
        raise StateError(
            f"lane {lane}: at is {state.at}, but k is {state.k}: {count} batches after its last snapshot, more "
            f"than {most}. Use an older checkpoint, or snapshot_every={count} if the state was saved with as much"
        )
    return count


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one intra-op thread: the same bits on every machine, and no contention for cores."""
    before = torch.get_num_threads()
    if before != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before != 1:
            torch.set_num_threads(before)


def items_of(node: Node, settings: Settings | None = None) -> Iterator[Any]:
    """Yield all that ``node`` gives, from its beginning; ``settings``: of its lane, if they change with its batches."""
    with one_thread():
        node.reset(None)
        for k in count():
            if settings is not None:
                settings.begin(k)
            try:
                item = node.next()
            except StopIteration:
                return
            yield item


@timed("saving the state")
def _dump(state: dict[str, Any], lane: int) -> str:
    try:
        return json.dumps(state, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UioError(
            f"the state of lane {lane} is not made of ints, strings, lists and string-keyed dicts ({error}); "
            "see get_state of the nodes given to .through(…)"
        ) from error


class LaneStream(Iterator[Message]):
    """Runs several lanes in the order (pass, k, lane). It ends with the last lane, or never (``repeat``)."""

    @timed("starting lanes")
    def __init__(self, options: LaneOptions, states: dict[int, LaneState]) -> None:
        self.options = options
        tables = dict[Hashable, Any]()
        self.runners = {i: LaneRunner(options, i, s, tables) for i, s in states.items() if not s.done or options.repeat}
        PULSE.begin()
        self.queue = [(r.pass_, r.k, i) for i, r in self.runners.items() if not r.done]
        heapq.heapify(self.queue)
        if options.repeat:
            for i in (i for i, r in self.runners.items() if r.done):
                self._repeat(i)

    def __next__(self) -> Message:
        if not self.queue:
            raise StopIteration
        _, _, lane = heapq.heappop(self.queue)
        runner, turns = self.runners[lane], self.options.turns
        began = time.perf_counter()
        turn = 0 if turns is None else turns.at(runner.k)
        others = turns is not None and turn != turns.turn
        PULSE.begin(lane, runner.settings)
        try:
            message = runner.next(others)
        finally:
            PULSE.begin()
        message.others = others
        if turns is not None and not message.done and message.k not in turns.lost:
            message.closes = turn == turns.ranks - 1
        message.took = time.perf_counter() - began
        message.memory *= len(self.runners)
        if not runner.done:
            heapq.heappush(self.queue, (runner.pass_, runner.k, lane))
        elif self.options.repeat:
            self._repeat(lane)
        if not self.queue:
            close_shelves()  # before the trainer hears of the end, and ends this process
        return message

    def _repeat(self, lane: int) -> None:
        runner = self.runners[lane]
        runner.next_pass()
        heapq.heappush(self.queue, (runner.pass_, runner.k, lane))


class Position:
    """The position of a lane after the last batch that the trainer received."""

    def __init__(self, state: LaneState) -> None:
        self.state = state
        self.held: int | None = None  # utterances in the lane's buffers after it; None before the lane was heard of
        self.remembered = 0, 0  # by the process that made its last batch: open files, and bytes of caches
        self.waited_us = int(state.counts.get("waited_us", 0))

    def advance(self, message: Message, waited_us: int = 0) -> None:
        """Note that the trainer received ``message`` after waiting for it."""
        state = self.state
        self.waited_us += waited_us
        state.pass_, state.done, state.counts = message.pass_, message.done, message.counts
        self.held, self.remembered = message.remaining[0], message.remembered
        state.k = message.k if message.done else message.k + 1
        if message.settings is not None:
            state.settings = message.settings
        if message.pass_ > 0 and message.k == 0 and message.snapshot is None:
            state.at, state.nodes = 0, "null"
        if message.done:
            state.at, state.nodes = state.k, "null"
        elif message.snapshot is not None:
            state.at, state.nodes = state.k, message.snapshot

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of the lane, and how long the trainer waited for it."""
        return {**self.state.counts, "waited_us": self.waited_us}

    def saved(self) -> LaneState:
        """Return a copy of the lane's state, ready to be saved."""
        return replace(self.state, counts=self.counts if self.state.counts else {})


def _node_in(error: BaseException, outermost: BaseNode[Any]) -> str:
    """Return the name of the innermost node in which ``error`` was raised, ``outermost`` or one before it."""
    node = outermost
    for frame, _ in walk_tb(error.__traceback__):
        node = found if isinstance(found := frame.f_locals.get("self"), BaseNode) else node
    return getattr(node, "stage_name", "") or f"the node {type(node).__name__}"
