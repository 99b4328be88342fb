"""The layout of LibriSpeech, for the mini corpus and for what is missing; the card ``librispeech`` reads it.

::

    ROOT/LibriSpeech/SPEAKERS.TXT                                         ID | SEX | SUBSET | MINUTES | NAME
    ROOT/LibriSpeech/{train-clean-100,…,test-other}/1089/134686/1089-134686-0000.flac …
                                                               /1089-134686.trans.txt      KEY WORD WORD …
"""

from __future__ import annotations

from pathlib import Path

from ..common.corpus import CorpusMissing

__all__ = [
    "DEV_PARTS",
    "TEST_FOLDERS",
    "TEST_PARTS",
    "TRAIN_PARTS",
    "corpus_dir",
    "count_recordings",
    "flac_path",
    "part_dir",
    "transcript_path",
    "utterance_key",
]

TRAIN_PARTS = ("train-clean-100", "train-clean-360", "train-other-500")
DEV_PARTS = ("dev-clean", "dev-other")
TEST_PARTS = ("test-clean", "test-other")
TEST_FOLDERS = ("test_clean", "test_other")  # of their lists

MISSING = """\
No {part} of LibriSpeech under {root}: {path} is not there. Either speak a small corpus (seconds):
    python -m recipes.librispeech.mini {root} --hours 0.5
or get the real one (61 GB, CC BY 4.0, https://www.openslr.org/12), again after an interruption:
    python -m recipes.librispeech.download {root}"""


def corpus_dir(root: Path) -> Path:
    """Return the corpus's own folder; ``root`` may be that folder."""
    parts = (*TRAIN_PARTS, *DEV_PARTS, *TEST_PARTS)
    return root if any((root / part).is_dir() for part in parts) else root / "LibriSpeech"


def part_dir(root: Path, part: str) -> Path:
    """Return the folder of a part, like ``train-clean-100``."""
    return corpus_dir(root) / part


def utterance_key(speaker: int, chapter: int, number: int) -> str:
    """Return the key: 1089, 134686 and 0 give ``1089-134686-0000``."""
    return f"{speaker}-{chapter}-{number:04d}"


def flac_path(part: Path, key: str) -> Path:
    """Return the path of the recording of ``key`` in the folder of its part."""
    return _chapter(part, key) / f"{key}.flac"


def transcript_path(part: Path, key: str) -> Path:
    """Return the path of the transcript that has the text of ``key``."""
    return _chapter(part, key) / f"{key.rpartition('-')[0]}.trans.txt"


def _chapter(part: Path, key: str) -> Path:
    speaker, chapter, _ = key.split("-")
    return part / speaker / chapter


def count_recordings(root: Path, part: str) -> int:
    """Return the number of recordings of a part. Raises: CorpusMissing if there are none."""
    folder = part_dir(root, part)
    count = sum(1 for _ in folder.glob("*/*/*.flac"))
    if not count:
        raise CorpusMissing(MISSING.format(part=part, root=root, path=folder / "*/*/*.flac"))
    return count
