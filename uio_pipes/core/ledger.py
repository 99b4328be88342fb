"""The counts of a lane, and how failures are handled and logged."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from uio_pipes.base.checks import is_number
from uio_pipes.base.errors import (
    NOTES,
    DataError,
    LeftOut,
    NothingRead,
    PipelineError,
    TooManyFailures,
    UioError,
    by_setting,
)
from uio_pipes.base.hints import keyword_hints
from uio_pipes.base.urls import plural

LACKING = frozenset(
    ["missing_key", "missing_audio", "missing_text", "missing_field"]
)  # a field may have another name in all of them
MAKING = "realize"  # the stage in counts of utterances that fail when their batch is made: decoding, features
FIRST = 10  # utterances: if all of them lack it, so do the others
UNKNOWN = "mostly_unknown"  # the reason of utterances that are delivered, but with labels of which most are <unk>
_ASKED = ("length", "lengths", "read")  # in place of a stage: what the stage itself asked of the utterance
_ASIDE = frozenset(["", MAKING, "plan", *_ASKED])  # no stages: errors there name none to blame


class Tally(Protocol):
    """Counts over an epoch that may lead to a warning: each lane sends its part to the trainer with its next batch."""

    def add(self, other: Any) -> None:
        """Add the counts of ``other``, of the same kind."""

    def verdict(self, last: bool) -> str | None:
        """Return the warning if it is due, once. ``last``: no more is counted in this epoch."""


def add_tallies(known: dict[str, Tally], more: Mapping[str, Tally]) -> None:
    """Add the counts of ``more``, by the places of stages."""
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
        stage = stage if error.stage in ("", *_ASKED, stage) else MAKING  # as if no stage had asked for it before
        report = cls(error if stage == MAKING else f"{stage}: {error}")
        report.error, report.stage = error, stage
        return report


@keyword_hints
@dataclass(frozen=True)
class Failures:
    """How to handle utterances and shards that fail: ``uio.Loader(…, failures=uio.Failures(max_failures=100))``.

    Args:
        on_error: "skip" failed utterances and shards (each is counted, reported and left out), or "raise". Default:
            "skip".
        max_failures: failures in an epoch of one rank above which the run stops. Default: 10,000.
        max_consecutive_failures: failures in a row, within one stage of one lane, above which the run stops. Default:
            100.
        max_setting_share: share of a rank's utterances, from 0 to 1, that settings may lose: a budget that they
            exceed, a field that they lack, labels that are mostly ``<unk>``. It is judged from the 500th utterance of a
            rank on, and at the end of an epoch. What a filter leaves out does not count. Default: 0.05.
        max_damage_share: share that may be lost to damage, judged from the 1,000th utterance on. Default: 0.1.
        quarantine: path of a file to which each failure is appended once, as a JSON object, for
            ``pipeline.exclude`` in a later run. Ranks and later runs may share it. Default: None.
        hung: what to do with an utterance or shard of which nothing comes within ``stall_limit`` of the loader: "skip"
            passes it over as a failure of the reason ``hung``, and its lanes go on, in a new worker. Default: "raise".

    Raises:
        PipelineError: an argument breaks a rule.
    """

    on_error: Literal["skip", "raise"] = "skip"
    max_failures: int = 10_000
    max_consecutive_failures: int = 100
    max_setting_share: float = 0.05
    max_damage_share: float = 0.1
    quarantine: str | os.PathLike[str] | None = None
    hung: Literal["raise", "skip"] = "raise"

    def __post_init__(self) -> None:
        if self.on_error not in ("skip", "raise"):
            raise PipelineError(f"on_error must be 'skip' or 'raise', not {self.on_error!r}")
        if self.hung not in ("raise", "skip"):
            raise PipelineError(f"hung must be 'raise' or 'skip', not {self.hung!r}")
        for name in ("max_failures", "max_consecutive_failures"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise PipelineError(f"{name} must be a whole number, not {value!r}; 0 stops at the first failure")
        if "://" in str(self.quarantine):
            raise PipelineError(f"quarantine must be a local file, not {self.quarantine!r}: give a path")
        for name in ("max_setting_share", "max_damage_share"):
            value = getattr(self, name)
            if not is_number(value) or not 0 <= value <= 1:
                raise PipelineError(f"{name} must be a fraction from 0 to 1, not {value!r}; 1 allows any loss")

    @classmethod
    def of(cls, given: object) -> Failures:
        """Return the argument ``failures`` of a loader as :class:`Failures`. Raises: PipelineError if it is wrong."""
        if isinstance(given, Failures):
            return given
        if given == "skip" or given == "raise":
            return cls(given)
        raise PipelineError(f"failures must be 'skip', 'raise' or uio.Failures(…), not {given!r}")


# Of commands that go on and count what failed, which nobody can give another limit; to lose all is an error there, too.
COUNTED = Failures(max_setting_share=0.99, max_damage_share=1)


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
    lost: dict[str, int] = field(default_factory=dict)  # by settings: see kind_of
    passed: int = 0  # utterances in batches that were passed over
    tallies: dict[str, Tally] = field(default_factory=dict)  # by the places of stages
    worked: set[str] = field(default_factory=set)  # stages in which an utterance did not fail, since this run began

    TABLES = ("skipped", "streaks", "sources", "lost")
    SAVED = ("batches", "utterances", "frames", "padded", "tokens", "padded_tokens", "failures", "passed", *TABLES)

    def silent(self) -> Ledger:
        """Return a quiet ledger, for a lane whose failures another lane meets, too, and handles."""
        return Ledger(self.policy, quiet=True)

    @contextmanager
    def quietly(self, quiet: bool) -> Iterator[None]:
        """Count nothing in here if ``quiet``, of what has been counted before."""
        before, self.quiet = self.quiet, self.quiet or quiet
        try:
            yield
        finally:
            self.quiet = before

    def count(self, reason: str, number: int = 1) -> None:
        """Count one utterance, or so many, as left out under ``reason``."""
        if not self.quiet and number:
            self.skipped[reason] = self.skipped.get(reason, 0) + number

    def lose(self, kind: str) -> None:
        """Count one utterance as lost by a setting."""
        if not self.quiet:
            self.lost[kind] = self.lost.get(kind, 0) + 1

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

    def succeeded(self, stage: str) -> None:
        """End the streak of failures of ``stage``, which succeeded."""
        if not self.quiet:
            self.worked.add(stage)
            if self.streaks:
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
            TooManyFailures: a budget is used up, or the first utterances all lack a field.
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
        if by_setting(error.reason):
            self.lose(kind_of(error, stage))
        self.streaks[stage] = self.streaks.get(stage, 0) + 1
        self.reports.append(Report.of(error, stage))
        if self.policy.on_error == "raise":
            raise error
        only = self.failures == self.streaks[stage] == FIRST and stage not in self.worked and not self.utterances
        if error.reason in LACKING and only:
            raise NothingRead(
                f"the first {FIRST} utterances of a lane all fail as {error.reason}, so the others are not tried; the "
                f"last one: {error}"
            ) from error
        if self.streaks[stage] > self.policy.max_consecutive_failures:
            raise TooManyFailures(
                f"{self.streaks[stage]} failures in a row{_in(stage)}, more than max_consecutive_failures="
                f"{self.policy.max_consecutive_failures}; the last one: {error}. Repair it, or allow more with "
                "Loader(failures=uio.Failures(max_consecutive_failures=…))"
            ) from error
        check_budget(self.failures, self.policy, str(error))

    def save(self) -> dict[str, Any]:
        """Return a copy of the counts."""
        saved = {name: getattr(self, name) for name in self.SAVED}
        return {name: dict(value) if isinstance(value, dict) else value for name, value in saved.items()}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore counts that :meth:`save` returned."""
        for name in self.SAVED:
            value = saved[name]
            setattr(self, name, dict(value) if isinstance(value, dict) else value)


