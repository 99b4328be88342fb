"""A page of a report: whole, safe, and readable by everyone, whatever is in it."""

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from page_reader import Page

from uio_pipes.tools.reports.page import Alarm, Bar, Chart, html, save

TEXTS = st.text(max_size=20).filter(lambda text: not re.search(r"https?:|url\(|@import", text))  # as of an address
NUMBERS = st.floats(0, 1e12) | st.just(float("nan"))


@st.composite
def charts(draw: st.DrawFn) -> Chart:
    count = draw(st.integers(0, 5))
    names = draw(st.lists(TEXTS, max_size=3, unique=True))
    kind = draw(st.sampled_from(["bars", "lines", "areas"]))
    values = NUMBERS if kind != "areas" else st.floats(0, 1e9)
    series = {name: draw(st.lists(values, min_size=count, max_size=count)) for name in names}
    x = (
        draw(st.lists(TEXTS, min_size=count, max_size=count))
        if kind == "bars"
        else sorted(draw(st.floats(0, 1e6)) for _ in range(count))
    )
    return Chart(draw(TEXTS), x, series, (draw(TEXTS), draw(TEXTS)), kind)


@settings(max_examples=25, deadline=None)
@given(TEXTS, st.lists(st.tuples(TEXTS.filter(str.strip), TEXTS, TEXTS), max_size=4), st.lists(charts(), max_size=2))
def test_any_page_is_well_formed_and_accessible(
    title: str, tables: list[tuple[str, str, str]], drawn: list[Chart]
) -> None:
    rows = [(name, ("", heading), [(text, Bar(0.5)), (Alarm(text), 3)]) for name, heading, text in tables]
    page = Page(html(title, rows, drawn))
    page.check()
    assert len(page.all("figure")) == len(drawn)
    assert len(page.all("table")) == len(tables)


def test_contents_name_the_tables_if_there_are_several() -> None:
    tables = [(f"Table {i}", ("a",), [("b",)]) for i in range(3)]
    page = Page(html("Three", tables))
    assert [a["href"] for a in page.all("a")] == ["#t0", "#t1", "#t2"]
    assert page.texts["a"] == page.texts["caption"] == ["Table 0", "Table 1", "Table 2"]
    assert not Page(html("Two", tables[:2])).all("nav")


def test_numbers_are_set_to_the_right_and_alarms_are_marked() -> None:
    page = Page(html("t", [("t", ("", "count", "value"), [("a", "1,000", "12"), (Alarm("b"), "3 %", "x")])]))
    assert [cell.get("class") for cell in page.all("td")[1:]] == [None, "n", "value", "alarm", "n", "value"]


def test_a_column_with_a_long_word_breaks_words() -> None:
    page = Page(html("t", [("t", ("name", "text", "n"), [("a" * 150, "two words", 12), ("b", "c", 3)])]))
    assert [cell.get("class") for cell in page.all("td")] == ["value", None, "n"] * 2


def test_what_draws_a_live_page_is_written_once_and_the_last_one_has_it_within(tmp_path: Path) -> None:
    page, library, chart = tmp_path / "a b.html", tmp_path / "a b.plotly.js", [Chart("c", [1, 2], {"s": [3, 4]})]
    save(page, "t", [], chart, refresh=5)
    first = library.stat()
    save(page, "t", [], chart, refresh=5)
    assert (library.stat().st_ino, library.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    assert {"src": "a%20b.plotly.js"} in Page(page.read_text()).all("script")
    assert page.stat().st_size < 100_000 < 1_000_000 < first.st_size
    save(page, "t", [], chart)
    assert [path.name for path in tmp_path.iterdir()] == [page.name]
    assert page.stat().st_size > first.st_size


def test_a_live_page_asks_to_be_loaded_again_and_is_never_half_written(tmp_path: Path) -> None:
    save(tmp_path / "a.html", "t", [], refresh=5)
    assert {"http-equiv": "refresh", "content": "5"} in Page((tmp_path / "a.html").read_text()).all("meta")
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
    assert "http-equiv" not in html("t", [])
