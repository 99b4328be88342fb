"""Where the frames of an utterance are, by the stages of its chain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from uio_pipes.base.errors import PipelineError
from uio_pipes.core.capabilities import Grid, HasGrid
from uio_pipes.core.chain import Chain

USUAL = 16_000  # Hz: windows of audio whose rate is not known yet are those of this rate


def grid_of(stage: str, chain: Chain, shift: float | None, sample_rate: int, of: str = "") -> Grid:
    """Return the grid of the features in a stream; ``shift``: seconds from frame to frame, if no stage tells it.

    Raises: PipelineError if that is not known, or told twice.
    """
    grid: Grid | None = None
    for each in _stages_of(chain, of):
        if isinstance(each, HasGrid):
            grid = each.grid(grid, sample_rate)
    if grid is None and shift is None:
        raise PipelineError(f"{stage}: no stage says how far frames are apart; give shift=0.01, if it is 10 ms")
    if grid is not None and shift is not None:
        raise PipelineError(f"{stage}: the stage that makes features says where frames are; leave out shift")
    return grid or Grid(shift or 0.0, (shift or 0.0) / 2)


def _stages_of(chain: Chain, of: str) -> Iterator[Any]:
    """Yield the stages of a stream in a chain, those whose results are cached included."""
    for link in chain.links:
        inner = getattr(getattr(link, "link", link), "inner", None)  # of one that is timed
        if inner is not None:
            yield from _stages_of(inner, of)
        elif link.of == of:
            stage = getattr(getattr(link, "link", link), "stage", None)
            yield getattr(stage, "inner", stage)  # of one that is only planned
