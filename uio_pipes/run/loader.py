"""The loader: runs a pipeline's lanes in this process or in workers, and knows where each lane stands."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
import torch.distributed as dist

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import NothingRead, PipelineError, StateError
from uio_pipes.base.printable import counted
from uio_pipes.core.graph import Graph
from uio_pipes.core.ledger import Policy
from uio_pipes.core.statistics import Stats
from uio_pipes.run.changes import changes
from uio_pipes.run.device import Mover
from uio_pipes.run.epoch_end import choose_uneven, private_group, refuse_join
from uio_pipes.run.epoch_run import EpochRun
from uio_pipes.run.lengths import Lengths
from uio_pipes.run.options import RunOptions, default_lanes, open_quarantine, topology
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.state import read_meta
from uio_pipes.run.state_merging import merge_states

__all__ = ["Loader", "gather_state", "to_device"]

logger = logging.getLogger("uio_pipes")
Uneven = Literal["stop", "join", "repeat"]


class Loader:
    """Run a pipeline: iterate over the batches of one epoch after another, from wherever its state says.

    Args:
        pipeline: what to run.
        seed: a whole number that all random choices depend on. Default: 0.
        num_workers: worker processes per rank; 0 runs the graph in this process. Default: 0.
        lanes: how many ordered streams an epoch is dealt to, at least ``world_size``. A fixed number, such as 64,
            makes epochs equal on any number of ranks and workers. Default: None, ranks × workers, which deals as
            WeNet does.
        rank: number of this process among all that train together. Default: None, from ``torch.distributed``, or 0
            without a process group.
        world_size: number of those processes; given together with ``rank``. Default: None, from
            ``torch.distributed``, or 1 without a process group.
        partition: whether each rank gets its own share; False gives every rank everything, as for validation.
            Default: True.
        uneven: what to do if ranks have unequally many batches: "stop" (all end when the first one ends), "join"
            (each ends with its own) or "repeat" (all end with the last one; the others begin again). Default: None,
            "stop" if there is a process group and otherwise "join".
        steps_per_epoch: batches of each rank in an epoch. The stream goes on in the next epoch, and begins again by
            itself when it ends. It is for streams without an end (``repeat()``) and for epochs of weeks. Statistics
            and budgets of failures then count from the beginning of the stream. Default: None, an epoch is all the
            data.
        prefetch: batches that each worker prepares ahead. Default: 2.
        pin_memory: whether to put batches in pinned memory, for copies to a GPU. Default: False.
        snapshot_every: batches of a lane between two snapshots; resuming passes over at most that many by plan.
            Default: 1.
        on_error: "skip" failed utterances and shards (each is counted, reported and left out), or "raise". Default:
            "skip".
        max_failures: failures in an epoch of one rank above which the run stops. Default: 10,000.
        max_consecutive_failures: failures in a row, within one stage, above which the run stops. Default: 100.
        on_change: what to do with a state of another list or graph: raise an "error", or "restart" its epoch.
            Default: "error".
        quarantine: path of a file to which each failure is appended once, as a JSON object, for
            ``pipeline.exclude`` in a later run and for ``uio verify --confirm``. Ranks and later runs may share it.
            Default: None.

    Raises:
        PipelineError: an argument breaks a rule.
    """

    def __init__(
        self,
        pipeline: Graph,
        *,
        seed: int = 0,
        num_workers: int = 0,
        lanes: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        partition: bool = True,
        uneven: Uneven | None = None,
        steps_per_epoch: int | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
        snapshot_every: int = 1,
        on_error: Literal["skip", "raise"] = "skip",
        max_failures: int = 10_000,
        max_consecutive_failures: int = 100,
        on_change: Literal["error", "restart"] = "error",
        quarantine: str | os.PathLike[str] | None = None,
    ) -> None:
        rank, world_size = topology(rank, world_size, partition)
        self._options = options = RunOptions(
            pipeline,
            seed=seed,
            num_workers=num_workers,
            lanes=default_lanes(world_size, num_workers) if lanes is None else lanes,
            rank=rank,
            world_size=world_size,
            uneven=choose_uneven(uneven, world_size),
            steps_per_epoch=steps_per_epoch,
            prefetch=prefetch,
            pin_memory=pin_memory,
            snapshot_every=snapshot_every,
            policy=Policy(on_error, max_failures, max_consecutive_failures),
            on_change=on_change,
        )
        self.pipeline, self.seed, self.num_workers = pipeline, seed, num_workers
        self.lanes, self.rank, self.world_size = options.lanes, rank, world_size
        self.uneven, self.steps_per_epoch = options.uneven, steps_per_epoch
        self._quarantine = None if quarantine is None else open_quarantine(quarantine, pipeline)
        self._asked: int | None = None  # by set_epoch, since the last iteration began
        self._lengths = Lengths(options)
        self._kept: EpochRun | None = None  # goes on in the next epoch, where steps make epochs
        self._active: weakref.ref[EpochRun] | None = None
        self._fingerprints: dict[str, Any] | None = None
        self._progress = EpochProgress.fresh(0, options)

    # Where the loader stands

    @property
    def epoch(self) -> int:
        """The epoch under way, or to come."""
        return self._progress.epoch

    @property
    def finished(self) -> bool:
        """Whether the epoch is over, for this rank or for all."""
        return self._progress.ended

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch, before it is iterated over.

        Args:
            epoch: its number, from 0. If the loader's state is of that epoch, its position is kept; otherwise the epoch
                is started afresh.

        Raises:
            PipelineError: ``epoch`` is no whole number, or is below 0.
        """
        require_whole("epoch", epoch, 0)
        self._asked = epoch
        self._go_to(epoch)

    def _go_to(self, epoch: int) -> None:
        if self._options.in_steps and epoch == self.epoch + 1:
            self._progress.go_on()
        elif epoch != self.epoch:
            self._close()
            self._progress = self._progress.at(epoch, self._options)

    def skip(self, count: int) -> None:
        """Pass over the next batches of this rank, after a loss spike for example, by plan: nothing is decoded for it.

        It takes effect with the next batch; in the middle of an epoch workers begin anew there. A state remembers it,
        another epoch forgets it. Where ranks step together each one calls it, at the same step.

        Args:
            count: how many batches to pass over, 0 or more; added to what is still to be passed over.

        Raises:
            PipelineError: ``count`` is no whole number, or is below 0.
        """
        require_whole("skip: count", count, 0)
        self._progress.skip += count

    def __len__(self) -> int:
        """Batches of this rank in ``epoch``, whole, if no utterance fails; ``steps_per_epoch`` where that is set.

        Exact wherever nothing has to be read for it: indexed sources, and raw lists with ``duration``. Then the epoch's
        order is gone through by plan, filters, sort and batches by frames included, once per epoch; a list that only
        goes into ``batch`` is just counted. Every rank computes it by itself, the same. The user's functions are
        called for it. With one that filters or maps utterances ask before the iteration begins: during one it is not
        called a second time (``list(loader)`` would, which asks for the length of what it goes through).

        Raises: TypeError where only running tells: tar shards without an index, lengths that headers tell.
        """
        if self.steps_per_epoch is not None:
            return self.steps_per_epoch
        return self._lengths.of_rank(self._progress.stream, self._progress.lanes, calls=not self._under_way())

    def __bool__(self) -> bool:
        return True  # whatever its length

    def stats(self) -> Stats:
        """Counts of this rank's lanes in the epoch under way, up to the last batch that was received."""
        return self._progress.stats(self.pipeline)

    @property
    def together(self) -> bool:
        """Whether ranks step together, so that the epoch ends for all at once."""
        return self._options.together

    # States

    def state_dict(self) -> dict[str, str]:
        """Where each of this rank's lanes stands after the last batch that was received: a flat dict of strings.

        Before the first iteration it is what was loaded.
        """
        return self._progress.state(self._options, self.fingerprints())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to where a state was saved, on other numbers of ranks and workers too: as many ranks as it has lanes.

        With more, ``uneven="join"`` leaves some without any; otherwise iterating over it raises StateError.

        Args:
            state_dict: what :meth:`state_dict`, ``uio.gather_state`` or ``uio.merge_states`` returned.

        Raises:
            StateError: the state is of another seed, list or graph (see ``on_change``), or lacks lanes of this rank;
                the message names the field, the old and the new value and the remedy.
        """
        meta = read_meta(state_dict)
        self._close()
        asked, self._asked = self._asked, None
        self._lengths.forget()
        changed = changes(meta, state_dict, self._options, self.fingerprints())
        if changed and self._options.on_change == "error":
            raise StateError(changed[0])
        self._asked = asked
        epoch = meta.epoch if asked is None else asked
        if changed:
            logger.warning("epoch %s begins again: %s", meta.epoch, "; ".join(changed))
            self._progress = EpochProgress.fresh(epoch, self._options)
        else:
            self._progress = EpochProgress.loaded_from(meta, state_dict, self.rank, self.world_size)
            self._go_to(epoch)

    def fingerprints(self) -> dict[str, Any]:
        """What a state is stamped with: the graph's lines, and the lists' count and hash. Reads the lists once."""
        if self._fingerprints is None:
            listed, lanes = self.pipeline._list_fingerprint(), self._progress.lanes
            for text in self.pipeline._warnings(lanes, int(listed[0])) if self.rank == 0 else ():
                logger.warning("%s", text)
            self._fingerprints = {"graph": self.pipeline.fingerprint(), "list": listed}
        return self._fingerprints

    # Iterating

    def __iter__(self) -> Iterator[Any]:
        """The batches from the current position to the end of the epoch; at the end of one, the next epoch's."""
        if self._asked is None and (self._progress.ended or self._all_received()):
            self._go_to(self.epoch + 1)
        if self._progress.ended:
            logger.warning(
                "epoch %d is over: nothing to deliver; set_epoch(%d) begins the next", self.epoch, self.epoch + 1
            )
        self._asked = None
        self._progress.check_ranks(self._options)
        items = int(self.fingerprints()["list"][0])
        if self._kept is not None and not self._kept.closed:
            return _Batches(self, self._kept)
        self._close()
        run = EpochRun(self._options, self._progress, self._quarantine, items)
        self._kept = run if self._options.in_steps else None
        self._active = weakref.ref(run)  # no cycle: a run that is forgotten ends its workers at once
        return _Batches(self, run)

    def _all_received(self) -> bool:
        """Whether the trainer took as many batches as there are by ``len``, and did not ask for the end."""
        progress = self._progress
        if progress.loaded is not None:
            return False
        if self.steps_per_epoch is not None:
            return progress.step >= self.steps_per_epoch
        return self._lengths.known(progress.stream, progress.lanes) and progress.received >= len(self)

    def _at_end(self, epoch: int, delivered: bool, error: NothingRead | None) -> None:
        """This rank's lanes have ended in ``epoch``: with an utterance, with nothing, or with failures alone."""
        if error is not None:
            raise error

    def _move_by(self, mover: Mover) -> None:
        self._options = replace(self._options, mover=mover, pin_memory=mover.stream is not None)

    def _under_way(self) -> bool:
        active = self._active() if self._active is not None else None
        return active is not None and not active.closed

    def _close(self) -> None:
        active = self._active() if self._active is not None else None
        if active is not None:
            active.close()
        self._active = self._kept = None

    def __repr__(self) -> str:
        run_by = f"{counted(self.num_workers, 'worker')}, {counted(self._progress.lanes, 'lane')}"
        where = f"rank {self.rank} of {self.world_size}, {run_by}"
        return f"Loader({where}, epoch {self.epoch}, uneven={self.uneven!r})\n{self.pipeline}"


