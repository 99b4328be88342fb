"""The options of ``recipes/wenetspeech/run.sh``. As a command, this only checks them, before anything is installed."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from ..common.options import add_training, at_least, parser_of

__all__ = ["parser"]


def parser() -> ArgumentParser:
    made = parser_of(
        "wenetspeech",
        "WenetSpeech, real or mini: -1 corpus, 0 lists, 1 CMVN, 2 dictionary, 3 shards, 4 training, 5 averaging, "
        "decoding and scoring, 6 export. Every stage can be run again.",
    )
    add = made.add_argument
    add("--corpus", default="mini", help="mini (spoken here), or the folder with WenetSpeech.json.")
    add("--subset", choices=["S", "M", "L", "W"], default="L", help="100 h, 1000 h, 10,000 h, weakly labelled.")
    types, sources = ["raw", "shard", "indexed"], ["disk", "s3", "http"]
    add("--data-type", choices=types, default="shard", help="raw: cut on the fly; the others are packed in stage 3.")
    add(
        "--from",
        dest="source",
        choices=sources,
        default="disk",
        help="Where training reads shards: disk, or a local server.",
    )
    add("--out", type=Path, metavar="FOLDER", help="Folder for all results. None: like exp/wenetspeech-mini-l.")
    add(
        "--group",
        action="append",
        metavar="LOW:HIGH",
        help="Pack utterances of so many frames into a folder; repeat for more.",
    )
    add("--train-group", action="append", metavar="LOW:HIGH", help="Train on this group only; repeat for more.")
    add(
        "--shard-size",
        type=at_least(0),
        default=0,
        metavar="N",
        help="Utterances in a shard. 0: 2000; mini corpus: 20.",
    )
    add("--jobs", type=at_least(0), default=0, metavar="N", help="Processes of stages -1 to 3; 0: one for each core.")
    add("--mode", action="append", help="Decoding mode; repeat for more. None: two that suit the model.")
    add_training(made, 5, "Best epochs to average.")
    add("--minutes", type=at_least(0.05), default=3.0, metavar="M", help="Length of a recording of the mini corpus.")
    return made


if __name__ == "__main__":
    parser().parse_args()
