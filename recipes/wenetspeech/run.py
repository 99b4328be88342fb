"""WenetSpeech from its JSON to an exported model: ``python -m recipes.wenetspeech.run --help``.

``run.sh`` sets up what it needs first. The stages are listed in ``options``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ..common.driver import run_recipe
from .options import parser
from .recipe import HELD_OUT, Recipe

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the stages that the arguments choose; by default those of the command line."""
    run_recipe(parser(), Recipe, _print_summary, arguments)


def _print_summary(recipe: Recipe, seconds: dict[str, float]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.rule("[bold]summary", align="left")
    if rates := recipe.error_rates():
        table = Table("set", *recipe.modes, title="character error rate")
        for part in HELD_OUT:
            table.add_row(part, *(rates.get((part, mode), "") for mode in recipe.modes))
        console.print(table)
    console.print("time: " + ", ".join(f"{title} {duration:.0f} s" for title, duration in seconds.items()))
    for path, what in ((recipe.data, "lists, shards, dictionary, CMVN"), (recipe.exp, "models, texts, TensorBoard")):
        if path.is_dir():
            console.print(f"{path}: {what}")


if __name__ == "__main__":
    main()
