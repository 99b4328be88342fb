"""``mix`` and ``interleave``: several pipelines as one source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, get_args

from uio_pipes.base.checks import refuse, require
from uio_pipes.base.hashing import stable_hash
from uio_pipes.base.urls import redact
from uio_pipes.core.capabilities import FollowsSteps, HasBranches, Warns
from uio_pipes.core.graph import Graph, kind_in_words
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import Flow
from uio_pipes.core.schedule import Schedule, show
from uio_pipes.core.stage import Node, Stage, Trait, printed
from uio_pipes.stages.order.mix_node import Chooser, InTurns, MixNode, Stop, Weighted

Weights = Sequence[float] | Schedule  # each of them may follow the step, too
_STOPS = (
    '"all" plays each source once, "first" ends with the shortest, "cycle" repeats sources until the longest has '
    'ended, and "endless" never ends'
)
NAMED = 8  # sources of a mix that a fingerprint lists one by one


def _sources(stage: _Several, stable: bool) -> str:
    count = f"{len(stage.pipelines)} sources"
    if not stable:
        return count
    inner = "; ".join(f"{name}: {' → '.join(p.fingerprint())}" for name, p in stage.pipelines.items())
    return inner if len(stage.pipelines) <= NAMED else f"{count} {stable_hash(inner):016x}"


def _weights(stage: Mix, stable: bool) -> str:
    return f"weights={f'{stable_hash(stage.weights):016x}' if stable else show(stage.weights)}"


SOURCES = printed(_sources)


class _Several(HasBranches, Warns, Flow):
    """Several pipelines as one source. Subclasses are frozen dataclasses with these fields."""

    takes: ClassVar[tuple[str, ...]] = ()

    pipelines: Mapping[str, Graph]
    stop: Stop

    def __post_init__(self) -> None:
        super().__post_init__()
        stops = get_args(Stop)
        require(self.stop in stops, self.name, f"stop must be one of {stops}", self.stop, _STOPS)
        first, kind = next(iter(self.pipelines.values())), self.gives
        for name, pipeline in self.pipelines.items():
            rule = "the name of a source appears in logs and states, so it must not be a URL that may contain a secret"
            require(redact(name) == name, self.name, rule, name, 'use a word, as in {"read": …}')
            rule = f"source {name!r} must give {kind_in_words(kind)} as other sources do"
            remedy = "load, or batch, either all or none of them before they are mixed"
            require(pipeline._kind in (kind, "any"), self.name, rule, kind_in_words(pipeline._kind), remedy)
            ok = pipeline._deals == first._deals
            remedy = "put .sharding_filter() into each of them, or only after the mix"
            require(ok, self.name, "all sources must be dealt to lanes, or none", name, remedy)

    @property
    def gives(self) -> str:  # type: ignore[override]
        """The kind that the sources give; "any" if all of them end in nodes of the user's."""
        kinds = (pipeline._kind for pipeline in self.pipelines.values())
        return next((kind for kind in kinds if kind != "any"), "any")

    @cached_property
    def traits(self) -> Trait:  # type: ignore[override]
        endless = self.stop == "endless" or any(pipeline._endless for pipeline in self.pipelines.values())
        return (Trait.ENDLESS if endless else Trait.NONE) | (Trait.DEALS if self._deals else Trait.NONE)

    @property
    def _deals(self) -> bool:
        """True if the sources are dealt to lanes."""
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
        if not self._deals or lanes == 1 or len(self.pipelines) == 1:  # lists are read only where it matters
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


@dataclass(frozen=True)
class Mix(FollowsSteps, _Several):
    """Several pipelines as one source, each utterance from one of them at random: see :func:`mix`."""

    name: ClassVar[str] = "mix"

    pipelines: Mapping[str, Graph] = field(metadata=SOURCES)
    weights: Weights = field(default=(), metadata=printed(_weights))  # checked where they are given by name
    stop: Stop = "all"

    @property
    def reads_all(self) -> bool:
        return all(map(all, self.versions.values))

    @cached_property
    def versions(self) -> Schedule:  # type: ignore[override]
        """The weights, in the order of the sources."""
        return Schedule.of(self.weights)

    @property
    def weights_now(self) -> Mapping[str, float] | None:
        """The weights of its sources by name, if they can be changed during a run."""
        return None if self.versions.changes else dict(zip(self.pipelines, self.versions.values[0], strict=True))

    def with_weights(self, weights: Mapping[str, float]) -> Mix:
        """Return this mix with these weights and only the sources that they name, in their order."""
        return replace(
            self, pipelines={name: self.pipelines[name] for name in weights}, weights=tuple(weights.values())
        )

    def check_next(self, stage: Stage) -> None:
        sentence = "weights that follow the step need sources that are dealt to lanes already"
        late = self.versions.changes and Trait.DEALS in stage.traits
        refuse(late, self.name, sentence, f"put .sharding_filter() into each of them, not {stage.name} after the mix")

    def chooser(self, lane: Lane, site: Site) -> Weighted:
        return Weighted(self.setting(lane, site), lane.key(site))

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        chooser = self.chooser(lane, site)
        chooser.setting.node = node = MixNode(self.pipelines, self.gives, self.stop, lane, chooser)
        return node


@dataclass(frozen=True)
class Interleave(_Several):
    """Several pipelines as one source, in turns: see :func:`interleave`."""

    name: ClassVar[str] = "interleave"

    pipelines: Mapping[str, Graph] = field(metadata=SOURCES)
    stop: Stop = "all"

    def chooser(self, lane: Lane, site: Site) -> Chooser:
        return InTurns()
