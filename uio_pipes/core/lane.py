"""Lanes: how they are assigned to ranks and workers, what random choices depend on, and what is counted in them.

An epoch is dealt to a fixed number of lanes: item ``p`` of the epoch's order belongs to lane ``p % lanes``. Ranks and
workers only decide who runs which lane, so moving a lane elsewhere changes nothing in it. Every random choice is a
hash of names and positions (seed, epoch, stage, lane, origin), never of call order, rank or worker. All draws that
decide order, lengths or masks are integer arithmetic of this package, so that they are the same with every version of
every library.

A stage that repeats its source for ever, with a later stage that leaves everything out, would run for ever without a
word. So whatever takes utterances in (a buffer, a batch, the end of the graph) counts them in the lane's ``Pulse``. A
round from which nothing arrived is the last one. The ``Ledger`` counts what is delivered, left out and failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from weakref import ReferenceType

from uio_pipes.base.errors import NOTES, DataError, LeftOut, PipelineError, TooManyFailures, UioError
from uio_pipes.base.hashing import stable_hash
from uio_pipes.base.urls import counted
from uio_pipes.core.schedule import Settings

SLACK = 1_000  # utterances, besides those that buffers hold, that may go in before one must come out
MANY = 100_000  # the same if a node of the user's may hold some, unseen
RESTORING = 1_000_000  # the same while a lane is restored, when what comes out is not seen
HELD = 16  # after so many times what buffers hold, even several in a row have released their oldest utterance
DEALS = 16  # rounds that may give a lane nothing if they are dealt to lanes afterwards, times the lanes


class Holding(Protocol):
    """A node that may hold items back."""

    def remaining(self) -> tuple[int, int]: ...


@dataclass
class Pulse:
    """``arrived``: utterances that a buffer, a batch or the lane's end took in. ``given``: ``arrived`` when something
    last came out of the lane. ``starved_stage``: the stage that ended because nothing came from it any more."""

    arrived: int = 0
    given: int = 0
    starved_stage: str = ""
    slack: int = SLACK
    lane: ReferenceType[Holding] | None = None  # its last node

    def came_out(self) -> None:
        """Note that the lane gave something."""
        self.arrived += 1
        self.given = self.arrived

    def stalled(self, arrived: int) -> bool:
        """True if more utterances went in since the last output than one whole round (``arrived``) plus all buffers can
        explain, so later stages must have left them all out."""
        node = self.lane() if self.lane is not None else None
        held = node.remaining()[0] if node is not None else 0
        return self.arrived - self.given > arrived + HELD * held + self.slack

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Allow more until the end of the block, in which a lane is restored."""
        slack, self.slack = self.slack, RESTORING
        try:
            yield
        finally:
            self.slack, self.given = slack, self.arrived


class Taken:
    """Whether something has come of the item that a node took last, so that an endless source sees it after a resume.

    Args:
        pulse: the lane's.
        state: the node's, where it has taken the item once more. Default: None.
    """

    def __init__(self, pulse: Pulse, state: Mapping[str, Any] | None = None) -> None:
        self._pulse, self._arrived = pulse, pulse.arrived
        if state is not None and "fruitless" not in state:
            pulse.arrived += 1

    def saved(self) -> dict[str, Any]:
        """Return what the node's state keeps of it."""
        return {} if self._pulse.arrived > self._arrived else {"fruitless": 1}


ROUND_BITS = 32  # bits of ``pass_`` for the rounds of a repetition
ROUNDS = 1 << ROUND_BITS  # rounds that can be told apart
T = TypeVar("T")


def lanes_of(lanes: int, rank: int, world_size: int) -> range:
    """Return the lanes of a rank: those with ``lane % world_size == rank``."""
    return range(rank, lanes, world_size)


