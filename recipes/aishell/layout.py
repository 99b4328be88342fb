"""The layout of AISHELL-1, for the mini corpus and for what is missing; the card ``aishell1`` reads it.

::

    ROOT/data_aishell/wav/{train,dev,test}/S0002/BAC009S0002W0122.wav
    ROOT/data_aishell/transcript/aishell_transcript_v0.8.txt          KEY word word …
"""

from __future__ import annotations

from pathlib import Path

from ..common.corpus import CorpusMissing

SPLITS = ("train", "dev", "test")

MISSING = """\
No AISHELL-1 under {root}: {path} is not there. Either speak a small one (seconds):
    python -m recipes.aishell.mini {root} --hours 0.5
or get the real one (15.6 GB, Apache-2.0, https://www.openslr.org/33), again after an interruption:
    python -m recipes.aishell.download {root}"""


def corpus_dir(root: Path) -> Path:
    """Return the corpus's own folder; ``root`` may be that folder."""
    return root if (root / "transcript").is_dir() else root / "data_aishell"


def transcript_path(corpus: Path) -> Path:
    """Return the path of the transcript of all three parts."""
    return corpus / "transcript" / "aishell_transcript_v0.8.txt"


def utterance_key(speaker: str, number: int) -> str:
    """Return the key: ``S0002`` and 122 give ``BAC009S0002W0122``."""
    return f"BAC009{speaker}W{number:04d}"


def wav_path(corpus: Path, split: str, key: str) -> Path:
    """Return the path of the recording of ``key``."""
    return corpus / "wav" / split / key[6:].split("W")[0] / f"{key}.wav"


def find_wavs(root: Path, split: str) -> list[Path]:
    """Return the recordings of one part, in the order of their keys. Raises: CorpusMissing."""
    corpus = corpus_dir(root)
    wavs = sorted((corpus / "wav" / split).glob("*/*.wav"))
    missing = corpus / "wav" / split / "*/*.wav" if not wavs else transcript_path(corpus)
    if not (wavs and missing.is_file()):
        raise CorpusMissing(MISSING.format(root=root, path=missing))
    return wavs
