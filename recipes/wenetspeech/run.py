"""WenetSpeech from its JSON to an exported model: ``python -m recipes.wenetspeech.run --help``.

``run.sh`` sets up what it needs first. The stages are listed in ``options``.
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
