"""``map``: a function of the user's on each utterance (or batch)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.chain import ANY
from uio_pipes.core.describe import wants
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Deferred, Node
from uio_pipes.core.per_utterance import PerUtterance, StageLink
from uio_pipes.core.realize import wanted
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage

MappedLength = Literal["same"] | Callable[[int], int]


@dataclass(frozen=True)
class Map(Stage):
    """Apply a function of yours to each utterance (or, after ``pad``, to each batch).

    Args:
        function: gets the sample and returns it, changed in place or as a new mapping. If it has a parameter
            ``rng``, it also gets the sample's own ``numpy.random.Generator``, so that its random choices are
            repeatable.
        length: what the function does to the length. "same" (it keeps it) or a function from the old planned length
            to the new one (in frames after a feature stage, otherwise in samples) lets it run when the batch is
            made. Default: None, not known: it runs where it stands, and whatever it touches is computed there,
            audio included.
    """

    name: ClassVar[str] = "map"
    one_to_one: ClassVar[bool] = True
    opaque: ClassVar[bool] = True
    on_tensors: ClassVar[bool] = True

    function: Callable[..., Any]
    length: MappedLength | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(callable(self.function), self.name, "the first argument must be a function", self.function, "pass one")
        ok = self.length is None or self.length == "same" or callable(self.length)
        require(ok, self.name, 'length must be "same" or a function of the length', self.length, "or leave it out")

    @property
    def takes(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("sample",) if self.length else ("any",)

    @property
    def note(self) -> str:  # type: ignore[override]
        return "when the batch is made" if self.length else "runs here; audio that it touches is decoded here"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        deferred = self.deferred()
        return _MapNode(source, lane, self, site) if deferred is None else Deferred(source, StageLink(deferred, site))

    def deferred(self) -> PerUtterance | None:
        return None if self.length is None else _DeferredMap(self.function, self.length)


class _MapNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Map, site: Site) -> None:
        super().__init__(source)
        self.lane, self.function, self.site = lane, stage.function, site
        self.rng = wants(stage.function, "rng")

    def next(self) -> Any:
        while True:
            item = self.source.next()
            if not isinstance(item, Sample):
                return self._other(item)
            try:
                result = call(self.function, item, item.draws(self.site.salt) if self.rng else None)
            except Exception as error:
                self.lane.ledger.handle(item.failure(error, self.site.name), self.site.name)
                continue
            self.lane.ledger.fine(self.site.name)
            return result if result is item or isinstance(result, Sample) else item.replaced(result)

    def _other(self, item: Any) -> Any:
        if self.rng:
            raise PipelineError("map: a function with a rng parameter works on utterances; put it before batching")
        if isinstance(item, list) and item and isinstance(item[0], Sample):
            if self.lane.mode.skimming:
                return item
            item = wanted(item, self.lane)
        if isinstance(item, (list, dict)) and not item:
            return item
        try:
            result = self.function(item)
        except StopIteration as error:
            raise RuntimeError("map: the function raised StopIteration, which would end the epoch") from error
        if result is None:
            raise PipelineError("map: the function returned None; it must return the batch")
        return result


@dataclass(frozen=True)
class _DeferredMap(PerUtterance):
    name: ClassVar[str] = "map"
    reads: ClassVar[frozenset[str]] = ANY
    writes: ClassVar[frozenset[str]] = ANY

    function: Callable[..., Any]
    length: MappedLength

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None or self.length == "same":
            return plan
        assert callable(self.length)
        if plan.frames is not None:
            return plan._replace(frames=int(self.length(plan.frames)))
        return plan._replace(samples=int(self.length(plan.samples)))

    def apply(self, sample: Sample, draws: Draws) -> None:
        bare = sample.bare()
        result = call(self.function, bare, draws if wants(self.function, "rng") else None)
        if result is not bare:
            sample.fields = dict(result)


def call(function: Callable[..., Any], sample: Sample, draws: Draws | None) -> Mapping[str, Any]:
    """Return ``function(sample)``, called with ``rng`` if there are draws. Raises: PipelineError if no mapping."""
    result = function(sample) if draws is None else function(sample, rng=draws.generator())
    if not isinstance(result, Mapping):
        raise PipelineError(
            f"map: the function must return the utterance (a mapping), not {type(result).__name__}; "
            "to leave utterances out, use .filter(function); to make several of one, .flat_map(function)"
        )
    return result
