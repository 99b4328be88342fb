"""What only the AISHELL recipe knows; ``recipes.common.whole`` has its stages."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ..common import whole
from ..common.corpus import CorpusMissing
from ..common.fetch import mirrored
from .layout import corpus_dir, transcript_path

__all__ = ["Recipe"]


class Recipe(whole.Recipe):
    """One run of the AISHELL recipe."""

    name = "aishell"
    tests = ("test",)
    averaged = 30

    def __init__(self, options: Namespace) -> None:
        super().__init__(options, Path(__file__).parent, Path("exp/aishell"))

    def spoken(self) -> Path:
        return transcript_path(corpus_dir(self.corpus))

    def get_data(self) -> str:
        if self.mini:
            from .mini import make_mini
            from .plan import settings_for

            new = make_mini(self.corpus, settings_for(self.hours, self.seed))
        elif not self.corpus.is_dir():  # a mistyped path must not fetch 15.6 GB to a new folder
            raise CorpusMissing(f"there is no folder {self.corpus}: make it (mkdir) to have AISHELL-1 fetched there")
        else:
            from .download import OPENSLR, REMOTES, download

            new = download(self.corpus, mirrored(REMOTES, self.mirror or OPENSLR))
        return f"{corpus_dir(self.corpus)}: {'complete' if new else 'there already'}"

    def write_texts(self) -> str:
        from .prepare import write_texts

        return write_texts(self.corpus, self.data)
