"""Mixes whose weights and sources change during a run.

A state holds, for each weighted mix, the names of its sources with their weights, in the order of their numbers, and a
journal: the weights that held at first, and those of each change with its epoch and step. The journal decides what is
drawn, wherever a lane goes on; the weights in the graph count only as long as nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

from uio_pipes.base.checks import is_weight
from uio_pipes.base.errors import PipelineError
from uio_pipes.core.capabilities import branches_of, with_branches
from uio_pipes.core.graph import Graph
from uio_pipes.core.schedule import Schedule
from uio_pipes.core.stage import Trait
from uio_pipes.run.state import MixRecord, Where
from uio_pipes.stages.order.mix import Mix

NamedWeights = Mapping[str, float]
SHOWN = 8  # sources that a message names


@dataclass(frozen=True)
class Mixes:
    """The mixes of a graph by their paths ("" for the one that the graph begins with), and their journals.

    Each entry of a journal is ``{"epoch": …, "step": …, "ranks": …, "weights": {…}}``: where a rank stood, of how many.
    """

    weights: Mapping[str, NamedWeights] = field(default_factory=dict)
    journals: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, records: Mapping[str, MixRecord] | None = None) -> Mixes:
        """Return the mixes of a graph, with their journals in a state."""
        weights = {path: weights for path, _, weights in _mixes(graph)}
        known = {path: record["journal"] for path, record in (records or {}).items()}
        return cls(weights, {path: journal for path, journal in known.items() if journal and path in weights})

    @property
    def saved(self) -> dict[str, MixRecord] | None:
        """The part of a state; None without mixes."""
        found = {p: {"weights": dict(w), "journal": self.journals.get(p, [])} for p, w in self.weights.items()}
        return found or None

    def changes(self, epoch: int, goes_on: bool) -> dict[str, list[NamedWeights]]:
        """Return the weights of ``epoch`` for each mix that has ever changed: those that it begins with, and those of
        each change in it. ``goes_on``: it is a stream, to which later epochs belong."""
        found = {}
        for path, (first, *rest) in self.journals.items():
            begin = [entry for entry in (first, *rest) if entry is first or entry["epoch"] < epoch][-1]
            later = [entry for entry in rest if entry["epoch"] == epoch or (goes_on and entry["epoch"] > epoch)]
            found[path] = [entry["weights"] for entry in (begin, *later)]
        return found

    def scheduled(self, graph: Graph, epoch: int, goes_on: bool) -> Graph:
        """Return ``graph`` with the weights of ``epoch`` in its mixes, see :meth:`changes`."""
        changes = self.changes(epoch, goes_on)

        def weighted(path: str, mix: Mix) -> Mix:
            if path not in changes:
                return mix
            values = tuple(tuple(weights.get(name, 0.0) for name in mix.pipelines) for weights in changes[path])
            return replace(mix, weights=Schedule(values, None))

        return _with_mixes(graph, weighted) if changes else graph

    def now(self, path: str) -> NamedWeights:
        """Return the weights that hold now."""
        journal = self.journals.get(path)
        return journal[-1]["weights"] if journal else self.weights[path]

    def changed(self, path: str, weights: NamedWeights, where: Where, before: NamedWeights | None = None) -> Mixes:
        """Return these mixes with other weights for one of them from a step on; ``before``: those of the graph then."""
        first = {**Where(0, 0, where.ranks)._asdict(), "weights": dict(before or self.weights[path])}
        journal = self.journals.get(path) or [first]
        if weights == journal[-1]["weights"]:
            return self
        entry = {**where._asdict(), "weights": dict(weights)}
        return replace(self, journals={**self.journals, path: [*journal, entry]})

    def edits(self, records: Mapping[str, MixRecord]) -> list[str]:
        """Return how these mixes differ from those of a state, each as a sentence without its end."""
        out = []
        for path, record in records.items():
            old, new = record["weights"], self.weights[path]
            changed = [
                f"{name} {old.get(name, 'not there')} → {new[name]}" for name in new if old.get(name) != new[name]
            ]
            if changed:
                shown = ", ".join(changed[:SHOWN]) + (", …" if len(changed) > SHOWN else "")
                mix = f"the mix {path!r}" if path else "the mix"
                out.append(f"graph changed since the state was saved, but only the weights of {mix}: {shown}")
        return out

    def adopted(self, records: Mapping[str, MixRecord], where: Where) -> Mixes:
        """Return these mixes, with what was edited in them since a state was saved as changes where it stands."""
        new = self
        for path, record in records.items():
            if (weights := self.weights.get(path)) not in (None, record["weights"]):
                old, now = record["weights"], new.journals.get(path, [record])[-1]["weights"]
                edited = {name: w if old.get(name) != w else now[name] for name, w in (weights or {}).items()}
                new = new.changed(path, edited, where, before=old)
        return new

    def reweighted(self, given: NamedWeights, graph: Graph, where: Where) -> Mixes:
        """Return these mixes with the weights given for sources by name or ``group/name``. Raises: PipelineError."""
        if not isinstance(given, Mapping):
            raise PipelineError(f'reweight: give weights by the names of sources, not {given!r}; as in {{"read": 2}}')
        by_path: dict[str, dict[str, float]] = {}
        for name, weight in given.items():
            known = float(weight) if isinstance(weight, Real) and not isinstance(weight, bool) else None
            if known is None or not is_weight(known):
                raise PipelineError(f"reweight: the weight of {name!r} must be a number, 0 or more, not {weight!r}")
            path, source = self._find(name)
            by_path.setdefault(path, dict(self.now(path)))[source] = known
        new = self
        for path, weights in by_path.items():
            if not any(weights.values()):
                raise PipelineError(f"reweight: at least one source must keep a weight above 0, not {weights}")
            new = new.changed(path, weights, where)
        self.check_dealt(graph, by_path)
        return new

    def _find(self, name: object) -> tuple[str, str]:
        for path, weights in self.weights.items():
            for source in weights:
                if name == _within(path, source):
                    return path, source
        known = [_within(path, source) for path, weights in self.weights.items() for source in weights]
        shown = ", ".join(known[:SHOWN]) + (", …" if len(known) > SHOWN else "")
        what = (
            f"there is no source {name!r}; there are {shown}"
            if known
            else "the pipeline has no mix with weights of its own"
        )
        raise PipelineError(f"reweight: {what}; weights that follow the step (uio.by_step) cannot be changed by it")

    def check_dealt(self, graph: Graph, paths: Iterable[str]) -> None:
        """Raises: PipelineError if what comes out of a mix is dealt to lanes: each would change at another place."""
        mixes = {path: mix for path, mix, _ in _mixes(graph)}
        for path in paths:
            if graph._deals and Trait.DEALS not in mixes[path].traits:
                where = f"the mix {path!r}" if path else "the mix"
                remedy = "put .sharding_filter() into each of its sources"
                raise PipelineError(f"{where} comes before sharding_filter and cannot change during a run: {remedy}")


def arranged(graph: Graph, records: Mapping[str, MixRecord], *, edited: bool) -> Graph:
    """Return ``graph`` with the sources of its mixes in the order of a state's.

    ``edited``: sources that the state does not have come after them, and weights are those of the graph; otherwise they
    are left out, and weights are the state's. Raises: KeyError for a source that the graph does not have.
    """

    def arrange(path: str, mix: Mix) -> Mix:
        if path not in records or (own := mix.weights_now) is None:
            return mix
        weights: NamedWeights = records[path]["weights"]
        return mix.with_weights({name: own[name] for name in {**weights, **own}} if edited else weights)

    return _with_mixes(graph, arrange)


def _with_mixes(graph: Graph, change: Callable[[str, Mix], Mix], path: str = "") -> Graph:
    """Return ``graph`` with other mixes; ``change`` gets the path of each, too."""
    first = with_branches(graph.stages[0], lambda name, branch: _with_mixes(branch, change, _within(path, name)))
    return type(graph)((change(path, first) if isinstance(first, Mix) else first, *graph.stages[1:]))


def _mixes(graph: Graph, path: str = "") -> Iterator[tuple[str, Mix, NamedWeights]]:
    """Yield the mixes whose weights can be changed, with the names that lead to them, and these weights."""
    for first in graph.stages[:1]:
        if isinstance(first, Mix) and (weights := first.weights_now) is not None:
            yield path, first, weights
        for name, branch in branches_of(first).items():
            if isinstance(branch, Graph):
                yield from _mixes(branch, _within(path, name))


def _within(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
