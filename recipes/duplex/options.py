"""The options of ``recipes/duplex/run.sh``. Run as a command, it only checks them, before anything is installed."""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from pathlib import Path

from ..common.options import at_least

__all__ = ["parser"]


def parser() -> ArgumentParser:
    made = ArgumentParser(
        "recipes/duplex/run.sh",
        description="A model that hears and speaks at once, from nothing to answers: speak dialogues, encode them, "
        "train, let the model talk. The same command continues after an interruption.",
        formatter_class=ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--out", type=Path, default=Path("exp/duplex"), metavar="FOLDER", help="For all results.")
    add("--dialogues", type=at_least(1), default=400, metavar="N", help="Dialogues to train on, of 11 s.")
    add("--seed", type=at_least(0), default=1, metavar="N", help="Seed of the dialogues.")
    add("--set", dest="override", action="append", metavar="KEY=VALUE", help="Like train.epochs=3; see config.py.")
    return made


if __name__ == "__main__":
    parser().parse_args()
