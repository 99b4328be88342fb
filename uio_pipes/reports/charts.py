"""The drawings of ``simulate`` and ``bench``."""

from __future__ import annotations

from typing import Any

import numpy as np

from uio_pipes.reports.bench import Bench
from uio_pipes.reports.simulation import Simulation
from uio_pipes.seeing.drawing import new_figure

BLUE, RED, GREY = "tab:blue", "tab:red", "lightgray"
POINTS = 2000  # most points that are drawn
SOURCES = 12  # most sources that are named


def of_simulation(run: Simulation) -> Any:
    rows = 3 if run.along else 2
    figure = new_figure(rows, 2)
    steps, batches, waits, last, *along = figure.subplots(rows, 2).flat
    ranks = range(run.world_size)
    steps.bar(ranks, run.own, color=GREY, label="batches of its lanes")
    steps.bar(ranks, run.steps, color=BLUE, width=0.5, label=f"steps ({run.uneven})")
    steps.set(title="steps of each rank", xlabel="rank")
    steps.legend(fontsize=7)
    _whole(steps.xaxis, steps.yaxis, batches.yaxis)
    batches.hist(np.concatenate(run.padded), bins=40, color=BLUE)
    batches.set(
        title=f"padded {run.units[0]} of a batch (padding {run.padding_ratio:.1%})",
        xlabel=run.units[0],
        ylabel="batches",
    )
    _waits(waits, run)
    if run.buckets:
        names = [b.name for b in run.buckets]
        last.bar(names, [b.fill or 0 for b in run.buckets], color=BLUE)
        last.set(title="buckets' fill", ylim=(0, 1.05), xlabel=" × ".join(run.units))
        last.tick_params(axis="x", labelrotation=60, labelsize=7)
    else:
        timed = run.units[0] == "frames"
        last.hist(run.lengths / 100 if timed else run.lengths, bins=40, color=BLUE)
        _whole(last.yaxis)
        name = "planned length (s)" if timed else run.units[0]
        last.set(title="utterances planned", xlabel=name, ylabel="utterances")
    if along:
        _along(along[0], along[1], run)
    return figure


def _along(shares: Any, lengths: Any, run: Simulation) -> None:
    """Draw the shares of the sources, and the lengths, step by step."""
    middles, names = [(s.first + s.last) / 2 for s in run.along], list(run.along[0].shares)
    shares.stackplot(middles, [[s.shares[name] for s in run.along] for name in names], labels=names[:SOURCES])
    shares.set(title="shares of the sources", xlabel="step", ylabel="utterances", ylim=(0, 1))
    shares.legend(fontsize=7)
    lengths.plot(middles, [s.padded for s in run.along], color=BLUE, label="of a batch, padded (mean)")
    lengths.plot(middles, [s.longest for s in run.along], color=RED, label="of the longest utterance")
    lengths.set(title=f"{run.units[0]} along the epoch", xlabel="step", ylabel=run.units[0], ylim=(0, None))
    lengths.legend(fontsize=7)
    _whole(shares.xaxis, lengths.xaxis)


def _whole(*axes: Any) -> None:
    """Let axes that count ranks, steps or batches have whole numbers as ticks."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))


def _waits(axes: Any, run: Simulation) -> None:
    """Draw the slowest rank and the mean of all, for each step (or for averages of neighbouring steps)."""
    steps = min(map(len, run.padded))
    table = np.stack([p[:steps] for p in run.padded])
    width = max(1, -(-steps // POINTS))
    kept = steps - steps % width
    if kept:
        highest, mean = (row[:kept].reshape(-1, width).mean(1) for row in (table.max(0), table.mean(0)))
        at = np.arange(len(mean)) * width
        axes.fill_between(at, mean, highest, color=RED, alpha=0.4, linewidth=0, label="waiting for the slowest")
        axes.plot(at, mean, color=BLUE, linewidth=0.8, label="mean of the ranks")
        axes.legend(fontsize=7)
    axes.set(
        title=f"ranks wait {run.skew:.1%} of the time", xlabel="step", ylabel=f"padded {run.units[0]}", ylim=(0, None)
    )
    _whole(axes.xaxis)


def of_bench(result: Bench) -> Any:
    figure = new_figure(1, 1)
    axes = figure.subplots()
    rows = [r for r in result.rows if r.share >= 0.005][::-1]
    axes.barh([r.stage for r in rows], [r.microseconds for r in rows], color=BLUE)
    speed = result.alone
    axes.set(title=f"one process: {speed.per_second:,.0f} utterances/s", xlabel="µs per utterance")
    return figure
