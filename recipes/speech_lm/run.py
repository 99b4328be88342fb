"""From nothing to an error rate: ``python -m recipes.speech_lm.run --help`` (``run.sh`` sets it up first).

OUT gets ``corpus/`` (spoken by espeak-ng), ``data/`` (see ``recipes.common.prepare``) and ``exp/`` (see ``train``).
Whatever is complete is kept, what was interrupted continues.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from ..aishell.layout import SPLITS
from ..aishell.mini import make_mini
from ..aishell.plan import settings_for
from ..aishell.prepare import write_texts
from ..common import spoken
from ..common.corpus import OtherCorpus, SpeakingFailed
from ..common.prepare import PROBLEMS as PREPARING
from ..common.prepare import make_cmvn, make_dictionary, make_lists
from ..common.problems import told
from .config import settings_of
from .decode import decode
from .model import BINS
from .options import parser
from .quantizer import encode_all
from .train import PROBLEMS, train

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all steps with ``arguments``; by default those of the command line."""
    options = parser().parse_args(arguments)
    try:
        with told(*PROBLEMS, *PREPARING, OtherCorpus, SpeakingFailed):
            _run(options.out, settings_for(options.hours, options.seed), options.override or ())
    except typer.Exit as end:
        sys.exit(end.exit_code)


def _run(out: Path, corpus: spoken.Settings, override: Sequence[str]) -> None:
    data, exp, settings = out / "data", out / "exp", settings_of(override)
    make_mini(out / "corpus", corpus)
    print(write_texts(out / "corpus", data))
    print(make_cmvn(data, BINS, os.cpu_count() or 1), make_dictionary(data), make_lists(data, SPLITS), sep="\n")
    if settings.model.codebooks:
        print(encode_all(data, settings))
    train(data, exp, settings)
    print(f"{exp / 'test.hyp'}, test.cer: CER {decode(data, exp)}")


if __name__ == "__main__":
    main()
