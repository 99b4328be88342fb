"""One run of a loader over an epoch, from its position to the end."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch.utils.data import get_worker_info

from uio_pipes.base.errors import NothingRead, PipelineError, UioError
from uio_pipes.core.ledger import FailureLog, Report, Tally, add_tallies, check_budget, kind_of
from uio_pipes.formats.lists.quarantine import Quarantine, entry_of
from uio_pipes.run.epoch_end import Horizon
from uio_pipes.run.lane_runner import Message, Place, Position
from uio_pipes.run.lanes import log_memory, spec_of, start_lanes
from uio_pipes.run.merge import Merge, places_after
from uio_pipes.run.no_batches import EpochEnd, judged
from uio_pipes.run.options import LISTENERS, RunOptions
from uio_pipes.run.peers import Handover
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.state import LaneState
from uio_pipes.run.tuning import Tuner, WorkerPlan
from uio_pipes.run.workers import MessageSource, Runner

logger = logging.getLogger("uio_pipes")
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
        self.anew = False  # the lanes are to begin anew, where they are, with the next batch
        self.runners: list[Runner] = []
        self.handover: Handover | None = None  # to or from peers that get the same batches
        self.memory_logged = False
        self.end: EpochEnd | None = None
        self.tallies: dict[str, Tally] = {}
        self.failures = FailureLog()
        self.examples: dict[str, str] = {}  # the first failure of each kind
        lanes = progress.positions.values()
        self.resumed_at_end = bool(lanes) and all(one.state.done for one in lanes)
        self.merge = Merge(progress.positions, {}, options.repeat)
        if not progress.skip:  # else with the first batch
            self._begin()

    def _begin(self, pass_over: int = 0) -> None:
        """Start the lanes where they stand, and pass over the next ``pass_over`` batches."""
        options, progress = self.options, self.progress
        self.handover = Handover(options.ranks) if options.ranks.peers else None
        states = {lane: position.saved() for lane, position in progress.positions.items()}
        places = places_after(progress.positions, pass_over, options.repeat)
        runner_of = {} if progress.ended else self._start(states, places)
        self.delivered = 0
        self.passed_over = pass_over
        self.number = progress.step  # of the next batch, where the trainer is
        at = self.number, options.in_steps
        self.merge = Merge(progress.positions, runner_of, options.repeat, options.mover, options.pins, *at)
        self.merge.over, begin = progress.over, weakref.WeakMethod(self._begin_over)  # no cycle
        self.merge.begin_over = lambda states, count: run(states, count) if (run := begin()) is not None else None
        for message in self.merge.pass_over(pass_over):
            self._report(message)
            self._settle()
        if pass_over and options.in_steps:  # others take their place, and their numbers
            progress.begin_here()
        uneven = "join" if progress.ended else options.uneven
        self.horizon = Horizon(self.merge, uneven, options.ranks, options.pipeline, options.in_steps)

    def _start(self, states: dict[int, LaneState], pass_over: dict[int, Place]) -> Mapping[int, MessageSource]:
        """Start the lanes at these states, or receive what a peer makes of them."""
        if self.handover is None:
            return self._start_here(states, pass_over)
        lanes = [lane for lane, state in states.items() if self.options.repeat or not state.done]
        return self.handover.sources(lambda: self._start_here(states, pass_over), lanes, self.options.pins)

    def _start_here(
        self, states: dict[int, LaneState], pass_over: dict[int, Place], waiting: int = 0
    ) -> dict[int, Runner]:
        """Start the lanes in this process or its workers. ``waiting``: batches that others have made before."""
        options, plan = self.options, self.options.plan if self.tuner is None else self.tuner.plan
        runner_of = start_lanes(
            spec_of(options, self.progress, pass_over), states, plan, options.world_size, options.pins, options.fleet
        )
        self.plan, self.runners, self.returned = plan, list(dict.fromkeys(runner_of.values())), None
        if self.tuner is not None:
            self.tuner.began(waiting + len(runner_of))  # so many batches say nothing about their speed
        return runner_of

    def follow(self, options: RunOptions) -> None:
        """Go by other options from the next batch on."""
        self.options, self.anew = options, True

    def _begin_over(self, states: dict[int, LaneState], count: int) -> None:
        """Let the lanes begin anew at these states, so that they do not make the next ``count`` batches."""
        self._end_runners()
        positions = {lane: Position(state) for lane, state in states.items()}
        self.merge.move(self._start(states, places_after(positions, count, self.options.repeat)))
        self.passed_over += count

    def _follow(self, tuner: Tuner) -> None:
        """Go on with as many workers as the tuner wants.

        What those before had made since the last message is made again.
        """
        if (received := self.merge.received()) is None:
            return
        states, waiting = received
        before = self.runners
        try:
            runner_of = self._start_here(states, {}, waiting)
        except OSError as error:
            logger.warning('num_workers="auto" stays with %s: no more could be started (%s)', self.plan, error)
            tuner.stay(self.plan)
            return
        self.merge.move(runner_of if self.handover is None else self.handover.handed_over(runner_of))
        for runner in before:
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
            if self.progress.skip or self.anew:
                self._stop_runners()
                self._begin(self.progress.skip)
                self.progress.skip, self.anew = 0, False
            elif self.tuner is not None and self.tuner.plan != self.plan:
                self._follow(self.tuner)
            waited = self.merge.waited
            if not self.horizon.allows(self.delivered):
                self._finish()
                raise StopIteration
            self.progress.loaded = None
            message = self._deliver()
            self._settle()
            self.delivered += 1
            self.progress.lost += [self.progress.step + number - self.number for number in self.merge.lost]
            self.merge.lost.clear()
            self.progress.step += message.number - self.number
            self.number = message.number
            for told in self.options.delivered:
                told(message, self.progress)
            for listener in LISTENERS:
                listener.hear(message, self.progress, self.options)
            if self.tuner is not None and self.tuner.plan == self.plan:
                if self.returned is not None:
                    step, wait = called - self.returned, self.merge.waited - waited
                    self.tuner.add(message.lane, message.counts, step, wait, message.took, self.merge.going)
                self.returned = time.perf_counter()
            return message.batch
        except BaseException as error:
            if isinstance(error, UioError):
                self._log_rest()
            if isinstance(error, Exception):
                with contextlib.suppress(RuntimeError):
                    self._settle(error)
            self.close()
            raise

    def _settle(self, error: Exception | None = None) -> None:
        """Wait until all peers have what they need to follow to here, or to ``error``."""
        if self.handover is not None:
            sent = error is not None and error is self.handover.failed
            self.handover.settle(None if sent else self.merge.passed)

    def _deliver(self) -> Message:
        while True:
            message = self.merge.deliver()
            assert message is not None
            self._report(message)
            if message.batch is not None:
                return message

    def _report(self, message: Message) -> None:
        for report in message.reports if self.options.ranks.reads else ():
            suspect = isinstance(report, Report) and report.error.reason == "suspect"
            self.failures.add(report, logging.INFO if suspect else logging.WARNING)
            for heard in self.options.heard:
                heard(report)
            if isinstance(report, Report):
                self.examples.setdefault(kind_of(report.error, report.stage), report)
            if isinstance(report, Report) and self.quarantine is not None:
                where = {"epoch": self.progress.epoch, "rank": self.options.rank}
                self.quarantine.add(entry_of(report.error, report.stage, **where))
        add_tallies(self.tallies, message.tallies if self.options.ranks.reads else {})
        self._judge()
        if message.counts.get("failures"):
            total = sum(p.counts.get("failures", 0) for p in self.merge.positions.values())
            check_budget(total, self.options.failures, message.reports[-1] if message.reports else "see above")
        if message.counts.get("failures") or message.counts.get("lost"):
            self._check_shares()
        if message.memory and not self.memory_logged:
            self.memory_logged = True
            log_memory(message.memory * max(1, len(self.runners)))

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
                self._report(rest)
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
                logger.warning("%s", progress.stats(options.pipeline).told_left_out(progress.epoch))
            progress.ended = True

    def take_end(self) -> EpochEnd | None:
        """Return, only once, how this rank's epoch ended: its loader decides what follows."""
        end, self.end = self.end, None
        return end

    def _left_out(self) -> tuple[int, int]:
        """Return what this rank did not deliver: utterances that it knows of, and list items not yet opened."""
        merge = self.merge
        if self.options.uneven == "repeat":
            return 0, 0
        held = sum(u for u, _ in merge.remaining.values()) + merge.undelivered()
        items = sum(i for _, i in merge.remaining.values())
        for lane, position in merge.positions.items():
            if lane not in merge.remaining and not position.state.done and not position.state.k:  # not begun
                items += len(range(lane, self.items, self.progress.lanes))
        return held, items

    def _log_rest(self) -> None:
        """Log the failures in batches that will not be delivered."""
        for message in self.merge.unreported():
            for report in message.reports:
                self.failures.add(report)

    def supersede(self, how: str, reader: object | None = None) -> None:
        """Let only ``reader`` get batches from now on; ``how``: what happened, for the message to the one before."""
        self.superseded, self.reader = how, reader

    def check(self, reader: object) -> None:
        """Raises: UioError if batches go to another iterator by now, or belong to the process that forked this one."""
        if self.pid != self._here():
            raise UioError(
                f"the loader is in the middle of an epoch in process {self.pid}, and this process was forked from it: "
                "its workers and threads are not here. Make a uio.Loader of its own here"
            )
        if self.reader is not reader:
            raise UioError(
                f"this iteration over the loader gives no more batches: {self.superseded}. Iterate over the loader "
                "again (`for batch in loader`), which goes on from where it stands"
            )

    def close(self) -> None:
        """End the workers: there are no more batches. In a process that was forked since, there are none to end."""
        self.closed = True
        if self.pid == self._here():
            self._stop_runners()

    def _stop_runners(self) -> None:
        self.merge.close()
        self._end_runners()

    def _end_runners(self) -> None:
        runners, self.runners = self.runners, []
        for runner in runners:
            runner.close()

    def __del__(self) -> None:
        self.close()


