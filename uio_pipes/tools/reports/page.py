"""Makes one HTML page of tables and charts. The page is one file that opens without a network: what draws its charts,
plotly's script, is in it; while a page is renewed it lies beside it. Without plotly, a page has its tables alone."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from uio_pipes.base.processes import cores
from uio_pipes.base.urls import plural, printable
from uio_pipes.io.files import write_bytes

SOURCES = 9  # most that a chart names
NAME = 28  # most characters of a name in a chart
FEW = 5  # whole numbers up to which each has a tick
NO_PLOTLY = 'The charts of this page need plotly: pip install "uio_pipes[reports]"'
COLOURS = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#ff9da7", "#9c755f", "#8a8f98",
]  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """Series of numbers over the same places.

    Attributes:
        title: what it shows.
        x: places from left to right: numbers, or the names of bars, each another.
        series: values at these places by name; one that is not finite is left out.
        labels: names of the axes, x and y.
        kind: "bars" are drawn one in front of the other, "areas" stand on each other.
    """

    title: str
    x: Sequence[float] | Sequence[str]
    series: Mapping[str, Sequence[float]]
    labels: tuple[str, str] = ("", "")
    kind: Literal["bars", "lines", "areas"] = "lines"


def in_groups(names: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return a group for each of the first names, and one for the others."""
    return {name: [name] for name in names[:SOURCES]} | ({"others": names[SOURCES:]} if names[SOURCES:] else {})


