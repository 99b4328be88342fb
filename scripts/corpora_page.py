"""Rewrite the table of corpora in ``docs/corpora.md``, below its heading; the text above stays."""

from __future__ import annotations

from pathlib import Path

from uio_pipes.sources.corpora.source import CORPORA
from uio_pipes.tools.data.corpora import listed

PAGE = Path(__file__).parent.parent / "docs" / "corpora.md"
MARK = "## All of them\n"
HEADINGS = ("name", "what it is", "hours", "layouts", "to download")


def written_anew(page: str) -> str:
    """Return the page with what the cards say."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *((f"`{name}`", *rest) for name, *rest in listed(CORPORA))]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"{page.partition(MARK)[0]}{MARK}\n{lines}"


if __name__ == "__main__":
    PAGE.write_text(written_anew(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