def worker_of(lane: int, world_size: int, num_workers: int) -> int:
    """Return the worker (of its rank) that runs ``lane``; 0 if the main process does (``num_workers=0``)."""
    return (lane // world_size) % max(1, num_workers)


class Site(NamedTuple):
    """The place of a stage in a graph: its name, and its number among the stages of that name."""

    name: str
    ordinal: int

    @property
    def salt(self) -> int:
        return stable_hash("site", self.name, self.ordinal)

    def within(self, source: str) -> str:
        """Return the name of the place in the whole graph; ``source``: the path of names through mixes."""
        return f"{source}/{self.name}" + (f" {self.ordinal + 1}" if self.ordinal else "")


@dataclass
class Mode:
    """How a lane runs now. While it is ``skimming``, batches are passed over and not made."""

    skimming: bool = False


@dataclass(frozen=True)
class Lane:
    """One lane of one epoch, as nodes see it.

    ``ledger`` counts and applies the failure policy; ``tables`` holds what all lanes of a process share (lists);
    ``pass_`` counts how often the lane's data has been dealt again; ``source`` is the path of names through mixes;
    ``pulse`` tells whether anything comes through, ``mode`` how the lane runs, ``settings`` what changes on the way;
    ``dealt``: the items at this place are dealt to so many lanes later; utterances for whose key one of ``left_out`` is
    true are left out of their batches; ``needs_text``: False where a later stage brings the transcripts.
    """

    ledger: Ledger
    index: int = 0
    count: int = 1
    seed: int = 0
    epoch: int = 0
    pass_: int = 0
    source: str = ""
    tables: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    pulse: Pulse = field(default_factory=Pulse, repr=False)
    mode: Mode = field(default_factory=Mode, repr=False)
    settings: Settings = field(default_factory=Settings, repr=False)
    dealt: int = 1
    left_out: tuple[Callable[[str], bool], ...] = field(default=(), repr=False)
    needs_text: bool = True

    @contextmanager
    def replay(self, *, skimming: bool) -> Iterator[None]:
        """Count nothing until the end of the block: what happens in it was counted when it happened first."""
        self.ledger.quiet, self.mode.skimming = True, skimming
        try:
            yield
        finally:
            self.ledger.quiet = self.mode.skimming = False

    @property
    def makes_batches(self) -> bool:
        """False while the lane is restored, or batches are passed over."""
        return not (self.ledger.quiet or self.mode.skimming)

    def common(self) -> Lane:
        """Return the lane for nodes before ``sharding_filter``: one for all lanes, but only the first one counts."""
        ledger = self.ledger if self.index == 0 else self.ledger.silent()
        return replace(self, index=0, ledger=ledger, dealt=self.count)

    def again(self, round_: int) -> Lane:
        """Return the lane for round ``round_`` of nodes that are repeated: the round is a pass of its own."""
        return replace(self, pass_=(self.pass_ << ROUND_BITS) + round_)

    def within(self, name: str) -> Lane:
        """Return the lane for the nodes of the pipeline ``name`` in a mix."""
        return replace(self, source=f"{self.source}/{name}" if self.source else name)

    def key(self, site: Site) -> int:
        """Return the seed of a buffer's choices, made of seed, epoch, pass, source, stage and lane."""
        return stable_hash("lane", *self._where(), site.name, site.ordinal, self.index)

    def order_key(self, site: Site) -> int:
        """Return the seed of the epoch's order: like :meth:`key`, but the same in every lane."""
        return stable_hash("order", *self._where(), site.name, site.ordinal)

    def _where(self) -> tuple[int, int, int, str]:
        return self.seed, self.epoch, self.pass_, self.source

    def shared(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is shared under ``key``; the first lane of the process to ask for it calls ``make()``."""
        if key not in self.tables:
            self.tables[key] = make()
        value: T = self.tables[key]
        return value


class Tally(Protocol):
    """What is counted over an epoch, for a warning: each lane's part goes to the trainer with its next batch."""

    def add(self, other: Any) -> None:
        """Count what ``other``, of the same kind, has counted, too."""

    def verdict(self, last: bool) -> str | None:
        """Return the warning if it is due, once. ``last``: no more is counted in this epoch."""


def add_tallies(known: dict[str, Tally], more: Mapping[str, Tally]) -> None:
    """Count what ``more`` has counted, too, by the places of stages."""
    for place, tally in more.items():
        if (there := known.setdefault(place, tally)) is not tally:
            there.add(tally)


class Report(str):
    """One failure as a line for people; ``error`` and the ``stage`` where it happened, for programs."""

    __slots__ = ("error", "stage")

    error: DataError
    stage: str

    @classmethod
    def of(cls, error: DataError, stage: str) -> Report:
        report = cls(f"{stage}: {error}")
        report.error, report.stage = error, stage
        return report


@dataclass(frozen=True)
class Failures:
    """What happens to utterances and shards that fail: ``uio.Loader(…, failures=uio.Failures(max_failures=100))``.

    Args:
        on_error: "skip" failed utterances and shards (each is counted, reported and left out), or "raise". Default:
            "skip".
        max_failures: failures in an epoch of one rank above which the run stops. Default: 10,000.
        max_consecutive_failures: failures in a row, within one stage of one lane, above which the run stops. Default:
            100.
        quarantine: path of a file to which each failure is appended once, as a JSON object, for
            ``pipeline.exclude`` in a later run and for ``uio verify --confirm``. Ranks and later runs may share it.
            Default: None.

    Raises:
        PipelineError: an argument breaks a rule.
    """

    on_error: Literal["skip", "raise"] = "skip"
    max_failures: int = 10_000
    max_consecutive_failures: int = 100
    quarantine: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("skip", "raise"):
            raise PipelineError(f"on_error must be 'skip' or 'raise', not {self.on_error!r}")
        for name in ("max_failures", "max_consecutive_failures"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise PipelineError(f"{name} must be a whole number, not {value!r}; 0 stops at the first failure")

    @classmethod
    def of(cls, given: object) -> Failures:
        """Return what a loader was given as ``failures``. Raises: PipelineError if it is none of what it can be."""
        if isinstance(given, Failures):
            return given
        if given == "skip" or given == "raise":
            return cls(given)
        raise PipelineError(f"failures must be 'skip', 'raise' or uio.Failures(…), not {given!r}")


@dataclass
class Ledger:
    """Counts of one lane. They are part of its snapshot. While it is ``quiet``, nothing is counted or raised."""

    policy: Failures = field(default_factory=Failures)
    quiet: bool = False
    batches: int = 0
    utterances: int = 0
    frames: int = 0
    padded: int = 0
    failures: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    streaks: dict[str, int] = field(default_factory=dict)
    reports: list[str] = field(default_factory=list)
    tokens: int = 0
    padded_tokens: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)  # by the places of stages

    SAVED = ("batches", "utterances", "frames", "padded", "failures", "skipped", "streaks")
    SAVED_IF_ANY = ("tokens", "padded_tokens", "sources")  # states of earlier versions have none

    def silent(self) -> Ledger:
        """Return a quiet ledger, for a lane whose failures another lane meets, too, and handles."""
        return Ledger(self.policy, quiet=True)

    def count(self, reason: str) -> None:
        """Count one utterance as left out under ``reason``."""
        if not self.quiet:
            self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def came_from(self, source: str) -> None:
        """Count one utterance as made for a batch, from a source of a mix (its path)."""
        if source and not self.quiet:
            self.sources[source] = self.sources.get(source, 0) + 1

    def delivered(
        self,
        frames: list[int],
        tokens: Sequence[int] = (),
        padded: int | None = None,
        padded_tokens: int | None = None,
    ) -> None:
        """Count one batch of utterances of so many frames and tokens; no batch if all failed.

        ``padded``, ``padded_tokens``: the frames and tokens of the batch, if they are not padded to the longest.
        """
        if self.quiet or not frames:
            return
        self.batches += 1
        self.utterances += len(frames)
        self.frames += sum(frames)
        self.padded += max(frames) * len(frames) if padded is None else padded
        self.tokens += sum(tokens)
        self.padded_tokens += max(tokens, default=0) * len(tokens) if padded_tokens is None else padded_tokens

    def fine(self, stage: str) -> None:
        """End the streak of failures of ``stage``, which succeeded."""
        if self.streaks and not self.quiet:
            self.streaks.pop(stage, None)

    def handle(self, error: UioError, stage: str) -> None:
        """Handle a ``DataError`` by :meth:`fail`; raise any other error, since it concerns the whole run."""
        if not isinstance(error, DataError):
            raise error
        self.fail(error, stage)

    def fail(self, error: DataError, stage: str) -> None:
        """Handle ``error`` as ``Failures`` says.

        Raises:
            DataError: the error itself, under ``failures="raise"``.
            TooManyFailures: a budget is used up.
        """
        if self.quiet:
            return
        self.count(error.reason)
        if isinstance(error, LeftOut):
            return
        if error.reason in NOTES:
            report = Report.of(error, stage)
            self.reports.append(report if error.key else str(report))  # without a key it cannot be quarantined
            return
        self.failures += 1
        self.streaks[stage] = self.streaks.get(stage, 0) + 1
        self.reports.append(Report.of(error, stage))
        if self.policy.on_error == "raise":
            raise error
        if self.streaks[stage] > self.policy.max_consecutive_failures:
            raise TooManyFailures(
                f"{self.streaks[stage]} failures in a row in {stage}, more than max_consecutive_failures="
                f"{self.policy.max_consecutive_failures}; the last one: {error}. Repair it, or allow more with "
                "Loader(failures=uio.Failures(max_consecutive_failures=…))"
            ) from error
        check_budget(self.failures, self.policy, str(error))

    def save(self) -> dict[str, Any]:
        """Return a copy of the counts."""
        saved = {k: getattr(self, k) for k in (*self.SAVED, *self.SAVED_IF_ANY)}
        return {k: dict(v) if isinstance(v, dict) else v for k, v in saved.items() if v or k in self.SAVED}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore counts that :meth:`save` returned."""
        for name in (*self.SAVED, *self.SAVED_IF_ANY):
            value = saved[name] if name in self.SAVED else saved.get(name, type(getattr(self, name))())
            setattr(self, name, dict(value) if isinstance(value, dict) else value)


def check_budget(failures: int, policy: Failures, last: str) -> None:
    """Raises: TooManyFailures if ``failures`` is above the total budget."""
    if failures > policy.max_failures:
        raise TooManyFailures(
            f"{counted(failures, 'failure')} in this epoch, more than max_failures={policy.max_failures}; the last "
            f"one: {last}. Repair the data, or allow more with Loader(failures=uio.Failures(max_failures=…))"
        )
