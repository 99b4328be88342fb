"""The options of ``recipes/aishell/run.sh``. Run as a command, this only checks them, before anything is installed."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from ..common.options import add_training, add_whole, parser_of

__all__ = ["parser"]


def parser() -> ArgumentParser:
    made = parser_of(
        "aishell",
        "AISHELL-1: -1 data, 0 wav.scp and text, 1 global CMVN, 2 dictionary, 3 data.list and shards, 4 training, "
        "5 averaging, decoding, scoring, 6 export. Every stage can be rerun and continues where it was interrupted.",
    )
    made.add_argument(
        "--out", type=Path, metavar="FOLDER", help="For all results. None: exp/aishell-mini or exp/aishell."
    )
    add_whole(made, "data_aishell")
    add_training(made, 0, "Best epochs to average. 0: 3 for mini, else 30.")
    return made


if __name__ == "__main__":
    parser().parse_args()
