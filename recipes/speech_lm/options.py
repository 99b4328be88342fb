"""The options of ``recipes/speech_lm/run.sh``. Run as a command, it only checks them, before anything is installed."""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from pathlib import Path

from ..common.options import at_least

__all__ = ["parser"]


def parser() -> ArgumentParser:
    made = ArgumentParser(
        "recipes/speech_lm/run.sh",
        description="A speech language model from nothing to an error rate: speak AISHELL's mini corpus, prepare it, "
        "train on packed rows, transcribe test. The same command continues after an interruption.",
        formatter_class=ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--out", type=Path, default=Path("exp/speech_lm"), metavar="FOLDER", help="For all results.")
    add("--hours", type=at_least(0.001), default=1.0, metavar="H", help="Hours of training speech.")
    add("--seed", type=at_least(0), default=1, metavar="N", help="Seed of the mini corpus.")
    add("--set", dest="override", action="append", metavar="KEY=VALUE", help="Like train.epochs=3; see config.py.")
    return made


if __name__ == "__main__":
    parser().parse_args()
