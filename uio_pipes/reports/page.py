"""Makes one HTML page of tables and a drawing. It is self-contained: it fetches nothing and runs no script."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from uio_pipes.base.printable import printable

Rows = tuple[str, Sequence[str], Iterable[Sequence[object]]]  # title, headings, rows

LONGEST = 30  # blocks in the longest bar on a terminal
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;
text-align:left;vertical-align:top}th{color:#666;font-weight:600}img{max-width:100%}h1{font-size:1.4rem}
h2{font-size:1.1rem;margin-top:1.5rem}td.bar{width:24rem}td.bar i{display:block;height:1rem;background:#1f77b4}"""


class Bar(str):
    """A bar as wide as ``share`` of the longest one: blocks on a terminal, drawn on a page."""

    __slots__ = ("share",)
    share: float

    def __new__(cls, share: float) -> Bar:
        self = super().__new__(cls, "█" * round(share * LONGEST))
        self.share = share
        return self


def png(figure: Any) -> bytes:
    """Return a drawing as PNG."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():  # a character that is in no font is drawn as a box
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def html(title: str, tables: Iterable[Rows], figure: Any = None) -> str:
    """Return the page."""
    parts = [f"<h1>{escape(title)}</h1>"]
    if figure is not None:
        data = base64.b64encode(png(figure)).decode()
        parts.append(f'<img alt="drawing of the figures in the tables" src="data:image/png;base64,{data}">')
    for name, headings, rows in tables:
        head = "".join(f"<th>{escape(h)}</th>" for h in headings)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
        parts.append(f"<h2>{escape(name)}</h2><table><tr>{head}</tr>{body}</table>")
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return f"<!doctype html><html lang=en><head>{meta}<title>{escape(title)}</title><style>{STYLE}</style></head>" + (
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _cell(value: object) -> str:
    if isinstance(value, Bar):
        return f'<td class=bar><i style="width:{value.share:.2%}"></i></td>'
    return f"<td>{escape(printable(str(value)))}</td>"


def save(path: str, title: str, tables: Iterable[Rows], figure: Any) -> None:
    """Write the drawing (if ``path`` ends in .png) or the page (.html)."""
    if path.endswith(".png"):
        Path(path).write_bytes(png(figure))
    else:
        Path(path).write_text(html(title, tables, figure), encoding="utf-8")
