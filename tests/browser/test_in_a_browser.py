"""The site and the reports as a reader has them: Chromium opens every page at two widths and finds nothing wrong."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import command
import corpus
import pytest
from servers import running

import uio_pipes as uio
from uio_pipes.tools.reports.page import Alarm, Bar, Chart, html, save

sync_api = pytest.importorskip("playwright.sync_api")
FAULTS = (Path(__file__).parent / "faults.js").read_text()
DRAWINGS = sorted((Path(__file__).parents[2] / "docs" / "pictures").glob("*.svg"))
WIDE, NARROW, HEIGHT = 1280, 390, 800
WIDTHS = pytest.mark.parametrize("width", [WIDE, NARROW])


class Window:
    """A window that has pages open one after the other, and the folder that keeps a picture of each, or, with
    ``sparing``, of those with faults."""

    def __init__(
        self, browser: sync_api.Browser, shots: Path, width: int, scheme: str = "light", sparing: bool = False
    ) -> None:
        self.scheme, self.width, self.shots, self.sparing, self.seen = scheme, width, shots, sparing, list[str]()
        self.page = page = browser.new_page(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
        page.on("console", lambda said: self._if(said.type == "error", f"error on the console: {said.text}"))
        page.on("pageerror", lambda error: self._if(True, f"a script fails: {error}"))
        page.on("request", lambda asked: self._if(_elsewhere(asked.url), f"fetched from elsewhere: {asked.url}"))
        left = "net::ERR_ABORTED"  # the page was left before it had come
        page.on("requestfailed", lambda asked: self._if(asked.failure != left, f"not loaded: {asked.url}"))
        page.on("response", lambda answer: self._if(answer.status >= 400, f"{answer.status}: {answer.url}"))

    def _if(self, wrong: bool, fault: str) -> None:
        if wrong:
            self.seen.append(fault)

    def faults(self, url: str, name: str, full: bool = False) -> list[str]:
        """What is wrong with a page; its picture, of all of it or of what the window shows, gets the name."""
        self.seen.clear()
        self.page.goto(url)
        return self.faults_here(name, full)

    def resize(self, width: int) -> None:
        self.width = width
        self.page.set_viewport_size({"width": width, "height": HEIGHT})

    def faults_here(self, name: str, full: bool = False) -> list[str]:
        found = self.page.evaluate(FAULTS)
        if found or self.seen or not self.sparing:
            path = self.shots / f"{name}_{self.width}_{self.scheme}.jpeg"
            self.page.screenshot(path=path, type="jpeg", quality=70, full_page=full)
        return [f"{name}: {fault}" for fault in (*self.seen, *found)]


class Windows:
    """Windows that stay: a new one, with a process of its own, takes longer than most pages."""

    def __init__(self, browser: sync_api.Browser, shots: Path) -> None:
        self.browser, self.shots, self.kept = browser, shots, dict[tuple[int, str], Window]()

    def __call__(self, width: int, scheme: str = "light", shots: Path | None = None) -> Window:
        """The window of this kind, which shows nothing. ``shots``: where pictures go."""
        if (width, scheme) not in self.kept:
            self.kept[width, scheme] = Window(self.browser, self.shots, width, scheme)
        window = self.kept[width, scheme]
        window.shots = shots or self.shots
        window.page.mouse.move(0, 0)
        window.page.goto("about:blank")
        window.seen.clear()
        return window


def _elsewhere(url: str) -> bool:
    return urlsplit(url).hostname not in (None, "127.0.0.1")


@pytest.fixture(scope="module")
def chromium() -> Iterator[sync_api.Browser]:
    """Only for this module: while it is open, the thread has a running event loop."""
    program = shutil.which("chromium")
    if program is None:
        give_up = pytest.fail if "UIO_REQUIRE_ALL" in os.environ else pytest.skip
        give_up("there is no chromium; Debian's package has it")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])  # root may have none
        yield started
        started.close()


@pytest.fixture
def browser(chromium: sync_api.Browser) -> Iterator[sync_api.Browser]:
    """What a test opens is closed when it ends: pages go on working when nobody looks at them."""
    before = chromium.contexts
    yield chromium
    for context in chromium.contexts:
        if context not in before:
            context.close()


@pytest.fixture(scope="module")
def windows(chromium: sync_api.Browser, shots: Path) -> Windows:
    return Windows(chromium, shots)


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "screenshots"
    folder.mkdir(exist_ok=True)
    return folder


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(built_site: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of the site, and where its pages are below it."""
    with _served(built_site / "site") as served:
        yield served


