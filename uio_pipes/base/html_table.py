"""A table in HTML, as a notebook shows it in place of text (``_repr_html_``)."""

from collections.abc import Iterable, Sequence
from html import escape

CELL = '<{0} style="text-align: left; white-space: pre-wrap">{1}</{0}>'


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table with a line for each row. Texts may have any characters; a notebook gives it its colours."""
    lines = ["".join(CELL.format("th", escape(cell)) for cell in head)]
    lines += ["".join(CELL.format("td", escape(cell)) for cell in row) for row in rows]
    return f"<table><caption>{escape(caption)}</caption><tr>{'</tr><tr>'.join(lines)}</tr></table>"
