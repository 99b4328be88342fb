"""Speak a mini AISHELL-1, in AISHELL-1's own layout: ``python -m recipes.aishell.mini OUT --hours 0.5 --seed 1``.

The same settings give the same bytes, however many processes speak. See ``layout`` for the folders,
``sentences`` for what is said, ``plan`` for who says it and ``uio_pipes.prep.examples.speech`` for how.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from uio_pipes.base.processes import end_with_parent, pool_context
from uio_pipes.prep.common.progress_bar import follow
from uio_pipes.prep.examples.speech import RATE, EspeakVoices
from uio_pipes.prep.writing.files import write_lines

from .layout import corpus_dir, transcript_path, wav_path
from .plan import Settings, Utterance, make_plan, settings_for

BLOCK = 50  # utterances spoken by one process; part of what fixes the bytes


class OtherCorpus(Exception):
    """The target folder holds something that must not be overwritten."""


def make_mini(root: Path, settings: Settings, jobs: int = 0) -> bool:
    """Make the corpus under ``root``; returns False if it was there already."""
    corpus = corpus_dir(root)
    if corpus.exists():
        _check_same(corpus, settings)
        return False
    partial = corpus.with_name(f".{corpus.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    plan = make_plan(settings)
    for folder in {wav_path(partial, utterance.split, utterance.key).parent for utterance in plan}:
        folder.mkdir(parents=True)
    seconds = sum(follow(_speak_all(plan, partial, settings.seed, jobs), "speaking", len(plan)))
    write_lines(transcript_path(partial), sorted(f"{utterance.key} {utterance.text}" for utterance in plan))
    write_lines(_settings_path(partial), [json.dumps(asdict(settings))])
    partial.rename(corpus)
    typer.echo(f"{corpus}: {len(plan)} utterances, {seconds / 3600:.2f} h, of which to train on: {settings.utterances}")
    return True


def _settings_path(corpus: Path) -> Path:
    return corpus / "mini.json"


def _check_same(corpus: Path, settings: Settings) -> None:
    path = _settings_path(corpus)
    found = path.read_text().strip() if path.exists() else "no mini.json: the real AISHELL-1, or another corpus"
    if found != json.dumps(asdict(settings)):
        raise OtherCorpus(
            f"{corpus} is there already, but not with these settings ({asdict(settings)}); it has {found}. "
            "Choose another folder, or delete it yourself."
        )


def _speak_all(plan: list[Utterance], corpus: Path, seed: int, jobs: int) -> Iterator[tuple[float, int]]:
    """Speak block by block; yields seconds and utterances of each. A process a block: see ``speech``."""
    blocks = [(corpus, seed, start, plan[start : start + BLOCK]) for start in range(0, len(plan), BLOCK)]
    context = pool_context(preload=["uio_pipes.prep.examples.speech"])
    processes = jobs or multiprocessing.cpu_count()
    with context.Pool(processes, initializer=end_with_parent, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(_speak_block, blocks)


def _speak_block(job: tuple[Path, int, int, list[Utterance]]) -> tuple[float, int]:
    import soundfile

    corpus, seed, start, block = job
    speaker, room, samples = EspeakVoices(), np.random.default_rng([seed, start]), 0
    for utterance in block:
        speech = speaker.speak(utterance.text.replace(" ", ""), utterance.voice, room)
        soundfile.write(wav_path(corpus, utterance.split, utterance.key), speech, RATE, subtype="PCM_16")
        samples += len(speech)
    return samples / RATE, len(block)


def main(
    out: Annotated[Path, typer.Argument(help="Folder that gets `data_aishell`.")],
    hours: Annotated[float, typer.Option(min=0.001, help="About so many hours of training speech.")] = 0.5,
    utterances: Annotated[int, typer.Option(min=0, help="Exactly so many to train on, instead of --hours.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another corpus.")] = 1,
    jobs: Annotated[int, typer.Option(help="Processes; 0: one for each core.")] = 0,
) -> None:
    """Speak a mini AISHELL-1 (Mandarin, by espeak-ng) in AISHELL-1's own layout."""
    settings = Settings(seed, utterances) if utterances else settings_for(hours, seed)
    try:
        if not make_mini(out, settings, jobs):
            typer.echo(f"{corpus_dir(out)}: there already, with the same settings")
    except OtherCorpus as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
