"""Where the frames of an utterance are, by the stages of its chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.core.capabilities import Grid, HasGrid
from uio_pipes.core.chain import Chain
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage

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
