"""The charts of ``simulate`` and ``bench``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from uio_pipes.reports.svg import Chart

if TYPE_CHECKING:
    from uio_pipes.reports.bench import Bench
    from uio_pipes.reports.simulation import BatchColumn, Simulation

POINTS = 200  # most points of a curve
SOURCES = 9  # most sources that are named
BINS = 40
SLOWEST = 0.005  # share of the time from which on a stage is drawn


def of_simulation(run: Simulation) -> list[Chart]:
    """Return the charts of a plan."""
    unit = run.units[0]
    steps = {"batches of its lanes": run.own, f"steps ({run.uneven})": run.steps}
    charts = [
        Chart("Steps of each rank", [str(rank) for rank in range(run.world_size)], steps, ("rank", "steps"), "bars"),
        _histogram(f"Padded {unit} of a batch (padding {run.padding_ratio:.1%})", np.concatenate(run.padded), unit),
        _waits(run),
    ]
    if run.buckets:
        names, fill = [b.name.removeprefix("up to ") for b in run.buckets], [b.fill or 0 for b in run.buckets]
        label = "up to " * (len(run.units) > 1) + " × ".join(run.units)
        charts.append(Chart("Fill of the buckets", names, {"fill": fill}, (label, "fill"), "bars"))
    else:
        timed = unit == "frames"
        label, scale = ("seconds", 100) if timed else (unit, 1)
        charts.append(_histogram("Utterances planned", run.lengths, label, "utterances", scale))
    return charts + (_along(run) if run.along else [])


def _histogram(title: str, values: BatchColumn, unit: str, counted: str = "batches", scale: int = 1) -> Chart:
    counts, edges = np.histogram(values, bins=min(BINS, int(np.ptp(values)) + 1))
    middles = ((edges[1:] + edges[:-1]) / 2 / scale).tolist()
    return Chart(title, middles, {counted: counts.tolist()}, (unit, counted), "bars")


def _along(run: Simulation) -> list[Chart]:
    """Return the shares of the sources, and the lengths, step by step."""
    middles, unit = [(s.first + s.last) / 2 for s in run.along], run.units[0]
    named, others = run.largest_sources[:SOURCES], run.largest_sources[SOURCES:]
    shares = {name or "all": [s.shares[name] for s in run.along] for name in named}
    if others:
        shares["others"] = [sum(s.shares[name] for name in others) for s in run.along]
    lengths: dict[str, Sequence[float]] = {
        "of a batch, padded (mean)": [s.padded for s in run.along],
        "of the longest utterance": [s.longest for s in run.along],
    }
    return [
        Chart("Shares of the sources", middles, shares, ("step", "share of the utterances"), "areas"),
        Chart(f"{unit.capitalize()} along the epoch", middles, lengths, ("step", unit)),
    ]


def _waits(run: Simulation) -> Chart:
    """Return the mean of the ranks and what the slowest has more, for each step (or for means of neighbouring ones)."""
    steps = min(map(len, run.padded))
    table = np.stack([padded[:steps] for padded in run.padded])
    width = max(1, -(-steps // POINTS))
    kept = steps - steps % width
    highest, mean = (row[:kept].reshape(-1, width).mean(1) for row in (table.max(0), table.mean(0)))
    series = {"mean of the ranks": mean.tolist(), "waiting for the slowest": (highest - mean).tolist()}
    at = (np.arange(len(mean)) * width).tolist()
    title = f"Ranks wait {run.skew:.1%} of the time"
    return Chart(title, at, series, ("step", f"padded {run.units[0]}"), "areas")


def of_bench(result: Bench) -> list[Chart]:
    """Return the chart of a measurement."""
    rows = [row for row in result.rows if row.share >= SLOWEST]
    took = {"µs per utterance": [row.microseconds for row in rows]}
    title = f"One process: {result.alone.per_second:,.0f} utterances/s"
    return [Chart(title, [row.stage for row in rows], took, ("", "µs per utterance"), "bars")]
