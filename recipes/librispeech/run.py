"""LibriSpeech from download to exported model: ``python -m recipes.librispeech.run --help`` (``run.sh`` sets it up).

Every stage can be run again and continues where it was interrupted. OUT is laid out as ``recipes.aishell.run`` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..common.driver import run_recipe
from ..common.summary import print_summary
from .options import parser
from .recipe import Recipe

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the stages that the arguments choose; by default those of the command line."""
    run_recipe(parser(), Recipe, print_summary, arguments)


if __name__ == "__main__":
    main()