def figure(chart: Chart) -> dict[str, Any]:
    """Return what plotly draws: its ``data`` and ``layout``. The style sheet gives axes and texts their colours."""
    named = any(isinstance(x, str) for x in chart.x)
    x = [_name(x) if isinstance(x, str) else x for x in chart.x]
    data = []
    for i, (name, values) in enumerate(chart.series.items()):
        y = [value if math.isfinite(value) else None for value in values]
        trace: dict[str, Any] = {"name": _name(name), "x": x, "y": y, "type": "scatter", "mode": "lines"}
        if chart.kind == "bars":
            trace |= {"type": "bar", "width": 0.8 * 0.7**i} if named else {"type": "bar"}
        elif chart.kind == "areas":
            trace |= {"stackgroup": "all", "line": {"width": 0.5}}
        data.append(trace | ({"mode": "lines+markers"} if len(x) == 1 and chart.kind != "bars" else {}))
    layout = {
        "height": 280, "barmode": "overlay", "hovermode": "x", "colorway": COLOURS, "bargap": 0.1,
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"family": "inherit", "size": 11},
        "margin": {"l": 10, "r": 10, "t": 10, "b": 10},
        "showlegend": len(data) > 1,
        "legend": {"orientation": "h", "yref": "container", "y": 1, "yanchor": "top", "x": 0},
        "xaxis": _axis(chart.labels[0], [] if named else [chart.x]) | ({"type": "category"} if named else {}),
        "yaxis": _axis(chart.labels[1], list(chart.series.values())) | {"rangemode": "tozero"},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _axis(label: str, values: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return an axis; counts of a few things have no ticks between whole numbers."""
    flat = [value for row in values for value in row]
    few = bool(flat) and all(isinstance(value, int) for value in flat) and max(flat) - min(flat) <= FEW >= max(flat)
    ticks = {"dtick": 1} if few else {}
    return {"title": {"text": _name(label), "standoff": 8}, "automargin": True, "exponentformat": "SI", **ticks}


def _name(name: str) -> str:
    """Return a name as plotly, which reads some HTML, is to draw it."""
    shown = printable(name)
    return escape(shown if len(shown) <= NAME else f"{shown[: NAME - 1]}…", quote=False)


def drawn(charts: Sequence[Chart], library: str = "") -> str:
    """Return the figures of a page, and what draws them, which may be a file; without plotly, how to get it."""
    try:
        from plotly.io import to_html
        from plotly.offline import get_plotlyjs
    except ImportError:
        return f"<p>{escape(NO_PLOTLY)}</p>"
    figures = []
    options = {"include_plotlyjs": False, "full_html": False, "validate": False}
    for i, chart in enumerate(charts):
        config = {"responsive": True, "displayModeBar": False}
        made = to_html(figure(chart), config=config, div_id=f"c{i}", **options)
        title = escape(printable(chart.title))
        figures.append(f'<figure role="group" aria-label="{title}"><figcaption>{title}</figcaption>{made}</figure>')
    script = f'<script src="{quote(library)}"></script>' if library else f"<script>{get_plotlyjs()}</script>"
    return f"{script}<div class=figures>{''.join(figures)}</div>"


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


class Media(str):
    """Audio to listen to, or a picture, from a ``data:`` URL; its text on a terminal."""

    __slots__ = ("html",)
    html: str

    def __new__(cls, text: str, kind: Literal["audio", "img"], url: str) -> Media:
        self = super().__new__(cls, text)
        label = escape(text, quote=True)
        end = (
            f'alt="{label}" title="{label}">'
            if kind == "img"
            else f'controls preload="metadata" title="{label}"></audio>'
        )
        self.html = f'<{kind} src="{url}" {end}'
        return self


class Alarm(str):
    """A text that needs attention: red."""

    __slots__ = ()


def html(
    title: str,
    tables: Iterable[PageTable],
    charts: Sequence[Chart] = (),
    refresh: int | None = None,
    library: str = "",
) -> str:
    """Return the page; below its title stands where it was made. Browsers load it again after ``refresh`` seconds.

    ``library`` names the file beside the page that draws its charts. Default: what draws them is in the page.
    """
    tables = list(tables)
    again = "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh}">'
    name = escape(printable(title))
    links = "".join(f'<li><a href="#t{i}">{escape(printable(rows[0]))}</a></li>' for i, rows in enumerate(tables))
    contents = f'<nav aria-label="Tables"><ul>{links}</ul></nav>' if len(tables) > 2 else ""
    figures = drawn(charts, library) if charts else ""
    first, *rest = [_table(i, *rows) for i, rows in enumerate(tables)] or [""]
    now, machine = (
        time.strftime("%Y-%m-%d %H:%M"),
        f"{platform.node()} ({platform.machine()}, {plural(cores(), 'core')}",
    )
    versions = f"Python {platform.python_version()}, PyTorch {metadata.version('torch')}"
    below = f"<p class=about>{escape(printable(f'{now} on {machine}), {versions}'))}</p>"
    body = f"<h1>{name}</h1>{below}{contents}{first}{figures}{''.join(rest)}"
    style = STYLE.read_text(encoding="utf-8")
    head = f"{HEAD}{again}<title>{name}</title><style>\n{style}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{body}</main></body></html>\n'


def save(
    path: str | Path,
    title: str,
    tables: Iterable[PageTable],
    charts: Sequence[Chart] = (),
    refresh: int | None = None,
) -> None:
    """Write the page that :func:`html` makes, as a whole: a browser may load it meanwhile.

    What draws the charts of a page that is renewed (5 MB) is written once, beside it; the last one has it within.
    """
    library, live = Path(path).with_suffix(".plotly.js"), bool(charts) and refresh is not None
    if live and not library.exists() and util.find_spec("plotly"):
        from plotly.offline import get_plotlyjs

        write_bytes(library, get_plotlyjs().encode())
    text = html(title, tables, charts, refresh=refresh, library=library.name if live else "")
    write_bytes(Path(path), text.encode())
    if refresh is None:
        library.unlink(missing_ok=True)


def counts(heading: str, column: Iterable[object]) -> bool:
    """Return whether a column holds numbers, which are set to the right."""
    numeric = (not isinstance(cell, Media) and not str(cell).strip("0123456789.,%+- sx×") for cell in column)
    return heading not in ("value", "text") and all(numeric)


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
        width, label = f"{value.share * 100:.2f}", f"{value.share:.1%} of the longest"
        drawn = f'<rect class=rail width="100" height="1"/><rect width="{width}" height="1"/>'
        box = f'class=share role="img" aria-label="{label}" viewBox="0 0 100 1" preserveAspectRatio="none"'
        return f"<td><svg {box}><title>{label}</title>{drawn}</svg></td>"
    if isinstance(value, Media):
        return f"<td>{value.html}</td>"
    return f"<td{' class=alarm' if isinstance(value, Alarm) else side}>{escape(printable(str(value)))}</td>"
