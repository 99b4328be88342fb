"""``batch``: a fixed number of utterances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.base.checks import require
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage


@dataclass(frozen=True)
class Batch(Stage):
    """Make batches of a fixed number of utterances.

    Args:
        batch_size: utterances per batch, at least 1. Default: 16.
        drop_last: whether to leave out the last batch of a lane if it is smaller; its utterances are then counted
            as ``drop_last``. Default: False.
    """

    name: ClassVar[str] = "batch"
    reasons: ClassVar[frozenset[str]] = frozenset(["drop_last"])
    gives: ClassVar[str] = "batch"

    batch_size: int = 16
    drop_last: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.batch_size, int) and self.batch_size >= 1
        require(ok, self.name, "batch_size must be a whole number above 0", self.batch_size, "WeNet's default is 16")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _BatchNode(source, lane, self)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [n // self.batch_size if self.drop_last else -(-n // self.batch_size) for n in counts]


class _BatchNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Batch) -> None:
        super().__init__(source)
        self.lane, self.size, self.drop_last = lane, stage.batch_size, stage.drop_last
        self.making: list[Sample] = []

    def next(self) -> list[Sample]:
        batch = self.making = []
        try:
            while len(batch) < self.size:
                batch.append(self.source.next())
                self.lane.pulse.arrived += 1
        except StopIteration:
            if not batch:
                raise
            if self.drop_last:
                for _ in batch:
                    self.lane.ledger.count("drop_last")
                raise
        finally:
            self.making = []
        return batch

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held + len(self.making), items
