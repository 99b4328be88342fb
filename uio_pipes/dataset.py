"""A pipeline as an ``IterableDataset``, for trainers that bring their own loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from uio_pipes.loader import Loader
from uio_pipes.pipeline import Pipeline

__all__ = ["PipelineDataset"]


class PipelineDataset(IterableDataset[Any]):
    """Runs, in each worker of the loader that it is given to, that worker's lanes, in the order (k, lane).

    Works with torch's ``DataLoader`` and, with its state, with torchdata's ``StatefulDataLoader``
    (``batch_size=None``: batches come ready). The number of workers must be the same when a state is loaded. Takes
    the options of :class:`Loader` but for ``num_workers``, ``prefetch``, ``pin_memory`` and ``uneven``: those are the
    other loader's.
    """

    def __init__(self, pipeline: Pipeline, **options: Any) -> None:
        self.pipeline, self.options = pipeline, options
        self._epoch: int | None = None
        self._state: dict[str, Any] | None = None
        self._loader: Loader | None = None
        self._make(0, 1)  # wrong options fail now

    def _make(self, worker: int, workers: int) -> Loader:
        """A loader of this worker's lanes: lane by lane as a world in which each worker is a rank."""
        probe = Loader(self.pipeline, **self.options, uneven="join")
        options = dict(self.options)
        options.pop("partition", None)
        options.update(rank=probe.rank + probe.world_size * worker, world_size=probe.world_size * workers)
        options.setdefault("lanes", probe.world_size * workers)
        return Loader(self.pipeline, **options, uneven="join")

    def set_epoch(self, epoch: int) -> None:
        """As :meth:`Loader.set_epoch`; before the loader is iterated over."""
        self._epoch = epoch
        if self._loader is not None:
            self._loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        before, state = self._loader, self._state
        if before is None or before.finished:
            self._loader = self._make(*((info.id, info.num_workers) if info is not None else (0, 1)))
            if self._epoch is not None or before is not None:
                self._loader.set_epoch(self._epoch if self._epoch is not None else before.epoch if before else 0)
            if state is not None:
                self._loader.load_state_dict(state)
                self._state = None
        assert self._loader is not None
        return iter(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """State of this worker's lanes."""
        if self._loader is not None:
            return dict(self._loader.state_dict())
        return dict(self._state or {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to where :meth:`state_dict` was taken."""
        self._state = dict(state_dict) or None
        if self._loader is not None and self._state is not None:
            self._loader.load_state_dict(self._state)
