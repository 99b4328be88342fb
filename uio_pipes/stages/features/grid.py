"""Where the frames of an utterance are, by the stages of its chain; and stages that make labels of frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.checks import refuse
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.capabilities import ChecksNext, Grid, HasGrid
from uio_pipes.core.chain import Chain
from uio_pipes.core.roles import Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage

Moments = npt.NDArray[np.float64]
DIGITS = 9  # of seconds: sums of floats have errors, which must not move a frame

USUAL = 16_000  # Hz: windows of audio whose rate is not known yet are those of this rate


def grid_of(stage: Stage, sample: Sample, shift: float | None, sample_rate: int, of: str = "") -> Grid:
    """Return the grid of the features that come to ``stage`` in a stream; ``shift``: seconds from frame to frame, if no
    stage tells it.

    Raises: PipelineError if that is not known, or told twice.
    """
    grid = _grid(sample, sample_rate, of, stage)
    if grid is None and shift is None:
        raise PipelineError(f"{stage.name}: no stage says how far frames are apart; give shift=0.01, if it is 10 ms")
    if grid is not None and shift is not None:
        raise PipelineError(f"{stage.name}: the stage that makes features says where frames are; leave out shift")
    return grid or Grid(shift or 0.0, (shift or 0.0) / 2)


def frame_shift(sample: Sample, until: Any = None) -> float:
    """Return the seconds from frame to frame of the features that the stages before ``until`` make.

    Raises: DataError ``no_frame_shift``.
    """
    grid = _grid(sample, sample.fields.get("sample_rate", USUAL), "", until)
    if grid is None:
        message = "no stage says how far the frames of these features are apart: compute them from the audio"
        raise DataError("no_frame_shift", message)
    return grid.shift


def _grid(sample: Any, sample_rate: int, of: str, until: Any = None) -> Grid | None:
    before = takewhile(lambda each: until is None or each is not until, _stages_of(sample, sample.chain, of))
    return grid_after(before, sample_rate)


def grid_after(stages: Iterable[Any], sample_rate: int) -> Grid | None:
    """Return the grid of the features that stages make; None if they do not tell it."""
    grid: Grid | None = None
    for stage in stages:
        if isinstance(stage, HasGrid):
            grid = stage.grid(grid, sample_rate)
    return grid


def _stages_of(sample: Any, chain: Chain, of: str) -> Iterator[Any]:
    """Yield the stages of a stream in a chain, those of joined parts and of cached results included."""
    if parts := getattr(sample, "parts", None):
        yield from _stages_of(parts[0], parts[0].chain, of)
    for link in chain.links:
        inner = getattr(link, "inner", None)
        if inner is not None:
            yield from _stages_of(None, inner, of)
        elif link.of == of:
            stage = getattr(link, "stage", None)
            yield getattr(stage, "inner", stage)  # of one that is only planned


class FrameLabels(ChecksNext, Op):
    """A stage that makes labels of frames of the ``timeline``. Subclasses are frozen dataclasses with a field
    ``shift``: seconds from frame to frame, if no stage tells it."""

    shift: float | None

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["timeline", "feat", "sample_rate", *(["wav"] if self.shift else [])])

    @property
    def may_lack(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(["sample_rate", *(["wav", "feat"] if self.shift else [])])

    def check_next(self, stage: Stage) -> None:
        if isinstance(stage, Op) and not stage.of and stage.changes_length:
            sentence = f"{stage.name} changes the length, which frames of {self.name} would not follow"
            late = {"wav", "feat"} & {*stage.reads} & {*stage.writes}
            refuse(late, self.name, sentence, f"put {stage.name} before {self.name}")

    def frames(self, sample: Sample) -> tuple[int, Grid]:
        """Return how many frames there are, and where. Raises: PipelineError if that is not known, or told twice."""
        fields = sample.fields
        rate = fields.get("sample_rate", USUAL)
        grid = grid_of(self, sample, self.shift, rate)
        if fields.get("feat") is not None:
            return len(fields["feat"]), grid
        return ceil(round(fields["wav"].shape[-1] / rate / grid.shift, DIGITS)), grid


def spoken(timeline: Timeline) -> tuple[list[Event], Moments]:
    """Return the events that last, and the start and the end of each, (N, 2) in seconds.

    Raises: DataError ``bad_timeline``.
    """
    times = np.array([event[:2] for event in timeline.events], np.float64).reshape(-1, 2).round(DIGITS)
    if not np.isfinite(times).all():
        raise DataError("bad_timeline", "some events have no times (NaN or infinite): correct them, or leave them out")
    lasts = times[:, 1] > times[:, 0]
    return [event for event, one in zip(timeline.events, lasts, strict=True) if one], times[lasts]


def covered(spans: Moments, times: Moments) -> npt.NDArray[np.bool_]:
    """Return which of the sorted ``times`` lie in one of the spans (N, 2): some have begun by then that have not
    ended. A span begins with its first moment."""
    starts, ends = (np.searchsorted(np.sort(spans[:, side]), times, "right") for side in (0, 1))
    within: npt.NDArray[np.bool_] = starts > ends
    return within


def annotated(timeline: Timeline, times: Moments) -> npt.NDArray[np.bool_]:
    """Return which of the sorted ``times`` the timeline knows."""
    if timeline.known is None:
        return np.ones(len(times), np.bool_)
    return covered(np.round(np.array(timeline.known).reshape(-1, 2), DIGITS), times)
