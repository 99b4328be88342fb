"""Loaders for Lightning, which is not imported here.

It keeps the ``state_dict()`` of rank 0 and gives it to every rank, while a loader's lists only the lanes of its rank.
And it has taken one batch more than it has trained on when it saves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from uio_pipes.base.errors import PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.run.loader import Loader
from uio_pipes.run.trainers import gathered


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
                "Lightning's ranks step together, so uneven='join' would make them wait for ever; "
                "remove it: ranks then share what is left (uneven='share')"
            )
        known = {name: value for name, value in options.items() if name != "ranks"}
        Loader(pipeline, **{**known, "uneven": "join", "rank": 0, "world_size": 1})  # wrong options fail now
        self.pipeline, self.validation = pipeline, validation
        self.options = {**options, "partition": False} if validation else options
        self._loader: Loader | None = None
        self._trained: dict[str, str] | None = None  # the state before the last batch that was taken
        self._begun: int | None = None  # how many batches the trainer had trained on when it last asked for more

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
        begun = getattr(loop, "epoch_loop", None) and loop.epoch_loop.batch_progress.total.ready
        if self._trained is not None and begun is not None and begun == self._begun:
            self.loader.load_state_dict(
                self._trained
            )  # Lightning 2.4 asks once more, and drops what it has taken ahead
        self._begun = begun
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
        """Return the state of all lanes of all ranks, on every rank; a collective, as Lightning calls it."""
        loader = self.loader
        if self._trained is None:
            return gathered(loader, loader.state_dict())
        return gathered(loader, loader._progress.known_since(self._trained, loader._options, loader.fingerprints()))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Like :meth:`Loader.load_state_dict`, on any number of ranks."""
        self._trained = None
        self.loader.load_state_dict(state_dict)


def _trainer_that_asks() -> Any:
    """Return the loop of Lightning's ``Trainer`` that calls the caller, which takes a batch ahead; None for others."""
    frame, loop, theirs = sys._getframe(2), None, ("lightning.pytorch.", "pytorch_lightning.")
    while str(frame.f_globals.get("__name__")).startswith(theirs) and not hasattr(loop, "epoch_progress"):
        loop, frame = frame.f_locals.get("self", loop), frame.f_back or frame
    return loop
