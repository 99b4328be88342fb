"""``skip``: all but the first ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.stage import Stage, require

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["Skip"]


@dataclass(frozen=True)
class Skip(Stage):
    """Leave out the first items.

    Before ``sharding_filter`` that is the first items of the epoch, after it the first items of each lane. To pass
    over some batches once, after a loss spike, call :meth:`Loader.skip` instead.

    Args:
        number: how many to leave out, of whatever passes this stage: list items, utterances or batches. 0 or more.
    """

    name: ClassVar[str] = "skip"
    takes: ClassVar[tuple[str, ...]] = ("any",)

    number: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.number >= 0, self.name, "number must be 0 or more", self.number, "how many to leave out")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SkipNode(source, self.number)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return [max(0, n - self.number) for n in counts]

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus.decode_audio().skip(3)


class _SkipNode(Node):
    state_fields = ("left",)

    def __init__(self, source: Node, count: int) -> None:
        super().__init__(source)
        self.count = count

    def start(self) -> None:
        self.left = self.count

    def next(self) -> Any:
        if self.left:
            left, self.left = self.left, 0
            self.source.skip(left)
        return self.source.next()
