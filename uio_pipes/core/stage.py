"""The base of all stages: frozen dataclasses of parameters that know how to build their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, ClassVar, NamedTuple, Protocol

from uio_pipes.base.checks import KINDS, require, require_range
from uio_pipes.base.urls import redact
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.schedule import Setting, show
from uio_pipes.formats.naming import names_of
from uio_pipes.io.access import Access

Upstream = Callable[[Lane], Node]
NAMES, RANGE = "names", "range"


def added(default: Any, **options: Any) -> Any:
    """Return the field of a parameter that is younger than its stage; ``options`` are those of a dataclass's field.

    While it has its default, fingerprints do not name it: states that were saved before it was there still fit.
    """
    return field(default=default, metadata={"added": True, **options.pop("metadata", {})}, **options)


def names(members: bool = False) -> Any:
    """Return the field for a source's argument ``fields``: our names of fields, by those in the data; ``members``: by
    the suffixes of members of shards."""
    return added(None, hash=False, metadata={NAMES: members})


def within(least: float, most: float, unit: str = "") -> dict[str, Any]:
    """Return the metadata of a parameter that is a pair (lowest, highest) within two bounds, or may be None."""
    return {RANGE: (least, most, unit)}


class NumberedLines(Protocol):
    """The lines of a list, by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> str: ...


class FileList(NamedTuple):
    """A list of files in use: its lines, and how to reach the files that they name."""

    lines: Callable[[], NumberedLines]
    access: Access


class Branch(Protocol):
    """A graph within a stage, as graphs see it."""

    @property
    def stages(self) -> tuple[Stage, ...]: ...
    @property
    def _skims(self) -> bool: ...
    def _every_stage(self) -> Iterator[Stage]: ...
    def _files(self) -> list[FileList]: ...
    def _lines(self) -> list[tuple[str, str]]: ...


