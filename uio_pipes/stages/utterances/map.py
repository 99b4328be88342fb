"""``map`` and ``through``: a user function for each utterance or batch, and a user node."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torchdata.nodes import BaseNode

from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.base.json_text import refused
from uio_pipes.core.capabilities import Uncountable
from uio_pipes.core.chain import ANY
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.pulse import PULSE
from uio_pipes.core.realize import wanted
from uio_pipes.core.roles import Flow, Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.schedule import wants
from uio_pipes.core.stage import Deferred, Node, Trait
from uio_pipes.core.stage_link import StageLink

MappedLength = Literal["same"] | Callable[[int], int]


@dataclass(frozen=True)
class Map(Flow):
    """Apply your function to each utterance (or, after ``pad``, to each batch).

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
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE | Trait.OPAQUE | Trait.ON_TENSORS

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
        if self.length is None:
            return MapNode(source, lane, self, site)
        return Deferred(source, StageLink(_DeferredMap(self.function, self.length), site))


class MapNode(Node):
    """Calls a function at its place in the graph. ``link``: does so for an utterance that is not at this place."""

    def __init__(self, source: Node, lane: Lane, stage: Map, site: Site) -> None:
        super().__init__(source)
        self.lane, self.function, self.site = lane, stage.function, site
        self.rng, self.link = wants(stage.function, "rng"), StageLink(_DeferredMap(stage.function, None), site)

    def next(self) -> Any:
        while True:
            item = self.source.next()
            if not isinstance(item, Sample):
                return self._other(item)
            try:
                PULSE.at(self.site.name, item)
                result = call(self.function, item, item.draws(self.site.salt) if self.rng else None)
            except Exception as error:
                self.lane.ledger.handle(item.failure(error, self.site.name), self.site.name)
                continue
            self.lane.ledger.succeeded(self.site.name)
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
        PULSE.at(self.site.name, None)
        try:
            result = self.function(item)
        except StopIteration as error:
            raise RuntimeError("map: the function raised StopIteration, which would end the epoch") from error
        if result is None:
            raise PipelineError("map: the function returned None; it must return the batch")
        return result


@dataclass(frozen=True)
class _DeferredMap(Op):
    name: ClassVar[str] = "map"
    reads = ANY
    writes = ANY

    function: Callable[..., Any]
    length: MappedLength | None

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None or not callable(self.length):
            return plan
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


@dataclass(frozen=True, init=False)
class Through(Uncountable, Flow):
    """Add your own node: ``node(source, *args, **kwargs)``, where ``source`` is the node before.

    Args:
        node: a subclass of :class:`Node`, or any ``torchdata.nodes.BaseNode``. Its state must consist of ints,
            strings, lists and dicts with string keys, and describe the first item that is not delivered yet.
        *args: further positional arguments for ``node``.
        **kwargs: keyword arguments for ``node``.
    """

    name: ClassVar[str] = "through"
    traits: ClassVar[Trait] = Trait.SILENT | Trait.OPAQUE | Trait.OWN_NODE
    takes: ClassVar[tuple[str, ...]] = ("any",)
    gives: ClassVar[str] = "any"

    node: type[BaseNode[Any]]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __init__(self, node: type[BaseNode[Any]], *args: Any, **kwargs: Any) -> None:
        ok = isinstance(node, type) and issubclass(node, BaseNode)
        require(ok, self.name, "the first argument must be a Node class", node, "for a function, use .map or .flat_map")
        for name, value in (("node", node), ("args", args), ("kwargs", kwargs)):
            object.__setattr__(self, name, value)

    def uncountable_reason(self, kind: str) -> str:
        return f"what the user's own {self.name} gives shows only when it runs"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _ThroughNode(self.node(_NotEmpty(source, lane), *self.args, **self.kwargs))


class _NotEmpty(Node):
    """Leaves out empty batches, of which every utterance failed."""

    def __init__(self, source: Node, lane: Lane) -> None:
        super().__init__(source)
        self.lane = lane

    def next(self) -> Any:
        while True:
            item = self.source.next()
            if not isinstance(item, (list, dict)) or item:
                self.lane.stall_guard.arrived += 1
                return item


class _ThroughNode(Node):
    """Runs a node of the user's, and copies its states, which may be live objects."""

    def next(self) -> Any:
        return next(self.source)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        BaseNode.reset(self, initial_state)
        if initial_state is None:
            self.source.reset(None)
            return
        with refused(f"the node {type(self.source).__name__} given to .through(…)"):
            self.source.reset(initial_state)

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = copy.deepcopy(self.source.state_dict())
        return state
