"""The options of ``recipes/librispeech/run.sh``. As a command, this only checks them, before anything is installed."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from ..common.options import add_training, add_whole, parser_of

__all__ = ["parser"]

# Those of `layout`, which needs the package.
PARTS = ("train-clean-100", "train-clean-360", "train-other-500")


def parser() -> ArgumentParser:
    made = parser_of(
        "librispeech",
        "LibriSpeech: -1 data, 0 wav.scp and text, 1 global CMVN, 2 SentencePiece pieces, 3 data.list and shards, "
        "4 training, 5 averaging, decoding, scoring, 6 export. Every stage can be rerun and continues where it was "
        "interrupted.",
    )
    add = made.add_argument
    add("--parts", nargs="+", choices=PARTS, metavar="PART", help=f"What to train on. None: {' '.join(PARTS)} (960 h).")
    add(
        "--out", type=Path, metavar="FOLDER", help="For all results. None: exp/librispeech-mini or exp/librispeech-960."
    )
    add_whole(made, "LibriSpeech")
    add_training(
        made, 0, "Best epochs to average. 0: 3 for mini, else 20.", "Number of pieces. 0: 100 for mini, else 5000."
    )
    return made


if __name__ == "__main__":
    parser().parse_args()
