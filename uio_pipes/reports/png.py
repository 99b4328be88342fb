"""Draws charts to a PNG file, with matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from uio_pipes.reports.svg import Chart, Drawing, ticks
from uio_pipes.seeing.drawing import new_figure


def png(path: str | Path, charts: Sequence[Chart]) -> None:
    """Draw charts to a PNG file. Raises: PipelineError if matplotlib is missing."""
    columns = min(2, len(charts))
    rows = -(-len(charts) // columns)
    figure = new_figure(rows, columns)
    for axes, chart in zip(figure.subplots(rows, columns, squeeze=False).flat, charts, strict=False):
        for i, (name, values) in enumerate(chart.series.items()):
            if chart.kind == "bars":
                axes.bar(range(len(values)), values, 0.8 * 0.7**i, label=name)
            elif chart.kind == "lines":
                axes.plot(chart.x, values, label=name)
        if chart.kind == "areas":
            axes.stackplot(chart.x, *chart.series.values(), labels=list(chart.series))
        drawing = Drawing(chart)
        axes.set_xticks(*zip(*drawing.marks(), strict=True), fontsize=7, rotation=40 * drawing.turned)
        axes.set_yticks(ticks(0, drawing.high, drawing.step))
        axes.set(title=chart.title, xlabel=chart.labels[0], ylabel=chart.labels[1], ylim=(0, None))
        axes.legend(fontsize=7)
    with warnings.catch_warnings():  # a character that is in no font is drawn as a box
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(path, format="png", dpi=110)
