"""The loader: runs the lanes of a pipeline, in this process or in workers, and keeps the position of each."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import NothingRead, UioError
from uio_pipes.base.hints import keyword_hints
from uio_pipes.base.processes import cores_of_rank
from uio_pipes.base.urls import plural
from uio_pipes.core.graph import Graph
from uio_pipes.core.ledger import Failures
from uio_pipes.core.statistics import Stats
from uio_pipes.run.device import Mover
from uio_pipes.run.epoch_end import EpochLength, choose_uneven
from uio_pipes.run.epoch_run import AGAIN, MAY_SHARE, Batches, EpochRun, batch_at
from uio_pipes.run.options import RunOptions, fingerprints_of, fitted, open_quarantine
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.ranks import Ranks, place_of_rank
from uio_pipes.run.ray.fleet import RayWorkers
from uio_pipes.run.stall import Patience
from uio_pipes.run.state import read_meta
from uio_pipes.run.steering import Steered
from uio_pipes.run.tuning import Tuner

NEARLY = 0.8  # of an epoch: others are hardly shorter
logger = logging.getLogger("uio_pipes")
Uneven = Literal["share", "stop", "join"]
"""How ranks with unequal numbers of batches end: together with all data, together with the first, or each by itself."""
ON_SET_EPOCH: list[Callable[[Loader, int], None]] = []  # checks of who calls: integrations/callers.py
ON_STATE: weakref.WeakKeyDictionary[Loader, Callable[[], None]] = weakref.WeakKeyDictionary()  # before it is saved
WITHOUT_DATASET = (
    "a uio.Loader has no 'dataset', which skip_first_batches of Accelerate needs (the Trainer calls it to resume). "
    "Load what loader.state_dict() returned instead of skipping batches; "
    "with Hugging Face's Trainer, uio.HFTrainerMixin saves and loads it (docs/trainers.md)"
)


@keyword_hints
class Loader(Steered):
    """Run a pipeline: iterate over the batches of one epoch after another, beginning anywhere.

    Args:
        pipeline: the pipeline to run.
        seed: a whole number that all random choices depend on. Default: 0.
        num_workers: worker processes of each rank; 0 runs the graph in this process. "auto" begins with one and adds
            others, up to as many as CPU cores, as long as the trainer waits and they help; each rank by itself.
            ``uio.RayWorkers(count)`` runs as many on a Ray cluster. Batches and states are those of any other number
            with the same lanes. Default: 0.
        lanes: number of ordered streams that an epoch is dealt to; at least ``world_size``, unless ranks share them. A
            fixed number, such as 64, makes epochs equal on any number of ranks and workers. Default: None, ranks ×
            workers, as in WeNet; with ``num_workers="auto"`` ranks × 16.
        rank: number of this process among all that train together. Default: None, from ``torch.distributed``, or 0
            without a process group.
        world_size: number of those processes; given together with ``rank``. Default: None, from
            ``torch.distributed``, or 1 without a process group. Make the loader after ``init_process_group``.
        partition: whether each rank gets its own share; False gives every rank everything, as for validation.
            Default: True.
        ranks: ``uio.Ranks(group=…)`` or ``uio.Ranks(mesh=…)`` names the processes that share the data, instead of rank
            and world size. Default: None, all processes.
        uneven: how an epoch ends if some ranks have more batches than others. "share": ranks that have no batch any
            more take over a part of what the others have left. So all end together, and no utterance is left out but
            those of the last step (``tail``). "stop": all end with the first one; "join": each ends with its own
            batches. Default: None, "share" if there is a process group ("stop" for ``chunks``, whose lanes stay on
            their rank), and otherwise "join".
        steps_per_epoch: batches of each rank in an epoch, for streams without an end (``repeat()``) and for epochs of
            weeks. The next epoch goes on with the same stream, which begins again when it ends; statistics and
            failures are counted from the beginning of the stream. Default: None, an epoch is all the data.
        prefetch_factor: batches that each worker prepares ahead; with ``num_workers="auto"`` the number to begin with.
            Default: 2.
        pin_memory: whether to put batches in pinned memory, for copies to a GPU. Default: False.
        snapshot_every: batches of a lane between two snapshots. Resuming passes over at most as many, without decoding
            them. Default: 1.
        failures: "skip" utterances and shards that fail (each is counted, reported and left out), or "raise";
            ``uio.Failures(…)`` says how many may fail, and notes them in a file. Default: "skip".
        on_change: for a state of another list or graph, raise an "error", or "restart" its epoch; "adopt" goes on
            exactly where the state was saved if only mixes have other weights or new sources. Default: "error".
        tail: what to do under ``uneven="share"`` with a last step for which not all ranks have a batch: "drop" leaves
            its batches out, at most one fewer than ranks; "repeat" gives ranks without one the batch of another rank.
            Default: "drop".
        stall: seconds after which the log says what hangs, and where: what neither goes on nor uses the CPU. None or 0
            says nothing. Default: 120.
        stall_limit: seconds after which an error is raised for it, so that all ranks end; or it is passed over, with
            ``failures=uio.Failures(hung="skip")``. Default: None, it is waited for.

    Raises:
        PipelineError: an argument breaks a rule.
    """

    def __init__(
        self,
        pipeline: Graph,
        *,
        seed: int = 0,
        num_workers: int | Literal["auto"] | RayWorkers = 0,
        lanes: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        partition: bool = True,
        ranks: Ranks | None = None,
        uneven: Uneven | None = None,
        steps_per_epoch: int | None = None,
        prefetch_factor: int = 2,
        pin_memory: bool = False,
        snapshot_every: int = 1,
        failures: Literal["skip", "raise"] | Failures = "skip",
        on_change: Literal["error", "restart", "adopt"] = "error",
        tail: Literal["drop", "repeat"] = "drop",
        stall: float | None = 120,
        stall_limit: float | None = None,
    ) -> None:
        place, budget = place_of_rank(rank, world_size, ranks, partition), Failures.of(failures)
        self._options = options = RunOptions.of(
            pipeline,
            place,
            num_workers,
            lanes,
            seed=seed,
            uneven=choose_uneven(uneven, place, pipeline),
            steps_per_epoch=steps_per_epoch,
            prefetch_factor=prefetch_factor,
            pin_memory=pin_memory,
            snapshot_every=snapshot_every,
            failures=budget,
            on_change=on_change,
            tail=tail,
            patience=Patience.of(stall, stall_limit, budget, place.rank),
        )
        self.pipeline, self.seed = pipeline, seed
        self._tuner = Tuner.beginning(prefetch_factor, cores_of_rank()) if options.tuned else None
        self.lanes, (self.rank, self.world_size, self.peer, *_) = options.lanes, place
        self.uneven, self.steps_per_epoch = options.uneven, steps_per_epoch
        self._quarantine = open_quarantine(options)
        self._asked: int | None = None  # epoch given to set_epoch since the last iteration began
        self._lengths = EpochLength(options)
        self._kept: EpochRun | None = None  # that the next iteration takes over: of start(), or with steps_per_epoch
        self._active: weakref.ref[EpochRun] | None = None
        self._fingerprints: dict[str, Any] | None = None
        self._progress = EpochProgress.fresh(0, options)

    @property
    def epoch(self) -> int:
        """The current epoch, or before it has begun, the next one."""
        return self._progress.epoch

    @property
    def num_workers(self) -> int:
        """Number of worker processes of this rank, as requested or as currently chosen by ``"auto"``."""
        return (self._tuner or self._options).plan.workers

    @property
    def finished(self) -> bool:
        """True if the epoch is over, for this rank or for all."""
        return self._progress.ended

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch; call it before the epoch's iteration.

        Args:
            epoch: its number, from 0. If the loader stands in that epoch, it keeps its position; otherwise it goes to
                the beginning of the epoch.

        Raises:
            PipelineError: ``epoch`` is not a whole number, or is below 0.
        """
        require_whole("epoch", epoch, 0)
        for check in ON_SET_EPOCH:
            check(self, epoch)
        self._asked = epoch
        self._go_to(epoch)

    def _go_to(self, epoch: int) -> None:
        moved = f"set_epoch({epoch}) moved the loader"
        if self._options.in_steps and epoch == self.epoch + 1:
            self._progress.go_on()
            if self._run is not None:
                self._run.supersede(moved)
        elif epoch != self.epoch:
            self._close(moved)
            self._progress = self._progress.at(epoch, self._options)

    def batch_at(self, step: int) -> Any:
        """Return a batch of this rank in the current epoch as it was or will be, bit by bit. The loader does not move.

        What lies between the loader's position and the batch is passed over by plan; for an earlier one, all from where
        the loader's state was saved, or from the beginning of the epoch. So load a state from shortly before. What
        ranks share at the end of an epoch is made again from a state that was saved there since they last shared.

        Args:
            step: its number in the epoch, as the trainer counts: from 0 on, and after a resume on where the state was
                saved, on any number of ranks.

        Raises:
            PipelineError: the epoch has no such batch, nothing is left of it, or it comes before the state that was
                loaded: load an earlier one.
        """
        require_whole("batch_at: step", step, 0)
        batch = batch_at(self._options, self._progress, self._items, step)
        if self._options.shares and step >= self._progress.step:
            logger.warning(MAY_SHARE, step, self.epoch)
        return batch

    def __len__(self) -> int:
        """Batches of this rank in the whole epoch if no utterance fails; ``steps_per_epoch`` where that is set.

        It is known, and exact, for indexed sources and for raw lists with ``duration``, where no audio has to be
        opened. A list that only goes into ``batch`` is counted; otherwise the epoch is planned once, with filters, sort
        and batches by frames, and your functions are called for it. If one of them filters or maps utterances, ask
        before the iteration begins: during it they are not called a second time (``list(loader)`` asks for the length).

        Raises: TypeError if it is unknown: tar shards without an index, or lengths that stand in audio headers.
        """
        if self.steps_per_epoch is not None:
            return self.steps_per_epoch
        run, progress = self._run, self._progress
        return self._lengths.of_rank(
            progress.stream, progress.lanes, calls=run is None or run.closed or run.reader is None, ranks=progress.ranks
        )

    if not TYPE_CHECKING:  # else everything would seem to be an attribute

        def __getattr__(self, name: str) -> Any:  # called for what is not there
            raise AttributeError(WITHOUT_DATASET if name == "dataset" else f"'Loader' object has no attribute {name!r}")

    def __bool__(self) -> bool:
        return True  # also without a length, or with length 0

    def stats(self) -> Stats:
        """Return the counts of this rank's lanes in the current epoch, up to the last batch that was received."""
        stats = self._progress.stats(self.pipeline)
        if self._tuner is not None:
            stats.workers, stats.prefetch = self._tuner.plan
        if self._options.fleet is not None:
            stats.nodes = {name: replace(node) for name, node in self._options.fleet.nodes.items()}
        return stats

    @property
    def together(self) -> bool:
        """True if ranks step together, so the epoch ends for all at once."""
        return self._options.together

    def state_dict(self) -> dict[str, str]:
        """Return the position of each of this rank's lanes after the last batch received, as a flat dict of strings.

        Between loading a state and the next batch it is the state that was loaded.
        """
        ON_STATE.get(self, lambda: None)()
        return self._progress.state(self._options, self.fingerprints())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to a saved position, also on a different number of workers or ranks.

        Ranks beyond the number of lanes get a part of what these have under ``uneven="share"``, and nothing under
        ``"join"``; otherwise, or with ``steps_per_epoch``, iterating raises StateError.

        Args:
            state_dict: the result of :meth:`state_dict`, ``uio.gather_state`` or ``uio.merge_states``.

        Raises:
            StateError: the state is of another seed, list or graph (see ``on_change``), or lacks lanes of this rank;
                the message names the field, the old and the new value and the remedy.
        """
        meta = read_meta(state_dict)
        asked, self._asked = self._asked, None
        self._lengths.forget()
        options, changed = fitted(meta, state_dict, self._options, self.fingerprints())
        self._asked = asked
        epoch = meta.epoch if asked is None else asked
        if changed:
            logger.warning("epoch %s restarts: %s", meta.epoch, "; ".join(changed))
            progress = EpochProgress.fresh(epoch, self._options)
        else:
            progress = EpochProgress.loaded_from(meta, state_dict, self.rank, self.world_size)
        self._close("load_state_dict moved the loader")
        self._progress = progress
        if not changed:
            self._follow(replace(options, mixes=options.mixes.adopted(meta.mixes or {}, self._where)))
            self._go_to(epoch)

    def fingerprints(self) -> dict[str, Any]:
        """Return what a state is stamped with: a line for each stage, count and hash of the lists. Reads them once."""
        if self._fingerprints is None:
            self._fingerprints = fingerprints_of(self._options, self._progress.lanes)
        return self._fingerprints

    @property
    def _items(self) -> int:
        """The number of items in the lists."""
        return int(self.fingerprints()["list"][0])

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches from the current position to the end of the epoch; after it, over the next one."""
        run = self._begun()
        if self._progress.ended:
            now = self.epoch
            logger.warning("epoch %d is over: nothing to deliver; set_epoch(%d) begins the next", now, now + 1)
        self._asked, self._kept = None, run if self._options.in_steps else None
        return Batches(run, self._at_end)

    def start(self) -> None:
        """Let the workers begin now, while a model is built or its checkpoint is read. The next iteration takes over.

        It begins what ``iter(loader)`` would, and waits for no other rank. Batches and states are as without it. Call
        it after ``load_state_dict``, ``uio.to_device`` and ``torch.cuda.set_device``: what moves or changes the loader
        later ends these workers. Without workers, and after ``skip(n)``, nothing is prepared. In the middle of an
        iteration, and the second time, it does nothing.
        """
        if (run := self._run) is None or run.closed:
            self._kept = self._begun()

    def _begun(self) -> EpochRun:
        """Return the run from the current position on: one that was begun before, or a new one."""
        if (run := self._run) is not None and not run.closed:
            run.check(run.reader)
        self._options.ranks.check()
        if self._asked is None and (self._progress.ended or self._all_received()):
            self._go_to(self.epoch + 1)
        self._progress.check_ranks(self._options)
        kept, items = self._kept, self._items
        if kept is not None and not kept.closed and kept.options is self._options:  # others after to_device
            return kept
        self._close(AGAIN)
        run = EpochRun(self._options, self._progress, self._quarantine, items, self._tuner)
        self._active = weakref.ref(run)  # no cycle: a run ends its workers as soon as nobody refers to it
        return run

    def _all_received(self) -> bool:
        """Return whether the trainer took all batches that there are by ``len``, without asking for one more."""
        progress = self._progress
        if progress.loaded is not None or (progress.deal is not None and progress.since > [progress.epoch, 0]):
            return False
        if self.steps_per_epoch is not None:
            return progress.step >= self.steps_per_epoch
        if not self._lengths.last_answer or progress.received < NEARLY * self._lengths.last_answer:
            return False  # nobody goes by len, or it is too early to count the batches of this epoch
        with contextlib.suppress(TypeError):
            return progress.received >= len(self)
        return False

    def _at_end(self, epoch: int, delivered: bool, error: NothingRead | None) -> None:
        """Called when this rank's lanes have ended in ``epoch``; there is an ``error`` if nothing could be read."""
        if error is not None:
            raise error

    def _move_by(self, mover: Mover) -> None:
        self._options = replace(self._options, mover=mover, pin_memory=mover.stream is not None)

    def _close(self, how: str) -> None:
        if (run := self._run) is not None:
            run.supersede(how)
            run.close()
        self._active = self._kept = None

    def __copy__(self) -> Loader:
        """Return a loader of its own at the same place: what happens to one of them does not reach the other."""
        other, fleet = object.__new__(type(self)), self._options.fleet
        vars(other).update(vars(self))
        other._kept = other._active = None
        other._options = replace(self._options, fleet=None if fleet is None else fleet.another(), tracing=None)
        other._lengths = EpochLength(other._options)
        other._tuner, other._progress = deepcopy(self._tuner), deepcopy(self._progress)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Loader:
        return copy(self)

    def __getstate__(self) -> dict[str, Any]:
        if self._active is not None:
            raise UioError(
                "a loader that has begun to iterate cannot be pickled: send its pipeline instead, create a Loader "
                "there, and call its load_state_dict(loader.state_dict()) to continue at the same place"
            )
        return vars(self)

    def __repr__(self) -> str:
        workers = plural(self.num_workers, "worker") if self._tuner is None else f"auto ({self._tuner.plan})"
        where = f"rank {self.rank} of {self.world_size}, {workers}, {plural(self._progress.lanes, 'lane')}"
        return f"Loader({where}, epoch {self.epoch}, uneven={self.uneven!r})\n{self.pipeline}"