@pytest.fixture
def site_without_search(built_site: Path, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """As ``site``, with nothing to search in: each page that is opened reads all of it, a quarter of its time."""
    root = shutil.copytree(built_site / "site", tmp_path / "site", copy_function=os.link)
    index = json.loads((root / "search.json").read_bytes())
    (root / "search.json").unlink()
    (root / "search.json").write_text(json.dumps({**index, "items": []}))
    with _served(root) as served:
        yield served


@contextmanager
def _served(root: Path) -> Iterator[tuple[str, list[str]]]:
    pages = [str(page.relative_to(root)).removesuffix("index.html") for page in sorted(root.rglob("*.html"))]
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    with running(server):
        yield f"http://127.0.0.1:{server.server_port}/", pages


# The site


def test_nothing_is_wrong_with_any_page_of_the_site(
    browser: sync_api.Browser, shots: Path, site_without_search: tuple[str, list[str]]
) -> None:
    """Each page is opened once and then made narrow, which takes less time than to open it again."""
    url, pages = site_without_search
    assert len(pages) > 60
    window, found = Window(browser, shots, WIDE, sparing=True), list[str]()
    for page in pages:
        name = page.strip("/").replace("/", "_") or "first"
        window.resize(WIDE)
        found += window.faults(url + page, name)
        window.resize(NARROW)
        found += window.faults_here(f"{name}_made_narrow")
    assert found == []


def test_the_first_page_fits_a_wide_screen_and_has_a_dark_side(
    browser: sync_api.Browser, shots: Path, site: tuple[str, list[str]]
) -> None:
    window = Window(browser, shots, WIDE, "dark")
    assert window.faults(site[0], "first") == []
    assert window.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    bottoms = "[...document.querySelectorAll('article > :not(a)')].map((part) => part.getBoundingClientRect().bottom)"
    assert max(window.page.evaluate(bottoms)) < HEIGHT


@WIDTHS
def test_search_finds_a_stage(browser: sync_api.Browser, shots: Path, site: tuple[str, list[str]], width: int) -> None:
    window = Window(browser, shots, width)
    page = window.page
    page.goto(site[0])
    page.locator("header [for=__search], header .md-search__button").locator("visible=true").click()
    page.keyboard.type("bucket_batch")
    first = page.get_by_role("option").first
    sync_api.expect(first).to_contain_text("bucket_batch")
    assert window.faults_here("search") == []
    first.click()
    page.wait_for_url(re.compile("bucket_batch"))
    sync_api.expect(page.locator(f"[id='{urlsplit(page.url).fragment}']")).to_be_in_viewport()
    assert "bucket_batch" in page.locator("article").inner_text()
    assert window.faults_here("found") == []


def test_search_finds_words_from_elsewhere(browser: sync_api.Browser, shots: Path, site: tuple[str, list[str]]) -> None:
    """Each leads to a page that has the word, among what is shown first."""
    page = Window(browser, shots, WIDE).page
    page.set_default_timeout(10_000)
    for word in ("multi-GPU", "collate_fn", "persistent_workers", "max_duration", "Whisper", "TSV"):
        page.goto(site[0])
        page.locator("header .md-search__button").click()
        page.keyboard.type(word)
        found = page.get_by_role("option").filter(has_text=re.compile(re.escape(word), re.IGNORECASE)).first
        sync_api.expect(found).to_be_in_viewport()
        found.click()
        sync_api.expect(page.locator("article")).to_contain_text(word, ignore_case=True)


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.stem)
def test_nothing_is_wrong_with_a_drawing(windows: Windows, drawing: Path) -> None:
    window = windows(WIDE)
    window.page.set_content(drawing.read_text())
    assert window.faults_here(drawing.stem) == []


