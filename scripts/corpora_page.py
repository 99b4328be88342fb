"""Rewrite the cards of corpora in ``docs/corpora.md``, below the heading of all of them; the text above stays."""

from __future__ import annotations

from pathlib import Path

from uio_pipes.sources.corpora.card import Corpus
from uio_pipes.sources.corpora.source import CORPORA
from uio_pipes.tools.data.corpora import described, forms

PAGE = Path(__file__).parent.parent / "docs" / "corpora.md"
MARK = "## All of them\n"
HEADINGS = ("name", "what it is", "hours", "layouts")


def written_anew(page: str) -> str:
    """Return the page with what the cards say."""
    rows = [
        (f"[{card.name}](#{card.name})", card.title, card.hours, "; ".join(forms(card))) for card in CORPORA.values()
    ]
    table = [HEADINGS, tuple("---" for _ in HEADINGS), *rows]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in table)
    sections = "\n".join(map(section, CORPORA.values()))
    return f"{page.partition(MARK)[0]}{MARK}\n{lines}\n{sections}"


def section(card: Corpus) -> str:
    """Return what ``uio corpora NAME`` shows, without paths of layouts and what the table above says already."""
    heading, _, _, _, call, _, *points = described(card).splitlines()
    points = [point for point in points if not point.startswith("- Layout")]
    text = "\n".join([heading, "", f"- To read: {call}.", *points]) + "\n"
    return text.replace(".\n- Others on request: ", "; on request ")


if __name__ == "__main__":
    PAGE.write_text(written_anew(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
