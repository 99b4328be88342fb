"""The table of damages in the docs: written from sweeps, and held to them by each sweep's own test."""

from pathlib import Path

from sweeps.table import documented, modules


def test_the_table_has_rows_and_its_sweeps_are_held_to_it() -> None:
    assert len(documented()) > 20
    assert modules()
    for module in modules():
        assert "assert_documented(" in Path(str(module.__file__)).read_text(), module.__name__
        first = next(module.sweep(1, module.SEED))
        assert module.alike(first.thing, first.damage) in documented()
