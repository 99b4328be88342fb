"""The graph that a pipeline describes: an immutable chain of stages, whose first one is the source.

Describing does no I/O; :meth:`Graph.build` makes the nodes that run the graph in one lane. The loader, the planner and
the reports ask their questions about a graph here, and the stages answer them: nothing here knows a particular stage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from uio_pipes.base import clock
from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import stable_hash
from uio_pipes.base.html_table import html_table
from uio_pipes.base.urls import plural
from uio_pipes.core.capabilities import (
    ChecksNext,
    Connects,
    FileList,
    FollowsSteps,
    LooksAhead,
    ReadsFiles,
    Warns,
    branches_of,
)
from uio_pipes.core.lane import ALLOWANCE, MANY, Lane, Site
from uio_pipes.core.stage import Deferred, Node, Outlet, Stage, Trait, name_node

if TYPE_CHECKING:
    from typing_extensions import Self

MOST = 8  # pipelines of a mix that are drawn; lanes that are named


@dataclass(frozen=True)
class Graph:
    """A source and the stages chained on it. Names with an underscore are the package's own.

    Args:
        stages: the stages in their order.
    """

    stages: tuple[Stage, ...]

    def then(self, stage: Stage) -> Self:
        """Return the pipeline with ``stage`` at its end, such as your own: ``pipeline.then(Gain(0.8))``.

        Args:
            stage: a :class:`uio_pipes.Op` or :class:`uio_pipes.Flow`.

        Raises:
            PipelineError: it is no stage, or cannot stand there.
        """
        if not isinstance(stage, Stage):
            given = stage.__name__ if isinstance(stage, type) else type(stage).__name__
            raise PipelineError(f"then: takes a stage, such as Gain(0.8) of a class of uio.Op or uio.Flow, not {given}")
        kind = self._kind
        takes = in_words(map(kind_in_words, stage.takes), "or")
        if kind != "any" and kind not in stage.takes and "any" not in stage.takes:
            raise PipelineError(
                f"{stage.name} works on {takes}, but {self.stages[-1].name} gives "
                f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}; {_remedy(kind, stage)}"
            )
        if Trait.DEALS in stage.traits and self._deals:
            raise PipelineError(
                "a second sharding_filter would keep only a share of a share and lose the rest; remove one"
            )
        stage.check(self.stages)
        for earlier in self._every_stage():
            if isinstance(earlier, ChecksNext):
                earlier.check_next(stage)
        return type(self)((*self.stages, stage))

    @property
    def _kind(self) -> str:
        """The kind that comes out: "item" (of a list), "file", "sample", "batch", or "any" (a node of the user's)."""
        kind = "any"
        for stage in self.stages:
            kind = kind if stage.gives == "same" else stage.gives
        return kind

    @property
    def _before_batches(self) -> Self:
        """The stages up to the first that makes batches."""
        batching = (i for i, stage in enumerate(self.stages) if "batch" in stage.gives)
        return type(self)(self.stages[: next(batching, len(self.stages))])

    def _sites(self) -> Iterator[tuple[Stage, Site]]:
        """Yield each stage with its place: its name, and its number among those of that name."""
        seen: Counter[str] = Counter()
        for stage in self.stages:
            yield stage, Site(stage.name, seen[stage.name])
            seen[stage.name] += 1

    def build(self, lane: Lane) -> Node:
        """Make the nodes that run this pipeline in one lane: ``node.next()`` gives what comes out, until StopIteration.

        Args:
            lane: the lane, with its seed and epoch. A :class:`Loader` makes these by itself.

        Raises:
            PipelineError: there is more than one lane and no ``sharding_filter``.
        """
        self._check_lanes(lane.count)
        node = self._nodes(lane)
        traits = [stage.traits for stage in self._every_stage()]
        allowance = MANY if any(Trait.OWN_NODE in each for each in traits) else ALLOWANCE
        return Outlet(node, lane, allowance) if any(Trait.ENDLESS in each for each in traits) else node

    def _nodes(self, lane: Lane) -> Node:
        """Like :meth:`build`, for a pipeline within another one, where either of them may deal to lanes."""
        upstream: Any = lambda lane: None  # noqa: E731
        for stage, site in self._sites():
            upstream = partial(_connected, stage, upstream, site)
        built: Node = upstream(lane)
        return built

    def _every_stage(self) -> Iterator[Stage]:
        """Yield all stages; those of pipelines within a stage come after it."""
        for stage in self.stages:
            yield stage
            for graph in branches_of(stage).values():
                yield from graph._every_stage()

    def _places(self, source: str = "") -> Iterator[tuple[str, Stage]]:
        """Yield all stages with their places in the whole graph. ``source``: the path of names that leads here."""
        for stage, site in self._sites():
            yield site.within(source).removeprefix("/"), stage
            for name, graph in branches_of(stage).items():
                yield from graph._places(f"{source}/{name}" if source else name)

    @property
    def _endless(self) -> bool:
        """True if an epoch has no end of its own."""
        ends = True
        for stage in self.stages:
            ends = (ends and Trait.ENDLESS not in stage.traits) or Trait.BOUNDED in stage.traits
        return not ends

    @property
    def _uneven(self) -> str:
        """How an epoch ends in a process group if nobody says it: lanes that a model remembers stay on their rank."""
        return "stop" if any(Trait.CONTINUES in stage.traits for stage in self.stages) else "share"

    @property
    def _deals(self) -> bool:
        """True if each lane gets a share of the data, not all of it."""
        return any(Trait.DEALS in stage.traits for stage in self.stages)

    @property
    def _follows_steps(self) -> bool:
        """True if something in it changes with the step."""
        following = (stage.versions for stage in self._every_stage() if isinstance(stage, FollowsSteps))
        return any(versions is not None and versions.changes for versions in following)

    @property
    def _opens_files(self) -> bool:
        """True if list items are files, such as shards, that hold utterances."""
        return any(stage.gives == "file" for stage in self._every_stage())

    def _files(self) -> list[FileList]:
        """Return the lists of files that the graph reads."""
        listed: list[FileList] = []
        for stage in self.stages:
            if isinstance(stage, ReadsFiles):
                listed = stage.files(listed)
            listed = [*listed, *(one for graph in branches_of(stage).values() for one in graph._files())]
        return listed

    def _check_lanes(self, lanes: int) -> None:
        """Raises: PipelineError if there is more than one lane and no ``sharding_filter``."""
        if lanes > 1 and not self._deals:
            first = self.stages[0]
            of = "each source of " if branches_of(first) else ""
            raise PipelineError(
                f"a pipeline for {lanes} lanes needs a sharding_filter, or every lane would deliver everything: put "
                f".sharding_filter() directly after {of}{first.name}(…)"
            )

    def _list_fingerprint(self) -> list[int | str]:
        """Return the number of list items and a hash of them. Reads the lists. Raises: ListError."""
        content = self._content()
        return [sum(count for count, _ in content), stable_hash(*content) if len(content) > 1 else content[0][1]]

    def _content(self) -> list[tuple[int, str]]:
        """Return the number of items and a hash of them for each list. Reads the lists, and looks at the first
        utterances. Raises: ListError."""
        content = [one for stage in self.stages for one in stage.content()]
        for at, stage in enumerate(self.stages):
            if isinstance(stage, LooksAhead):
                stage.look(Graph(self.stages[:at]))
        return content

    @property
    def _skims(self) -> bool:
        """True if batches can be skipped without being made; False if a node of the user's looks at them."""
        batched = [i for i, stage in enumerate(self.stages) if "batch" in stage.gives]
        own = not batched or not any(Trait.OWN_NODE in stage.traits for stage in self.stages[batched[0] :])
        return own and all(p._skims for stage in self.stages for p in branches_of(stage).values())

    def _warnings(self, lanes: int, items: int | None = None) -> list[str]:
        """Return what a user should know before the graph runs in so many lanes.

        ``items``: the number of items in its lists, if known; otherwise the lists may be read.
        """
        warning = [stage for stage in self.stages if isinstance(stage, Warns)]
        return [*self._idle(lanes, items), *(text for stage in warning for text in stage.warnings(lanes))]

    def _idle(self, lanes: int, items: int | None) -> list[str]:
        """Return a warning of lanes that get no list item, if there are any."""
        dealing = [i for i, stage in enumerate(self.stages) if Trait.DEALS in stage.traits and not branches_of(stage)]
        dealt = next(iter(dealing), None)
        plain = all(Trait.ONE_TO_ONE in stage.traits for stage in self.stages[1:dealt])
        if dealt is None or lanes == 1 or (plain and items is not None and items >= lanes):
            return []
        counts = Graph(self.stages[: dealt + 1])._count(lanes)
        idle = [lane for lane, count in enumerate(counts or ()) if not count]
        if not counts or not idle or len(idle) == lanes:
            return []
        named = ", ".join(map(str, idle[:MOST])) + (", …" if len(idle) > MOST else "")
        return [
            f"{len(idle)} of {lanes} lanes {'has' if len(idle) == 1 else 'have'} nothing to deliver (of number "
            f"{named}), as there {'is' if sum(counts) == 1 else 'are'} only {plural(sum(counts), 'list item')} to "
            "deal: a worker that runs no other lane, or a rank that shares none, stands idle. Use fewer lanes, more "
            "(smaller) shards, or an index (`uio index`, from_tar_index), which deals utterances"
        ]

    def _count(self, lanes: int, path: str = "") -> list[int] | None:
        """Return how many items or batches each lane gives if none fails; None if only a run shows it. Reads the lists.

        ``path``: the names of the mixes that it is within.
        """
        counts: list[int] | None = [0] * lanes
        for stage in self.stages:
            counts = None if counts is None else stage.count(counts, path)
        return counts

    def fingerprint(self) -> list[str]:
        """Return one line per stage. A saved state fits only a graph with the same lines."""
        return [stage.describe(stable=True) for stage in self.stages]

    def __str__(self) -> str:
        lines = self._lines()
        width = min(75, max(len(text) for text, _ in lines))
        return "\n".join(f"{text:{width}}  {note}".rstrip() for text, note in lines)

    def _repr_html_(self) -> str:
        return html_table(("stage", "note"), self._lines())

    def _lines(self) -> list[tuple[str, str]]:
        """Return the lines of the drawn graph: the text of each stage, and its note."""
        lines: list[tuple[str, str]] = []
        for i, stage in enumerate(self.stages):
            branch = "" if i == 0 else "└─ " if i == len(self.stages) - 1 else "├─ "
            lines.append((branch + stage.describe(), f"· {stage.note}" if stage.note else ""))
            branches = branches_of(stage)
            for name, pipeline in list(branches.items())[:MOST]:
                first, *rest = pipeline._lines()
                lines.append((f"│  ╭─ {name}: {first[0]}", first[1]))
                lines += [(f"│  │  {text}", note) for text, note in rest]
            if len(branches) > MOST:
                lines.append((f"│  ╭─ … {len(branches)} sources in all", ""))
        return lines


def _connected(stage: Stage, upstream: Any, site: Site, lane: Lane) -> Node:
    if isinstance(stage, Connects):
        node = stage.connect(upstream, lane, site)
    else:
        node = stage.build(upstream(lane), lane, site)
    name_node(node, lane, site)
    if clock.running is not None:
        clock.running.follow(node, node.stage_name, only_link=isinstance(node, Deferred))
    return node


def kind_in_words(kind: str) -> str:
    """Return the name of several items of a kind."""
    return "batches" if kind == "batch" else f"{kind}s"


def _remedy(kind: str, stage: Stage) -> str:
    if stage.takes == ("batch",) and kind == "sample":
        return f"put .batch(…), .dynamic_batch(…) or .bucket_batch(…) before {stage.name}"
    if kind == "batch":
        return f"move {stage.name} before the stage that makes batches"
    if kind == "item":
        if stage.takes == ("file",):
            return f"put .open_files() before {stage.name}"
        return f"put .open_files().load_from_tar() (shards) or .load_from_raw() (JSON lines) before {stage.name}"
    if kind == "file":
        return f"put .load_from_tar() before {stage.name}"
    if kind == "record":
        return f"put .load_records() before {stage.name}"
    return f"remove {stage.name}, or put it where {in_words(map(kind_in_words, stage.takes), 'or')} come out"
