"""What a loader has delivered, skipped and waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["ScalarWriter", "Stats"]


class ScalarWriter(Protocol):
    """What TensorBoard's ``SummaryWriter`` and its likes have."""

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> Any: ...


@dataclass
class Stats:
    """Counts of this rank's lanes in the epoch under way, up to the last batch that the trainer received.

    They are part of the loader's state: a resumed run goes on counting, and counts nothing twice.

    Attributes:
        batches: batches delivered. Default: 0.
        utterances: utterances delivered. Default: 0.
        frames: frames delivered, without padding: feature frames, or units of 10 ms of audio. Default: 0.
        padded: frames delivered, padding included. Default: 0.
        failures: utterances, members or shards that failed; each is in ``skipped`` under its reason. Default: 0.
        skipped: how many were left out for each reason, by filters or failures.
        waited: seconds that the trainer waited for batches. Default: 0.0.
        left_out: after an epoch that ended by ``uneven="stop"``: (utterances at least, list items) that no rank
            delivered. Default: (0, 0).
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
    def hours(self) -> float:
        """Hours of audio delivered, where a frame is 10 ms. For features of another frame shift (Whisper's and
        Kaldi's are 10 ms), or precomputed ones that were subsampled, multiply by shift / 10 ms."""
        return self.frames / 360_000

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

    def log_to(self, writer: ScalarWriter, step: int, prefix: str = "data") -> None:
        """Write the counts of this rank as scalars, to TensorBoard for example.

        They are ``data/batches``, ``data/utterances``, ``data/hours``, ``data/padding_ratio``, ``data/failures``,
        ``data/waited_seconds`` and one ``data/skipped/REASON`` for each reason.

        Args:
            writer: a ``torch.utils.tensorboard.SummaryWriter``, or anything with ``add_scalar``.
            step: the step to write them at.
            prefix: what comes before the slash. Default: "data".
        """
        scalars: dict[str, float] = {
            name: getattr(self, name) for name in ("batches", "utterances", "hours", "padding_ratio", "failures")
        }
        scalars["waited_seconds"] = self.waited
        scalars.update((f"skipped/{reason}", n) for reason, n in sorted(self.skipped.items()))
        for name, value in scalars.items():
            writer.add_scalar(f"{prefix}/{name}", value, step)
