"""One run of a loader over an epoch, from its position to the end."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch.utils.data import get_worker_info

from uio_pipes.base.errors import NothingRead, PipelineError, UioError
from uio_pipes.base.urls import plural
from uio_pipes.core.ledger import FailureLog, Report, Tally, add_tallies, check_budget, kind_of
from uio_pipes.formats.lists.quarantine import Quarantine, entry_of
from uio_pipes.run.dealing import RankRest, deal_anew
from uio_pipes.run.empty_epochs import EpochEnd, judged
from uio_pipes.run.epoch_end import Horizon
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.lanes import LISTENERS, log_memory, start_lanes
from uio_pipes.run.merge import Merge, places_after, utterances_in
from uio_pipes.run.options import RunOptions
from uio_pipes.run.peers import Handover
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.ranks import all_gathered
from uio_pipes.run.state import LaneState
from uio_pipes.run.tuning import Tuner, WorkerPlan
from uio_pipes.run.workers import Runner

logger = logging.getLogger("uio_pipes")
MAY_SHARE = (
    "step %d of epoch %d is made as if no rank had run out of batches before; otherwise the ranks have shared what was "
    'left (uneven="share"), and it was another batch: a state that was saved after the step tells'
)
NOTHING_LEFT = "epoch %d is complete in the state that was loaded: continuing with epoch %d"


class EpochRun(Iterator[Any]):
    """The batches of one run over an epoch. It ends its workers at the end, on an error, and when closed or deleted."""

    _here = staticmethod(os.getpid)  # modules may be gone when it is deleted

    def __init__(
        self,
        options: RunOptions,
        progress: EpochProgress,
        quarantine: Quarantine | None,
        items: int,
        tuner: Tuner | None,
    ) -> None:
        self.options, self.progress, self.quarantine = options, progress, quarantine
        self.tuner = tuner
        self.plan = WorkerPlan(0, 0)  # that the runners follow
        self.returned: float | None = None  # when the trainer got its last batch, if it comes back for the next one
        self.items = items  # in the lists
        self.closed = False
        self.pid = self._here()
        self.reader: object | None = None  # the one iterator that gets the batches
        self.superseded = ""  # what took them from the one before
        self.begun = False  # else the lanes begin with the next batch, where the trainer is
        self.runners: list[Runner] = []
        self.handover: Handover | None = None  # to or from peers that get the same batches
        self.memory_logged = False
        self.end: EpochEnd | None = None
        self.tallies: dict[str, Tally] = {}
        self.failures = FailureLog()
        self.examples: dict[str, str] = {}  # the first failure of each kind
        lanes = progress.positions.values()
        self.resumed_at_end = bool(lanes) and all(one.state.done for one in lanes)
        self.merge = Merge(progress.positions, (), options, 0, (), lambda: None)
        if not (progress.skip or progress.ended):
            self._begin()

    def follow(self, options: RunOptions) -> None:
        """Use other options from the next batch on."""
        self.options, self.begun = options, False

    def _begin(self) -> None:
        """Begin where the trainer is: start the lanes, and pass over the batches that it does not want."""
        self._stop_runners()
        options, progress = self.options, self.progress
        states = {lane: position.saved() for lane, position in progress.positions.items()}
        lanes = [lane for lane, state in states.items() if options.repeat or not state.done]
        self.delivered = self.passed_over = 0
        self.number = progress.step  # of the next batch, where the trainer is
        start = weakref.WeakMethod(self._start)  # no cycle
        self.merge = Merge(
            progress.positions, lanes, options, self.number, progress.over, start, progress.turns(options.rank)
        )
        self.merge.read = progress.read  # which goes on
        self.handover = Handover(options.ranks) if options.ranks.peers else None
        self._start(states, 0, progress.skip)
        for message in self.merge.pass_over(progress.skip):
            self._hear(message)
            self._settle()
        if progress.skip and options.in_steps:  # others take their place, and their numbers
            progress.begin_here()
        progress.skip, self.begun = 0, True
        self.horizon = Horizon(self.merge, options.uneven, options.ranks, options.pipeline, options.in_steps)

    def _start(self, states: dict[int, LaneState], made: int, pass_over: int = 0) -> None:
        """Start the lanes at these states, in place of those that run by now, whose batches are made again.

        ``made``: batches to be delivered before; ``pass_over``: how many after them are not to be made.
        """
        options, tuner, before = self.options, self.tuner, self.runners
        plan = (tuner or options).plan
        turns = self.progress.turns(options.rank)
        places = places_after(states, pass_over * (1 if turns is None else turns.ranks), options.repeat)
        for runner in before if tuner is None else ():  # else they go on if no others can be started
            runner.close()

        def start() -> dict[int, Runner]:
            try:
                runner_of = start_lanes(options, self.progress, states, plan, places)
            except OSError as error:
                if tuner is None or not before:
                    raise
                logger.warning('num_workers="auto" stays with %s: no more could be started (%s)', self.plan, error)
                tuner.stay(self.plan)
                return {}  # those before go on
            self.plan, self.runners, self.returned = plan, list(dict.fromkeys(runner_of.values())), None
            if tuner is not None:
                tuner.began(made + len(runner_of))  # so many batches say nothing about their speed
            return runner_of

        handover = self.handover
        self.merge.move(start() if handover is None else handover.sources(start, self.merge.lanes, options.pins))
        self.passed_over += pass_over
        for runner in before if self.runners is not before else ():
            runner.close()

    def __next__(self) -> Any:
        called = time.perf_counter()
        if self.closed or self.progress.ended:
            raise StopIteration
        progress, steps = self.progress, self.options.steps_per_epoch
        if steps is not None and all(any(n in one for one in progress.over) for n in range(progress.step, steps)):
            progress.skip += max(0, steps - progress.step)  # the rest of the epoch is passed over with the next one
            self._check_shares(self.merge.received_losses.shares)
            progress.step, progress.ended, progress.loaded, self.returned = steps, True, None, None
            raise StopIteration  # without closing: the stream goes on in the next epoch
        try:
            if progress.skip or not self.begun:
                self._begin()
            elif self._wants_other_workers and (reached := self.merge.received()):
                self._start(*reached)
            waited = self.merge.waited
            while True:
                while not self.horizon.allows(self.delivered):
                    if not self._deal():
                        self._finish()
                        raise StopIteration
                progress.loaded = None
                message = self._deliver()
                self._settle()
                self.delivered += 1
                if not message.over:
                    break
            if self.tuner is not None and self.tuner.plan == self.plan:
                if self.returned is not None:
                    step, wait = called - self.returned, self.merge.waited - waited
                    self.tuner.add(message.lane, message.counts, step, wait, message.took, self.merge.going)
                self.returned = time.perf_counter()
            progress.waits.add(time.perf_counter() - called)
            return message.batch
        except BaseException as error:
            if isinstance(error, UioError):  # which hides the failures of batches that will not be delivered
                for report in (report for message in self.merge.undelivered for report in message.reports):
                    self.failures.add(report)
            if isinstance(error, Exception):
                with contextlib.suppress(RuntimeError):
                    self._settle(error)
            self.close()
            raise

    @property
    def _wants_other_workers(self) -> bool:
        return self.tuner is not None and self.tuner.plan != self.plan and not self.merge.in_turns

    def _deal(self) -> bool:
        """Share what is left of the epoch if this rank, or another one, has no batch; return whether they did."""
        options, progress, horizon, merge = self.options, self.progress, self.horizon, self.merge
        if not options.shares or not horizon.agrees:
            return False
        at_end = merge.known == self.delivered  # all that was fetched
        cut = merge.cut if at_end else None
        if not merge.in_turns or (at_end and not (merge.gone or cut)):
            while (message := merge.deliver(batches=False)) is not None:
                self._hear(message)
        lanes = {i: position.saved() for i, position in progress.positions.items() if options.ranks.reads}
        mine = RankRest({lane: state.text(lane) for lane, state in lanes.items() if not state.done}, merge.gone, cut)
        rests = all_gathered(mine, horizon.members, "to share what is left of the epoch")
        deal = deal_anew(rests, progress.deal, options.world_size, progress.step)
        if not deal.lanes or (deal.last and options.tail == "drop"):
            if not progress.step:
                raise horizon.for_all(bool(merge.undelivered), False, 'tail="repeat"')
            return False
        progress.go_by(deal, rests, options.rank)
        self._begin()
        return True

    def _settle(self, error: Exception | None = None) -> None:
        """Wait until all peers have what they need to follow to here, or to ``error``."""
        if self.handover is not None:
            sent = error is not None and error is self.handover.failed
            self.handover.settle(None if sent else self.merge.passed)

    def _deliver(self) -> Message:
        while True:
            message = self.merge.deliver()
            assert message is not None
            self._hear(message)
            if message.is_step:
                return message

    def _hear(self, message: Message) -> None:
        """Go on to what a message says: number its batch, and log, count and pass on what it reports."""
        progress = self.progress
        progress.step += message.number - self.number
        self.number = message.number
        progress.lost += [progress.step] * message.lost
        for report in message.reports if self.options.ranks.reads else ():
            suspect = isinstance(report, Report) and report.error.reason == "suspect"
            self.failures.add(report, logging.INFO if suspect else logging.WARNING)
            if isinstance(report, Report):
                self.examples.setdefault(kind_of(report.error, report.stage), report)
                if self.quarantine is not None:
                    where = {"epoch": progress.epoch, "rank": self.options.rank}
                    self.quarantine.add(entry_of(report.error, report.stage, **where))
        add_tallies(self.tallies, message.tallies if self.options.ranks.reads else {})
        self._judge()
        if message.reports and message.counts.get("failures"):
            total = sum(p.state.counts.get("failures", 0) for p in self.merge.positions.values())
            check_budget(total, self.options.failures, message.reports[-1])
        if message.counts.get("failures") or message.counts.get("lost"):
            self._check_shares()
        if message.memory and not self.memory_logged:
            self.memory_logged, progress.buffers = True, message.memory * max(1, len(self.runners))
            log_memory(progress.buffers)
        for listener in LISTENERS:
            listener.hear(message, progress, self.options)

    def _check_shares(self, at_end: tuple[int, int] | None = None) -> None:
        options = self.options
        if at_end is not None:
            self._judge(last=True)
        self.merge.received_losses.check(options.failures, options.pipeline, self.examples, at_end)

    def _judge(self, last: bool = False) -> None:
        """Log what is due of what was counted. Of the workers of a DataLoader, the first one speaks for all."""
        worker = get_worker_info()
        for place, tally in self.tallies.items():
            if (text := tally.verdict(last)) is not None and (worker is None or worker.id == 0):
                logger.warning("%s: %s", place, text)
        if last:
            self.tallies, self.failures = {}, FailureLog()
            self.progress.stats(self.options.pipeline).log_losses(self.progress.epoch, self.options.rank)

    def _finish(self) -> None:
        """Note that the epoch is over for this rank."""
        progress, options = self.progress, self.options
        progress.loaded = None
        if options.uneven == "join":
            while (rest := self.merge.deliver()) is not None:
                self._hear(rest)
            losses = self.merge.losses
            now = bool(self.delivered or self.passed_over)
            delivered = now or losses.utterances > 0
            if delivered and not now and options.rank == 0 and not options.of_workers:
                logger.warning(NOTHING_LEFT, progress.epoch, progress.epoch + 1)
            self._check_shares(self.merge.received_losses.shares)
            self.end = judged(progress.epoch, delivered, losses, options, self.resumed_at_end)
        else:
            utterances = sum(p.counts.get("utterances", 0) for p in progress.positions.values())
            progress.delivered, *sums = self.horizon.summed(
                utterances, *self._left_out(), *self.merge.received_losses.shares
            )
            self._check_shares((sums[2], sums[3]))  # of all ranks, so that all of them stop
            progress.left_out = left = (sums[0], sums[1])
            if any(left) and options.rank == 0:
                stats = progress.stats(options.pipeline)
                logger.warning("%s", stats.told_left_out(progress.epoch, options.shares))
            progress.ended = True

    def take_end(self) -> EpochEnd | None:
        """Return, only once, how this rank's epoch ended: its loader decides what follows."""
        end, self.end = self.end, None
        return end

    def _left_out(self) -> tuple[int, int]:
        """Return what this rank did not deliver: utterances that it knows of, and list items not yet opened."""
        merge = self.merge
        undelivered = sum(utterances_in(message.batch) for message in merge.undelivered)
        if self.options.shares:
            return undelivered, 0
        held = undelivered + sum(u for u, _ in merge.remaining.values())
        items = sum(i for _, i in merge.remaining.values())
        for lane, position in merge.positions.items():
            if lane not in merge.remaining and not position.state.done and not position.state.k:  # not begun
                items += len(range(lane, self.items, self.progress.lanes))
        return held, items

    def supersede(self, how: str, reader: object | None = None) -> None:
        """Let only ``reader`` get batches from now on; ``how``: what happened, for the message to the one before."""
        self.superseded, self.reader = how, reader

    def check(self, reader: object) -> None:
        """Raises: UioError if batches go to another iterator by now, or belong to the process that forked this one."""
        if self.pid != self._here():
            raise UioError(
                f"this process was forked from process {self.pid} while its loader was in the middle of an epoch. The "
                "workers and threads of the loader do not exist here: create a new uio.Loader"
            )
        if self.reader is not reader:
            raise UioError(
                f"this iteration over the loader has ended: {self.superseded}. Iterate over the loader "
                "again (`for batch in loader`), which continues from its position"
            )

    def close(self) -> None:
        """End the workers: there are no more batches. In a process that was forked since, there are none to end."""
        self.closed = True
        if self.pid == self._here():
            self._stop_runners()

    def _stop_runners(self) -> None:
        self.merge.close()
        runners, self.runners = self.runners, []
        for runner in runners:
            runner.close()

    def __del__(self) -> None:
        self.close()


