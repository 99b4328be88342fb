"""Reads a page of a report as a browser and a screen reader do, and says what is wrong with it."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link"}
PLOTLY = re.compile(r"/\*\*\n\* plotly.js|window.PlotlyConfig|\s*window.PLOTLYENV").match


class Page(HTMLParser):
    """The elements of a page, and the text in each kind of them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.open = text, list[str]()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> is too much"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]

    def check(self) -> None:
        """Raises: AssertionError if it is not well-formed, fetches something, runs something but plotly, or cannot be
        read aloud."""
        assert not self.open
        assert self.all("html")[0]["lang"] == "en"
        assert "width=device-width, initial-scale=1" in {meta.get("content") for meta in self.all("meta")}
        assert len(self.all("main")) == len(self.all("h1")) == 1
        assert not self.all("img") + self.all("iframe")
        assert not [script for script in self.all("script") if "src" in script]
        assert all(map(PLOTLY, self.texts.get("script", [])))
        addresses = [
            value for _, attributes in self.found for name in ("href", "src") if (value := attributes.get(name))
        ]
        ids = {f"#{attributes['id']}" for _, attributes in self.found if "id" in attributes}
        assert {a for a in addresses if a != "data:,"} <= ids, "a link leads nowhere"
        assert not re.search(r"https?:|url\(|@import", re.sub("<script.*?</script>", "", self.text, flags=re.DOTALL))
        assert len(self.all("caption")) == len(self.all("table")), "each has a name"
        assert all(self.texts.get("caption", []))
        assert all(head.get("scope") == "col" for head in self.all("th"))
        assert all(text for text in self.texts.get("th", []))
        drawings = self.all("svg")
        assert all(one.get("role") == "img" and one.get("aria-label") for one in drawings)
        assert len(self.all("figure")) == len(self.all("figcaption"))
