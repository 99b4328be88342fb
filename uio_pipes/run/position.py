"""The position of a lane, as the trainer knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from uio_pipes.run.lane_runner import Message
from uio_pipes.run.state import LaneState


class Position:
    """The position of a lane after the last batch that the trainer received."""

    def __init__(self, state: LaneState) -> None:
        self.state = state
        self.waited_us = int(state.counts.get("waited_us", 0))

    def advance(self, message: Message, waited_us: int = 0) -> None:
        """Note that the trainer received ``message`` after waiting for it."""
        state = self.state
        self.waited_us += waited_us
        state.pass_, state.done, state.counts = message.pass_, message.done, message.counts
        state.k = message.k if message.done else message.k + 1
        if message.lost:
            state.lost = [*state.lost, [message.pass_, message.k]]
        if message.settings is not None:
            state.settings = message.settings
        if message.pass_ > 0 and message.k == 0 and message.snapshot is None:
            state.at, state.nodes = 0, "null"
        if message.done:
            state.at, state.nodes = state.k, "null"
        elif message.snapshot is not None:
            state.at, state.nodes = state.k, message.snapshot

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of the lane, and how long the trainer waited for it."""
        return {**self.state.counts, "waited_us": self.waited_us}

    def saved(self) -> LaneState:
        """Return a copy of the lane's state, ready to be saved."""
        return replace(self.state, counts=self.counts if self.state.counts else {})
