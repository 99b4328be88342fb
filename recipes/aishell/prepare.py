"""From AISHELL-1's layout, real or mini, to all files that WeNet-style training reads: stages 0 to 3 of the recipe.

``python -m recipes.aishell.prepare CORPUS OUT`` writes::

    OUT/{train,dev,test}/{wav.scp,text}                   0: texts without blanks
    OUT/global_cmvn                                       1: WeNet's JSON, of train
    OUT/dict/lang_char.txt                                2: <blank> 0, <unk> 1, <sos/eos> 2, then train's characters
    OUT/{train,dev,test}/data.list                        3: a JSON object a line
    OUT/{train,dev,test}/shards/shards_000000000.tar …    3: and OUT/{train,dev,test}/shards.list

Stages 1 to 3 do not need AISHELL: write ``wav.scp`` and ``text`` (and Kaldi's ``segments``, if there are any) for a
corpus of your own, and start there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from uio_pipes.base.errors import ListError
from uio_pipes.prep.cmvn import CmvnFailed, CmvnSettings, compute_cmvn
from uio_pipes.prep.dictionary import DictionaryProblem, write_characters, write_pieces
from uio_pipes.prep.pack import OtherPacking, PackingFailed, PackSettings, pack
from uio_pipes.prep.reading.utterance_lists import Utterance
from uio_pipes.prep.writing.files import count_lines

from ..common.corpus import CorpusMissing
from ..common.kaldi import make_raw_list, read_texts, write_kaldi
from ..common.problems import told
from .layout import SPLITS, find_wavs, read_transcript

__all__ = ["PROBLEMS", "make_cmvn", "make_dictionary", "make_lists", "make_shards", "prepare", "write_texts"]

PROBLEMS = (CorpusMissing, CmvnFailed, DictionaryProblem, ListError, OtherPacking, PackingFailed)
SHARD_SIZE = 1000  # utterances, as WeNet's
TOUCH_SIZE = 20_000  # utterances in a TouchDataset
MIN_SHARDS = 16  # even of a small corpus: every rank and worker needs one


def write_texts(root: Path, out: Path) -> str:
    """Stage 0: write ``wav.scp`` and ``text``."""
    transcript, report = read_transcript(root), []
    for split in SPLITS:
        wavs = find_wavs(root.resolve(), split)
        known = [Utterance(wav.stem, str(wav), transcript[wav.stem]) for wav in wavs if wav.stem in transcript]
        write_kaldi(out / split, known)
        without = f" ({len(wavs) - len(known)} without a text left out)" if len(known) < len(wavs) else ""
        report.append(f"{split} {len(known)}{without}")
    return f"{out}/{{{','.join(SPLITS)}}}/{{wav.scp,text}}: utterances: {', '.join(report)}"


def make_cmvn(out: Path, num_mel_bins: int, num_workers: int) -> str:
    """Stage 1: write ``global_cmvn``."""
    settings = CmvnSettings(num_mel_bins)
    sums = compute_cmvn(make_raw_list(out / "train"), out / "global_cmvn", settings, num_workers)
    failed = f"; {sums.failures} could not be read" if sums.failures else ""
    return f"{out / 'global_cmvn'}: {sums.frame_num} frames of {sums.utterances} utterances{failed}"


def make_dictionary(out: Path, bpe: int = 0) -> str:
    """Stage 2: write a dictionary of characters, or of ``bpe`` SentencePiece pieces."""
    texts = read_texts(out / "train")
    tokens = write_pieces(out / "dict", texts, bpe) if bpe else write_characters(out / "dict", texts)
    return f"{out / 'dict'}: {tokens} {'pieces' if bpe else 'tokens'}"


def make_lists(out: Path) -> str:
    """Stage 3: write the raw lists."""
    return "  ".join(str(make_raw_list(out / split)) for split in SPLITS)


def make_shards(out: Path, shard_size: int = 0, jobs: int = 0) -> str:
    """Stage 3: pack the raw lists into shards. ``shard_size`` 0: 1000 utterances, or fewer if that gives too few
    shards."""
    report = []
    for split in SPLITS:
        folder = out.resolve() / split
        size = shard_size or max(1, min(SHARD_SIZE, count_lines(folder / "data.list") // MIN_SHARDS))
        settings = PackSettings(size, name="shards_{:09d}.tar")
        report.append(_packed(folder, "shards", settings, jobs))
    return "\n".join(report)


def make_indexed(out: Path, jobs: int = 0) -> str:
    """Stage 3: pack the raw lists into TouchDatasets."""
    folders = [out.resolve() / split for split in SPLITS]
    return "\n".join(
        _packed(folder, "indexed", PackSettings(TOUCH_SIZE, name="data-{:05d}"), jobs) for folder in folders
    )


def _packed(folder: Path, form: str, settings: PackSettings, jobs: int) -> str:
    target = folder / f"{form}.list"
    return f"{target}: {pack(folder / 'data.list', folder / form, target, settings, _processes(folder, jobs))}"


def _processes(folder: Path, jobs: int) -> int:
    """Return the number of processes: at most one for a thousand utterances, because starting one takes as long."""
    return max(1, min(jobs or os.cpu_count() or 1, count_lines(folder / "data.list") // 1000))


def prepare(root: Path, out: Path, shard_size: int = 0, num_mel_bins: int = 80) -> None:
    """Run stages 0 to 3, shards included."""
    typer.echo(write_texts(root, out))
    typer.echo(make_cmvn(out, num_mel_bins, os.cpu_count() or 1))
    typer.echo(make_dictionary(out))
    typer.echo(make_lists(out))
    typer.echo(make_shards(out, shard_size))


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
