"""A pipeline as an ``IterableDataset`` or an ``IterDataPipe``, for trainers that bring their own loader.

Only workers learn that a pass begins, each by itself. They may be new in every pass or live on, begin late, belong to a
pass that was left or to a second loader, and be more than before. So each notes which passes it began, in memory that
all share. The first worker of a pass decides on the epoch, and the others find it in its notes; those that look at the
same time come to the same. A worker writes only its own notes, so there is no lock to copy or pickle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import IterableDataset, IterDataPipe, get_worker_info

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import NothingRead, PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.integrations.callers import check_continued, check_dealt_once
from uio_pipes.run.loader import Loader
from uio_pipes.run.private import collate_by
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.ranks import is_grouped, place_of_rank
from uio_pipes.run.workers import explained

UNSET = -1
MOST_WORKERS = 1024
REMEMBERED = 4  # passes
EPOCHS, MARKS = 1 << 22, 1 << 19  # a note is (turn × EPOCHS + epoch) × MARKS + mark; 22 bits are left for turns
NOTHING, DELIVERED, FAILED = range(3)  # how a worker's epoch ended


class Passes:
    """The passes over a dataset: each is the epoch after the one before, unless ``ask`` or a loaded state says another.

    A turn begins whenever one of these does, so that of two notes the greater one is the later.
    """

    def __init__(self) -> None:
        """Raises: RuntimeError if there is no room in the memory that processes share."""
        self.__setstate__((torch.full((1 + MOST_WORKERS * (REMEMBERED + 1),), UNSET), 0))

    def __getstate__(self) -> tuple[torch.Tensor, int]:
        return self._memory, self._count

    def __setstate__(self, state: tuple[torch.Tensor, int]) -> None:
        """Share the memory, which is shared already in a spawned worker. A copy has memory of its own."""
        memory: Any
        memory, self._count = state  # the count: of passes that this process began
        try:
            self._memory = memory.share_memory_()
        except RuntimeError as error:
            raise explained(error) from error
        # turn × EPOCHS + epoch; notes; 3 × the epoch that each worker ended last, plus how it ended
        self._asked, notes, self._ends = memory.split([1, MOST_WORKERS * REMEMBERED, MOST_WORKERS])
        self._notes = notes.view(MOST_WORKERS, REMEMBERED)

    def ask(self, epoch: int) -> None:
        """Make the next pass epoch ``epoch``. Raises: PipelineError if it is not a whole number from 0 to 4 million."""
        require_whole("epoch", epoch, 0)
        if epoch >= EPOCHS:
            raise PipelineError(f"epoch must be below {EPOCHS}, not {epoch}: it counts rounds of the data, not steps")
        turn = max(int(self._asked) // EPOCHS, int(self._notes.max()) // (EPOCHS * MARKS)) + 1
        self._asked[0] = turn * EPOCHS + epoch

    def begin(self, loaded: int | None) -> tuple[int, int | None]:
        """Return the epoch of the pass that begins now, and the epoch before if it was left and is not gone on with.

        ``loaded``: the epoch of a state that was loaded for this pass.
        """
        worker, mark = self._place()
        notes, left = self._notes.tolist(), None  # one look at them: another worker may write now
        own, all_notes = notes[worker], [note for row in notes for note in row]
        same = [note for note in all_notes if note % MARKS == mark and note != UNSET and note not in own]
        if same:
            when = max(same) // MARKS
        else:
            last, asked = max(all_notes) // MARKS, int(self._asked)  # UNSET // MARKS is UNSET
            if asked // EPOCHS > last // EPOCHS:
                when = asked
            elif loaded is not None:
                when = (last // EPOCHS + 1) * EPOCHS + loaded
            else:
                when, left = last + 1, last % EPOCHS if last != UNSET and self._was_left(last) else None
        self._notes[worker, own.index(min(own))] = when * MARKS + mark
        return when % EPOCHS, left

    def _place(self) -> tuple[int, int]:
        """Return the number of this worker and a mark of the pass, equal in all of its workers."""
        self._count += 1
        if (info := get_worker_info()) is None:
            return 0, 0
        of_loader = info.seed - info.id, info.num_workers
        return info.id % MOST_WORKERS, hash((*of_loader, self._count)) % (MARKS - 1) + 1

    def _was_left(self, when: int) -> bool:
        began = (self._notes // MARKS == when).any(1)
        return bool((self._ends[began] // 3 != when % EPOCHS).any())

    def end(self, worker: int, workers: int, epoch: int, how: int) -> list[int]:
        """Note how a worker's epoch ended. Returns how it ended for the others, as far as it has."""
        ends = self._ends[:workers]
        if worker < len(ends):
            ends[worker] = 3 * epoch + how
        return [int(end) - 3 * epoch for i, end in enumerate(ends) if i != worker]


