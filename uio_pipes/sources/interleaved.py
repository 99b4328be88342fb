"""Several files read at once in a lane, for ``open_files(interleave=…)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchdata.nodes import BaseNode

from uio_pipes.base.errors import StateError
from uio_pipes.core.node import Node
from uio_pipes.core.state_kinds import DAMAGED, OBJECT, listed, whole
from uio_pipes.sources.next_files import NextFiles


class Interleaved(Node):
    """Gives an utterance of each of several readers in turn, which take the files of one list as they need them.

    State: those of the readers, each with the list's from before its file; the list's; and whose turn it is.
    """

    def __init__(self, source: Node, count: int, make: Callable[[NextFiles], Node]) -> None:
        super().__init__(source)
        self.files = NextFiles(source)
        self.readers = [make(self.files) for _ in range(count)]
        self.turn = 0

    def next(self) -> Any:
        for _ in self.readers:
            reader = self.readers[self.turn]
            try:
                return reader.next()
            except StopIteration:
                pass
            finally:
                self.turn = (self.turn + 1) % len(self.readers)
        raise StopIteration

    def get_state(self) -> dict[str, Any]:
        states = [reader.get_state() for reader in self.readers]
        return {"source": self.files.get_state(), "readers": states, "turn": self.turn}

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        BaseNode.reset(self, initial_state)
        self.turn, count = 0, len(self.readers)
        for reader in self.readers if initial_state is None else ():
            reader.reset(None)
        if initial_state is not None:
            self.turn = self.read_state(initial_state, "turn", whole(count))
            states = self.read_state(initial_state, "readers", listed(OBJECT))
            if len(states) != count:
                raise StateError(f"{self.stage_name}: the state has {len(states)} readers, not {count}; {DAMAGED}")
            for reader, state in zip(self.readers, states, strict=True):
                reader.reset(state)  # takes its file from the list again
            self.files.clear()
            self.source.reset(self.read_state(initial_state, "source", OBJECT))

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.files)
