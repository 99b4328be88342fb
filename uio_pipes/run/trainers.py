"""What trainers ask of a loader: batches on their device, the state of all ranks, loaders for those that save states by
themselves, Lightning and Accelerate (neither is imported here), and evaluation in which every utterance counts once.

These keep the ``state_dict()`` of rank 0 and give it to every rank, while a loader's lists only the lanes of its rank.
Lightning has taken one batch more than it has trained on when it saves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import torch
import torch.distributed as dist

from uio_pipes.base.errors import PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.run.device import Mover
from uio_pipes.run.epoch_end import group_for_states
from uio_pipes.run.loader import Loader
from uio_pipes.run.merge import utterances_in
from uio_pipes.run.ranks import private_group, waiting
from uio_pipes.run.state_merging import merge_states


def to_device(loader: Loader, device: torch.device | str | int) -> Loader:
    """Let ``loader`` give its batches on ``device`` from its next iteration on; return the loader.

    With workers, the next batch is received in the background while the trainer works on this one, and is copied from
    pinned memory on a CUDA stream of its own. States are not affected: a batch counts when the trainer gets it.

    Args:
        loader: the loader, not a pipeline.
        device: a ``torch.device``, its name ("cuda:0") or its number.

    Raises:
        PipelineError: there is no such device, or ``loader`` is a pipeline.
    """
    if isinstance(loader, Graph):
        raise PipelineError("to_device: takes a Loader, not a Pipeline; write to_device(uio.Loader(pipeline), device)")
    loader._move_by(Mover(device))
    return loader


def moved_as(loader: Loader, batch: Any) -> Any:
    """Return a batch on the device that ``loader`` gives its batches on."""
    mover = loader._options.mover
    return batch if mover is None else mover.end(*mover.begin(batch))


def gather_state(loader: Loader) -> dict[str, str] | None:
    """Collect the state of all ranks' lanes on rank 0; other ranks get None. Of a mesh, one process gets it.

    It is a collective of the ranks that share the data: each of them calls it at the same step. For a loader of one
    rank it is ``loader.state_dict()``.

    Args:
        loader: this rank's loader.

    Raises:
        StateError: under ``uneven="join"``, as ranks are not at the same step then.
    """
    if loader.peer:
        return None  # the first of those that get the same batches has the same state
    if loader.world_size == 1:
        return loader.state_dict()
    group = group_for_states(loader._options)
    states: list[Any] | None = [None] * loader.world_size if loader.rank == 0 else None
    with waiting(loader._options.ranks.members or (), "in gather_state"):
        dist.gather_object(loader.state_dict(), states, group=group, group_dst=0)
    return merge_states(states) if states is not None else None


class Gathered:
    """The state of all ranks' lanes, on every rank: ``accelerator.register_for_checkpointing(uio.Gathered(loader))``.

    Its ``state_dict`` is a collective: every rank calls it at the same step, as ``accelerator.save_state`` does.

    Args:
        loader: this rank's loader.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def state_dict(self) -> dict[str, str]:
        """Return where all lanes stand. Raises: StateError under ``uneven="join"``: ranks are not at the same step."""
        return _gathered(self.loader, self.loader.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As :meth:`Loader.load_state_dict`, on any number of ranks."""
        self.loader.load_state_dict(state_dict)


class LightningLoader:
    """A :class:`Loader` for Lightning's ``Trainer``.

    It asks for rank and world size when the trainer first uses it, after Lightning has started the ranks, so it can be
    made anywhere. Its state holds the lanes of all ranks, without the batch that the ``Trainer`` takes ahead (to know
    which one is the last); in other loops, as with Fabric, it holds all batches that were taken. It has no length: with
    one, Lightning would not ask whether an epoch is over, and the next epoch would be empty.

    Args:
        pipeline: the pipeline to run.
        validation: give every rank everything, from the beginning each time it is iterated over. Otherwise the two
            batches that Lightning takes before the training would be missing from the validation. Default: False.
        **options: options of :class:`Loader`.

    Raises:
        PipelineError: an option breaks a rule, or is ``uneven="join"``, as Lightning's ranks step together.
    """

    def __init__(self, pipeline: Graph, *, validation: bool = False, **options: Any) -> None:
        if options.get("uneven") == "join":
            raise PipelineError(
                "Lightning's ranks step together, so uneven='join' would let them wait for ever; "
                "leave it out, or take 'repeat' (each rank goes on until the last has ended)"
            )
        known = {name: value for name, value in options.items() if name != "ranks"}
        Loader(pipeline, **{**known, "uneven": "join", "rank": 0, "world_size": 1})  # wrong options fail now
        self.pipeline, self.validation = pipeline, validation
        self.options = {**options, "partition": False} if validation else options
        self._loader: Loader | None = None
        self._trained: dict[str, str] | None = None  # the state before the last batch that was taken

    @property
    def loader(self) -> Loader:
        """The loader of this rank; made when first asked for."""
        if self._loader is None:
            self._loader = Loader(self.pipeline, **self.options)
        return self._loader

    def __iter__(self) -> Iterator[Any]:
        before, loop = self._loader, _trainer_that_asks()
        if self.validation:
            self._loader = None
        elif (states := getattr(loop, "_combined_loader_states_to_load", None)) and loop._combined_loader is not None:
            # Lightning itself loads them only if it takes the epoch of the checkpoint for one that goes on.
            loop._combined_loader._load_state_dicts(states)
            loop._combined_loader_states_to_load = []
        loader = self.loader
        if before is not None:
            loader._tuner = before._tuner  # what num_workers="auto" has chosen
        self._trained = None
        return iter(loader) if loop is None else self._noted(loader)

    def _noted(self, loader: Loader) -> Iterator[Any]:
        batches = iter(loader)
        trained = loader.state_dict()
        for batch in batches:
            self._trained = trained
            yield batch
            trained = loader.state_dict()
        self._trained = None  # there was nothing to take ahead: all batches have been trained on

    def state_dict(self) -> dict[str, str]:
        """Return where all lanes of all ranks stand, on every rank: a collective, which Lightning calls as one."""
        loader = self.loader
        if self._trained is None:
            return _gathered(loader, loader.state_dict())
        return _gathered(loader, loader._progress.known_since(self._trained, loader._options, loader.fingerprints()))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As :meth:`Loader.load_state_dict`, on any number of ranks."""
        self._trained = None
        self.loader.load_state_dict(state_dict)


def _trainer_that_asks() -> Any:
    """Return the loop of Lightning's ``Trainer`` that calls the caller, which takes a batch ahead; None for others."""
    frame, loop, theirs = sys._getframe(2), None, ("lightning.pytorch.", "pytorch_lightning.")
    while str(frame.f_globals.get("__name__")).startswith(theirs) and not hasattr(loop, "epoch_progress"):
        loop, frame = frame.f_locals.get("self", loop), frame.f_back or frame
    return loop


def _gathered(loader: Loader, state: dict[str, str]) -> dict[str, str]:
    if loader.world_size == 1:
        return state
    states: list[Any] = [None] * loader.world_size
    group = group_for_states(loader._options)
    with waiting(loader._options.ranks.members or (), "to save the loader's state"):
        dist.all_gather_object(states, state, group=group)
    return merge_states(states)


class EvaluationLoader:
    """The batches of an evaluation, whose results all ranks put together: ``loss = evaluation.gather(loss)``.

    Each rank gets its share, from the beginning whenever it is iterated over. Ranks step together until the last one
    has had its share; those that have had theirs get their last batch again, and ``gather`` leaves its results out.
    So every utterance counts once, on any number of ranks and with batches of any sizes. On one rank it is an ordinary
    loader, and ``gather`` gives back what it gets. Batches must come from ``pad`` or be dicts with tensors (B, …).

    Args:
        pipeline: the pipeline to run, without random stages if its results are to be compared.
        **options: options of :class:`Loader`, but for ``uneven`` and ``ranks``.

    Raises:
        PipelineError: an option breaks a rule.
    """

    def __init__(self, pipeline: Graph, **options: Any) -> None:
        if own := {"uneven", "ranks", "steps_per_epoch"} & options.keys():
            raise PipelineError(
                f"EvaluationLoader: {min(own)} is not for evaluations: all ranks get all, once; leave it out"
            )
        self.loader = Loader(pipeline, uneven="join", **options)
        self.rows: list[int] = []  # utterances of each rank in this step that count
        self.dataset: list[None] = []  # as many as have been evaluated: where trainers look for their number
        self._here = 0  # rows of this rank's batch

    def __iter__(self) -> Iterator[Any]:
        batches = iter(copy(self.loader))
        batch, begun, self.dataset = None, False, []
        while True:
            new = next(batches, None)
            self.rows = self._shared(0 if new is None else utterances_in(new))
            if not any(self.rows):
                return
            batch = new or batch
            if not begun and 0 in self.rows:  # a rank without a share still has to step
                batch = self._lent(new)
            begun, self._here = True, utterances_in(batch)
            self.dataset += [None] * sum(self.rows)
            yield batch

    def _shared(self, rows: int) -> list[int]:
        loader = self.loader
        if loader.world_size == 1:
            return [rows]
        found: list[Any] = [0] * loader.world_size
        with waiting(loader._options.ranks.members or (), "to evaluate the next batch"):
            dist.all_gather_object(found, rows, group=self._group)
        return found

    def _lent(self, batch: Any) -> Any:
        first = next(rank for rank, rows in enumerate(self.rows) if rows)
        lent = [batch]
        dist.broadcast_object_list(lent, group=self._group, group_src=first)
        return batch or lent[0]

    @property
    def _group(self) -> Any:
        return private_group(self.loader._options.ranks.members or ())

    def gather(self, values: Any) -> Any:
        """Return the results of all ranks for this step, those of each utterance once: a collective.

        Args:
            values: a tensor (B, …) on the device of the default process group, or a list, tuple or mapping of such. A
                number, or a tensor (N,) of another length, is of the whole batch, as a loss, and comes once for each
                utterance. Shapes may differ among ranks in B alone: ``accelerator.pad_across_processes(values, dim=1)``
                makes the others equal.

        Raises:
            PipelineError: there is no step yet.
        """
        if isinstance(values, Mapping):
            return type(values)({name: self.gather(value) for name, value in values.items()})  # type: ignore[call-arg]
        if isinstance(values, (list, tuple)):
            return type(values)(map(self.gather, values))
        if not self.rows:
            raise PipelineError("EvaluationLoader: gather is called once a batch has come from this loader")
        own, values = self.rows[self.loader.rank], values.reshape(-1) if values.ndim == 0 else values
        mine = values[:1].expand(own) if values.ndim == 1 and len(values) != self._here else values[:own]
        if len(self.rows) == 1:
            return mine
        sent = mine.new_zeros(max(self.rows), *mine.shape[1:])
        sent[:own] = mine
        found = [torch.empty_like(sent) for _ in self.rows]
        dist.all_gather(found, sent)
        return torch.cat([one[:rows] for one, rows in zip(found, self.rows, strict=True)])
