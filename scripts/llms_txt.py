"""What language models read of the site, by https://llmstxt.org: ``llms.txt``, which lists the pages with a sentence on
each, ``llms-full.txt`` with all of them, and beside each page its text, as ``train/index.html.md``.

The reference is written as signatures and docstrings there, as its pages have only their names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import griffe
import yaml

OPTIONAL = ("Recipes", "Performance and limits")  # sections that a reader with little room may leave out
BEGIN = """Links lead to the text of a page, in Markdown; without `index.html.md` they lead to the page.
[llms-full.txt](llms-full.txt) has all pages in one file. `uio COMMAND --help` and Python's `help(uio.Pipeline.shuffle)`
say the same as the reference."""
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
DIRECTIVE = re.compile(r"^::: uio_pipes\.([\w.]+)\n((?: {4}.*\n?)*)", re.MULTILINE)
PICTURE = re.compile(r'<img alt="([^"]*)" src="data:[^"]*">')


def text_place(page: Path) -> Path:
    """Return where the site has the text of the page that it makes of ``page``."""
    return page.with_name("index.html.md") if page.stem == "index" else page.with_suffix("") / "index.html.md"


def texts(folder: Path, pages: Mapping[Path, str], write: Callable[[Path, str], None]) -> None:
    """Write everything into ``folder/site``. ``pages``: the text of each, by its place, with links to the texts of
    others; ``folder``: the generator's, with its configuration and the package."""
    config = yaml.safe_load((folder / "mkdocs.yml").read_text())
    package = griffe.load("uio_pipes", search_paths=[str(folder)], resolve_aliases=True)
    whole = {page: PICTURE.sub(r"(picture: \1)", with_reference(text, package)) for page, text in pages.items()}
    for page, text in whole.items():
        write(folder / "site" / text_place(page), text)
    sections: dict[str, list[str]] = {}
    full = []
    for title, name, page in listed(config["nav"]):
        text = whole[Path(page)]
        line = f"- [{name or heading(text)}]({text_place(Path(page))}): {first_sentence(text)}"
        sections.setdefault("Optional" if title in OPTIONAL else title, []).append(line)
        full.append(f"<!-- {text_place(Path(page))} -->\n\n{from_root(text, page).strip()}\n")
    head = f"# {config['site_name']}\n\n> {config['site_description']}\n"
    sections["Optional"] = sections.pop("Optional")  # comes last
    parts = [f"## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in sections.items()]
    write(folder / "site" / "llms.txt", "\n".join([head, BEGIN + "\n", *parts]))
    write(folder / "site" / "llms-full.txt", "\n".join([head, *full]))


def listed(nav: list[Any], section: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield section, name (which may be missing) and file of every page, in the order of the navigation."""
    for entry in nav:
        name, value = next(iter(entry.items())) if isinstance(entry, dict) else ("", entry)
        if isinstance(value, list):
            yield from listed(value, section or name)
        else:
            yield section or name, name, value


def heading(text: str) -> str:
    """Return the first heading of a page."""
    return re.findall(r"^# (.+)$", text, re.MULTILINE)[0].replace("`", "")


def first_sentence(text: str) -> str:
    """Return the first sentence of a page, or of the description in its front matter, without links."""
    prose = re.sub(r"^ *```[\s\S]*?^ *```$|^(?:#|name:).*$|^---$|^description: ", "", text, flags=re.MULTILINE)
    plain = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", " ".join(prose.strip().split("\n\n")[0].split()))
    return re.split(r"(?<=[.:])\s", plain)[0].rstrip(":.") + "."


def from_root(text: str, page: str) -> str:
    """Return a text of ``page`` with links as they are from the root of the site."""
    folder = text_place(Path(page)).parent
    return LINK.sub(lambda m: f"{m[1]}{os.path.normpath(folder / m[2])}{m[3] or ''}{m[4]}", text)


def with_reference(text: str, package: Any) -> str:
    """Return the text of a page of the reference with what its directives stand for."""
    return DIRECTIVE.sub(lambda m: "\n".join(described(package[m[1]], m[1], "members: false" not in m[2])), text)


def described(item: Any, name: str, members: bool) -> Iterator[str]:
    """Yield the text of a public name, and of the methods of a class."""
    item = item.final_target if item.is_alias else item
    yield f"### `{name}`\n"
    if item.is_class or item.is_function:
        yield f"```python\n{item.signature()}\n```\n"
    yield f"{item.docstring.value if item.docstring else ''}\n"
    for inner, member in item.all_members.items() if members and item.is_class else ():
        member = member.final_target if member.is_alias else member
        told = member.docstring and (member.is_function or "property" in member.labels)
        if told and not inner.startswith("_"):
            yield from described(member, f"{name}.{inner}", members=False)
