"""The texts and speakers of the mini corpus, chosen by the seed alone, before anything is spoken."""

from __future__ import annotations

import random
from dataclasses import dataclass

from uio_pipes.prep.examples.speech import Voice, draw_voice

from .layout import SPLITS, utterance_key
from .sentences import draw_sentence

SECONDS_EACH = 2.45  # measured mean length of an utterance
PER_SPEAKER = 24  # AISHELL-1 has some 350 for each of 400 speakers; a small corpus wants many voices
MAX_SPEAKERS = 340
FIRST_SPEAKER = {"train": 2, "dev": 724, "test": 764}  # as in AISHELL-1: no speaker in two parts
FIRST_UTTERANCE = 122


@dataclass(frozen=True)
class Utterance:
    """One line of the plan. ``text`` has blanks between its words, as in AISHELL-1's transcript."""

    key: str
    split: str
    text: str
    voice: Voice


@dataclass(frozen=True)
class Settings:
    """Everything that the corpus depends on."""

    seed: int
    utterances: int

    @property
    def sizes(self) -> dict[str, int]:
        """The number of utterances in each part."""
        held_out = max(10, self.utterances // 6)
        return {"train": self.utterances, "dev": held_out, "test": held_out}


def settings_for(hours: float, seed: int) -> Settings:
    """Return settings for about this many hours of training speech."""
    return Settings(seed, max(1, round(hours * 3600 / SECONDS_EACH)))


def make_plan(settings: Settings) -> list[Utterance]:
    """Return every utterance of the corpus, part by part, speaker by speaker."""
    return [utterance for split in SPLITS for utterance in _plan_split(settings, split)]


def _plan_split(settings: Settings, split: str) -> list[Utterance]:
    size = settings.sizes[split]
    speakers = min(MAX_SPEAKERS, -(-size // PER_SPEAKER))
    # A string seeds `random.Random` through sha512: the same on every machine.
    rng = random.Random(f"{settings.seed} {split}")
    voices = [draw_voice(rng) for _ in range(speakers)]
    plan = []
    for index in range(size):
        speaker, number = divmod(index, -(-size // speakers))
        key = utterance_key(f"S{FIRST_SPEAKER[split] + speaker:04d}", FIRST_UTTERANCE + number)
        plan.append(Utterance(key, split, draw_sentence(split, rng), voices[speaker]))
    return plan
