"""Why nothing came: what ranks and epochs without a batch say about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from uio_pipes.base.errors import ListError, NothingRead

if TYPE_CHECKING:
    from uio_pipes.core.graph import Graph
    from uio_pipes.core.stage import Stage

__all__ = ["Losses", "at_rest", "no_batch", "nothing_read"]

SHOWN = 3  # reasons that a message names
FEW = 'use fewer ranks, or choose uneven="join"'


@dataclass
class Losses:
    """What did not come through on a rank. ``skipped``: by reason, failures among them; ``example``: one failure."""

    utterances: int = 0
    failures: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    example: str = ""

    @classmethod
    def of(cls, counts: Iterable[Mapping[str, Any]], example: str = "") -> Losses:
        """The sum over lanes of what their ledgers counted."""
        found = cls(example=example)
        for one in counts:
            found.utterances += one.get("utterances", 0)
            found.failures += one.get("failures", 0)
            for reason, n in one.get("skipped", {}).items():
                found.skipped[reason] = found.skipped.get(reason, 0) + n
        return found

    @property
    def only_failures(self) -> bool:
        """Whether something failed, and nothing was left out on purpose."""
        return 0 < sum(self.skipped.values()) <= self.failures

    def told(self, pipeline: Graph) -> str:
        """Which stages left out how many, and what failed; as one sentence without its full stop."""
        purposes = dict(_purposes(pipeline.stages))
        parts = [
            f"{' or '.join(purposes[reason])} left out {n} as {reason}"
            for reason, n in _most(self.skipped)
            if reason in purposes
        ]
        if self.failures:
            failed = [(reason, n) for reason, n in _most(self.skipped) if reason not in purposes]
            named = ", ".join(f"{n} as {reason}" for reason, n in failed)
            parts.append(f"{self.failures} failed ({named or 'see the log'})")
            parts += [f"for example {self.example}"] * bool(self.example)
        parts += [f"{stage} may leave out all there is without counting it" for stage in _silent(pipeline.stages)]
        return "; ".join(parts) or "there was no list item for its lanes"


def _most(skipped: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(skipped.items(), key=lambda pair: -pair[1])[:SHOWN]


def _purposes(stages: Iterable[Stage]) -> Iterator[tuple[str, list[str]]]:
    """Reason → the stages that leave utterances out under it."""
    found: dict[str, list[str]] = {}
    for stage in _all(stages):
        for reason in stage.reasons:
            found.setdefault(reason, []).append(stage.describe())
    yield from found.items()


def _silent(stages: Iterable[Stage]) -> list[str]:
    return [stage.describe() for stage in _all(stages) if stage.silent]


def _all(stages: Iterable[Stage]) -> Iterator[Stage]:
    for stage in stages:
        yield stage
        for pipeline in stage.branches.values():
            yield from _all(pipeline.stages)


# The errors


def no_batch(remedy: str = FEW, why: str = "") -> ListError:
    """The error of a rank that has nothing to step with."""
    return ListError(
        "a rank has no batch at all in this epoch, so ranks cannot step together: give the list at least as many "
        f"intact shards (or lines) as there are lanes, or {remedy}{f'. {why}' if why else ''}"
    )


def at_rest(why: str) -> ListError:
    """The error of a stream that has an end, though it was to have none."""
    return ListError(
        f"the stream has nothing to go on with: a whole round of the data gave no utterance. {why}. Change what leaves "
        "them out, or mend the data; with several ranks, use fewer or give the list more shards (or lines)"
    )


def nothing_read(epoch: int, why: str) -> NothingRead:
    """The error of an epoch in which something failed, and not one utterance came out."""
    return NothingRead(
        f"nothing could be read: epoch {epoch} ends without one utterance. {why}. Check the paths in the list and mend "
        "the data (`uio verify` tells what is wrong with each file), or the function that failed"
    )
