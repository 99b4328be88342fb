"""Published corpora, each made small in the layout that ``../shared/CORPORA.md`` describes, with its codecs and
peculiarities."""

from __future__ import annotations

from pathlib import Path

from corpora_small import annotated, archives, columns, manifests, transcripts
from corpora_small.making import Build, Making, Said

__all__ = ["BUILDS", "ONE_FORM", "Build", "Making", "Said", "made"]

BUILDS: dict[str, Build] = {
    **transcripts.CORPORA, **columns.CORPORA, **archives.CORPORA, **manifests.CORPORA, **annotated.CORPORA
}  # fmt: skip


def made(name: str, folder: Path, downloaded: bool) -> Making:
    """Make the corpus ``name`` (``mls``, or a form of it, ``mls/parquet``) in ``folder``."""
    making = Making(folder, downloaded)
    BUILDS[name](making)
    return making.finish()


ONE_FORM = frozenset(  # which are the same extracted and as downloaded
    ["aishell2", "spgispeech", "ksponspeech", "kespeech", "timit", "voxpopuli/original", "emilia", "commonvoice/older",
     "libriheavy", "granary", "gigaspeech", "wenetspeech", "mls/parquet", "peoples_speech", "loquacious",
     "yodas_granary"]
)  # fmt: skip
