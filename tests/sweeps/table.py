"""The table of damages in benchmarks/results/damage.md, made from what the sweeps show.

``python tests/sweeps/table.py`` runs every sweep of this folder whose module says ``TABLE = True`` and writes the table
anew. A module has ``sweep(trials, seed)``, ``USUAL``, ``SEED`` and ``alike``: of each damage to each thing, the row of
the table that has it. Those of a row behave alike: all may be silent, or none. Its test ends with
``assert_documented(rows, alike)``.
"""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "helpers")]

from sweeps.sweep import Row, rows

from uio_pipes.run import empty_epochs

DOCS = Path(__file__).parents[2] / "benchmarks" / "results" / "damage.md"
BEGIN, END = "<!-- sweeps: written by tests/sweeps/table.py -->", "<!-- end of sweeps -->"
HEAD = "| what is damaged | how | reported | no matter | silent | under |\n|---|---|---|---|---|---|\n"

Rows = dict[tuple[str, str], Row]
Alike = Callable[[str, str], tuple[str, str]]


def modules() -> list[ModuleType]:
    """The sweeps of this folder that belong into the table."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))
    found = (importlib.import_module(f"sweeps.{name}") for name in names)
    return [module for module in found if getattr(module, "TABLE", False)]


def together(found: Rows, alike: Alike) -> Rows:
    """The rows of the table."""
    table: Rows = {}
    for (thing, damage), row in found.items():
        one = table.setdefault(alike(thing, damage), Row())
        one.results += row.results
        one.reasons += row.reasons
        one.silent += row.silent
    return table


def written(found: Rows) -> str:
    """The table's text."""
    lines = []
    for (thing, damage), row in found.items():
        reasons = ", ".join(f"`{reason}`" for reason, _ in row.reasons.most_common(4))
        counts = " | ".join(str(row.results[result]) for result in ("reported", "unchanged", "silent"))
        lines.append(f"| {thing} | {damage} | {counts} | {reasons} |\n")
    return HEAD + "".join(lines)


def documented() -> dict[tuple[str, str], int]:
    """Of each row of the table in the docs, how many damages were silent."""
    text = DOCS.read_text().partition(BEGIN)[2].partition(END)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return {(thing, damage): int(silent) for thing, damage, _, _, silent, _ in cells[1:]}


def assert_documented(found: Rows, alike: Alike) -> None:
    """The docs have a row for each of these, no others of these things, and promise no more than is seen: counts differ
    with versions of libraries, but where the docs say that nothing was silent, nothing is."""
    seen = together(found, alike)
    things = {thing for thing, _ in seen}
    promised = {row: silent for row, silent in documented().items() if row[0] in things}
    assert promised.keys() == seen.keys(), "run python tests/sweeps/table.py"
    broken = {row: seen[row].silent for row, silent in promised.items() if not silent and seen[row].silent}
    assert broken == {}, "the docs say that this is never silent"


def main() -> None:
    """Write the table. Always from the usual numbers, so that two runs give the same."""
    os.environ.pop("UIO_SWEEP", None)
    empty_epochs.FEWEST = 1 << 30  # as in conftest.py
    found: Rows = {}
    for module in modules():
        found |= together(rows(module.sweep(module.USUAL, module.SEED)), module.alike)
    before, _, behind = DOCS.read_text().partition(BEGIN)
    _, _, behind = behind.partition(END)
    DOCS.write_text(f"{before}{BEGIN}\n\n{written(found)}\n{END}{behind}")


if __name__ == "__main__":
    main()
