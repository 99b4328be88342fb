"""One run of a loader over an epoch: from its position to the end."""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uio_pipes.base.errors import UioError
from uio_pipes.core.lane import worker_of
from uio_pipes.core.ledger import Report, check_budget
from uio_pipes.formats.lists.quarantine import entry_of
from uio_pipes.run.epoch_end import Horizon
from uio_pipes.run.lane_runner import Message, Position, RunSpec
from uio_pipes.run.merge import Feed, shares
from uio_pipes.run.no_batches import nothing_read
from uio_pipes.run.workers import InProcess, Source, Worker

if TYPE_CHECKING:
    from uio_pipes.run.loader import Loader

__all__ = ["Batches", "Progress", "Run"]

logger = logging.getLogger("uio_pipes")


@dataclass
class Progress:
    """Where a rank stands in an epoch, as far as its trainer has received it.

    Attributes:
        lanes: how many there are in this epoch; positions: this rank's.
        ended: the epoch is over: for this rank, as the trainer saw, or for all, as a state says.
        stream: the epoch whose data this is: with ``steps_per_epoch`` that in which the stream began.
        skip: batches to pass over before the next one.
        step: batches delivered in this epoch, where ``steps_per_epoch`` counts them.
        delivered: utterances that all ranks have delivered, at the end of an epoch that they ended together.
        left_out: utterances (at least) and list items that no rank delivered.
        loaded: the state that this was taken from, until the first batch.
        ahead: the next epoch, where other ranks had begun it when the state was saved.
    """

    epoch: int
    lanes: int
    positions: dict[int, Position]
    stream: int
    step: int = 0
    skip: int = 0
    ended: bool = False
    delivered: int = 0
    left_out: tuple[int, int] = (0, 0)
    loaded: dict[str, str] | None = None
    ahead: Progress | None = None


