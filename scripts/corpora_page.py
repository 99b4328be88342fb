"""Write the cards of corpora into ``docs/corpora.md`` anew, from the heading of all on; what stands above is written by
hand."""

from __future__ import annotations

from pathlib import Path

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
    sections = "\n".join(described(card) for card in CORPORA.values())
    return f"{page.partition(MARK)[0]}{MARK}\n{lines}\n{sections}"


if __name__ == "__main__":
    PAGE.write_text(written_anew(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
