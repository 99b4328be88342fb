"""From AISHELL-1's layout, real or mini, to everything WeNet-style training reads.

``python -m recipes.aishell.prepare CORPUS OUT`` writes::

    OUT/dict/lang_char.txt                                <blank> 0, <unk> 1, <sos/eos> 2, then train's characters
    OUT/{train,dev,test}/{wav.scp,text,data.list}         texts without blanks; data.list: a JSON object a line
    OUT/{train,dev,test}/shards/shards_000000000.tar …    OUT/{train,dev,test}/shards.list
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ..common.files import write_lines
from ..common.lists import ListWriter, Utterance
from ..common.shards import PackSettings, pack
from .layout import SPLITS, CorpusMissing, find_wavs, read_transcript


def prepare(root: Path, out: Path, shard_size: int = 1000) -> None:
    """Write lists, shards and the dictionary for the corpus under ``root``."""
    transcript = read_transcript(root)
    for split in SPLITS:
        wavs = find_wavs(root.resolve(), split)
        utterances = [Utterance(wav.stem, str(wav), transcript[wav.stem]) for wav in wavs if wav.stem in transcript]
        if split == "train":
            _write_dictionary(out / "dict" / "lang_char.txt", (utterance.txt for utterance in utterances))
        _write_split(out.resolve() / split, utterances, shard_size)
        without = f" ({len(wavs) - len(utterances)} without a text left out)" if len(utterances) < len(wavs) else ""
        typer.echo(f"{out / split}: {len(utterances)} utterances{without}")


def _write_split(folder: Path, utterances: list[Utterance], shard_size: int) -> None:
    with ListWriter(folder) as lists:
        for utterance in utterances:
            lists.write(utterance)
    settings = PackSettings(shard_size, name="shards_{:09d}.tar")
    pack(folder / "data.list", folder / "shards", folder / "shards.list", settings, multiprocessing.cpu_count())


def _write_dictionary(path: Path, texts: Iterable[str]) -> None:
    """``token id`` a line: the special ones, then every character of the texts."""
    tokens = ["<blank>", "<unk>", "<sos/eos>", *sorted({character for text in texts for character in text})]
    write_lines(path, (f"{token} {number}" for number, token in enumerate(tokens)))


def main(
    corpus: Annotated[Path, typer.Argument(help="Folder with `data_aishell` in it.")],
    out: Annotated[Path, typer.Argument(help="Folder for lists, shards and the dictionary.")],
    shard_size: Annotated[int, typer.Option(min=1, help="Utterances in a shard.")] = 1000,
) -> None:
    """Write WeNet-style lists, shards and a dictionary for AISHELL-1."""
    try:
        prepare(corpus, out, shard_size)
    except CorpusMissing as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
