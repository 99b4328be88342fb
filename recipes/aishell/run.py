"""AISHELL-1 from download to exported model: ``python -m recipes.aishell.run --help`` (``run.sh`` sets it up first).

Every stage can be run again and continues where it was interrupted. OUT gets::

    OUT/corpus/          the mini corpus, if it is used        OUT/raw/, OUT/shard/    an experiment for each data type
    OUT/data/            what stages 0 to 3 write              (see recipes/common/experiment.py)
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