class _Batches(Iterator[Any]):
    """What the trainer iterates over. It keeps loader and run; they do not keep each other."""

    def __init__(self, loader: Loader, run: EpochRun) -> None:
        self.loader, self.run = loader, run

    def __next__(self) -> Any:
        try:
            return next(self.run)
        except StopIteration:
            if (end := self.run.take_end()) is not None:
                self.loader._at_end(*end)
                self.run.progress.ended = True
            raise


def to_device(loader: Loader, device: torch.device | str | int) -> Loader:
    """Let ``loader`` give its batches on ``device``, beginning with its next iteration; returns the loader.

    With workers, the next batch is received in the background while the trainer works on this one, and its copy is
    begun from pinned memory, on a stream of its own. States are not affected: a batch counts when the trainer gets
    it.

    Args:
        loader: the loader, not a pipeline.
        device: where its batches go: a ``torch.device``, its name ("cuda:0") or its number.

    Raises:
        PipelineError: there is no such device, or ``loader`` is a pipeline.
    """
    if isinstance(loader, Graph):
        raise PipelineError("to_device: takes a Loader, not a Pipeline; write to_device(uio.Loader(pipeline), device)")
    loader._move_by(Mover(device))
    return loader


def gather_state(loader: Loader) -> dict[str, str] | None:
    """Collect the state of all ranks' lanes on rank 0; other ranks get None.

    It is a collective: every rank calls it at the same step. Without a process group, or for a loader of one rank,
    it returns ``loader.state_dict()``.

    Args:
        loader: this rank's loader.

    Raises:
        StateError: under ``uneven="join"``, where ranks are not at the same step.
    """
    if loader.world_size == 1:
        return loader.state_dict()
    if not loader.together:
        refuse_join()
    states: list[Any] | None = [None] * loader.world_size if loader.rank == 0 else None
    dist.gather_object(loader.state_dict(), states, dst=0, group=private_group())
    return merge_states(states) if states is not None else None
