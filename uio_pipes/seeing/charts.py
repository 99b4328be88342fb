"""The drawings of ``simulate``, ``inspect`` and ``bench``."""

from __future__ import annotations

from typing import Any

import numpy as np

from uio_pipes.seeing.bench import Bench
from uio_pipes.seeing.drawing import family, new_figure
from uio_pipes.seeing.inspect import BIN, Contents
from uio_pipes.seeing.simulate import Simulation

__all__ = ["of_bench", "of_contents", "of_simulation"]

BLUE, RED, GREY = "tab:blue", "tab:red", "lightgray"
POINTS = 2000  # steps that are drawn one by one


def of_simulation(run: Simulation) -> Any:
    figure = new_figure(2, 2)
    steps, batches, waits, last = figure.subplots(2, 2).flat
    ranks = range(run.world_size)
    steps.bar(ranks, run.own, color=GREY, label="batches of its lanes")
    steps.bar(ranks, run.steps, color=BLUE, width=0.5, label=f"steps ({run.uneven})")
    steps.set(title="steps of each rank", xlabel="rank")
    steps.legend(fontsize=7)
    batches.hist(np.concatenate(run.padded), bins=40, color=BLUE)
    batches.set(title=f"padded frames of a batch (padding {run.padding_ratio:.1%})", xlabel="frames", ylabel="batches")
    _waits(waits, run)
    if run.buckets:
        names = [f"{b.low}-" if b.high is None else f"<{b.high}" for b in run.buckets]
        last.bar(names, [b.fill or 0 for b in run.buckets], color=BLUE)
        last.set(title="buckets' fill", ylim=(0, 1.05), xlabel="frames")
        last.tick_params(axis="x", labelrotation=60, labelsize=7)
    else:
        last.hist(run.lengths / 100, bins=40, color=BLUE)
        last.set(title="utterances planned", xlabel="planned length (s)", ylabel="utterances")
    return figure


def _waits(axes: Any, run: Simulation) -> None:
    """Slowest rank against the mean of all, step by step (or by averages of neighbouring steps)."""
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
    axes.set(title=f"ranks wait {run.skew:.1%} of the time", xlabel="step", ylabel="padded frames", ylim=(0, None))


def of_contents(seen: Contents) -> Any:
    figure = new_figure(1, 2)
    durations, right = figure.subplots(1, 2)
    at = sorted(seen.durations)
    durations.bar([i * BIN for i in at], [seen.durations[i] for i in at], width=BIN, align="edge", color=BLUE)
    durations.set(title=f"durations: {seen.utterances:,} utterances, {seen.hours:,.2f} h", xlabel="s")
    drawn = [(c, n) for c, n in seen.characters.most_common(30) if c.isprintable() and family(c) is not None]
    if drawn:
        right.bar(range(len(drawn)), [n for _, n in drawn], color=BLUE)
        right.set_xticks(range(len(drawn)), [c for c, _ in drawn], fontname=family("".join(c for c, _ in drawn)))
        right.set(title="most frequent characters")
    else:
        names = [f"{rate:,} Hz" for rate in seen.rates] or ["no audio"]
        right.bar(names, list(seen.rates.values()) or [0], color=BLUE)
        right.set(title="sample rates")
    return figure


def of_bench(result: Bench) -> Any:
    figure = new_figure(1, 1)
    axes = figure.subplots()
    rows = [r for r in result.rows if r.share >= 0.005][::-1]
    axes.barh([r.stage for r in rows], [r.microseconds for r in rows], color=BLUE)
    speed = result.alone
    axes.set(title=f"one process: {speed.per_second:,.0f} utterances/s", xlabel="µs per utterance")
    return figure