# Reports


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which each command has written its report, of data with failures and three sources."""
    folder = tmp_path_factory.mktemp("reports")
    many = corpus.shards(folder / "many", [2, 3, 1, 2] * 6, seconds=(0.3, 0.8)).list
    raw = corpus.raw_list(folder / "raw", 23).list
    bad = corpus.shards(folder / "bad", [4, 5, 3, 4, 5, 6], seconds=(0.3, 1.5), damage=tuple(corpus.DAMAGE)).list
    sources = {"read in a studio": str(many), "damaged": str(bad), "over the telephone": str(raw)}
    (folder / "graphs.py").write_text(f"""
import uio_pipes as uio

def tokens(text):
    return [ord(character) for character in text]

sources = {{k: (uio.from_raw_list if "raw" in v else uio.from_shard_list)(v) for k, v in {sources}.items()}}
mixed = uio.mix(sources, dict.fromkeys(sources, 1)).decode_audio().fbank(num_mel_bins=8).tokenize(tokens)
by_frames = mixed.shuffle(20).sort(9).dynamic_batch(300).pad()
in_buckets = mixed.bucket_batch(num_buckets=(3, 3), max_frames=400).pad()
""")
    shards = uio.from_shard_list(many, shuffle=True).decode_audio().fbank(num_mel_bins=8)
    loader = uio.Loader(shards.shuffle(9).batch(3).pad(), lanes=12)
    for _ in uio.watch(loader, every=0.001, to=folder / "watch"):
        if loader.stats().batches == 9:
            break
    for arguments in (
        ["inspect", many, raw, bad, "--report", "inspect.html"],
        ["simulate", "graphs.py:by_frames", "--world-size", "20", "--lanes", "40", "--out", "simulate.html"],
        ["simulate", "graphs.py:in_buckets", "--world-size", "2", "--uneven", "join", "--out", "buckets.html"],
        ["bench", "graphs.py:in_buckets", "--seconds", "0.2", "--out", "bench.html"],
        ["watch", "watch", "--once", "--html", "watch.html"],
    ):
        done = command.uio(*arguments, cwd=folder)
        assert done.returncode == (arguments[0] == "inspect"), done.stderr  # which tells that there are failures
    save(folder / "live.html", "live", [], [Chart("charts", range(99), {"count": range(99)})], refresh=99)
    return folder


CHARTS = {"inspect": 0, "simulate": 6, "buckets": 6, "bench": 0, "watch": 5, "live": 1}


@WIDTHS
@pytest.mark.parametrize("name", CHARTS)
def test_nothing_is_wrong_with_a_report(windows: Windows, reports: Path, name: str, width: int) -> None:
    window = windows(width)
    assert window.faults((reports / f"{name}.html").as_uri(), f"report_{name}", full=True) == []
    assert window.page.locator("figure").count() == CHARTS[name]
    assert window.page.locator("figure:has(.trace path)").count() == CHARTS[name]
    if CHARTS[name]:
        window.page.locator("figure .nsewdrag").first.hover()
        sync_api.expect(window.page.locator(".hoverlayer .hovertext").first).to_be_visible()


@pytest.mark.parametrize("name", CHARTS)
def test_a_report_is_dark_where_the_reader_has_it_dark(windows: Windows, reports: Path, name: str) -> None:
    window = windows(WIDE, "dark")
    assert window.faults((reports / f"{name}.html").as_uri(), f"report_{name}", full=True) == []
    paper = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", paper))) < 64


@WIDTHS
def test_nothing_is_wrong_with_charts_of_any_size(windows: Windows, tmp_path: Path, width: int) -> None:
    long = "a word " * 12
    charts = []
    for kind in ("bars", "lines", "areas"):
        for top in (0, 0.00012, 0.93, 7, 12_345, 99_999, 987_654_321):
            x = [f"{i} to {i + 1}00 × {i}" for i in range(40)] if kind == "bars" else [2500.0 * i for i in range(40)]
            series = {long: [top * i / 40 for i in range(40)], "other": [top / 2] * 40}
            charts.append(Chart(f"{kind} up to {top}", x, series, ("step of the run", "hours of audio / s"), kind))
    for count in (1, 2, 7, 9, 17, 300):
        for x in (
            [str(i) for i in range(count)],
            [str(10**6 + i) for i in range(count)],
            [f"decode_audio #{i}" for i in range(count)],
        ):
            charts.append(Chart(f"{count} names", x, {"count": range(count)}, ("lane", "batches"), "bars"))
    for last in (0.001, 3.0, 1000.0, 99_999.0, 1e7):
        x = [last * i / 9 for i in range(10)]
        charts += [Chart(f"to {last}", x, {"count": range(10)}, ("step", "count"), kind) for kind in ("bars", "lines")]
    path = f"https://example.org/{'folder/' * 20}shard.tar"
    rows = [(path, "1,000", path), ("b", Bar(0.3), Alarm(long))]
    page = tmp_path / "charts.html"
    page.write_text(html(path, [(long, ("key", long, "value"), rows), *[(path, ("",), [(path,)])] * 2], charts))
    assert windows(width).faults(page.as_uri(), "charts") == []


# What would be found

LINE = "a line of text that is longer than its box"
BROKEN = {
    "error on the console: oh": "<script>console.error('oh')</script>",
    "a script fails: oh": "<script>throw new Error('oh')</script>",
    "not loaded: .*gone.css": "<link rel=stylesheet href=gone.css>",
    "fetched from elsewhere: http://elsewhere.invalid/": "<script src=http://elsewhere.invalid/a.js></script>",
    "an image is missing: .*gone.png": "<img src=gone.png>",
    "an image is not shown": "<img style='visibility: hidden' src=\"data:image/svg+xml,<svg/>\">",
    "a series of a chart is not shown: js-line": "<figure><svg><path class=js-line fill=none /></svg></figure>",
    "a link names no part of the page: #gone": "<a href=#gone>there</a>",
    "the page is wider": "<div style='width: 600px'>wide</div>",
    "text is cut off: a line": f"<p style='width: 5em; white-space: nowrap; overflow: hidden'>{LINE}</p>",
    "text is cut off: a line of": f"<p style='width: 5em; height: 1.2em; overflow: clip'>{LINE}</p>",
    "text is cut off: a line of text": f"<body style='overflow-x: hidden'><p style='width: 600px'>{LINE * 2}",
    "text is cut off: a name": "<svg viewBox='0 0 100 20'><text x=80 y=15>a name</text></svg>",
    "text is hard to see: pale": "<p style='color: #ccc'>pale</p>",
    "text lies over text: one, other": "<svg viewBox='0 0 99 20'><text y=15>one</text><text y=15>other</text></svg>",
    "text lies over the edge of a box: a name": "<svg viewBox='0 0 99 20'><rect width=20 height=20 fill=none />"
    "<text y=15>a name</text></svg>",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_is_found(windows: Windows, tmp_path: Path, fault: str) -> None:
    (tmp_path / "page.html").write_text(f"<!doctype html>{BROKEN[fault]}")
    window = windows(NARROW, shots=tmp_path)
    found = window.faults((tmp_path / "page.html").as_uri(), "page")
    assert any(re.match(f"page: {fault}", one) for one in found), found


def test_what_is_missing_on_a_server_is_found(windows: Windows, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html><script src=gone.js></script>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    with running(server):
        window = windows(NARROW, shots=tmp_path)
        found = window.faults(f"http://127.0.0.1:{server.server_port}/page.html", "page")
    assert any(re.match(r"page: 404: .*gone\.js", one) for one in found), found
