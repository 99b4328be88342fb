"""Makes one HTML page of tables and charts, or a PNG. The page is self-contained: it fetches nothing and runs no
script."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from uio_pipes.base.urls import printable
from uio_pipes.inspect.drawing import new_figure
from uio_pipes.reports.svg import Chart, Drawing, svg, ticks


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


PageTable = tuple[str, Sequence[str], Iterable[Sequence[object]]]  # title, headings, rows

LONGEST = 30  # blocks in the longest bar on a terminal
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
        self = super().__new__(cls, "█" * round(share * LONGEST))
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