logger = logging.getLogger("uio_pipes")
OPTIONS_OF_OTHER_LOADER = {"num_workers", "prefetch_factor", "pin_memory", "uneven", "steps_per_epoch"}


class PipelineDataset(IterableDataset[Any]):
    """A pipeline as an ``IterableDataset``, for torch's ``DataLoader`` and torchdata's ``StatefulDataLoader``.

    Give it to them with ``batch_size=None``, as it makes the batches itself: ``DataLoader(pipeline.as_dataset(),
    batch_size=None)``. Each of their workers runs its own lanes, in the order (k, lane), where k counts the batches
    of a lane. A state can only be loaded with the same number of workers.

    Each pass is the next epoch, with workers that persist, too. ``set_epoch`` tells another one. After a loaded state
    the next pass is the rest of its epoch. What is left of a pass that ends early is not delivered later, since nobody
    knows what the trainer received of it; a warning says so.

    Args:
        pipeline: the pipeline to run.
        **options: options of :class:`Loader`, except for ``num_workers``, ``prefetch_factor``, ``pin_memory``,
            ``uneven`` and ``steps_per_epoch``, which belong to the other loader or to its trainer. ``rank`` and
            ``world_size`` default to those of ``torch.distributed`` in the process that makes the dataset, or once it
            has a process group.

    Raises:
        PipelineError: an option breaks a rule; or, from the other loader, ``batch_size=None`` is missing.
    """

    def __init__(self, pipeline: Graph, **options: Any) -> None:
        own = sorted(OPTIONS_OF_OTHER_LOADER & set(options))
        if own:
            raise PipelineError(
                f"as_dataset: {own[0]} is an option of the loader that the dataset is given to; set it there"
            )
        self.pipeline, self.options = pipeline, options
        self.partition: bool = options.get("partition", True)
        self._passes = Passes()
        self._state: dict[str, Any] | None = None
        self._loader: Loader | None = None
        self._make(0, 1)  # to fail now if an option is wrong

    def _make(self, worker: int, workers: int) -> Loader:
        """Return a loader of this worker's lanes: they are dealt as if each worker were a rank."""
        options = self._placed()
        rank, world_size = options.pop("rank"), options.pop("world_size")
        options.setdefault("lanes", world_size * workers)
        place = {"rank": rank + world_size * worker, "world_size": world_size * workers}
        return _OfWorker(self._passes, worker, workers, self.pipeline, **options, **place, uneven="join")

    def _placed(self) -> dict[str, Any]:
        """Return the options with this process's rank and world size, which its workers may not know."""
        known = dict(self.options)
        names = [name for name in ("rank", "world_size", "ranks", "partition") if name in known]
        place = place_of_rank(**{name: known.pop(name) for name in names})
        known = known | {"rank": place.rank, "world_size": place.world_size}
        if is_grouped():  # else the dataset was made before the group may be
            self.options = known
        return dict(known)

    def __getstate__(self) -> dict[str, Any]:
        self._placed()
        return {**vars(self), "_loader": None}

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass this epoch; later passes continue from there. It reaches persistent workers too.

        Raises: PipelineError if it is not a whole number from 0 to 4 million.
        """
        check_dealt_once(self._placed()["world_size"])  # Accelerate calls this first of all, before there are workers
        check_continued(epoch)
        self._passes.ask(epoch)

    def __iter__(self) -> Iterator[Any]:
        check_dealt_once(self._placed()["world_size"])
        info = get_worker_info()
        loader = self._loader = self._make(*((info.id, info.num_workers) if info is not None else (0, 1)))
        state, self._state = self._state, None
        if state is not None:
            loader.load_state_dict(state)
        epoch, left = self._passes.begin(None if state is None else loader.epoch)
        if left is not None and self.partition:
            logger.warning(
                "epoch %d was stopped before its end: this pass is epoch %d, and the rest of %d is not delivered. "
                "set_epoch(%d) before the pass restarts it; a uio.Loader would continue where it stopped",
                *(left, epoch, left, left),
            )
        loader.set_epoch(epoch)
        batches = iter(loader)
        return map(_as_ready, batches) if "batch" in self.pipeline._kind else batches

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this worker's lanes."""
        if self._loader is not None and self._state is None:
            return dict(self._loader.state_dict())
        return dict(self._state or {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next pass continue where ``state_dict`` was saved."""
        if not state_dict and get_worker_info() is None:
            logger.warning(
                "the state is empty, so the next pass begins at its beginning. Workers of a DataLoader keep their "
                "states to themselves: use torchdata's StatefulDataLoader, or uio.Loader"
            )
        self._state = dict(state_dict) or None


class _OfWorker(Loader):
    """The loader of one worker's lanes. It is an error only if none of the workers could read anything."""

    def __init__(self, passes: Passes, worker: int, workers: int, pipeline: Graph, **options: Any) -> None:
        super().__init__(pipeline, **options)
        self._options = replace(
            self._options, step_ranks=self.world_size // workers, of_workers=True
        )  # workers are no ranks for steps
        self._progress = EpochProgress.fresh(0, self._options)
        self.passes, self.worker, self.workers = passes, worker, workers

    def _at_end(self, epoch: int, delivered: bool, error: NothingRead | None) -> None:
        how = DELIVERED if delivered else NOTHING if error is None else FAILED
        others = self.passes.end(self.worker, self.workers, epoch, how)
        if all(end in (NOTHING, FAILED) for end in others):  # the last one to end
            if error is None and not delivered and FAILED in others:
                error = NothingRead(
                    f"nothing could be read in epoch {epoch}, in any worker: their log says why. Check the paths in "
                    "the list and repair the data; `uio verify` shows what is wrong with each file"
                )
            super()._at_end(epoch, delivered, error)


class PipelineDataPipe(IterDataPipe[Any]):
    """A pipeline's batches (or utterances), for graphs of torch's own datapipes: ``.map(…)``, ``.zip(…)`` and so on.

    Ranks and workers get their lanes, as in a :class:`PipelineDataset`. So torch refuses its own ``.sharding_filter()``
    behind it.
    """

    def __init__(self, dataset: PipelineDataset) -> None:
        super().__init__()
        self.dataset = dataset

    def set_epoch(self, epoch: int) -> None:
        """Like :meth:`PipelineDataset.set_epoch`."""
        self.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)

    def apply_sharding(self, count: int, number: int, sharding_group: Any = None) -> None:
        """Called by torch to distribute the data. There is nothing to do, but it refuses a second one in the graph."""


class ReadyBatch(dict[str, Any]):
    """A padded batch; torch's ``default_collate`` refuses to put it into another batch."""


class ReadyList(list[Any]):
    """A batch of utterances; refused likewise."""


def _as_ready(batch: Any) -> Any:
    return ReadyBatch(batch) if type(batch) is dict else ReadyList(batch) if type(batch) is list else batch


def _refuse(batch: Any, *, collate_fn_map: Any = None) -> Any:
    raise PipelineError(
        "the pipeline makes its batches itself, and the DataLoader would batch them again: give it "
        "batch_size=None, as in DataLoader(pipeline.as_dataset(), batch_size=None)"
    )


collate_by(ReadyBatch, _refuse)
collate_by(ReadyList, _refuse)
