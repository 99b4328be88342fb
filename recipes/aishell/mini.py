"""Speak a mini AISHELL-1 in AISHELL-1's own layout: ``python -m recipes.aishell.mini OUT --hours 0.5 --seed 1``.

``layout`` knows the folders, ``sentences`` the texts, ``plan`` who says which text; ``recipes.common.spoken`` speaks.
"""

from __future__ import annotations

from pathlib import Path

import typer

from uio_pipes.io.files import write_lines

from ..common.spoken import Settings, command, speak
from .layout import corpus_dir, transcript_path
from .plan import SECONDS_EACH, make_plan


def make_mini(root: Path, settings: Settings, jobs: int = 0) -> bool:
    """Make the corpus under ``root``; return False if it was there already. Raises: OtherCorpus, SpeakingFailed."""
    plan = make_plan(settings)

    def write_transcript(corpus: Path) -> None:
        write_lines(transcript_path(corpus), sorted(f"{utterance.key} {utterance.text}" for utterance in plan))

    return speak(corpus_dir(root), "AISHELL-1", settings, plan, write_transcript, jobs)


main = command("AISHELL-1", corpus_dir, make_mini, SECONDS_EACH)

if __name__ == "__main__":
    typer.run(main)
