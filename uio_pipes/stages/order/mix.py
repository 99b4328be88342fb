"""``mix`` and ``interleave``: several pipelines as one source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, get_args

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import stable_hash
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.schedule import BySteps, at_step, show, steps_in
from uio_pipes.core.stage import Stage
from uio_pipes.stages.order.mix_node import Chooser, InTurns, MixNode, Stop, Weighted

if TYPE_CHECKING:
    from uio_pipes.core.graph import Graph


Weights = Sequence[float] | BySteps  # each of them may follow the step, too
NAMED = 8  # sources of a mix that a fingerprint lists one by one


@dataclass(frozen=True)
class _Several(Stage):
    """Several pipelines as one source."""

    takes: ClassVar[tuple[str, ...]] = ()

    pipelines: Mapping[str, Graph]
    stop: Stop = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        stops = get_args(Stop)
        require(self.stop in stops, self.name, f"stop must be one of {stops}", self.stop, "see the docstring")
        first, kind = next(iter(self.pipelines.values())), self.gives
        for name, pipeline in self.pipelines.items():
            rule = f"source {name!r} must give {_plural(kind)} as other sources do"
            remedy = "load, or batch, either all or none of them before they are mixed"
            require(pipeline._kind in (kind, "any"), self.name, rule, _plural(pipeline._kind), remedy)
            ok = pipeline._deals == first._deals
            remedy = "put .sharding_filter() into each of them, or only after the mix"
            require(ok, self.name, "all sources must be dealt to lanes, or none", name, remedy)

    @property
    def branches(self) -> Mapping[str, Graph]:
        return self.pipelines

    def with_branches(self, change: Callable[[str, Graph], Graph]) -> Stage:
        return replace(self, pipelines={name: change(name, graph) for name, graph in self.pipelines.items()})

    @property
    def gives(self) -> str:  # type: ignore[override]
        """The kind that the sources give; "any" if all of them end in nodes of the user's."""
        kinds = (pipeline._kind for pipeline in self.pipelines.values())
        return next((kind for kind in kinds if kind != "any"), "any")

    @property
    def endless(self) -> bool:
        return self.stop == "endless" or any(pipeline._endless for pipeline in self.pipelines.values())

    @property
    def deals(self) -> bool:  # type: ignore[override]
        return next(iter(self.pipelines.values()))._deals

    def count(self, counts: list[int], path: str) -> list[int] | None:
        within = f"{path}/" if path else ""
        sources = [pipeline._count(len(counts), within + name) for name, pipeline in self.pipelines.items()]
        known = [source for source in sources if source is not None]
        all_read = self.stop == "all" and self.reads_all and len(known) == len(sources)
        return [sum(n) for n in zip(*known, strict=True)] if all_read else None

    @property
    def reads_all(self) -> bool:
        """True if each source is read."""
        return True

    def content(self) -> list[tuple[int, str]]:
        return [one for pipeline in self.pipelines.values() for one in pipeline._content()]

    def warnings(self, lanes: int) -> list[str]:
        inner = [text for pipeline in self.pipelines.values() for text in pipeline._warnings(lanes)]
        if not self.deals or lanes == 1 or len(self.pipelines) == 1:  # lists are read only where it matters
            return inner
        counts = {name: sum(n for n, _ in pipeline._content()) for name, pipeline in self.pipelines.items()}
        few = [name for name, count in counts.items() if 0 < count < lanes]
        if not few:
            return inner
        text = (
            f"{self.name}: {len(few)} of {len(counts)} sources have fewer list items than there are lanes ({lanes}), "
            f"as {few[0]!r} with {counts[few[0]]}: lanes without them give their share to the others. For shares that "
            "hold everywhere use fewer lanes or smaller shards, or put .sharding_filter() after the mix instead"
        )
        return [text, *inner]

    def chooser(self, lane: Lane, site: Site) -> Chooser:
        """Return the chooser among the sources."""
        raise NotImplementedError

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return MixNode(self.pipelines, self.gives, self.stop, lane, self.chooser(lane, site))

    def describe(self, *, stable: bool = False) -> str:
        if not stable:
            return f"{self.name}({len(self.pipelines)} sources, {self._terms()})"
        inner = "; ".join(f"{name}: {' → '.join(p.fingerprint())}" for name, p in self.pipelines.items())
        if len(self.pipelines) > NAMED:
            inner = f"{len(self.pipelines)} sources {stable_hash(inner):016x}"
        return f"{self.name}({self._terms(stable=True)}, {inner})"

    def _terms(self, *, stable: bool = False) -> str:
        return f"stop={self.stop!r}"


@dataclass(frozen=True)
class Mix(_Several):
    """Several pipelines as one source, each utterance from one of them at random: see :func:`mix`."""

    name: ClassVar[str] = "mix"

    weights: Weights = ()  # checked where they are given by name

    @property
    def reads_all(self) -> bool:
        return all(all(self.weights_at(step)) for step in self.changes_at)

    @property
    def changes_at(self) -> list[int]:
        """The steps at which weights change, 0 included."""
        return sorted(steps_in(self.weights))

    @property
    def weights_now(self) -> Mapping[str, float] | None:
        return dict(zip(self.pipelines, self.weights_at(0), strict=True)) if len(self.changes_at) == 1 else None

    def with_weights(self, weights: Mapping[str, float]) -> Mix:
        return replace(
            self, pipelines={name: self.pipelines[name] for name in weights}, weights=tuple(weights.values())
        )

    def weights_at(self, step: int) -> Sequence[float]:
        """Return the weights at a step, in the order of the sources."""
        found: Sequence[float] = at_step(self.weights, step)
        return found

    def check_next(self, stage: Stage) -> None:
        ok = len(self.changes_at) == 1 or not stage.deals
        remedy = "put .sharding_filter() into each of its sources"
        require(
            ok, self.name, "weights that follow the step are for sources that are dealt to lanes", stage.name, remedy
        )

    def chooser(self, lane: Lane, site: Site) -> Weighted:
        name = site.within(lane.source)
        changed = lane.settings.changes.get(name)
        steps = None if changed else self.changes_at
        values = changed or [self.weights_at(step) for step in self.changes_at]
        setting = lane.settings.follow(name, values, steps, lane.pass_)
        return Weighted(setting, lane.key(site))

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        chooser = self.chooser(lane, site)
        chooser.setting.node = node = MixNode(self.pipelines, self.gives, self.stop, lane, chooser)
        return node

    def _terms(self, *, stable: bool = False) -> str:
        weights = f"{stable_hash(self.weights):016x}" if stable else show(self.weights)
        return f"weights={weights}, stop={self.stop!r}"


@dataclass(frozen=True)
class Interleave(_Several):
    """Several pipelines as one source, in turns: see :func:`interleave`."""

    name: ClassVar[str] = "interleave"

    def chooser(self, lane: Lane, site: Site) -> Chooser:
        return InTurns(len(self.pipelines))


def _plural(kind: str) -> str:
    return "batches" if kind == "batch" else f"{kind}s"