class Batches(Iterator[Any]):
    """One run over an epoch. Ends its workers at the end, on an error, when closed or forgotten."""

    def __init__(self, loader: Loader, progress: Progress) -> None:
        self.loader: Loader = weakref.proxy(loader)  # who goes through the batches holds it, see Run
        self.progress = progress
        self.closed = False
        self.sources: list[Source] = []
        self.told = False
        self.repeat = loader.uneven == "repeat" or loader.steps_per_epoch is not None
        self.feed = Feed(progress.positions, {}, self.repeat)
        self._begin()

    def _begin(self, pass_over: int = 0) -> None:
        """Run the lanes from where they stand, but for the next ``pass_over`` batches."""
        loader, progress = self.loader, self.progress
        source_of = {} if progress.ended else self._start(shares(progress.positions, pass_over, self.repeat))
        self.delivered = 0
        self.passed_over = pass_over
        self.feed = Feed(progress.positions, source_of, self.repeat, loader.mover, loader.pin_memory)
        for message in self.feed.pass_over(pass_over):
            self._report(message)
        steps, uneven = loader.steps_per_epoch is not None, "join" if progress.ended else loader.uneven
        self.horizon = Horizon(self.feed, uneven, loader.world_size, loader.pipeline, steps)

    def _start(self, pass_over: dict[int, int]) -> dict[int, Source]:
        loader, progress = self.loader, self.progress
        spec = RunSpec(
            loader.pipeline,
            progress.lanes,
            loader.seed,
            progress.stream,
            loader.policy,
            loader.snapshot_every,
            self.repeat,
            pass_over,
        )
        states = {i: json.loads(p.text) for i, p in progress.positions.items()}
        groups: dict[int, list[int]] = {}
        for lane, state in states.items():
            if self.repeat or not state["done"]:
                groups.setdefault(worker_of(lane, loader.world_size, loader.num_workers), []).append(lane)
        source_of: dict[int, Source] = {}
        for lanes in groups.values():
            source = self._source(spec, lanes, {i: states[i] for i in lanes})
            self.sources.append(source)
            source_of.update(dict.fromkeys(lanes, source))
        return source_of

    def _source(self, spec: RunSpec, lanes: list[int], states: dict[int, dict[str, Any]]) -> Source:
        if self.loader.num_workers == 0:
            return InProcess(spec, lanes, states, self.loader.pin_memory)
        return Worker(spec, lanes, states, self.loader.pin_memory, self.loader.prefetch)

    def __next__(self) -> Any:
        if self.closed or self.progress.ended:
            raise StopIteration
        steps = self.loader.steps_per_epoch
        if steps is not None and self.progress.step >= steps:
            self.progress.ended = True
            raise StopIteration  # but stay open: the stream goes on in the next epoch
        try:
            if self.progress.skip:
                self._stop_sources()
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
            message = self.feed.deliver()
            assert message is not None
            self._report(message)
            if message.batch is not None:
                return message

    def _report(self, message: Message) -> None:
        for report in message.reports:
            suspect = isinstance(report, Report) and report.error.reason == "suspect"
            logger.log(logging.INFO if suspect else logging.WARNING, "lane %d: %s", message.lane, report)
            if isinstance(report, Report) and self.loader.quarantine is not None:
                where = {"epoch": self.progress.epoch, "rank": self.loader.rank}
                self.loader.quarantine.add(entry_of(report.error, report.stage, **where))
        if message.counts.get("failures"):
            total = sum(p.counts.get("failures", 0) for p in self.feed.positions.values())
            check_budget(total, self.loader.policy, message.reports[-1] if message.reports else "see above")
        if message.memory and not self.told:
            self.told = True
            _tell_memory(message.memory * max(1, len(self.sources)))

    def _finish(self) -> None:
        """The epoch is over for this rank."""
        progress = self.progress
        progress.loaded = None
        if self.loader.uneven == "join":
            while (rest := self.feed.deliver()) is not None:
                self._report(rest)
            self._check_delivered()
        else:
            utterances = sum(p.counts.get("utterances", 0) for p in progress.positions.values())
            progress.delivered, *left = self.horizon.summed(utterances, *self._left_out())
            progress.left_out = (left[0], left[1])
            if any(left) and self.loader.rank == 0:
                logger.warning("%s", self.loader.stats().told_left_out(progress.epoch))
        progress.ended = True

    def _check_delivered(self) -> None:
        """An epoch without an utterance is an error where reading failed, and said where stages left out all."""
        loader, losses = self.loader, self.feed.losses
        delivered = bool(self.delivered or self.passed_over or losses.utterances)
        why = "" if delivered else losses.told(loader.pipeline)
        failed = losses.only_failures or (losses.failures > 0 and loader.world_size == 1)
        if not delivered and losses.skipped and not failed:
            logger.warning("epoch %d ends without one utterance on rank %d: %s", self.progress.epoch, loader.rank, why)
        epoch = self.progress.epoch
        loader._at_end(epoch, delivered, nothing_read(epoch, why) if failed and not delivered else None)

    def _left_out(self) -> tuple[int, int]:
        """What this rank did not deliver: utterances that it knows of, and list items not yet opened."""
        feed = self.feed
        if self.loader.uneven == "repeat":
            return 0, 0
        held = sum(u for u, _ in feed.remaining.values()) + feed.undelivered()
        items = sum(i for _, i in feed.remaining.values())
        unseen = [
            i for i, p in feed.positions.items() if i not in feed.remaining and not p.state["done"] and not p.state["k"]
        ]
        if unseen:
            count = self.loader.fingerprints()["list"][0]
            items += sum(len(range(lane, count, self.progress.lanes)) for lane in unseen)
        return held, items

    def _log_rest(self) -> None:
        """What failed in batches that nobody will get."""
        for message in self.feed.unreported():
            for report in message.reports:
                logger.warning("lane %d: %s", message.lane, report)

    def close(self) -> None:
        """End the workers; there will be no more batches."""
        self.closed = True
        self._stop_sources()

    def _stop_sources(self) -> None:
        self.feed.close()
        sources, self.sources = self.sources, []
        for source in sources:
            source.close()

    def __del__(self) -> None:
        self.close()


class Run(Iterator[Any]):
    """What the trainer iterates over. It keeps loader and batches; they do not keep each other."""

    def __init__(self, loader: Loader, batches: Batches) -> None:
        self.loader, self.batches = loader, batches

    def __next__(self) -> Any:
        return next(self.batches)


def _tell_memory(estimate: int) -> None:
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"buffers of this rank: about {estimate / 2**20:.0f} MiB when full"
    if estimate > ram / 4:
        logger.warning(
            "%s, above a quarter of the memory (%.0f GiB); use smaller buffers or fewer lanes", text, ram / 2**30
        )
    else:
        logger.info("%s", text)
