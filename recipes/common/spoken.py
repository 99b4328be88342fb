"""A mini corpus, spoken by espeak-ng: its settings, who says what, and the speaking.

The same settings give the same bytes, however many processes speak. A recipe's ``plan`` lists the utterances with their
paths in the layout of the real corpus.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from uio_pipes.tools.data.common import follow
from uio_pipes.tools.data.example_speech import RATE, EspeakVoices, Voice, to_int16

from .corpus import OtherCorpus, SpeakingFailed, check_settings, in_fresh_processes, write_settings
from .problems import told

__all__ = ["Settings", "Utterance", "command", "deal", "settings_for", "speak"]

BLOCK = 50  # utterances spoken by one process; the bytes depend on it
PER_SPEAKER = 24  # real corpora have hundreds for each speaker; a small one wants many voices
MAX_SPEAKERS = 340


@dataclass(frozen=True)
class Settings:
    """Everything that a mini corpus depends on: the seed, and the number of utterances to train on."""

    seed: int
    utterances: int


@dataclass(frozen=True)
class Utterance:
    """One line of the plan. ``path``: of the recording within the corpus; ``text``: as in the corpus's transcript, with
    blanks between words; ``said``: as espeak-ng gets it; ``noise``: standard deviation, of 32768."""

    key: str
    split: str
    path: Path
    text: str
    said: str
    voice: Voice
    noise: float = 0.0


def deal(
    size: int, rng: random.Random, voice: Callable[[], Voice], sentence: Callable[[], str]
) -> Iterator[tuple[int, int, str, Voice]]:
    """Yield ``size`` sentences, speaker by speaker, as (speaker, number, sentence, voice), with numbers from 0."""
    speakers = min(MAX_SPEAKERS, -(-size // PER_SPEAKER))
    voices = [voice() for _ in range(speakers)]
    for index in range(size):
        speaker, number = divmod(index, -(-size // speakers))
        yield speaker, number, sentence(), voices[speaker]


def speak(
    corpus: Path,
    name: str,
    settings: Settings,
    plan: list[Utterance],
    write_texts: Callable[[Path], None],
    jobs: int = 0,
) -> bool:
    """Make the folder ``corpus``; return False if it was there already. It appears when it is complete.

    ``name``: of the real corpus; ``write_texts`` writes the transcripts into a folder. Raises: OtherCorpus,
    SpeakingFailed.
    """
    if corpus.exists():
        check_settings(corpus, settings, name)
        return False
    partial = corpus.with_name(f".{corpus.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for folder in {(partial / utterance.path).parent for utterance in plan}:
        folder.mkdir(parents=True)
    blocks = ((partial, settings.seed, start, plan[start : start + BLOCK]) for start in range(0, len(plan), BLOCK))
    spoken = in_fresh_processes(_speak_block, blocks, jobs)
    seconds = sum(follow(spoken, "speaking", len(plan)))
    write_texts(partial)
    write_settings(partial, settings)
    partial.rename(corpus)
    typer.echo(f"{corpus}: {len(plan)} utterances, {seconds / 3600:.2f} h, of which to train on: {settings.utterances}")
    return True


def _speak_block(corpus: Path, seed: int, start: int, block: list[Utterance]) -> tuple[float, int]:
    """Speak some utterances; return their seconds and their number."""
    import soundfile

    speaker, room, samples = EspeakVoices(), np.random.default_rng([seed, start]), 0
    for utterance in block:
        speech = speaker.speak(utterance.said, utterance.voice, room)
        if utterance.noise:
            speech = to_int16(speech + room.normal(0, utterance.noise, len(speech)))
        soundfile.write(corpus / utterance.path, speech, RATE, subtype="PCM_16")
        samples += len(speech)
    return samples / RATE, len(block)


def settings_for(hours: float, seconds_each: float, seed: int) -> Settings:
    """Return settings for about this many hours of utterances that last ``seconds_each`` on average."""
    return Settings(seed, max(1, round(hours * 3600 / seconds_each)))


def command(
    name: str, folder: Callable[[Path], Path], make: Callable[[Path, Settings, int], bool], seconds_each: float
) -> Callable[..., None]:
    """Return the command that speaks a mini corpus. ``name``: of the real corpus; ``folder``: its own folder in OUT."""

    def main(
        out: Annotated[Path, typer.Argument(help="Folder that gets the corpus, in a folder of its own.")],
        hours: Annotated[float, typer.Option(min=0.001, help="About this many hours of training speech.")] = 0.5,
        utterances: Annotated[int, typer.Option(min=0, help="Exactly this many to train on, instead of --hours.")] = 0,
        seed: Annotated[int, typer.Option(min=0, help="Another seed gives another corpus.")] = 1,
        jobs: Annotated[int, typer.Option(help="Processes; 0: one for each core.")] = 0,
    ) -> None:
        settings = Settings(seed, utterances) if utterances else settings_for(hours, seconds_each, seed)
        with told(OtherCorpus, SpeakingFailed):
            if not make(out, settings, jobs):
                typer.echo(f"{folder(out)}: there already, with the same settings")

    main.__doc__ = f"Speak a mini {name} (by espeak-ng) in {name}'s own layout."
    return main
