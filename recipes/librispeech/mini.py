"""Speak a mini LibriSpeech in its own layout: ``python -m recipes.librispeech.mini OUT --hours 0.5 --seed 1``.

``layout`` knows the folders, ``sentences`` the texts, ``plan`` who says which text; ``recipes.common.spoken`` speaks.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import soundfile
import typer

from uio_pipes.io.files import write_lines

from ..common.spoken import Settings, Utterance, command, speak
from .layout import corpus_dir, transcript_path
from .plan import SECONDS_EACH, make_plan

__all__ = ["make_mini"]


def make_mini(root: Path, settings: Settings, jobs: int = 0) -> bool:
    """Make the corpus under ``root``; return False if it was there already. Raises: OtherCorpus, SpeakingFailed."""
    plan = make_plan(settings)
    return speak(corpus_dir(root), "LibriSpeech", settings, plan, lambda corpus: _write_texts(corpus, plan), jobs)


def _write_texts(corpus: Path, plan: list[Utterance]) -> None:
    """Write the transcript of each chapter, and the table of speakers."""
    chapters: dict[Path, list[str]] = defaultdict(list)
    minutes: dict[tuple[str, str, str, str], float] = defaultdict(float)
    for utterance in plan:
        chapters[transcript_path(corpus / utterance.split, utterance.key)].append(f"{utterance.key} {utterance.text}")
        sex = "F" if utterance.voice.variant in ("f1", "steph") else "M"
        speaker = utterance.key.split("-")[0], sex, utterance.split, f"espeak-ng {utterance.voice.variant}"
        minutes[speaker] += soundfile.info(corpus / utterance.path).duration / 60
    for path, lines in chapters.items():
        write_lines(path, lines)
    table = (
        f"{who:4} | {sex} | {part:16} | {spoken:5.2f} | {name}" for (who, sex, part, name), spoken in minutes.items()
    )
    write_lines(corpus / "SPEAKERS.TXT", [";ID  |SEX| SUBSET           |MINUTES| NAME", *table])


main = command("LibriSpeech", corpus_dir, make_mini, SECONDS_EACH)

if __name__ == "__main__":
    typer.run(main)
