"""One run of a loader over an epoch, from its position to the end."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from uio_pipes.base.errors import NothingRead, UioError
from uio_pipes.core.lane import worker_of
from uio_pipes.core.ledger import Report, check_budget
from uio_pipes.formats.lists.quarantine import Quarantine, entry_of
from uio_pipes.run.epoch_end import Horizon
from uio_pipes.run.lane_runner import Message, RunSpec
from uio_pipes.run.merge import Merge, shares
from uio_pipes.run.no_batches import nothing_read
from uio_pipes.run.options import RunOptions
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.state import LaneState
from uio_pipes.run.workers import InProcess, Runner, Worker

logger = logging.getLogger("uio_pipes")


class EpochEnd(NamedTuple):
    """The end of an epoch for one rank: whether an utterance was delivered, and the error if nothing could be read."""

    epoch: int
    delivered: bool
    error: NothingRead | None


class EpochRun(Iterator[Any]):
    """The batches of one run over an epoch. It ends its workers at the end, on an error, and when closed or deleted."""

    def __init__(self, options: RunOptions, progress: EpochProgress, quarantine: Quarantine | None, items: int) -> None:
        self.options, self.progress, self.quarantine = options, progress, quarantine
        self.items = items  # in the lists
        self.closed = False
        self.runners: list[Runner] = []
        self.memory_logged = False
        self.end: EpochEnd | None = None
        self.merge = Merge(progress.positions, {}, options.repeat)
        self._begin()

    def _begin(self, pass_over: int = 0) -> None:
        """Start the lanes where they stand, and pass over the next ``pass_over`` batches."""
        options, progress = self.options, self.progress
        runner_of = {} if progress.ended else self._start(shares(progress.positions, pass_over, options.repeat))
        self.delivered = 0
        self.passed_over = pass_over
        self.merge = Merge(progress.positions, runner_of, options.repeat, options.mover, options.pins)
        for message in self.merge.pass_over(pass_over):
            self._report(message)
        uneven = "join" if progress.ended else options.uneven
        self.horizon = Horizon(self.merge, uneven, options.world_size, options.pipeline, options.in_steps)

    def _start(self, pass_over: dict[int, int]) -> dict[int, Runner]:
        options, progress = self.options, self.progress
        spec = RunSpec(
            options.pipeline,
            lanes=progress.lanes,
            seed=options.seed,
            epoch=progress.stream,
            policy=options.policy,
            snapshot_every=options.snapshot_every,
            repeat=options.repeat,
            pass_over=pass_over,
        )
        groups: dict[int, dict[int, LaneState]] = {}
        for lane, position in progress.positions.items():
            if options.repeat or not position.state.done:
                worker = worker_of(lane, options.world_size, options.num_workers)
                groups.setdefault(worker, {})[lane] = position.saved()
        runner_of: dict[int, Runner] = {}
        for states in groups.values():
            if options.num_workers:
                runner: Runner = Worker(spec, states, options.pins, options.prefetch)
            else:
                runner = InProcess(spec, states, options.pins)
            self.runners.append(runner)
            runner_of.update(dict.fromkeys(states, runner))
        return runner_of

    def __next__(self) -> Any:
        if self.closed or self.progress.ended:
            raise StopIteration
        steps = self.options.steps_per_epoch
        if steps is not None and self.progress.step >= steps:
            self.progress.ended = True
            raise StopIteration  # without closing: the stream goes on in the next epoch
        try:
            if self.progress.skip:
                self._stop_runners()
                self._begin(self.progress.skip)
                self.progress.skip = 0
            if not self.horizon.allows(self.delivered):
                self._finish()
                raise StopIteration
            self.progress.loaded = None
            message = self._deliver()
            self.delivered += 1
            self.progress.step += 1
            return message.batch
        except BaseException as error:
            if isinstance(error, UioError):
                self._log_rest()
            self.close()
            raise

    def _deliver(self) -> Message:
        while True:
            message = self.merge.deliver()
            assert message is not None
            self._report(message)
            if message.batch is not None:
                return message

    def _report(self, message: Message) -> None:
        for report in message.reports:
            suspect = isinstance(report, Report) and report.error.reason == "suspect"
            logger.log(logging.INFO if suspect else logging.WARNING, "lane %d: %s", message.lane, report)
            if isinstance(report, Report) and self.quarantine is not None:
                where = {"epoch": self.progress.epoch, "rank": self.options.rank}
                self.quarantine.add(entry_of(report.error, report.stage, **where))
        if message.counts.get("failures"):
            total = sum(p.counts.get("failures", 0) for p in self.merge.positions.values())
            check_budget(total, self.options.policy, message.reports[-1] if message.reports else "see above")
        if message.memory and not self.memory_logged:
            self.memory_logged = True
            _log_memory(message.memory * max(1, len(self.runners)))

    def _finish(self) -> None:
        """Note that the epoch is over for this rank."""
        progress, options = self.progress, self.options
        progress.loaded = None
        if options.uneven == "join":
            while (rest := self.merge.deliver()) is not None:
                self._report(rest)
            self.end = self._judge_end()
        else:
            utterances = sum(p.counts.get("utterances", 0) for p in progress.positions.values())
            progress.delivered, *left = self.horizon.summed(utterances, *self._left_out())
            progress.left_out = (left[0], left[1])
            if any(left) and options.rank == 0:
                logger.warning("%s", progress.stats(options.pipeline).told_left_out(progress.epoch))
            progress.ended = True

    def _judge_end(self) -> EpochEnd:
        """Return how the epoch ended. Without an utterance it is an error if reading failed, else a warning."""
        options, losses, epoch = self.options, self.merge.losses, self.progress.epoch
        delivered = bool(self.delivered or self.passed_over or losses.utterances)
        if delivered:
            return EpochEnd(epoch, True, None)
        why = losses.describe(options.pipeline)
        failed = losses.only_failures or (losses.failures > 0 and options.world_size == 1)
        if losses.skipped and not failed:
            logger.warning("epoch %d ends without one utterance on rank %d: %s", epoch, options.rank, why)
        return EpochEnd(epoch, False, nothing_read(epoch, why) if failed else None)

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
                logger.warning("lane %d: %s", message.lane, report)

    def close(self) -> None:
        """End the workers: there are no more batches."""
        self.closed = True
        self._stop_runners()

    def _stop_runners(self) -> None:
        self.merge.close()
        runners, self.runners = self.runners, []
        for runner in runners:
            runner.close()

    def __del__(self) -> None:
        self.close()


def _log_memory(estimate: int) -> None:
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"buffers of this rank: about {estimate / 2**20:.0f} MiB when full"
    if estimate > ram / 4:
        logger.warning(
            "%s, above a quarter of the memory (%.0f GiB); use smaller buffers or fewer lanes", text, ram / 2**30
        )
    else:
        logger.info("%s", text)
