"""Speak a mini AISHELL-1 in AISHELL-1's own layout: ``python -m recipes.aishell.mini OUT --hours 0.5 --seed 1``.

The same settings give the same bytes, however many processes speak. ``layout`` knows the folders, ``sentences`` the
texts, ``plan`` who says which text; ``uio_pipes.prep.examples.speech`` speaks.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from uio_pipes.prep.common.progress_bar import follow
from uio_pipes.prep.examples.speech import RATE, EspeakVoices
from uio_pipes.prep.writing.files import write_lines

from ..common.corpus import OtherCorpus, SpeakingFailed, check_settings, in_fresh_processes, write_settings
from ..common.problems import told
from .layout import corpus_dir, transcript_path, wav_path
from .plan import Settings, Utterance, make_plan, settings_for

BLOCK = 50  # utterances spoken by one process; the bytes depend on it


def make_mini(root: Path, settings: Settings, jobs: int = 0) -> bool:
    """Make the corpus under ``root``; return False if it was there already. Raises: OtherCorpus, SpeakingFailed."""
    corpus = corpus_dir(root)
    if corpus.exists():
        check_settings(corpus, settings, "AISHELL-1")
        return False
    partial = corpus.with_name(f".{corpus.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    plan = make_plan(settings)
    for folder in {wav_path(partial, utterance.split, utterance.key).parent for utterance in plan}:
        folder.mkdir(parents=True)
    seconds = sum(follow(_speak_all(plan, partial, settings.seed, jobs), "speaking", len(plan)))
    write_lines(transcript_path(partial), sorted(f"{utterance.key} {utterance.text}" for utterance in plan))
    write_settings(partial, settings)
    partial.rename(corpus)
    typer.echo(f"{corpus}: {len(plan)} utterances, {seconds / 3600:.2f} h, of which to train on: {settings.utterances}")
    return True


def _speak_all(plan: list[Utterance], corpus: Path, seed: int, jobs: int) -> Iterator[tuple[float, int]]:
    """Speak block by block; yield the seconds and the number of utterances of each."""
    blocks = ((corpus, seed, start, plan[start : start + BLOCK]) for start in range(0, len(plan), BLOCK))
    return in_fresh_processes(_speak_block, blocks, jobs)


def _speak_block(corpus: Path, seed: int, start: int, block: list[Utterance]) -> tuple[float, int]:
    import soundfile

    speaker, room, samples = EspeakVoices(), np.random.default_rng([seed, start]), 0
    for utterance in block:
        speech = speaker.speak(utterance.text.replace(" ", ""), utterance.voice, room)
        soundfile.write(wav_path(corpus, utterance.split, utterance.key), speech, RATE, subtype="PCM_16")
        samples += len(speech)
    return samples / RATE, len(block)


def main(
    out: Annotated[Path, typer.Argument(help="Folder that gets `data_aishell`.")],
    hours: Annotated[float, typer.Option(min=0.001, help="About this many hours of training speech.")] = 0.5,
    utterances: Annotated[int, typer.Option(min=0, help="Exactly this many to train on, instead of --hours.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives another corpus.")] = 1,
    jobs: Annotated[int, typer.Option(help="Processes; 0: one for each core.")] = 0,
) -> None:
    """Speak a mini AISHELL-1 (Mandarin, by espeak-ng) in AISHELL-1's own layout."""
    settings = Settings(seed, utterances) if utterances else settings_for(hours, seed)
    with told(OtherCorpus, SpeakingFailed):
        if not make_mini(out, settings, jobs):
            typer.echo(f"{corpus_dir(out)}: there already, with the same settings")


if __name__ == "__main__":
    typer.run(main)
