"""Whether anything comes through a lane: what an endless source asks before it begins another round.

A stage that repeats its source for ever, and one behind it that leaves everything out, would turn for ever without a
word. So what takes utterances in (a buffer, a batch, the end of the graph) counts them here. A round of which nothing
arrived is the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ReferenceType

if TYPE_CHECKING:
    from uio_pipes.core.node import Node

__all__ = ["DEALS", "MANY", "SLACK", "Pulse"]

SLACK = 1_000  # utterances more than buffers hold that may go in before one has to come out
MANY = 100_000  # likewise where a node of the user's may hold some, unseen
RESTORING = 1_000_000  # likewise while a lane goes to where it was: what comes out then is not seen
HELD = 16  # so often as much as buffers hold now has gone through several of them, and the oldest has left each
DEALS = 16  # rounds that may give a lane nothing where they are dealt to lanes afterwards, for each lane


@dataclass
class Pulse:
    """``arrived``: utterances that a buffer, a batch or the lane's end took in. ``given``: ``arrived`` when something
    last came out of the lane. ``rests``: what ended because nothing came of it any more."""

    arrived: int = 0
    given: int = 0
    rests: str = ""
    slack: int = SLACK
    lane: ReferenceType[Node] | None = None  # its last node

    def came_out(self) -> None:
        """The lane gave something."""
        self.arrived += 1
        self.given = self.arrived

    def stalled(self, arrived: int) -> bool:
        """Whether so much went into the buffers since anything came out that all of a round, of which ``arrived`` came
        that far, must have been left out behind them."""
        node = self.lane() if self.lane is not None else None
        held = node.remaining()[0] if node is not None else 0
        return self.arrived - self.given > arrived + HELD * held + self.slack

    @contextmanager
    def patient(self) -> Iterator[None]:
        """While a lane is brought to where it was."""
        slack, self.slack = self.slack, RESTORING
        try:
            yield
        finally:
            self.slack, self.given = slack, self.arrived
