"""A sweep damages something in many seeded ways and sorts what comes of each trial.

A sweep is a function ``(trials, seed) -> Iterator[Outcome]``, deterministic: the same numbers give the same damages.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Result = Literal["reported", "unchanged", "silent"]


def trials(usual: int) -> int:
    """Return the number of trials: ``usual``, times ``UIO_SWEEP`` if that is set (UIO_SWEEP=20 is a night's work)."""
    return max(1, round(usual * float(os.environ.get("UIO_SWEEP", "1"))))


@dataclass(frozen=True)
class Outcome:
    """The result of one trial.

    Attributes:
        thing: what was damaged, as a reader of the docs would say it: "tar, no manifest".
        damage: what was done to it: "a bit flipped".
        result: "reported" (all that differs from the sound data was counted or raised), "unchanged" (everything was
            delivered as it was), "silent" (something differs and nothing said so).
        reasons: under which reasons it was reported.
        seed: makes this trial again.
    """

    thing: str
    damage: str
    result: Result
    reasons: tuple[str, ...] = ()
    seed: str = ""


@dataclass
class Row:
    """All trials of one damage to one thing."""

    results: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    silent: list[str] = field(default_factory=list)


def rows(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], Row]:
    """Outcomes by thing and damage."""
    table: dict[tuple[str, str], Row] = defaultdict(Row)
    for outcome in outcomes:
        row = table[outcome.thing, outcome.damage]
        row.results[outcome.result] += 1
        row.reasons.update(set(outcome.reasons))
        if outcome.result == "silent":
            row.silent.append(outcome.seed)
    return dict(table)
