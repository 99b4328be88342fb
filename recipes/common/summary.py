"""The summary of a recipe: a table of error rates, the time, and where things are."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .driver import MODES, Recipe

__all__ = ["error_rates", "print_summary"]

WIDTH = 200  # columns: a file or a pipe has no width, and a table that is cut would be of no use there
_RATE = re.compile(r"Overall -> ([\d.]+) %")
Rates = dict[tuple[str, str], dict[str, float]]


def error_rates(recipe: Recipe) -> Rates:
    """Return the error rates in percent known so far, of all experiments of the recipe's folder: by part and
    experiment, then by mode."""
    found: Rates = {}
    for exp in sorted(path.parent for path in recipe.out.glob("*/config.yaml")):
        for part in recipe.tests:
            for mode in MODES:
                report = recipe.report_path(part, mode, exp)
                if report.is_file() and (rate := _RATE.search(_end(report))):
                    found.setdefault((part, exp.name), {})[mode] = float(rate[1])
    return found


def _end(report: Path) -> str:
    """Return the last lines of a report, which may be long."""
    with report.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 1000))
        return file.read().decode(errors="replace")


def print_summary(recipe: Recipe, seconds: dict[str, float]) -> None:
    """Print the results of this run, and those that earlier runs left."""
    console = Console(highlight=False, soft_wrap=True)
    console.rule("[bold]Summary", align="left")
    if found := error_rates(recipe):
        table = Table(f"{recipe.rate} %", *(f"{part}\n{exp}" for part, exp in found))
        for mode in MODES:
            if any(mode in row for row in found.values()):
                table.add_row(mode, *(f"{row[mode]:.2f}" if mode in row else "" for row in found.values()))
        Console(width=max(console.width, WIDTH)).print(table)
    for title, spent in seconds.items():
        console.print(f"{spent:7.0f} s  {title}", markup=False)
    console.print(f"{sum(seconds.values()):7.0f} s  in all", markup=False)
    console.print(f"everything is in {recipe.out}: data/ (lists, shards, dictionary, CMVN), and {recipe.exp.name}/")
