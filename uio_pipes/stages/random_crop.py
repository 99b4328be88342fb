"""``random_crop``: a random piece of each utterance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.audio.length import SLACK, TICKS, Plan
from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import OfStream, have_features
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage


@dataclass(frozen=True)
class RandomCrop(OfStream):
    """Keep a random piece of each utterance that is longer than a bound; shorter ones stay as they are.

    Every position is equally likely. ``txt`` and labels stay as they are and no longer match the audio, so this is
    for speaker, codec and self-supervised training. Give exactly one of the two bounds.

    Args:
        max_seconds: seconds of ``wav`` to keep; use it before features are computed. Default: None.
        max_frames: frames of ``feat`` to keep; use it after a feature stage, or for precomputed features. Default:
            None.
        of: the audio stream to work on, a field of the utterance. Default: "", the usual one.
    """

    name: ClassVar[str] = "random_crop"

    max_seconds: float | None = None
    max_frames: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = (self.max_seconds, self.max_frames)
        rule = "exactly one of max_seconds and max_frames must be given"
        require(given.count(None) == 1, self.name, rule, given, "max_seconds is for waveforms, max_frames for features")
        if self.max_seconds is not None:
            require(self.max_seconds > 0, self.name, "max_seconds must be above 0", self.max_seconds, "try 3.0")
        if self.max_frames is not None:
            require(self.max_frames > 0, self.name, "max_frames must be above 0", self.max_frames, "try 300")

    def check(self, before: Sequence[Stage]) -> None:
        if self.max_seconds is not None and have_features(before, self.of):
            raise PipelineError(
                "random_crop: max_seconds crops waveforms, but there are features here: put it before the stage that "
                "makes them, or give max_frames"
            )
        super().check(before)

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["feat"] if self.max_seconds is None else ["wav", "sample_rate"])

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["feat" if self.max_seconds is None else "wav"])

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None:
            return None
        if (plan.frames is None) != (self.max_frames is None):
            raise PipelineError(
                "random_crop: max_seconds crops waveforms, before features; max_frames crops features, after "
                f".fbank(…), or precomputed ones. There are {'no features' if plan.frames is None else 'features'} here"
            )
        if self.max_frames is not None and plan.frames is not None:
            return plan._replace(frames=min(plan.frames, self.max_frames))
        most = self._samples(plan.sample_rate) + (SLACK if plan.sample_rate == TICKS else 0)
        return plan._replace(samples=min(plan.samples, most))

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        if self.max_frames is not None:
            fields["feat"] = _crop(fields["feat"], 0, self.max_frames, draws)
        else:
            fields["wav"] = _crop(fields["wav"], -1, self._samples(fields["sample_rate"]), draws)

    def _samples(self, sample_rate: int) -> int:
        assert self.max_seconds is not None
        return max(1, round(self.max_seconds * sample_rate))


def _crop(array: Any, axis: int, most: int, draws: Draws) -> Any:
    """Crop to ``most`` entries along the first (0) or last (-1) axis. The result is a copy: a view would keep, and
    send, the whole array."""
    length = array.shape[axis]
    if length <= most:
        return array
    first = draws.below(length - most + 1)
    piece = array[first : first + most] if axis == 0 else array[..., first : first + most]
    return piece.clone() if hasattr(piece, "clone") else piece.copy()
