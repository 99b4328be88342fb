"""Charts: plotly gets what is to be drawn, and a page without plotly has its tables and says how to get the charts."""

import json
import re
import sys
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uio_pipes.tools.reports.page import Chart, figure, html

NAN = float("nan")


def test_bars_stand_one_in_front_of_the_other_and_nothing_is_drawn_where_nothing_is_known() -> None:
    made = figure(Chart("Steps", ["0", "1"], {"own": [12_345, 7], "steps": [7, NAN]}, ("rank", "steps"), "bars"))
    own, steps = made["data"]
    assert (own["type"], own["x"], own["y"], steps["y"]) == ("bar", ["0", "1"], [12_345, 7], [7, None])
    assert steps["width"] < own["width"]
    assert made["layout"]["barmode"] == "overlay"
    assert made["layout"]["xaxis"]["type"] == "category", "the names of ranks are no numbers"
    assert [made["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")] == ["rank", "steps"]


@pytest.mark.parametrize("kind", ["lines", "areas"])
def test_a_single_place_is_seen(kind: Literal["lines", "areas"]) -> None:
    (made,) = figure(Chart("t", [3.5], {"a": [1]}, ("step", "n"), kind))["data"]
    assert made["mode"] == "lines+markers"


def test_areas_stand_on_each_other_and_one_series_needs_no_legend() -> None:
    both = figure(Chart("t", [0, 1], {"a": [1, 2], "b": [3, 4]}, kind="areas"))
    assert {trace["stackgroup"] for trace in both["data"]} == {"all"}
    assert both["layout"]["showlegend"]
    assert not figure(Chart("t", [0, 1], {"a": [1, 2]}))["layout"]["showlegend"]


@pytest.mark.parametrize(("values", "each"), [([1, 2], True), ([1, 200], False), ([0.5, 2.0], False), ([], False)])
def test_a_few_things_that_are_counted_have_whole_numbers_on_the_axis(values: list[float], each: bool) -> None:
    axis = figure(Chart("t", [float(i) for i in range(len(values))], {"a": values}))["layout"]["yaxis"]
    assert (axis.get("dtick") == 1) == each


@given(st.text(max_size=60))
def test_a_name_is_drawn_as_it_is_and_is_short(name: str) -> None:
    (made,) = figure(Chart("t", [name], {name: [1]}, kind="bars"))["data"]
    assert "<" not in made["name"]
    assert len(re.sub("&(lt|gt|amp);", "_", made["x"][0])) <= 28


def test_a_page_holds_its_figures_and_what_draws_them() -> None:
    pytest.importorskip("plotly")
    page = html("t", [], [Chart("</script><b>", ["</script>"], {"<u>": [1]}, kind="bars")])
    data, _ = drawn_in(page)
    assert data[0]["x"] == ["&lt;/script&gt;"], "plotly reads HTML in names"
    assert page.count("</script>") == page.count("<script"), "no name ends the script"
    assert len(page) > 1_000_000, "plotly's own script is in the page"


def drawn_in(page: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return data and layout of the first figure of a page."""
    start = page.index("[", page.index('"c0",', page.index("Plotly.newPlot(")))
    data, end = json.JSONDecoder().raw_decode(page, start)
    return data, json.JSONDecoder().raw_decode(page, page.index("{", end))[0]


def test_without_plotly_a_page_has_its_tables_and_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.io", None)
    page = html("t", [("rows", ("a",), [("b",)])], [Chart("t", [0, 1], {"a": [1, 2]})])
    assert "<caption>rows</caption>" in page
    assert "<script" not in page
    assert "pip install &quot;uio_pipes[reports]&quot;" in page
