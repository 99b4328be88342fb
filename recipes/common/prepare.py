"""From Kaldi's ``wav.scp`` and ``text`` of each part to all files that WeNet-style training reads: stages 1 to 3::

    OUT/global_cmvn                                 1: WeNet's JSON, of train
    OUT/dict/lang_char.txt                          2: <blank> 0, <unk> 1, <sos/eos> 2, then train's tokens
    OUT/PART/data.list                              3: a JSON object a line
    OUT/PART/shards/shards_000000000.tar …          3: and OUT/PART/shards.list

They do not need the corpus itself: write ``wav.scp`` and ``text`` (and Kaldi's ``segments``, if there are any) for a
corpus of your own, and start there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import typer

from uio_pipes.base.errors import ListError
from uio_pipes.core.lane import Lane
from uio_pipes.io.references import Ref
from uio_pipes.run.lane_runner import items_of
from uio_pipes.sources.corpora.source import from_corpus
from uio_pipes.tools.data.cmvn import CmvnFailed, compute_cmvn
from uio_pipes.tools.data.common import Noting
from uio_pipes.tools.data.dictionary import DictionaryProblem, characters, write_pieces, write_table
from uio_pipes.tools.data.pack import OtherPacking, PackingFailed, PackSettings, pack
from uio_pipes.tools.data.reading import Utterance
from uio_pipes.tools.data.writing.cutting import Form

from .corpus import CorpusMissing
from .kaldi import make_raw_list, read_texts, write_kaldi

__all__ = [
    "PROBLEMS",
    "bpe_pieces",
    "make_cmvn",
    "make_dictionary",
    "make_indexed",
    "make_lists",
    "make_shards",
    "run_stages_1_to_3",
    "unigram_pieces",
    "write_characters",
    "write_part",
]

PROBLEMS = (CorpusMissing, CmvnFailed, DictionaryProblem, ListError, OtherPacking, PackingFailed)
SHARD_SIZE = 1000  # utterances, as WeNet's
TOUCH_SIZE = 20_000  # utterances in a TouchDataset
MIN_SHARDS = 16  # even of a small corpus: every rank and worker needs one

WriteDictionary = Callable[[Path, Iterable[str]], int]  # folder and texts → number of tokens


def write_part(folder: Path, corpus: str, root: Path, parts: Sequence[str], recordings: int) -> str:
    """Write ``wav.scp`` and ``text`` of parts of a corpus that has a card, and is in files; return a report.

    ``recordings``: how many there are, with a text or without. Raises: ListError.
    """
    known = []
    for sample in items_of(from_corpus(corpus, root.resolve(), part=parts, stream=False).build(Lane(Noting()))):
        wav, txt = sample.fields["wav"], sample.fields.get("txt")
        path = wav.file.path if isinstance(wav, Ref) else wav
        if txt and os.path.isfile(path):
            known.append(Utterance(sample.key, path, txt))
    known.sort(key=lambda utterance: utterance.wav)
    write_kaldi(folder, known)
    missing = recordings - len(known)
    without = f" ({missing} without a text left out)" if missing else ""
    return f"{folder.name} {len(known)}{without}"


def make_cmvn(out: Path, num_mel_bins: int, num_workers: int) -> str:
    """Stage 1: write ``global_cmvn``."""
    conf = {"fbank_conf": {"num_mel_bins": num_mel_bins}}
    sums = compute_cmvn(make_raw_list(out / "train"), out / "global_cmvn", conf, num_workers)
    failed = f"; {sums.failures} could not be read" if sums.failures else ""
    return f"{out / 'global_cmvn'}: {sums.frame_num} frames of {sums.utterances} utterances{failed}"


def write_characters(folder: Path, texts: Iterable[str]) -> int:
    """Write the dictionary of the characters of ``texts``; return its number of tokens."""
    (folder / "spm.model").unlink(missing_ok=True)  # of the pieces that were there
    return write_table(folder / "lang_char.txt", characters(texts))


def make_dictionary(out: Path, write: WriteDictionary = write_characters) -> str:
    """Stage 2: write the dictionary of train's texts; ``write`` says of what."""
    tokens = write(out / "dict", read_texts(out / "train"))
    return f"{out / 'dict'}: {tokens} {'pieces' if (out / 'dict' / 'spm.model').is_file() else 'tokens'}"


def bpe_pieces(count: int) -> WriteDictionary:
    """Return a writer of ``count`` SentencePiece pieces for Mandarin."""
    return lambda folder, texts: write_pieces(folder, texts, count)


def unigram_pieces(count: int) -> WriteDictionary:
    """Return a writer of ``count`` SentencePiece pieces for a language with blanks between words, as in WeNet."""
    return lambda folder, texts: write_pieces(folder, texts, count, "unigram", dummy_prefix=True)


def make_lists(out: Path, parts: Iterable[str]) -> str:
    """Stage 3: write the raw lists."""
    return "  ".join(str(make_raw_list(out / part)) for part in parts)


def make_shards(
    out: Path, parts: Iterable[str], shard_size: int = 0, jobs: int = 0, form: Form = PackSettings.form
) -> str:
    """Stage 3: pack the raw lists into shards. ``shard_size`` 0: 1000 utterances, or fewer if that gives too few
    shards."""
    report = []
    for part in parts:
        folder = out.resolve() / part
        size = shard_size or max(1, min(SHARD_SIZE, _count_lines(folder / "data.list") // MIN_SHARDS))
        report.append(_packed(folder, "shards", PackSettings(size, form=form, name="shards_{:09d}.tar"), jobs))
    return "\n".join(report)


def make_indexed(out: Path, parts: Iterable[str], jobs: int = 0) -> str:
    """Stage 3: pack the raw lists into TouchDatasets."""
    settings = PackSettings(TOUCH_SIZE, to="indexed")
    return "\n".join(_packed(out.resolve() / part, "indexed", settings, jobs) for part in parts)


def _packed(folder: Path, form: str, settings: PackSettings, jobs: int) -> str:
    target = folder / f"{form}.list"
    return f"{target}: {pack(folder / 'data.list', folder / form, target, settings, _processes(folder, jobs))}"


def _processes(folder: Path, jobs: int) -> int:
    """Return the number of processes: at most one for a thousand utterances, because starting one takes as long."""
    return max(1, min(jobs or os.cpu_count() or 1, _count_lines(folder / "data.list") // 1000))


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def run_stages_1_to_3(
    out: Path,
    parts: Sequence[str],
    shard_size: int,
    num_mel_bins: int,
    write: WriteDictionary = write_characters,
    form: Form = PackSettings.form,
) -> None:
    """Run them, shards included."""
    typer.echo(make_cmvn(out, num_mel_bins, os.cpu_count() or 1))
    typer.echo(make_dictionary(out, write))
    typer.echo(make_lists(out, parts))
    typer.echo(make_shards(out, parts, shard_size, form=form))
