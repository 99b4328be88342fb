"""The pulse of a lane: it shows an endless stage whether anything comes through before it begins another round.

A stage that repeats its source for ever, with a later stage that leaves everything out, would run for ever without a
word. So whatever takes utterances in (a buffer, a batch, the end of the graph) counts them here. A round from which
nothing arrived is the last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import ReferenceType

SLACK = 1_000  # utterances, besides those that buffers hold, that may go in before one must come out
MANY = 100_000  # the same if a node of the user's may hold some, unseen
RESTORING = 1_000_000  # the same while a lane is restored, when what comes out is not seen
HELD = 16  # after so many times what buffers hold, even several in a row have released their oldest utterance
DEALS = 16  # rounds that may give a lane nothing if they are dealt to lanes afterwards, times the lanes


class Holding(Protocol):
    """A node that may hold items back."""

    def remaining(self) -> tuple[int, int]: ...


@dataclass
class Pulse:
    """``arrived``: utterances that a buffer, a batch or the lane's end took in. ``given``: ``arrived`` when something
    last came out of the lane. ``starved_stage``: the stage that ended because nothing came from it any more."""

    arrived: int = 0
    given: int = 0
    starved_stage: str = ""
    slack: int = SLACK
    lane: ReferenceType[Holding] | None = None  # its last node

    def came_out(self) -> None:
        """Note that the lane gave something."""
        self.arrived += 1
        self.given = self.arrived

    def stalled(self, arrived: int) -> bool:
        """True if more utterances went in since the last output than one whole round (``arrived``) plus all buffers can
        explain, so later stages must have left them all out."""
        node = self.lane() if self.lane is not None else None
        held = node.remaining()[0] if node is not None else 0
        return self.arrived - self.given > arrived + HELD * held + self.slack

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Allow more until the end of the block, in which a lane is restored."""
        slack, self.slack = self.slack, RESTORING
        try:
            yield
        finally:
            self.slack, self.given = slack, self.arrived


class Taken:
    """Whether something has come of the item that a node took last, so that an endless source sees it after a resume.

    Args:
        pulse: the lane's.
        state: the node's, where it has taken the item once more. Default: None.
    """

    def __init__(self, pulse: Pulse, state: Mapping[str, Any] | None = None) -> None:
        self._pulse, self._arrived = pulse, pulse.arrived
        if state is not None and "fruitless" not in state:
            pulse.arrived += 1

    def saved(self) -> dict[str, Any]:
        """Return what the node's state keeps of it."""
        return {} if self._pulse.arrived > self._arrived else {"fruitless": 1}
