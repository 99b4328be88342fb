"""The last node of a lane that has no end: it notes what comes out."""

from __future__ import annotations

from typing import Any
from weakref import ref

from uio_pipes.core.lane import Lane
from uio_pipes.core.node import Node

__all__ = ["Outlet"]


class Outlet(Node):
    """Passes everything on, and tells the lane's pulse that something came out. ``slack``: see :class:`Pulse`."""

    def __init__(self, source: Node, lane: Lane, slack: int) -> None:
        super().__init__(source)
        self.lane, lane.pulse.slack, lane.pulse.lane = lane, slack, ref(source)

    def next(self) -> Any:
        item = self.source.next()
        if item or self.lane.ledger.skimming or not isinstance(item, (list, dict)):  # else every utterance of it failed
            self.lane.pulse.came_out()
        return item
