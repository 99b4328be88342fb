"""The report of ``simulate``: batches, padding and waiting of each rank in an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.core.statistics import LEAVE_OUT_LESS

Column = npt.NDArray[np.int64]
SHOWN = (0, 5, 50, 95, 100)  # percentiles of a distribution


@dataclass(frozen=True)
class Bucket:
    """A bucket of lengths: ``low`` <= frames < ``high`` (None: no bound). ``fill``: mean fill of its batches."""

    low: int
    high: int | None
    batches: int
    utterances: int
    fill: float | None


@dataclass(frozen=True)
class Rank:
    """The batches of one rank, in order: utterances, frames with padding, sum of frames."""

    counts: Column
    padded: Column
    frames: Column

    def first(self, steps: int) -> Rank:
        return Rank(self.counts[:steps], self.padded[:steps], self.frames[:steps])


@dataclass(frozen=True)
class Simulation:
    """The plan of an epoch. Lengths and frames are planned ones: 10 ms of audio, or feature frames.

    Attributes:
        steps: batches that each rank delivers. own: batches that its lanes have in one pass.
        padded: padded frames of each batch that is delivered, by rank. lengths: of all utterances planned.
        skew: share of the time, in padded frames, that ranks wait for the slowest one at each step.
        workers: padded frames of the busiest worker, divided by the mean of all workers.
        left_out: utterances by reason, failures included, as far as headers show them (an utterance that fails only in
            decoding counts as good). cut_off: utterances and batches after the common end.
        rates: utterances by sample rate in Hz, where headers give it, also those left out as ``mixed_rates``.
        notes: warnings that a loader would give before it begins.
    """

    world_size: int
    num_workers: int
    lanes: int
    epoch: int
    uneven: str
    steps: list[int]
    own: list[int]
    padded: list[Column]
    counts: list[Column]
    lengths: Column
    utterances: int
    padding_ratio: float
    skew: float
    workers: float
    left_out: dict[str, int]
    failures: int
    cut_off: tuple[int, int]
    buckets: list[Bucket]
    fill: float | None
    reports: list[str]
    rates: dict[int, int]
    notes: list[str]

    @property
    def delivered_share(self) -> float:
        """The share of the planned utterances that is delivered."""
        return 1 - self.cut_off[0] / len(self.lengths) if len(self.lengths) else 1.0

    @property
    def remedy(self) -> str:
        """Advice on how to cut off less; empty if nothing is cut off."""
        return LEAVE_OUT_LESS if self.cut_off[0] else ""

    def summary(self) -> dict[str, Any]:
        """Return the plan for JSON, without lists over utterances or batches."""
        scalars = ("world_size", "num_workers", "lanes", "epoch", "uneven", "steps", "own", "utterances")
        out: dict[str, Any] = {name: getattr(self, name) for name in scalars}
        out["hours"] = float(self.lengths.sum()) / 360_000
        out["padding_ratio"], out["skew"], out["busiest_worker"] = self.padding_ratio, self.skew, self.workers
        out["padded_frames_per_batch"] = spread(np.concatenate(self.padded))
        out["utterances_per_batch"] = spread(np.concatenate(self.counts))
        out["frames_per_utterance"] = spread(self.lengths)
        out["left_out"] = dict(self.left_out)
        out["failures_known_from_headers"] = self.failures
        out["cut_off"] = {"utterances": self.cut_off[0], "batches": self.cut_off[1]}
        out["delivered_share"], out["remedy"], out["notes"] = self.delivered_share, self.remedy, list(self.notes)
        out["buckets"] = [vars(b) for b in self.buckets]
        out["fill"] = self.fill
        out["rates"] = dict(self.rates)
        return out


def spread(values: Column) -> dict[str, float]:
    """Return the mean and some percentiles."""
    if not len(values):
        return {}
    points = np.percentile(values, SHOWN, method="nearest")
    return {"mean": float(values.mean()), **{f"p{p}": int(v) for p, v in zip(SHOWN, points, strict=True)}}