AGAIN = "a newer iteration over the same loader has begun"


class Batches(Iterator[Any]):
    """The iterator over a run that a trainer gets. ``at_end`` is told, once, how the epoch ended on this rank."""

    def __init__(self, run: EpochRun, at_end: Callable[[int, bool, NothingRead | None], None]) -> None:
        self.run, self.at_end, self.over, self.name = run, at_end, False, object()
        run.supersede(AGAIN, self.name)

    def __next__(self) -> Any:
        if self.over:
            raise StopIteration
        self.run.check(self.name)
        try:
            tracing = self.run.options.tracing
            return next(self.run) if tracing is None else tracing.next(self.run)
        except StopIteration:
            self.over = True
            if (end := self.run.take_end()) is not None:
                self.at_end(*end)
                self.run.progress.ended = True
            raise

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UioError("an iteration over a loader cannot be copied or pickled: copy the loader, or save its state")


def batch_at(options: RunOptions, progress: EpochProgress, items: int, step: int, utterances: bool = False) -> Any:
    """Return the batch of a step of the epoch, made in this process without the other ranks.

    ``items``: in the lists. ``utterances``: as an option.
    """
    options.ranks.check()
    ranks = options.ranks._replace(members=None, peers=(), mesh=())
    own = replace(options, ranks=ranks, num_workers=0, fleet=None, mover=None, pin_memory=False)
    own = replace(own, snapshot_every=sys.maxsize, utterances=utterances)  # no state is wanted
    problem = f"batch_at: epoch {progress.epoch} has no batch {step} on rank {ranks.rank}"
    if progress.ended and step >= progress.step and options.uneven != "join" and not options.in_steps:
        raise PipelineError(f"{problem}: it had {plural(progress.step, 'batch')}, with which all ranks ended")
    start = progress.before(step, options.in_steps)
    start.check_ranks(own)
    received = start.received + start.skip + 1
    run = EpochRun(own, start, None, items, None)
    try:
        batch = next(run)
    except StopIteration:
        if (end := run.take_end()) is not None and end.error is not None:
            raise end.error from None
        there = f"it has {plural(start.step, 'batch')}, which count from 0 at its beginning"
        if ranks.world_size > 1 and not options.in_steps:
            there += ', and what ranks share at its end ("share") is made again from a state that was saved there'
        raise PipelineError(f"{problem}: {there}") from None
    finally:
        run.close()
    if not options.repeat and start.received != received:
        raise PipelineError(f"batch_at: batch {step} is empty: all of its utterances failed, or are skipped")
    return batch
