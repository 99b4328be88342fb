"""The documentation site is whole: ``scripts/docs`` builds it, and refuses what a reader would stumble over."""

import inspect
import json
import re
import shutil
import subprocess
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import uio_pipes as uio

ROOT = Path(__file__).parents[1]
LOADS = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
}  # what a browser fetches by itself


class Page(HTMLParser):
    """What a page links to, loads, and offers as targets of links."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if values.get(LOADS.get(tag, "")) and values.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(values[LOADS[tag]])


class Site:
    """All pages of a built site, by file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def pages(self) -> dict[Path, Page]:
        return {file: Page(file) for file in sorted(self.folder.rglob("*.html")) if file.name != "404.html"}

    def fault(self, file: Path, link: str) -> str:
        """Say what is wrong with a link, or nothing."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return ""
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            return f"{file.relative_to(self.folder)}: {link} leads nowhere"
        page = self.pages.get(target)
        known = page is None or not parts.fragment or unquote(parts.fragment) in page.ids
        return "" if known else f"{file.relative_to(self.folder)}: {link} names no part of its page"


@pytest.fixture(scope="module")
def site(built_site: Path) -> Site:
    return Site(built_site / "site")


def test_links_and_images_lead_to_what_is_there(site: Site) -> None:
    assert len(site.pages) > 60
    links = [(file, link) for file, page in site.pages.items() for link in (*page.links, *page.loads)]
    assert len(links) > 3_000
    assert [fault for file, link in links if (fault := site.fault(file, link))] == []


def test_nothing_is_fetched_from_elsewhere(site: Site) -> None:
    loads = {load for page in site.pages.values() for load in page.loads}
    assert loads
    assert [load for load in loads if urlsplit(load).netloc] == []
    for sheet in site.folder.rglob("*.css"):
        assert not re.search(r"(@import|url\()[\"' ]*(https?:)?//", sheet.read_text()), sheet.name
    for file in site.pages:  # for these, the theme's own script would fetch another
        assert not re.search(r'class="[^"]*\b(mermaid|glightbox|pyodide)\b', file.read_text()), file


def test_every_public_name_is_in_the_reference(site: Site) -> None:
    reference = {i for file, page in site.pages.items() if "api" in file.parts for i in page.ids}
    names = list(uio.__all__)
    for kind in (uio.Pipeline, uio.Loader):
        members = inspect.getmembers(kind, lambda member: inspect.isfunction(member) or isinstance(member, property))
        names += [f"{kind.__name__}.{name}" for name, _ in members if not name.startswith("_")]
    assert len(names) > 100
    assert [name for name in names if f"uio_pipes.{name}" not in reference] == []


def test_search_finds_stages_concepts_and_functions(site: Site) -> None:
    found = json.loads((site.folder / "search.json").read_text())["items"]
    titles = {re.sub("<[^>]*>", "", item["title"]): item["location"] for item in found}
    assert {"bucket_batch", "gather_state", "Lane", "Limits", "1.0.0"} <= titles.keys()
    assert any("bucket_batch" in item["text"] for item in found)


def test_the_tour_is_shown_with_its_pictures_and_outputs(site: Site) -> None:
    text = (site.folder / "tour" / "index.html").read_text()
    assert len(re.findall(r'<img alt="[^"]{40,}" src="data:image/png;base64,', text)) == 3  # the plan is a table
    assert "the other two had the same: True\nmade again, the same: True" in text


LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
FENCES = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def texts(site: Site) -> list[str]:
    """The texts of all pages but those of single measurements; the comparison of loaders is one for readers."""
    pages = [f"{page.relative_to(site.folder)}.md" for page in site.pages]
    return sorted(page for page in pages if not page.startswith("benchmarks/") or "/compare/" in page)


def test_llms_txt_lists_every_page_with_a_sentence(site: Site) -> None:
    head, *sections = (site.folder / "llms.txt").read_text().split("\n## ")
    assert re.match(r"# uio_pipes\n\n> [^\n]+\n\n", head), "a title and a summary come first: llmstxt.org"
    assert [section.split("\n")[0] for section in sections][-1] == "Optional"
    listed = []
    for line in (line for section in sections for line in section.split("\n\n", 1)[1].splitlines() if line):
        entry = re.fullmatch(r"- \[[^]]+\]\(([^)]+)\): (.{10,}\.)", line)
        assert entry, line
        assert not re.search(r"\]\(|:::|```|^#", entry[2]), line
        listed.append(entry[1])
    assert sorted(listed) == texts(site)
    text = "\n".join(sections)
    assert "(skills/move-training/index.html.md): Move a speech training in PyTorch" in text
    assert "(debug/index.html.md): This page shows how to find what slows a loader down" in text


def test_the_text_of_a_page_lies_beside_it_and_its_links_lead_to_texts(site: Site) -> None:
    links = 0
    for page in site.pages:
        text = FENCES.sub("", page.with_name("index.html.md").read_text())
        assert re.search("^# ", text, re.MULTILINE), page
        for link in LINK.findall(text):
            assert (page.parent / link).resolve().is_file(), f"{page}: {link}"
            links += 1
    assert links > 500
    skill = (site.folder / "skills" / "move-training" / "index.html.md").read_text()
    assert skill.startswith("---\nname: move-training\n")


def test_llms_full_has_all_pages_and_the_reference(site: Site) -> None:
    text = (site.folder / "llms-full.txt").read_text()
    assert sorted(re.findall(r"^<!-- (\S+) -->$", text, re.MULTILINE)) == texts(site)
    assert [name for name in uio.__all__ if f"\n### `{name}`\n" not in text] == []
    assert "\n### `Loader.state_dict`\n" in text
    assert "    min_frames: fewest planned feature frames" in text
    assert not re.search("^:::|base64", text, re.MULTILINE)
    for link in LINK.findall(FENCES.sub("", text)):
        assert (site.folder / link).is_file(), link


def test_no_style_asks_for_what_is_anywhere_within_a_part() -> None:
    """``:has()`` of any descendant is searched again at each change that a script makes: 11 s on the longest page."""
    asked = re.findall(
        r":has\(([^)]*)\)", re.sub(r"/\*.*?\*/", "", (ROOT / "docs" / "site.css").read_text(), flags=re.DOTALL)
    )
    assert [selector for selector in asked if not re.fullmatch(r"> \w+", selector)] == []


def test_every_page_can_be_reached_from_the_first_one(site: Site) -> None:
    reached: set[Path] = set()
    todo = [site.folder / "index.html"]
    while todo:
        file = todo.pop()
        if file in reached or file not in site.pages:
            continue
        reached.add(file)
        for link in site.pages[file].links:
            target = (file.parent / urlsplit(link).path).resolve()
            todo.append(target / "index.html" if target.is_dir() else target)
    assert [str(file) for file in site.pages if file not in reached] == []


REFERENCE, SORT = "docs/api/loader.md", "docs/api/batches.md"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            [(REFERENCE, "::: uio_pipes.gather_state\n", ""), (SORT, "::: uio_pipes.Pipeline.sort\n", "")],
            "missing are: gather_state, Pipeline.sort\n",
        ),
        ([("docs/train.md", "(debug.md)", "(debugging.md)")], "docs/train.md: the link debugging.md leads to no file"),
        ([("docs/train.md", "(debug.md)", "(debug.md#nothing)")], "anchor does not exist"),
        ([("docs/lane.md", "pictures/lane.svg", "pictures/lanes.svg")], "docs/lane.md: the link pictures/lanes.svg"),
    ],
    ids=["names without a reference", "a page", "an anchor", "a picture"],
)
def test_what_is_broken_or_missing_stops_the_build(
    built_site: Path, tmp_path: Path, changes: list[tuple[str, str, str]], said: str
) -> None:
    for name in ("docs", "uio_pipes", "recipes", "benchmarks/results", "scripts", "skills"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    for page, old, new in changes:
        text = (tmp_path / page).read_text()
        assert old in text
        (tmp_path / page).write_text(text.replace(old, new))
    done = subprocess.run(
        [ROOT / ".venv-docs/bin/python", "scripts/build_site.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert said in done.stdout + done.stderr
