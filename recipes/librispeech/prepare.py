"""From LibriSpeech's layout, real or mini, to all files that WeNet-style training reads: stages 0 to 3 of the recipe.

``python -m recipes.librispeech.prepare CORPUS OUT`` writes ``OUT/{train,dev,test_clean,test_other}/{wav.scp,text}``
(stage 0), and what ``recipes.common.prepare`` makes of them, with a dictionary of SentencePiece pieces (unigram). As in
WeNet, ``train`` has all training parts, and ``dev`` both ``dev-clean`` and ``dev-other``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ..common.prepare import PROBLEMS, run_stages_1_to_3, unigram_pieces, write_part
from ..common.problems import told
from .layout import DEV_PARTS, TEST_FOLDERS, TEST_PARTS, TRAIN_PARTS, count_recordings, part_dir

__all__ = ["prepare", "write_texts"]


def write_texts(root: Path, out: Path, train_parts: Sequence[str]) -> str:
    """Stage 0: write ``wav.scp`` and ``text``."""
    report = []
    for name, parts in _folders(train_parts).items():
        recordings = sum(count_recordings(root, part) for part in parts)
        report.append(write_part(out / name, "librispeech", root, parts, recordings))
    return f"{out}/{{{','.join(_folders(train_parts))}}}/{{wav.scp,text}}: utterances: {', '.join(report)}"


def _folders(train_parts: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the parts of the corpus in each folder that is written."""
    tests = ((part,) for part in TEST_PARTS)
    return {"train": train_parts, "dev": DEV_PARTS, **dict(zip(TEST_FOLDERS, tests, strict=True))}


def prepare(
    root: Path, out: Path, train_parts: Sequence[str], pieces: int, shard_size: int = 0, num_mel_bins: int = 80
) -> None:
    """Run stages 0 to 3, shards included."""
    typer.echo(write_texts(root, out, train_parts))
    run_stages_1_to_3(out, tuple(_folders(train_parts)), shard_size, num_mel_bins, unigram_pieces(pieces), "as-is")


def main(
    corpus: Annotated[Path, typer.Argument(help="Folder with `LibriSpeech` in it.")],
    out: Annotated[Path, typer.Argument(help="Folder for lists, statistics, shards and the dictionary.")],
    part: Annotated[
        list[str] | None, typer.Option(help="Part to train on; repeat for more. None: those there.")
    ] = None,
    pieces: Annotated[int, typer.Option(min=4, help="SentencePiece pieces.")] = 5000,
    shard_size: Annotated[
        int, typer.Option(min=0, help="Utterances in a shard. 0: 1000, or fewer in a small corpus.")
    ] = 0,
    num_mel_bins: Annotated[int, typer.Option(min=1, help="Mel bins of the features whose mean is taken.")] = 80,
) -> None:
    """Write WeNet-style lists, statistics, shards and a dictionary for LibriSpeech; continue after an interruption."""
    parts = part or [name for name in TRAIN_PARTS if part_dir(corpus, name).is_dir()] or TRAIN_PARTS
    with told(*PROBLEMS):
        prepare(corpus, out, parts, pieces, shard_size, num_mel_bins)


if __name__ == "__main__":
    typer.run(main)
