"""A sweep damages something in many seeded ways and sorts what comes of each trial.

A sweep is a function ``(trials, seed) -> Iterator[Outcome]``, deterministic: the same numbers give the same damages.
"""

import itertools
import logging
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import uio_pipes as uio

Result = Literal["reported", "unchanged", "silent"]


def trials(usual: int) -> int:
    """Return the number of trials: ``usual``, times ``UIO_SWEEP`` if that is set (UIO_SWEEP=20 is a night's work)."""
    return max(1, round(usual * float(os.environ.get("UIO_SWEEP", "1"))))


class Bench(Protocol):
    """Where one thing is damaged."""

    def trial(self, damage: str, seed: str) -> "Outcome": ...


def in_turns(
    things: Iterable[Any],
    bench: Callable[[Path, Any], Bench],
    damages: Callable[[Any], Iterable[str]],
    trials: int,
    seed: int,
) -> Iterator["Outcome"]:
    """Each damage to each thing, in turns."""
    logger = logging.getLogger("uio_pipes")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as root:
            benches = [(thing, bench(Path(root) / f"{n}", thing)) for n, thing in enumerate(things)]
            turns = itertools.cycle([(made, damage) for thing, made in benches for damage in damages(thing)])
            for number, (made, damage) in enumerate(itertools.islice(turns, trials)):
                yield made.trial(damage, f"{seed}/{number}")
    finally:
        logger.setLevel(level)


def delivered(
    loading: Callable[[], uio.Loader], of: Callable[[uio.Sample], Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What ``of`` says of each utterance, by key, and the reasons that were counted; "twice": a key came again."""
    given: list[tuple[str, Any]] = []
    try:
        loader = loading()
        given.extend((sample["key"], of(sample)) for sample in loader)
    except uio.ListError:
        return {}, ("refused",)
    except uio.TooManyFailures:  # nothing at all could be read
        assert given == []
    found = dict(given)
    return found, (*sorted(loader.stats().skipped), *(["twice"] if len(found) < len(given) else []))


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
