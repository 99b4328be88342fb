"""What ranks that step together lose to the slowest one of each step, and which line mends it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.checks import in_words
from uio_pipes.core.capabilities import MakesBatches
from uio_pipes.core.graph import Graph
from uio_pipes.core.schedule import Schedule, show
from uio_pipes.stages.batches.window import WindowBatch

Costs = Sequence[npt.NDArray[Any]]
LOSES = 0.03  # of the time: what loses more can be mended
KEPT = ("max_frames", "max_samples", "max_tokens", "max_cost", "cost", "quadratic", "length")


def lost(costs: Costs) -> float:
    """Return the share of their time that ranks wait for the slowest one of each step, by the ``costs`` of batches."""
    steps = max(map(len, costs))
    table = np.zeros((len(costs), steps))
    there = np.zeros_like(table, bool)
    for row, mask, values in zip(table, there, costs, strict=True):
        row[: len(values)], mask[: len(values)] = values, True
    busy, held = table.sum(), (table.max(axis=0) * there.sum(axis=0)).sum() if steps else 0
    return float(1 - busy / held) if held else 0.0


def mend(pipeline: Graph, share: float, squared: float, usual: float) -> str:
    """Return what ranks lose by padded length, and by its product with the longest one's; and the line that mends it.
    "" if nothing does.

    ``usual``: the mean padded length of a batch.
    """
    at, stage = next(((i, s) for i, s in enumerate(pipeline.stages) if isinstance(s, MakesBatches)), (0, None))
    if stage is None or stage.name == "pack" or max(share, squared) <= LOSES:
        return ""
    told = f"ranks that step together wait {share:.1%} of the time for the slowest one"
    if isinstance(stage, WindowBatch):
        return f"{told}: a window of {2 * stage.window:_} makes their batches more alike" if share > LOSES else ""
    before = takewhile(lambda s: s.name in ("shuffle", "sort"), reversed(pipeline.stages[:at]))
    given = {name: value for name in KEPT if (value := getattr(stage, name, None)) is not None}
    if not set(KEPT[:4]) & given.keys() or any(isinstance(v, Schedule) for v in given.values()):
        given = {"max_tokens" if "tokens" in str(stage.sized_by) else "max_frames": int(float(f"{usual:.2g}"))}
    line = ", ".join(f"{name}={show(value)}" for name, value in given.items())
    places = in_words(f".{s.name}(…)" for s in [*reversed([*before]), stage])
    attention = f", or {squared:.1%} where time goes by length × length, as in attention"
    return f"{told}{attention}: .bucket_batch({line}) in place of {places} makes their batches alike"
