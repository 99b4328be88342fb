"""Makes one HTML page of tables and charts, or a PNG. The page is self-contained: it fetches nothing and runs no
script. A chart takes its colours from the page, and each place in it has a tooltip."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal

from uio_pipes.base.urls import printable

WIDTH, HEIGHT = 360, 240  # units of the drawing; on a phone, a unit is about a pixel
LEFT, RIGHT, TOP, BOTTOM = 50, 24, 24, 38
COLOURS = 10  # that the style sheet has
CHARACTER = 7  # width of a digit, in a wide font
ROTATED = 7  # characters of a name above which the names of bars are turned
TURN = 60  # degrees by which they are
LONGEST = 12  # characters of a turned name that have room
WIDEST = 48  # of bars
SOURCES = 9  # most that a chart names
NAMES = 8  # most names of bars that have room


@dataclass(frozen=True)
class Chart:
    """Series of numbers over the same places.

    Attributes:
        title: what it shows.
        x: places from left to right: numbers, or the names of bars.
        series: values at these places by name; one that is not finite is left out.
        labels: names of the axes, x and y.
        kind: "bars" are drawn one in front of the other, "areas" stand on each other.
    """

    title: str
    x: Sequence[float] | Sequence[str]
    series: Mapping[str, Sequence[float]]
    labels: tuple[str, str] = ("", "")
    kind: Literal["bars", "lines", "areas"] = "lines"

    @property
    def tops(self) -> list[list[float]]:
        """The heights that are drawn: of areas, the sums from the first series up."""
        rows = [list(map(float, values)) for values in self.series.values()]
        if self.kind != "areas":
            return rows
        return [list(row) for row in zip(*map(accumulate, zip(*rows, strict=True)), strict=True)]


def in_groups(names: Sequence[str], most: int = SOURCES) -> dict[str, Sequence[str]]:
    """Return a group for each of the first names, and one for the others."""
    return {name: [name] for name in names[:most]} | ({"others": names[most:]} if names[most:] else {})


def step_of(low: float, high: float, most: int = 5) -> float:
    """Return the distance between at most about ``most`` ticks: 1, 2 or 5 × 10ⁿ."""
    rough = (high - low) / most or 1.0
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough * (1 - 1e-9))


def ticks(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of ``step`` from one bound to the other."""
    return [step * n for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Return a number as people read it: 12,400, 3.25 or 0.0042."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def short(value: float) -> str:
    """Return a number of an axis, of a few characters: 250k, 3M or 1.5G."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(size, 1e5):
            return f"{value / size:.4g}{unit}"
    return number(value)


def svg(chart: Chart) -> str:
    """Return the figure: title, drawing and names of the series."""
    names = [printable(name) for name in chart.series]
    marks = "".join(f'<li class="s{i % COLOURS}">{escape(name)}</li>' for i, name in enumerate(names))
    legend = f"<ul class=legend>{marks}</ul>" if len(names) > 1 else ""
    drawing = Drawing(chart)
    return (
        f"<figure><figcaption>{escape(printable(chart.title))}</figcaption>"
        f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{escape(drawing.summary)}">'
        f"{drawing.axes()}{drawing.shapes()}{drawing.tooltips()}</svg>{legend}</figure>"
    )


class Drawing:
    """The parts of a chart, in units of the drawing."""

    def __init__(self, chart: Chart) -> None:
        self.chart, self.tops = chart, chart.tops
        self.names = [printable(str(x)) if isinstance(x, str) else number(x) for x in chart.x]
        self.named = chart.kind == "bars"
        self.places = list(range(len(chart.x))) if self.named else list(map(float, chart.x))
        self.highest = highest = max((v for row in self.tops for v in row if math.isfinite(v)), default=0) or 1.0
        whole = all(isinstance(v, int) for values in chart.series.values() for v in values)
        self.step = max(step_of(0, highest), whole)
        self.high = math.ceil(highest / self.step - 1e-9) * self.step or self.step
        margin = 0.5 if self.named or len(self.places) == 1 else 0.0
        self.first, self.last = min(self.places, default=0) - margin, max(self.places, default=1) + margin
        self.longest = max(map(len, self.names), default=0)
        self.turned = self.named and self.longest > ROTATED
        names = min(self.longest, LONGEST) * CHARACTER * math.sin(math.radians(TURN)) if self.turned else 0
        self.bottom = HEIGHT - BOTTOM - names

    @property
    def summary(self) -> str:
        x, y = self.chart.labels
        ends = f"{x or 'from'} {self.names[0]} to {self.names[-1]}" if self.names else "empty"
        return printable(f"{self.chart.title}: {ends}, {y or 'values'} up to {number(self.highest)}")

    def x(self, place: float) -> float:
        return LEFT + (place - self.first) / ((self.last - self.first) or 1) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return self.bottom - value / self.high * (self.bottom - TOP)

    def axes(self) -> str:
        parts = []
        for tick in ticks(0, self.high, self.step):
            y = self.y(tick)
            parts.append(f'<path class=grid d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
            parts.append(f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
        for place, name in self.marks():
            x, y = self.x(place), self.bottom + 16
            rotated = f' transform="rotate(-{TURN} {x:.1f} {y:.1f})" text-anchor="end"'
            turn = rotated if self.turned else ' text-anchor="middle"'
            shown = name if not self.turned or len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
            parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{turn}>{escape(shown)}</text>')
        x_label, y_label = map(escape, map(printable, self.chart.labels))
        parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{x_label}</text>')
        parts.append(f'<text x="1" y="11">{y_label}</text>')
        return "".join(parts)

    def marks(self) -> list[tuple[float, str]]:
        """Return the places that the axis names."""
        if self.named:
            most = NAMES if self.turned else min(NAMES, (WIDTH - LEFT - RIGHT) // (CHARACTER * self.longest + 4))
            return list(zip(self.places, self.names, strict=True))[:: -(-len(self.names) // most) or 1]
        if len(self.places) == 1:
            return [(self.places[0], short(self.places[0]))]
        step = max(step_of(self.first, self.last), all(isinstance(x, int) for x in self.chart.x))
        return [(tick, short(tick)) for tick in ticks(self.first, self.last, step)]

    def shapes(self) -> str:
        floor = [0.0] * len(self.places)
        parts = []
        for i, row in enumerate(self.tops):
            if self.named:
                width = min(WIDEST, 0.8 * (self.x(1) - self.x(0))) * 0.7**i
                d = "".join(
                    f"M{self.x(at) - width / 2:.1f} {self.bottom}V{self.y(v):.1f}h{width:.1f}V{self.bottom}z"
                    for at, v in zip(self.places, row, strict=True) if math.isfinite(v)
                )  # fmt: skip
            elif self.chart.kind == "areas":
                d = self._line(row) + "L" + self._line(floor, reverse=True)[1:] + "z" if row else ""
                floor = row
            else:
                d = self._line(row)
            parts.append(f'<path class="s{i % COLOURS} {self.chart.kind}" d="{d}"/>')
        return "".join(parts)

    def _line(self, row: Sequence[float], reverse: bool = False) -> str:
        """Return a path through the values; it is interrupted where there is none."""
        points, pen = list(zip(self.places, row, strict=True)), "M"
        if len(points) == 1:  # from edge to edge: a point would not be seen
            points = [(self.first, row[0]), (self.last, row[0])]
        out = []
        for place, value in points[::-1] if reverse else points:
            if math.isfinite(value):
                out.append(f"{pen}{self.x(place):.1f} {self.y(value):.1f}")
            pen = "L" if math.isfinite(value) else "M"
        return "".join(out)

    def tooltips(self) -> str:
        """Return an invisible column around each place, which tells its values."""
        if not self.places:
            return ""
        middles = [(a + b) / 2 for a, b in pairwise(self.places)]
        edges = [self.first, *middles, self.last]
        rows = list(self.chart.series.items())
        parts = []
        for i, (left, right) in enumerate(pairwise(map(self.x, edges))):
            values = "\n".join(f"{name}: {number(row[i])}" for name, row in rows if math.isfinite(row[i]))
            where = f"{self.chart.labels[0]} {self.names[i]}".strip()
            title = escape("\n".join(map(printable, f"{where}\n{values}".split("\n"))))
            parts.append(
                f'<rect class=hit x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{self.bottom - TOP:.1f}">'
                f"<title>{title}</title></rect>"
            )
        return "".join(parts)


def png(path: str | Path, charts: Sequence[Chart]) -> None:
    """Draw charts to a PNG file. Raises: PipelineError if matplotlib is missing."""
    from uio_pipes.inspect.plot import new_figure  # only here, as it needs torch

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


PageTable = tuple[str, Sequence[str], Iterable[Sequence[object]]]  # title, headings, rows

BLOCKS = 30  # blocks in the longest bar on a terminal
WORD = 40  # characters of a word above which its column breaks words, so that the others keep their place
STYLE = Path(__file__).with_name("style.css")
HEAD = (
    '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
)


class Bar(str):
    """A bar as wide as ``share`` of the longest one: blocks on a terminal, drawn on a page."""

    __slots__ = ("share",)
    share: float

    def __new__(cls, share: float) -> Bar:
        self = super().__new__(cls, "█" * round(share * BLOCKS))
        self.share = share
        return self


class Alarm(str):
    """A text that needs attention: red."""

    __slots__ = ()


def html(title: str, tables: Iterable[PageTable], charts: Sequence[Chart] = (), refresh: int | None = None) -> str:
    """Return the page; browsers load it again after ``refresh`` seconds."""
    tables = list(tables)
    again = "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh}">'
    name = escape(printable(title))
    links = "".join(f'<li><a href="#t{i}">{escape(printable(rows[0]))}</a></li>' for i, rows in enumerate(tables))
    contents = f'<nav aria-label="Tables"><ul>{links}</ul></nav>' if len(tables) > 2 else ""
    figures = f"<div class=figures>{''.join(map(svg, charts))}</div>" if charts else ""
    first, *rest = [_table(i, *rows) for i, rows in enumerate(tables)] or [""]
    body = f"<h1>{name}</h1>{contents}{first}{figures}{''.join(rest)}"
    style = STYLE.read_text(encoding="utf-8")
    head = f"{HEAD}{again}<title>{name}</title><style>\n{style}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{body}</main></body></html>\n'


def save(
    path: str | Path, title: str, tables: Iterable[PageTable], charts: Sequence[Chart] = (), **options: Any
) -> None:
    """Write the page that :func:`html` makes, as a whole: a browser may load it meanwhile. Or, if ``path`` ends in
    .png, only its charts. Raises: PipelineError if matplotlib is missing for that."""
    if str(path).endswith(".png"):
        return png(path, charts)
    part = Path(f"{path}.part")
    part.write_text(html(title, tables, charts, **options), encoding="utf-8")
    part.replace(path)
    return None


def counts(heading: str, column: Iterable[object]) -> bool:
    """Return whether a column holds numbers, which are set to the right."""
    cells = list(column)
    return heading not in ("value", "text") and not any(str(cell).strip("0123456789.,%+- sx×") for cell in cells)


def _table(index: int, name: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    rows = [list(row) for row in rows]
    numeric = [i > 0 and counts(heading, (row[i] for row in rows)) for i, heading in enumerate(headings)]
    broken = [
        heading == "value" or any(len(word) > WORD for row in rows for word in str(row[i]).split())
        for i, heading in enumerate(headings)
    ]
    sides = [" class=n" if one else " class=value" * breaks for one, breaks in zip(numeric, broken, strict=True)]
    head = "".join(
        f'<th scope="col"{side}>{escape(heading)}</th>' if heading else "<td></td>"
        for heading, side in zip(headings, sides, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, sides))}</tr>" for row in rows)
    caption = escape(printable(name))
    return (
        f'<div class=scroll role="region" aria-label="{caption}" tabindex="0"><table id="t{index}">'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: object, side: str) -> str:
    if isinstance(value, Bar):
        width, told = f"{value.share * 100:.2f}", f"{value.share:.1%} of the longest"
        drawn = f'<rect class=rail width="100" height="1"/><rect width="{width}" height="1"/>'
        box = f'class=share role="img" aria-label="{told}" viewBox="0 0 100 1" preserveAspectRatio="none"'
        return f"<td><svg {box}><title>{told}</title>{drawn}</svg></td>"
    return f"<td{' class=alarm' if isinstance(value, Alarm) else side}>{escape(printable(str(value)))}</td>"