def kind_of(error: DataError, stage: str) -> str:
    """Return the stage to blame and the reason, as ``dynamic_batch over_budget``."""
    return f"{stage if error.stage in _ASIDE else error.stage} {error.reason}"


def check_budget(failures: int, policy: Failures, last: str) -> None:
    """Raises: TooManyFailures if ``failures`` is above the total budget."""
    if failures > policy.max_failures:
        raise TooManyFailures(
            f"{plural(failures, 'failure')} in this epoch, more than max_failures={policy.max_failures}; the last "
            f"one: {last}. Repair the data, or allow more with Loader(failures=uio.Failures(max_failures=…))"
        )


logger = logging.getLogger("uio_pipes")
LOGGED = 3  # failures of one kind that are logged in an epoch
HUSHED = "further failures of this kind (%s) are counted but not logged: see loader.stats().skipped, or record all "
HUSHED += "in a file with Loader(failures=uio.Failures(quarantine=…))"


class FailureLog:
    """The log of the failures of one rank in an epoch. A kind is a stage and a reason."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def add(self, report: str, level: int = logging.WARNING) -> None:
        """Log a report such as ``a.wav, utterance 'a': cannot be decoded [bad_audio]`` if it is among the first."""
        kind = _kind(report)
        self._counts[kind] += 1
        if self._counts[kind] <= LOGGED:
            logger.log(level, "%s", report)
        elif self._counts[kind] == LOGGED + 1:
            logger.log(level, HUSHED, kind)


def _kind(report: str) -> str:
    if isinstance(report, Report):
        return f"{report.error.reason}{_in(report.stage)}"
    stage, _, _ = report.partition(": ")
    reason = report.rpartition(" [")[2].rstrip("]")
    return f"{reason} in {stage}" if report.endswith("]") else stage


def _in(stage: str) -> str:
    return "" if stage == MAKING else f" in {stage}"
