"""The table of damages in the docs: written from sweeps, and held to them by each sweep's own test."""

from pathlib import Path

from sweeps.sweep import Outcome, rows
from sweeps.table import assert_documented, documented, modules, written


def test_the_table_has_rows_and_its_sweeps_are_held_to_it() -> None:
    assert len(documented()) > 20
    assert modules()
    for module in modules():
        assert "assert_documented(" in Path(str(module.__file__)).read_text(), module.__name__
        assert next(module.sweep(1, module.SEED)).thing in {thing for thing, _ in documented()}


def test_a_row_that_promises_too_much_is_noticed() -> None:
    row = next(row for row, silent in documented().items() if not silent)
    outcomes = [Outcome(*other, "reported") for other in documented() if other[0] == row[0]]
    assert_documented(rows(outcomes))
    for bad in ([*outcomes, Outcome(*row, "silent")], outcomes[1:], [*outcomes, Outcome(row[0], "hit", "reported")]):
        try:
            assert_documented(rows(bad))
        except AssertionError:
            continue
        raise AssertionError("it was not noticed")


def test_what_a_row_says() -> None:
    outcomes = [Outcome("tar", "cut off", "reported", ("truncated",)), Outcome("tar", "cut off", "unchanged")]
    assert written(rows(outcomes)).splitlines()[-1] == "| tar | cut off | 1 | 1 | 0 | `truncated` |"
