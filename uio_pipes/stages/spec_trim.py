"""``spec_trim``: frames cut from the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.audio.length import Plan
from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream
from uio_pipes.core.sample import Sample


@dataclass(frozen=True)
class SpecTrim(OfStream):
    """Cut a random number of frames off the end of ``feat`` (TrimTail, Song et al. 2022, as in WeNet).

    The number is drawn evenly from 1 to ``max_t``. If it is half of the utterance or more, nothing is cut. The
    planned length is what remains.

    Args:
        max_t: most frames to cut off. Default: 20.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "spec_trim"
    reads: ClassVar[frozenset[str]] = frozenset(["feat"])
    writes: ClassVar[frozenset[str]] = frozenset(["feat"])

    max_t: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.max_t >= 1, self.name, "max_t must be 1 frame or more", self.max_t, "WeNet's is 20")

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None or plan.frames is None:
            return plan
        cut = self._draw(draws)
        if plan.frames <= 2 * cut:
            return plan
        # Fewer frames than planned may arrive, and 2 × cut of them would stay whole.
        return plan._replace(frames=max(plan.frames - cut, 2 * cut))

    def apply(self, sample: Sample, draws: Draws) -> None:
        feat, cut = sample.fields["feat"], self._draw(draws)
        if len(feat) > 2 * cut:
            sample.fields["feat"] = feat[: len(feat) - cut]

    def _draw(self, draws: Draws) -> int:
        return 1 + draws.below(self.max_t)
