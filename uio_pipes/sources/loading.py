"""Stages that load one utterance of each item, ``load_from_raw`` and ``load_records``, and their node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from uio_pipes.base.errors import DataError
from uio_pipes.core.features import Loaded
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage
from uio_pipes.core.upcoming import Upcoming


class Loading(Stage):
    """A stage that makes one utterance of each item. Items have an ``origin`` and a ``place``, for messages."""

    gives: ClassVar[str] = "sample"
    refers: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True

    def load(self, item: Any) -> dict[str, Any]:
        """Return the fields of ``item``. Raises: DataError."""
        raise NotImplementedError

    def loader(self, lane: Lane) -> Callable[[Any], dict[str, Any]]:
        """Return what loads the items of one lane."""
        return self.load

    def key(self, item: Any, error: DataError) -> str:
        """Return the name of the utterance that failed with ``error``, as far as it is known."""
        raise NotImplementedError

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _LoadingNode(source, lane, self)


class _LoadingNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Loading) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage
        self.loaded = Loaded(lane)
        self.upcoming: Upcoming[Any] = Upcoming(source, stage.loader(lane), lane)

    def next(self) -> Sample:
        while True:
            item, fields = self.upcoming.next()
            if isinstance(fields, DataError):
                fields.key, fields.item = self.stage.key(item, fields), item.origin.item
                self.lane.ledger.fail(fields, self.stage.name)
            else:
                self.lane.ledger.fine(self.stage.name)
                return self.loaded.sample(fields, item.origin, item.place)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        self.upcoming.clear()
        super().reset(initial_state)

    def get_state(self) -> dict[str, Any]:
        return self.upcoming.get_state()

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.upcoming)
