"""The node that cuts utterances of tokens into parts that fit a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.lengths import Length, measure_of
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.stages.flat_map import Expanding

_CUT = ("label", "labels", "tokens")


class SplitNode(Expanding):
    """Gives an utterance that is longer than ``most`` in parts of that many tokens; other ones pass as they are."""

    def __init__(self, source: Node, lane: Lane, site: Site, most: int, length: Length) -> None:
        super().__init__(source, lane, site)
        self.most, self.measured = most, measure_of(length)

    def expand(self) -> Iterator[Sample]:
        sample: Sample = self.item
        if self.measured(sample) <= self.most:
            yield sample
            return
        tokens = sample["label"]
        heard = not sample.text_only or any(sample.recordings(of) for of in sample.chain.streams)
        if self.measured(sample) > len(tokens) or heard:
            message = 'it is longer than a row, and only tokens can be split: leave it out by overflow="drop"'
            raise DataError("over_budget", message)
        for first in range(0, len(tokens), self.most):
            part = sample.copy()
            for name in _CUT:
                value: Any = part.fields.get(name)
                if hasattr(value, "__len__") and len(value) == len(tokens):
                    part.fields[name] = value[first : first + self.most]
            yield part
