"""The summary of the recipe: a table of error rates, the time, and where things are."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..common.data_types import DATA_TYPES
from ..common.driver import MODES
from ..common.score import read_texts, score

__all__ = ["print_summary", "rates"]


def rates(out: Path) -> dict[str, dict[str, float]]:
    """Return, for each data type and decoding mode that has been decoded, the CER of the test part in percent."""
    found: dict[str, dict[str, float]] = {}
    for data_type in DATA_TYPES:
        for mode in MODES:
            hypothesis = out / data_type / f"test.{mode}.hyp"
            if hypothesis.is_file():
                texts = read_texts(out / "data" / "test" / "text"), read_texts(hypothesis)
                found.setdefault(data_type, {})[mode] = score(*texts).cer
    return found


def print_summary(out: Path, seconds: dict[str, float]) -> None:
    """Print the results of this run, and those that earlier runs left in ``out``."""
    console = Console(highlight=False, soft_wrap=True)
    console.rule("[bold]Summary", align="left")
    if found := rates(out):
        table = Table("CER % of test", *(f"trained from {data_type}" for data_type in found))
        for mode in MODES:
            table.add_row(mode, *(f"{row[mode]:.2f}" if mode in row else "" for row in found.values()))
        console.print(table)
    for title, spent in seconds.items():
        console.print(f"{spent:7.0f} s  {title}", markup=False)
    console.print(f"{sum(seconds.values()):7.0f} s  in all", markup=False)
    console.print(
        f"everything is in {out}: data/ (lists, shards, dictionary, CMVN) and an experiment for each data type"
    )
