"""From AISHELL-1's layout, real or mini, to all files that WeNet-style training reads: stages 0 to 3 of the recipe.

``python -m recipes.aishell.prepare CORPUS OUT`` writes ``OUT/{train,dev,test}/{wav.scp,text}``, texts without blanks
(stage 0), and what ``recipes.common.prepare`` makes of them, with a dictionary of characters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..common.prepare import PROBLEMS, run_stages_1_to_3, write_part
from ..common.problems import told
from .layout import SPLITS, find_wavs

__all__ = ["prepare", "write_texts"]


def write_texts(root: Path, out: Path) -> str:
    """Stage 0: write ``wav.scp`` and ``text``."""
    report = [write_part(out / split, "aishell1", root, [split], len(find_wavs(root, split))) for split in SPLITS]
    return f"{out}/{{{','.join(SPLITS)}}}/{{wav.scp,text}}: utterances: {', '.join(report)}"


def prepare(root: Path, out: Path, shard_size: int = 0, num_mel_bins: int = 80) -> None:
    """Run stages 0 to 3, shards included."""
    typer.echo(write_texts(root, out))
    run_stages_1_to_3(out, SPLITS, shard_size, num_mel_bins)


def main(
    corpus: Annotated[Path, typer.Argument(help="Folder with `data_aishell` in it.")],
    out: Annotated[Path, typer.Argument(help="Folder for lists, statistics, shards and the dictionary.")],
    shard_size: Annotated[
        int, typer.Option(min=0, help="Utterances in a shard. 0: 1000, or fewer in a small corpus.")
    ] = 0,
    num_mel_bins: Annotated[int, typer.Option(min=1, help="Mel bins of the features whose mean is taken.")] = 80,
) -> None:
    """Write WeNet-style lists, statistics, shards and a dictionary for AISHELL-1; continue after an interruption."""
    with told(*PROBLEMS):
        prepare(corpus, out, shard_size, num_mel_bins)


if __name__ == "__main__":
    typer.run(main)
