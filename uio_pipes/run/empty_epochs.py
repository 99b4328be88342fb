"""Errors for ranks and epochs without a batch, and counts of what was lost."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import NOTES, ListError, NothingRead, PipelineError, TooManyFailures
from uio_pipes.core.graph import Graph
from uio_pipes.core.ledger import UNKNOWN, Failures
from uio_pipes.core.realize import EXCLUDED, SKIPPED
from uio_pipes.core.stage import Trait
from uio_pipes.run.options import RunOptions
from uio_pipes.stages.utterances.encoded import ENCODED

logger = logging.getLogger("uio_pipes")
SHOWN = 3  # reasons that a message names
UNWANTED = frozenset(["not_kept", "dropped"])  # reasons of rows that keep= or drop= leaves out
FIRST, FIRST_DAMAGED = 500, 1_000  # utterances after which the shares lost by settings and to damage are judged
FEWEST = 50  # utterances of which a share is taken at least, so that one odd utterance of ten stops nothing
DICTIONARY = "more than half of their labels are <unk>: check that the dictionary fits the texts"
FEW = 'use fewer ranks, or choose uneven="join"'


@dataclass
class Losses:
    """The utterances lost on a rank. ``skipped``: number by reason, failures included; ``example``: one failure.

    ``lost``: those lost by settings, by stage and reason (see ``core.ledger.kind_of``); ``pending``: utterances that
    were not lost, but not delivered either: they are in buffers, or have been passed over.
    """

    utterances: int = 0
    failures: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    example: str = ""
    lost: Counter[str] = field(default_factory=Counter)
    pending: int = 0

    @classmethod
    def of(cls, counts: Iterable[Mapping[str, Any]], example: str = "", held: int = 0) -> Losses:
        """Return the sum over lanes of what their ledgers counted. ``held``: utterances in their buffers."""
        found = cls(example=example, pending=held)
        for one in counts:
            found.utterances += one.get("utterances", 0)
            found.failures += one.get("failures", 0)
            found.pending += one.get("passed", 0)
            found.skipped.update(one.get("skipped", {}))
            found.lost.update(one.get("lost", {}))
        return found

    def move(self, before: Mapping[str, Any], held: int, counts: Mapping[str, Any], holds: int) -> None:
        """Take what a lane has counted, and ``holds``, in place of what it had ``before``, and ``held``."""
        for name in ("utterances", "failures"):
            setattr(self, name, getattr(self, name) + counts.get(name, 0) - before.get(name, 0))
        self.pending += holds - held + counts.get("passed", 0) - before.get("passed", 0)
        if (new := counts.get("lost", {})) != (old := before.get("lost", {})):
            self.lost.update(new)
            self.lost.subtract(old)

    @property
    def shares(self) -> tuple[int, int]:
        """The utterances lost by settings, and all wanted utterances."""
        return self.lost.total(), self.utterances + self.pending + self.failures

    def check(
        self,
        policy: Failures,
        pipeline: Graph,
        examples: Mapping[str, str],
        at_end: tuple[int, int] | None = None,
    ) -> None:
        """Check the shares lost. ``examples``: failures by their kind; ``at_end``: the :attr:`shares` at the end of an
        epoch, of all ranks that end together.

        Raises: TooManyFailures.
        """
        lost, seen = at_end or self.shares
        if lost > policy.max_setting_share * max(FEWEST, seen) and (at_end or seen >= FIRST):
            raise TooManyFailures(
                f"{lost:,} of {seen:,} utterances ({lost / seen:.1%}) are lost by a setting, more than "
                f"max_setting_share={policy.max_setting_share}: {self._settings(pipeline, examples)}. Change the "
                "setting, or allow more with Loader(failures=uio.Failures(max_setting_share=…))"
            )
        seen = self.shares[1]
        damaged = self.failures - sum(n for kind, n in self.lost.items() if not kind.endswith(UNKNOWN))
        if damaged > policy.max_damage_share * seen and seen >= FIRST_DAMAGED:
            raise TooManyFailures(
                f"{damaged:,} of {seen:,} utterances ({damaged / seen:.1%}) are lost to damage, more than "
                f"max_damage_share={policy.max_damage_share}; for example {self.example}. Repair the data (`uio "
                "verify` shows all of it), or allow more with Loader(failures=uio.Failures(max_damage_share=…))"
            )

    def _settings(self, pipeline: Graph, examples: Mapping[str, str]) -> str:
        """Return which settings lost how many utterances, and an example of each, with its remedy."""
        settings = []
        for kind, n in self.lost.most_common(SHOWN):
            name, _, reason = kind.rpartition(" ")
            stages = dict.fromkeys(one.describe() for one in pipeline._every_stage() if one.name == name)
            by = f" by {in_words(stages, 'or')}" if stages else ""
            example = DICTIONARY if reason == UNKNOWN else f"for example {examples.get(kind, 'see above')}"
            settings.append(f"{n:,} as {reason}{by} ({example})")
        return "; ".join(settings) or "other ranks name it"

    @property
    def only_failures(self) -> bool:
        """True if something failed, and nothing was left out on purpose."""
        return 0 < sum(n for reason, n in self.skipped.items() if reason not in NOTES) <= self.failures

    @property
    def only_unwanted(self) -> bool:
        """True if everything was left out on purpose, except by what an earlier run has made of it."""
        return not self.failures and bool(self.skipped.keys() - NOTES - {ENCODED})

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
    return PipelineError(f"nothing comes out of the pipeline ({why}); check the data with uio inspect")


def at_rest(why: str) -> ListError:
    """Return the error for a stream without an end when a whole pass of the data gives nothing."""
    return ListError(
        f"the stream cannot continue: a whole pass over the data gave no utterance. {why}. Loosen what drops "
        "utterances, or repair the data; with several ranks, use fewer or give the list more shards (or lines)"
    )


REPAIR = (
    "Check the paths in the list and repair the data (`uio verify` shows what is wrong with each file), or the "
    "function that failed"
)
LOOSEN = "Loosen it: `uio inspect` shows the lengths, rates and texts of the data"
ASK = "Select other rows with keep= or drop=, or for a corpus, part=: `uio inspect` shows the rows and parts"


def nothing_read(epoch: int, why: str, remedy: str = REPAIR) -> NothingRead:
    """Return the error for an epoch that gave no utterance."""
    what = "could be read" if remedy == REPAIR else "is left"
    return NothingRead(f"nothing {what}: epoch {epoch} ends without an utterance. {why}. {remedy}")


class EpochEnd(NamedTuple):
    """The end of an epoch for one rank: whether an utterance was delivered, and the error if nothing could be read."""

    epoch: int
    delivered: bool
    error: NothingRead | None


def judged(epoch: int, delivered: bool, losses: Losses, options: RunOptions, resumed_at_end: bool) -> EpochEnd:
    """Return how an epoch ended on this rank. Without an utterance it is an error if reading failed, or if everything
    was left out; a warning if that may hold for this rank alone.

    ``resumed_at_end``: it had ended when its state was saved.
    """
    if delivered:
        return EpochEnd(epoch, True, None)
    why = losses.describe(options.pipeline)
    alone = options.step_ranks == 1
    unwanted = losses.only_unwanted and (alone or losses.skipped.total() >= FIRST)
    unwanted = unwanted and options.failures.max_setting_share < 1
    failed = losses.only_failures or (losses.failures > 0 and options.world_size == 1) or unwanted
    none = not (losses.skipped or resumed_at_end or options.of_workers)  # there was nothing to lose
    if none:
        why += ". Use fewer ranks, more (smaller) shards, or an index (`uio index`), which deals utterances"
    if none or (losses.skipped.keys() - {ENCODED} and not failed):
        logger.warning("epoch %d ends without an utterance on rank %d: %s", epoch, options.rank, why)
    remedy = REPAIR if not unwanted else ASK if losses.skipped.keys() <= UNWANTED else LOOSEN
    return EpochEnd(epoch, False, nothing_read(epoch, why, remedy) if failed else None)