AGAIN = "another one over the same loader has begun since"


class Batches(Iterator[Any]):
    """The iterator that a trainer gets of a run. ``at_end`` is told, once, how the epoch ended on this rank."""

    def __init__(self, run: EpochRun, at_end: Callable[[int, bool, NothingRead | None], None]) -> None:
        self.run, self.at_end, self.over, self.name = run, at_end, False, object()
        run.supersede(AGAIN, self.name)

    def __next__(self) -> Any:
        if self.over:
            raise StopIteration
        self.run.check(self.name)
        try:
            return next(self.run)
        except StopIteration:
            self.over = True
            if (end := self.run.take_end()) is not None:
                self.at_end(*end)
                self.run.progress.ended = True
            raise

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UioError("an iteration over a loader is neither copied nor pickled: copy the loader, or save its state")


def batch_at(options: RunOptions, progress: EpochProgress, items: int, step: int, utterances: bool = False) -> Any:
    """Return the batch of a step of the epoch, made in this process and without the other ranks.

    ``items``: in the lists. ``utterances``: as an option.
    """
    options.ranks.check()
    ranks = options.ranks._replace(members=None, peers=(), mesh=())
    own = replace(options, ranks=ranks, num_workers=0, fleet=None, mover=None, pin_memory=False)
    own = replace(own, snapshot_every=sys.maxsize, utterances=utterances, delivered=())  # no state is wanted
    start = progress.before(step, options.in_steps)
    start.check_ranks(own)
    received = start.received + start.skip + 1
    run = EpochRun(own, start, None, items, None)
    try:
        batch = next(run)
    except StopIteration:
        if (end := run.take_end()) is not None and end.error is not None:
            raise end.error from None
        told = f"batch_at: epoch {start.epoch} has no batch {step} on rank {ranks.rank}"
        raise PipelineError(f"{told}: batches count from 0 at the beginning of the epoch") from None
    finally:
        run.close()
    if any(position.state.pass_ for position in start.positions.values()) and not options.in_steps:
        raise PipelineError(f'batch_at: under uneven="repeat", step {step} comes after lanes have begun again')
    if not options.repeat and start.received != received:
        raise PipelineError(f"batch_at: nothing is left of batch {step}: all of its utterances failed, or are skipped")
    return batch
