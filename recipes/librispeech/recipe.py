"""What only the LibriSpeech recipe knows; ``recipes.common.whole`` has its stages."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ..common import whole
from ..common.corpus import CorpusMissing
from ..common.fetch import mirrored
from .layout import DEV_PARTS, TEST_FOLDERS, TEST_PARTS, TRAIN_PARTS, corpus_dir

__all__ = ["Recipe"]

MINI_PIECES, PIECES = 100, 5000  # WeNet has 5000


class Recipe(whole.Recipe):
    """One run of the LibriSpeech recipe."""

    name = "librispeech"
    tests = TEST_FOLDERS
    averaged = 20
    words = True
    form = "as-is"  # flac, half the size of wav

    def __init__(self, options: Namespace) -> None:
        mini = options.corpus == "mini"
        if mini and options.parts:
            raise ValueError(f"--parts is for the real corpus; the mini corpus has {TRAIN_PARTS[0]} alone")
        chosen = options.parts or (TRAIN_PARTS[:1] if mini else TRAIN_PARTS)
        self.train_parts = tuple(part for part in TRAIN_PARTS if part in chosen)
        hours = sum(int(part.rpartition("-")[2]) for part in self.train_parts)
        super().__init__(options, Path(__file__).parent, Path(f"exp/librispeech-{hours}"))
        self.pieces: int = self.bpe or (MINI_PIECES if self.mini else PIECES)

    def spoken(self) -> Path:
        return corpus_dir(self.corpus) / "SPEAKERS.TXT"

    def get_data(self) -> str:
        if self.mini:
            from ..common.spoken import settings_for
            from .mini import make_mini
            from .plan import SECONDS_EACH

            new = make_mini(self.corpus, settings_for(self.hours, SECONDS_EACH, self.seed))
        elif not self.corpus.is_dir():  # a mistyped path must not fetch 61 GB to a new folder
            raise CorpusMissing(f"there is no folder {self.corpus}: make it (mkdir) to have LibriSpeech fetched there")
        else:
            from .download import OPENSLR, REMOTES, download

            parts = (*self.train_parts, *DEV_PARTS, *TEST_PARTS)
            remotes = mirrored((REMOTES[part] for part in parts), self.mirror or OPENSLR)
            new = download(self.corpus, dict(zip(parts, remotes, strict=True)))
        return f"{corpus_dir(self.corpus)}: {'complete' if new else 'there already'}"

    def write_texts(self) -> str:
        from .prepare import write_texts

        return write_texts(self.corpus, self.data, self.train_parts)

    def make_dictionary(self) -> str:
        from ..common.prepare import make_dictionary, unigram_pieces

        return make_dictionary(self.data, unigram_pieces(self.pieces))
