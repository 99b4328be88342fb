"""Ranks and epochs without a batch: what was lost, and the errors that say so."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import NOTES, ListError, NothingRead, PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.core.realize import EXCLUDED, SKIPPED
from uio_pipes.core.stage import Trait
from uio_pipes.run.options import RunOptions
from uio_pipes.stages.utterances.encoded import ENCODED

logger = logging.getLogger("uio_pipes")
SHOWN = 3  # reasons that a message names
UNWANTED = frozenset(["not_kept", "dropped"])  # reasons of rows that keep= or drop= leaves out
FEW = 'use fewer ranks, or choose uneven="join"'


@dataclass
class Losses:
    """The utterances lost on a rank. ``skipped``: number by reason, failures included; ``example``: one failure."""

    utterances: int = 0
    failures: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    example: str = ""

    @classmethod
    def of(cls, counts: Iterable[Mapping[str, Any]], example: str = "") -> Losses:
        """Return the sum over lanes of what their ledgers counted."""
        found = cls(example=example)
        for one in counts:
            found.utterances += one.get("utterances", 0)
            found.failures += one.get("failures", 0)
            for reason, n in one.get("skipped", {}).items():
                found.skipped[reason] = found.skipped.get(reason, 0) + n
        return found

    @property
    def only_failures(self) -> bool:
        """True if something failed, and nothing was left out on purpose."""
        return 0 < sum(n for reason, n in self.skipped.items() if reason not in NOTES) <= self.failures

    @property
    def only_unwanted(self) -> bool:
        """True if no row of a table or part of a corpus is what was asked for."""
        return bool(self.skipped) and not self.utterances and self.skipped.keys() <= UNWANTED

    def describe(self, pipeline: Graph) -> str:
        """Return a sentence, without full stop, on which stages left out how many utterances and what failed."""
        purposes = _purposes(pipeline)
        parts = [
            f"{in_words(purposes[reason], 'or')} left out {n} as {reason}"
            for reason, n in _most({r: n for r, n in self.skipped.items() if r in purposes})
        ]
        if self.failures:
            known = {r: n for r, n in self.skipped.items() if r not in purposes and r not in NOTES}
            most = _most(known)
            named = [f"{n} as {reason}" for reason, n in most]
            total = max(self.failures, sum(known.values()))  # with an archive that fails, all of its rows do
            rest = total - sum(n for _, n in most)
            named += [f"{rest} for other reasons"] * (rest > 0)
            parts.append(f"{total} failed ({', '.join(named)})")
            parts += [f"for example {self.example}"] * bool(self.example)
        parts += [f"{n} noted as {reason}" for reason, n in self.skipped.items() if reason in NOTES]
        silent = [stage.describe() for stage in pipeline._every_stage() if Trait.SILENT in stage.traits]
        parts += [f"{stage} may leave out everything without counting it" for stage in silent]
        return "; ".join(parts) or "there was no list item for its lanes"


def _most(skipped: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(skipped.items(), key=lambda pair: -pair[1])[:SHOWN]


def _purposes(pipeline: Graph) -> dict[str, list[str]]:
    """Return reason → the stages that leave utterances out for it."""
    found = {SKIPPED: ["loader.skip"]}
    for stage in pipeline._every_stage():
        for reason in stage.reasons:
            found.setdefault(reason, []).append(stage.describe())
    return {EXCLUDED: ["loader.exclude"], **found}


# The errors


def no_batch(remedy: str = FEW, why: str = "") -> ListError:
    """Return the error for ranks that step together when one has no batch."""
    return ListError(
        "a rank has no batch at all in this epoch, so ranks cannot step together: give the list at least as many "
        f"intact shards (or lines) as there are lanes, or {remedy}{f'. {why}' if why else ''}"
    )


def nothing_out(skipped: Mapping[str, int]) -> PipelineError:
    """Return the error of a report on an epoch without a batch, though nothing failed in a way that ends it."""
    why = ", ".join(f"{n} × {reason}" for reason, n in skipped.items()) or "its list is empty"
    return PipelineError(f"nothing comes out of the pipeline ({why}); see uio inspect")


def at_rest(why: str) -> ListError:
    """Return the error for a stream without an end when a whole pass of the data gives nothing."""
    return ListError(
        f"the stream has nothing to go on with: a whole round of the data gave no utterance. {why}. Change what leaves "
        "them out, or repair the data; with several ranks, use fewer or give the list more shards (or lines)"
    )


REPAIR = (
    "Check the paths in the list and repair the data (`uio verify` shows what is wrong with each file), or the "
    "function that failed"
)
ASK = "Ask for others by keep=, drop= or, of a corpus, part=: `uio inspect` shows which parts and rows there are"


def nothing_read(epoch: int, why: str, remedy: str = REPAIR) -> NothingRead:
    """Return the error for an epoch in which something failed and not one utterance came out."""
    return NothingRead(f"nothing could be read: epoch {epoch} ends without one utterance. {why}. {remedy}")


class EpochEnd(NamedTuple):
    """The end of an epoch for one rank: whether an utterance was delivered, and the error if nothing could be read."""

    epoch: int
    delivered: bool
    error: NothingRead | None


def judged(epoch: int, delivered: bool, losses: Losses, options: RunOptions, resumed_at_end: bool) -> EpochEnd:
    """Return how an epoch ended on this rank. Without an utterance it is an error if reading failed, else a warning.

    ``resumed_at_end``: it had ended when its state was saved.
    """
    if delivered:
        return EpochEnd(epoch, True, None)
    why = losses.describe(options.pipeline)
    failed = losses.only_failures or (losses.failures > 0 and options.world_size == 1)
    unwanted = losses.only_unwanted and options.world_size == 1
    failed = failed or unwanted
    none = not (losses.skipped or resumed_at_end or options.of_workers)  # there was nothing to lose
    if none:
        why += ". Use fewer ranks, more (smaller) shards, or an index (`uio index`), which deals utterances"
    if none or (losses.skipped.keys() - {ENCODED} and not failed):
        logger.warning("epoch %d ends without one utterance on rank %d: %s", epoch, options.rank, why)
    return EpochEnd(epoch, False, nothing_read(epoch, why, ASK if unwanted else REPAIR) if failed else None)
