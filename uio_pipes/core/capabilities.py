"""Capabilities that only some stages have: mixins that the runtime checks with ``isinstance``.

A stage has as many of them as it needs, beside its role: ``class Filter(FollowsSteps, Flow)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Protocol

from uio_pipes.base.checks import refuse
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.schedule import Schedule, Setting
from uio_pipes.core.stage import Node, Stage, Trait
from uio_pipes.io.access import Access

Upstream = Callable[[Lane], Node]


class Connects:
    """A stage that chooses the lane of its source, or rebuilds its source."""

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        """Like :meth:`Stage.build`, in place of it; ``upstream(lane)`` makes the node before."""
        raise NotImplementedError


class Branch(Protocol):
    """A graph within a stage, as graphs see it."""

    @property
    def stages(self) -> tuple[Stage, ...]: ...
    @property
    def _skims(self) -> bool: ...
    def _every_stage(self) -> Iterator[Stage]: ...
    def _places(self, source: str = "") -> Iterator[tuple[str, Stage]]: ...
    def _files(self) -> list[FileList]: ...
    def _lines(self) -> list[tuple[str, str]]: ...


class HasBranches:
    """A stage with pipelines within it, a dataclass. ``pipelines``: these, by name."""

    pipelines: Mapping[str, Any]


def branches_of(stage: Stage) -> Mapping[str, Branch]:
    """Return the pipelines within a stage, by name."""
    return stage.pipelines if isinstance(stage, HasBranches) else {}


def with_branches(stage: Stage, change: Callable[[str, Any], Any]) -> Stage:
    """Return a stage with ``change(name, graph)`` in place of each graph within it, if any."""
    if not isinstance(stage, HasBranches):
        return stage
    changes: Any = {"pipelines": {name: change(name, graph) for name, graph in stage.pipelines.items()}}
    return replace(stage, **changes)


class MakesBatches:
    """A stage that makes batches of utterances."""

    @property
    def sized_by(self) -> Any:
        """The length by which it makes batches, a ``Length`` or a pair of them; None: planned frames."""
        return None

    def padded(self, lengths: Sequence[int], batch: Any) -> int:
        """Return the length of a planned batch of utterances of these lengths, padding included."""
        return len(lengths) * max(lengths, default=0)

    def fill_ratio(self, bucket: int, count: int, longest: Any) -> float | None:
        """Return how full a planned batch is, 1 at its budget; None if it has none.

        Args:
            bucket: number of its bucket.
            count: utterances in it.
            longest: planned length of the longest of them; of two lengths, the longest of each.
        """
        return None


class ChecksNext:
    """A stage that restricts which stages may follow it."""

    def check_next(self, stage: Stage) -> None:
        """Raises: PipelineError if ``stage`` cannot come after this one."""
        raise NotImplementedError


class FollowsSteps(ChecksNext):
    """A stage with settings that can change with the step.

    Attributes:
        follows_steps: the arguments that ``uio.by_step`` can be given for.
        versions: the stages that have the arguments of each range of steps, or the weights; None if none change.
    """

    name: ClassVar[str]
    follows_steps: ClassVar[frozenset[str]] = frozenset()
    versions: ClassVar[Schedule | None] = None  # of an instance: set by core/schedule.py

    def setting(self, lane: Lane, site: Site) -> Setting:
        """Return the setting of a stage with ``versions``: which of them is for each item, by its number."""
        assert self.versions is not None
        return lane.settings.follow(site.within(lane.source), self.versions, lane.pass_)

    def check_next(self, stage: Stage) -> None:
        sentence = f"what follows the step must come after {stage.name}: lanes would change at different steps"
        dealt = self.versions and Trait.DEALS in stage.traits
        refuse(dealt, self.name, sentence, f"put {stage.name} before {self.name}")


class NumberedLines(Protocol):
    """The lines of a list, by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> str: ...
    def place(self, number: int) -> str: ...


class FileList(NamedTuple):
    """A list of files in use: its lines, and how to reach the files that they name."""

    lines: Callable[[], NumberedLines]
    access: Access


class ReadsFiles:
    """A stage that lists files."""

    def files(self, listed: list[FileList]) -> list[FileList]:
        """Return the lists of files in use after this stage, given those in use before it."""
        raise NotImplementedError


class LooksAhead:
    """A stage that looks at the first utterances of its lists before it runs."""

    def look(self, before: Branch) -> None:
        """Raises: ListError if the data cannot be what the stage takes them for. ``before``: what comes before it."""
        raise NotImplementedError


class KnowsFields:
    """A source that knows the fields of its utterances before it runs."""

    def lacking(self, name: str) -> str:
        """Return the end of a message about the field ``name`` if no utterance has it; "" if some may."""
        raise NotImplementedError


class Uncountable:
    """A stage whose number of items may be known only by running it."""

    def uncountable_reason(self, kind: str) -> str:
        """Return why only a run shows how many items of this ``kind`` come out; "" if a plan does."""
        raise NotImplementedError


class Warns:
    """A stage that may have a warning for the user before it runs."""

    def warnings(self, lanes: int) -> list[str]:
        """Return what a user should know before this runs in so many lanes."""
        raise NotImplementedError