@dataclass(frozen=True)
class Stage:
    """The parameters of one stage. A new stage is a frozen dataclass in a file of its own.

    Class attributes:
        name: the functional name, as in ``pipeline.shuffle(…)``.
        takes: the kinds of items that may come in ("item" of a list, "file", "sample", "batch").
        gives: the kind that comes out, or "same".
        note: a text printed beside the stage.
        deals: it gives each lane its share.
        one_to_one: it gives one item for each that comes in, if none fails.
        bounds_stream: its output has an end, even if its input has none.
        opaque: it may do anything to an utterance (functions of the user's).
        own_node: it runs a node of the user's, of which nothing is known.
        refers: its utterances refer to audio that is not opened yet.
        textless: its utterances need no transcript.
        on_tensors: after a stage that makes batches it works on tensors only, so that planning leaves it out.
        one_rate: utterances whose sample rate differs from that of their batch fail in it.
        sets_rate: all its audio has one sample rate.
        in_buckets: each of its batches has utterances of about the same length.
        reasons: the words under which it leaves utterances out on purpose.
        silent: it may leave utterances out without counting them.
        follows_steps: the arguments that can change with the step (``uio.by_step``).

    Attributes:
        versions: the steps from which other arguments hold, each with the stage that has them; empty if none change.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("sample",)
    gives: ClassVar[str] = "same"
    note: ClassVar[str] = ""
    deals: ClassVar[bool] = False
    one_to_one: ClassVar[bool] = False
    bounds_stream: ClassVar[bool] = False
    opaque: ClassVar[bool] = False
    own_node: ClassVar[bool] = False
    refers: ClassVar[bool] = False
    textless: ClassVar[bool] = False
    on_tensors: ClassVar[bool] = False
    one_rate: ClassVar[bool] = False
    sets_rate: ClassVar[bool] = False
    in_buckets: ClassVar[bool] = False
    reasons: ClassVar[frozenset[str]] = frozenset()
    silent: ClassVar[bool] = False
    follows_steps: ClassVar[frozenset[str]] = frozenset()
    versions: ClassVar[Sequence[tuple[int, Stage]]] = ()  # of an instance: set by core/schedule.py

    def __post_init__(self) -> None:
        """Check the kinds of the arguments; subclasses call this first and then check their rules."""
        for f in fields(self):
            value = getattr(self, f.name)
            if RANGE in f.metadata:
                if value is not None or f.default is not None:
                    pair = require_range(self.name, f.name, value, *f.metadata[RANGE])
                    object.__setattr__(self, f.name, pair)
            elif str(f.type) in KINDS:
                what, fits = KINDS[str(f.type)]
                require(fits(value), self.name, f"{f.name} must be {what}", value, f"see help(pipeline.{self.name})")
            if NAMES in f.metadata:
                names_of(self.name, value, f.metadata[NAMES])

    def __init_subclass__(cls) -> None:
        # Otherwise dataclass would make one that shows secrets, and a class may forget them in its own text.
        cls.__repr__ = Stage.__repr__  # type: ignore[method-assign]
        if "describe" in cls.__dict__:
            cls.describe = _redacted(cls.describe)  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
        return redact(f"{type(self).__qualname__}({shown})")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        """Return the node that runs this stage in ``lane``, fed by the node ``source``."""
        raise NotImplementedError

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        """As :meth:`build`, for stages that choose the lane of their source, ``upstream(lane)``, or make it anew."""
        return self.build(upstream(lane), lane, site)

    @property
    def files_at_once(self) -> int:
        """The number of its files that each lane reads at the same time."""
        return 1

    @property
    def changes_at(self) -> list[int]:
        """The steps from which it has other arguments, 0 included."""
        return [step for step, _ in self.versions] or [0]

    @property
    def sized_by(self) -> Any:
        """The length by which it makes batches, a ``Length`` or a pair of them; None: planned frames."""
        return None

    def padded(self, lengths: Sequence[int], batch: Any) -> int:
        """Return the length of a planned batch of utterances of these lengths, padding included."""
        return len(lengths) * max(lengths, default=0)

    @property
    def endless(self) -> bool:
        """True if the output has no end, even if the input has one."""
        return False

    @property
    def branches(self) -> Mapping[str, Branch]:
        """The pipelines within this stage, by name."""
        return {}

    def with_branches(self, change: Callable[[str, Any], Any]) -> Stage:
        """Return this stage with ``change(name, graph)`` in place of each graph within it."""
        return self

    @property
    def weights_now(self) -> Mapping[str, float] | None:
        """The weights of its branches by name, if they can be changed during a run."""
        return None

    def with_weights(self, weights: Mapping[str, float]) -> Stage:
        """Return this stage with these weights and only the branches that they name, in their order."""
        raise NotImplementedError

    def deferred(self) -> Any:
        """Return the part, a ``PerUtterance``, that runs when a batch is made, if there is no other part."""
        return None

    def uncountable_reason(self, kind: str) -> str:
        """Return why only a run shows how many items of this ``kind`` come out; "" if a plan does."""
        return ""

    def fill_ratio(self, bucket: int, count: int, longest: Any) -> float | None:
        """Return how full a planned batch is, 1 at its budget; None if it has none.

        Args:
            bucket: number of its bucket.
            count: utterances in it.
            longest: planned length of the longest of them; of two lengths, the longest of each.
        """
        return None

    def files(self, listed: list[FileList]) -> list[FileList]:
        """Return the lists of files in use after this stage, given those in use before it."""
        return [*listed, *(one for graph in self.branches.values() for one in graph._files())]

    def fixed_files(self) -> set[str]:
        """Return the real paths of files that must not change during a run."""
        return set()

    def count(self, counts: list[int], path: str) -> list[int] | None:
        """Return how many items each lane gives if none fails; None if only a run shows it.

        ``counts``: how many items each lane takes in; ``path``: the names of the mixes that the stage is within.
        """
        return counts if self.one_to_one else None

    def check(self, before: Sequence[Stage]) -> None:
        """Raises: PipelineError if this stage cannot come after these."""

    def check_next(self, stage: Stage) -> None:
        """Raises: PipelineError if ``stage`` cannot come after this one."""
        rule = f"{stage.name} must come before stages that follow the step, and {self.name} does"
        require(not (self.versions and stage.deals), self.name, rule, stage.name, "lanes change at places of their own")

    def setting(self, lane: Lane, site: Site) -> Setting:
        """Return the setting of a stage with ``versions``: the stage for each item by its number."""
        steps, stages = zip(*self.versions, strict=True)
        return lane.settings.follow(site.within(lane.source), stages, steps, lane.pass_)

    def warnings(self, lanes: int) -> list[str]:
        """Return what a user should know before this runs in so many lanes."""
        return []

    def content(self) -> list[tuple[int, str]]:
        """Return the number of items and a hash of them, for each list that this stage reads."""
        return []

    def describe(self, *, stable: bool = False) -> str:
        """Return ``name(arguments that differ from the defaults)``; ``stable``: with all of them, for fingerprints, but
        for the defaults of parameters that were :func:`added` later."""
        shown = []
        for i, f in enumerate(sorted(fields(self), key=lambda f: f.kw_only is True)):  # as in the signature
            if not f.repr:  # it says how files are reached, perhaps with secrets, and no result depends on it
                continue
            value = getattr(self, f.name)
            if value == f.default and (not stable or "added" in f.metadata):
                continue
            text = show(value, stable=stable)
            shown.append(text if i == 0 and not stable else f"{f.name}={text}")
        return f"{self.name}({', '.join(shown)})"


def _redacted(describe: Callable[..., str]) -> Callable[..., str]:
    """Return the method ``describe`` with the credentials removed from what it returns."""

    @wraps(describe)
    def shown(self: Stage, *, stable: bool = False) -> str:
        return redact(describe(self, stable=stable))

    return shown
