"""What a loader has delivered, skipped and waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Stats"]


@dataclass
class Stats:
    """Counts of this rank's lanes in the epoch under way, up to the last batch that the trainer received.

    They are part of the loader's state: a resumed run goes on counting, and counts nothing twice.

    Attributes:
        batches, utterances: delivered.
        frames: delivered, without padding (feature frames, or 10 ms of audio); padded: with padding.
        failures: utterances, members or shards that failed; each is in ``skipped`` under its reason.
        skipped: reason → how many were left out, by filters or failures.
        waited: seconds that the trainer waited for batches.
        left_out: after an epoch ended by ``uneven="stop"``: (utterances at least, list items) that no rank delivered.
    """

    batches: int = 0
    utterances: int = 0
    frames: int = 0
    padded: int = 0
    failures: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    waited: float = 0.0
    left_out: tuple[int, int] = (0, 0)

    @property
    def padding_ratio(self) -> float:
        """Share of the padded frames that is padding."""
        return 1 - self.frames / self.padded if self.padded else 0.0

    def add(self, counts: dict[str, Any]) -> None:
        """Add one lane's counts."""
        for name in ("batches", "utterances", "frames", "padded", "failures"):
            setattr(self, name, getattr(self, name) + counts.get(name, 0))
        for reason, n in counts.get("skipped", {}).items():
            self.skipped[reason] = self.skipped.get(reason, 0) + n
        self.waited += counts.get("waited_us", 0) / 1e6
