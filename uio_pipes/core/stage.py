"""What a stage is in the description: a frozen dataclass of its parameters that knows how to build its node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import KINDS, require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.base.redact import redact
from uio_pipes.core.describe import show
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Deferred, Node
from uio_pipes.core.sample import Sample
from uio_pipes.io.access import Access

if TYPE_CHECKING:
    from uio_pipes.core.graph import Graph

__all__ = ["FileList", "PerUtterance", "Stage", "Upstream", "Wrapped", "have_features", "sees_all"]

_SAME = "same"
Upstream = Callable[[Lane], Node]


class Lines(Protocol):
    """What a list holds, by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> str: ...


class FileList(NamedTuple):
    """A list of files in use: its lines, and how the files that they name are reached."""

    lines: Callable[[], Lines]
    access: Access


@dataclass(frozen=True)
class Stage:
    """Parameters of one stage. A new one is a frozen dataclass in a file of its own.

    Class attributes:
        name: the functional name, as in ``pipeline.shuffle(…)``.
        takes: kinds of what flows in ("item" of a list, "file", "sample", "batch"); gives: the kind that flows out,
        or "same". note: printed beside the stage. deals: it gives each lane its share. ends: what comes out has an end,
        whatever goes in. opaque: it may do anything to an utterance (functions of the user's). own_node: it runs a node
        of the user's, of which nothing is known. refers: utterances come out of it whose audio is not opened yet.
        on_tensors: after a stage that makes batches it works on tensors only, so that planning leaves it out. one_rate:
        it fails utterances of another sample rate than their batch. sets_rate: all audio that comes out has one rate.
        in_buckets: it makes batches of utterances of about one length.
        reasons: words under which it leaves utterances out on purpose. silent: it may leave some out without counting.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("sample",)
    gives: ClassVar[str] = _SAME
    note: ClassVar[str] = ""
    deals: ClassVar[bool] = False
    ends: ClassVar[bool] = False
    opaque: ClassVar[bool] = False
    own_node: ClassVar[bool] = False
    refers: ClassVar[bool] = False
    on_tensors: ClassVar[bool] = False
    one_rate: ClassVar[bool] = False
    sets_rate: ClassVar[bool] = False
    in_buckets: ClassVar[bool] = False
    reasons: ClassVar[frozenset[str]] = frozenset()
    silent: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the kinds of the arguments; subclasses call this first and then check their rules."""
        for f in fields(self):
            value = getattr(self, f.name)
            if str(f.type) in KINDS:
                what, fits = KINDS[str(f.type)]
                require(fits(value), self.name, f"{f.name} must be {what}", value, f"see help(pipeline.{self.name})")

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Stage.__repr__  # type: ignore[method-assign]  # else dataclass makes one that tells all

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return redact(f"{type(self).__qualname__}({shown})")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        """The node that runs this stage in ``lane``, fed by ``source``."""
        raise NotImplementedError

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        """As :meth:`build`, from what makes the source for a lane: for stages that choose its lane, or make it anew."""
        return self.build(upstream(lane), lane, site)

    @property
    def endless(self) -> bool:
        """Whether what comes out has no end, even if what goes in has."""
        return False

    @property
    def branches(self) -> Mapping[str, Graph]:
        """Pipelines within this stage, by name."""
        return {}

    def with_branches(self, change: Callable[[str, Graph], Graph]) -> Stage:
        """Return this stage with ``change(name, graph)`` in place of each graph within it."""
        return self

    def deferred(self) -> PerUtterance | None:
        """Return what runs when a batch is made, if this stage is nothing else."""
        return None

    def hides_count(self, kind: str) -> str:
        """Say why only running tells how many come out, given items of this ``kind``; "" if a plan tells."""
        return ""

    def fill(self, bucket: int, count: int, longest: int) -> float | None:
        """Return how full a planned batch is, 1 at its budget; None if it has none.

        Args:
            bucket: number of its bucket.
            count: utterances in it.
            longest: planned frames of the longest of them.
        """
        return None

    def files(self, listed: list[FileList]) -> list[FileList]:
        """Return the lists of files in use after this stage, given those in use before it."""
        return [*listed, *(one for graph in self.branches.values() for one in graph._files())]

    def fixed_files(self) -> set[str]:
        """Return the real paths of files that must not change during a run."""
        return set()

    def count(self, counts: list[int], source: str) -> list[int] | None:
        """How many come out of each lane of the ``counts`` that go in, if none fails; None: only running tells.

        ``source``: the path of names through ``mix``.
        """
        return None

    def check(self, before: Sequence[Stage]) -> None:
        """Raises: PipelineError if this stage cannot stand behind these."""

    def warnings(self, lanes: int) -> list[str]:
        """What a user should know before this runs in so many lanes."""
        return []

    def content(self) -> list[tuple[int, str]]:
        """Of each list that this stage reads: number of items, and a hash of them."""
        return []

    def describe(self, *, stable: bool = False) -> str:
        """``name(arguments that differ from the defaults)``. ``stable``: without file positions, for fingerprints."""
        shown = []
        for i, f in enumerate(fields(self)):
            if not f.repr:  # how files are reached: secrets may be in it, and nothing depends on it
                continue
            value = getattr(self, f.name)
            if value == f.default and not stable:
                continue
            text = show(value, stable=stable)
            shown.append(text if i == 0 and not stable else f"{f.name}={text}")
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class PerUtterance(Stage):
    """A stage that works on one utterance, deferred until a field that it writes is touched.

    Subclasses name the fields they read and write, say what they do to the planned length, and write into
    ``sample.fields``. ``draws`` is the sample's generator for this stage, the same in ``plan`` and ``apply``.
    """

    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "when the batch is made"
    reads: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset()

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        """The planned length after this stage; an upper bound of what :meth:`apply` makes."""
        return plan

    def apply(self, sample: Sample, draws: Draws) -> None:
        """Compute the fields that this stage writes."""
        raise NotImplementedError

    def check(self, before: Sequence[Stage]) -> None:
        """Raises: PipelineError where the order of stages makes this one useless: audio behind features, and so on."""
        if not sees_all(before):
            return
        makes = self.writes - self.reads
        for stage in before:
            if not isinstance(stage, PerUtterance):
                continue
            if "feat" in stage.writes and "wav" in self.writes:
                rule = f"{self.name} works on audio, but {stage.name} has made features of it already"
                raise PipelineError(f"{rule}: put {self.name} before {stage.name}")
            if "feat" in makes and "feat" in stage.writes | stage.reads:
                rule = f"{self.name} makes features, but {stage.name} before it has"
                verb = "made some already" if "feat" not in stage.reads else "worked on some"
                order = "" if stage.name == self.name else f"put {self.name} before {stage.name}, or "
                raise PipelineError(f"{rule} {verb}: {order}leave one out")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return Deferred(source, StageLink(self, site))

    def deferred(self) -> PerUtterance | None:
        return self if type(self).build is PerUtterance.build else None

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return counts


@dataclass(frozen=True)
class Wrapped(PerUtterance):
    """A stage in place of another one, under its name: the base of what times a stage, or only plans it."""

    inner: PerUtterance

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return self.inner.reads

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return self.inner.writes

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        return self.inner.plan(plan, sample, draws)


def sees_all(stages: Sequence[Stage]) -> bool:
    """Whether all that works on the utterances is known: no function or node of the user's is among ``stages``."""
    return not any(stage.opaque for stage in stages)


def have_features(stages: Sequence[Stage]) -> bool:
    """Whether a stage among these makes features."""
    return any(isinstance(stage, PerUtterance) and "feat" in stage.writes for stage in stages)


class StageLink:
    """A :class:`PerUtterance` stage at its place in a graph."""

    __slots__ = ("name", "reads", "salt", "stage", "writes")

    def __init__(self, stage: PerUtterance, site: Site) -> None:
        self.stage = stage
        self.name = site.name
        self.salt = site.salt
        self.reads, self.writes = stage.reads, stage.writes

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return self.stage.plan(plan, sample, sample.draws(self.salt))

    def apply(self, sample: Sample) -> None:
        self.stage.apply(sample, sample.draws(self.salt))
