"""Charts: what is drawn is where it belongs, and tooltips tell the numbers."""

import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_reader import Page

from uio_pipes.reports.page import HEIGHT, WIDTH, Chart, number, short, step_of, svg, ticks


@given(st.floats(1e-6, 1e12))
def test_ticks_are_few_round_and_reach_from_end_to_end(high: float) -> None:
    step = step_of(0, high)
    found = ticks(0, high, step)
    assert 2 <= len(found) <= 7
    assert found[0] == 0
    assert high - found[-1] <= step * (1 + 1e-6)
    assert f"{step:e}"[0] in "125"


def test_each_place_has_a_tooltip_with_all_its_values() -> None:
    drawn = svg(Chart("Steps", ["0", "1"], {"own": [12_345, 7], "steps": [7, float("nan")]}, ("rank", "steps"), "bars"))
    assert Page(drawn).texts["title"] == ["rank 0\nown: 12,345\nsteps: 7", "rank 1\nown: 7"]
    assert 'aria-label="Steps: rank 0 to 1, steps up to 12,345"' in drawn
    assert Page(drawn).texts["li"] == ["own", "steps"]


def test_bars_are_as_high_as_their_values() -> None:
    drawn = svg(Chart("t", ["a", "b", "c"], {"n": [100, 50, 0]}, kind="bars"))
    bars = re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", drawn)
    floor, *tops = float(bars[0][0]), *(float(top) for _, top in bars)
    assert floor - tops[1] == pytest.approx((floor - tops[0]) / 2, abs=0.1)
    assert tops[2] == floor


@pytest.mark.parametrize("kind", ["lines", "areas"])
def test_a_single_place_is_seen(kind: Literal["lines", "areas"]) -> None:
    drawn = svg(Chart("t", [3.5], {"a": [1], "b": [3]}, ("step", "n"), kind))
    for path in re.findall(rf'{kind}" d="([^"]*)"', drawn):
        assert len({point.split()[0] for point in re.split("[ML]", path.strip("Mz"))}) == 2, path
    assert re.findall(r'text-anchor="middle">([^<]*)<', drawn) == ["3.5", "step"]


def test_areas_stand_on_each_other_and_lines_have_gaps() -> None:
    assert Chart("t", [0, 1], {"a": [1, 2], "b": [3, 4]}, kind="areas").tops == [[1, 2], [4, 6]]
    line = re.search(r'lines" d="([^"]*)"', svg(Chart("t", [0, 1, 2, 3], {"a": [1, 2, float("nan"), 1]})))
    assert line is not None
    assert re.sub(r"[\d. ]+", "", line[1]) == "MLM"


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=2, max_size=30, unique_by=lambda p: p[0]))
def test_lines_stay_inside(points: list[tuple[float, float]]) -> None:
    x, y = zip(*sorted(points), strict=True)
    line = re.search(r'lines" d="([^"]*)"', svg(Chart("t", x, {"a": y})))
    assert line is not None
    at = [tuple(map(float, pair.split())) for pair in re.split("[ML]", line[1])[1:]]
    assert len(at) == len(points)
    assert all(0 <= left <= WIDTH and 0 <= top <= HEIGHT for left, top in at)


def test_axes_of_what_is_counted_have_whole_numbers() -> None:
    chart = Chart("t", [0, 1], {"a": [1, 2]}, ("step", "batches"))
    told = Page(svg(chart)).texts["text"]
    assert told == ["0", "1", "2", "0", "1", "step", "batches"]


def test_names_that_are_long_are_turned_and_many_are_thinned() -> None:
    drawn = svg(Chart("t", [f"a long name {i}" for i in range(40)], {"a": [1] * 40}, kind="bars"))
    assert drawn.count("rotate(-60") == 8
    assert len(re.findall("<title>", drawn)) == 40


def test_numbers_as_people_read_them() -> None:
    assert [number(n) for n in (0, 7, 12_345.6, 3.14159, 0.00421)] == ["0", "7", "12,346", "3.14", "0.00421"]


def test_numbers_of_an_axis_have_room() -> None:
    found = [short(n) for n in (0, 50_000, 150_000, 2_500_000, 1e9, 4e13)]
    assert found == ["0", "50,000", "150k", "2.5M", "1G", "40T"]
