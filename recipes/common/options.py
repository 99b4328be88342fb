"""The options that all recipes have. Only the standard library is used: mistakes are reported before anything is
installed.
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["add_training", "add_whole", "at_least", "parser_of"]

Number = TypeVar("Number", int, float)


def at_least(lowest: Number) -> Callable[[str], Number]:
    """Return a parser of numbers of the type of ``lowest`` that refuses smaller ones."""

    def number(text: str) -> Number:
        try:
            value = type(lowest)(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= lowest:
            raise ArgumentTypeError(f"{text} is below {lowest}")
        return value

    return number


def parser_of(name: str, description: str) -> ArgumentParser:
    """Return the parser for ``recipes/NAME/run.sh``, with the options that choose the stages."""
    parser = ArgumentParser(
        f"recipes/{name}/run.sh",
        description=description,
        formatter_class=ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
        argument_default=None,
    )
    stages = range(-1, 7)
    parser.add_argument("--stage", type=int, choices=stages, default=-1, metavar="N", help="First stage: -1 to 6.")
    parser.add_argument("--stop-stage", type=int, choices=stages, default=6, metavar="N", help="Last stage: -1 to 6.")
    return parser


CHARACTERS = "Number of SentencePiece pieces. 0: characters."


def add_whole(parser: ArgumentParser, folder: str) -> None:
    """Add the options of a corpus that has a file for each utterance; ``folder``: the name of its own folder."""
    add = parser.add_argument
    add("--corpus", default="mini", help=f"mini, or the folder that has (or gets) the real {folder}.")
    add("--data-type", default="raw", help="What training reads: raw, shard or indexed.")
    add("--seed", type=at_least(0), default=1, metavar="N", help="Seed of the mini corpus.")
    add("--mirror", default="", metavar="URL", help="Other address to download the real corpus from.")


def add_training(parser: ArgumentParser, average: int, average_help: str, bpe_help: str = CHARACTERS) -> None:
    """Add the options of training and decoding. ``average``: how many epochs are averaged by default."""
    add = parser.add_argument
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="Model and training. None: the recipe's conf/mini.yaml or conf/full.yaml.",
    )
    add("--set", dest="override", action="append", metavar="KEY=VALUE", help="Like train.epochs=3; repeat for more.")
    add(
        "--nproc",
        type=at_least(0),
        default=0,
        metavar="N",
        help="Ranks on this machine. 0: one a GPU, or 2 without a GPU.",
    )
    add("--nnodes", type=at_least(1), default=1, metavar="N", help="Machines that train (4) or decode (5) together.")
    add("--rdzv-endpoint", default="", metavar="HOST:PORT", help="Meeting point of several machines.")
    add("--num-workers", type=at_least(-1), default=-1, metavar="N", help="Workers of each rank. -1: as configured.")
    add("--hours", type=at_least(0.001), default=0.5, metavar="H", help="Hours of training speech of the mini corpus.")
    add("--average", type=at_least(min(average, 1)), default=average, metavar="N", help=average_help)
    add("--beam-size", type=at_least(1), default=10, metavar="N", help="Hypotheses kept in decoding.")
    add("--bpe", type=at_least(0), default=0, metavar="N", help=bpe_help)
