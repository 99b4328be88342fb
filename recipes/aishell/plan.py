"""The texts and speakers of the mini corpus, chosen by the seed alone, before anything is spoken."""

from __future__ import annotations

import random
from pathlib import Path

from uio_pipes.tools.data.example_speech import draw_voice

from ..common import spoken
from ..common.spoken import Settings, Utterance, deal
from .layout import SPLITS, utterance_key, wav_path
from .sentences import draw_sentence

__all__ = ["SECONDS_EACH", "Settings", "make_plan", "settings_for", "sizes"]

SECONDS_EACH = 2.45  # measured mean length of an utterance
FIRST_SPEAKER = {"train": 2, "dev": 724, "test": 764}  # as in AISHELL-1: no speaker in two parts
FIRST_UTTERANCE = 122


def settings_for(hours: float, seed: int) -> Settings:
    """Return settings for about this many hours of training speech."""
    return spoken.settings_for(hours, SECONDS_EACH, seed)


def sizes(settings: Settings) -> dict[str, int]:
    """Return the number of utterances in each part."""
    held_out = max(10, settings.utterances // 6)
    return {"train": settings.utterances, "dev": held_out, "test": held_out}


def make_plan(settings: Settings) -> list[Utterance]:
    """Return every utterance of the corpus, part by part, speaker by speaker."""
    return [utterance for split in SPLITS for utterance in _plan_split(settings, split)]


def _plan_split(settings: Settings, split: str) -> list[Utterance]:
    # A string seeds `random.Random` through sha512: the same on every machine.
    rng = random.Random(f"{settings.seed} {split}")
    plan = []
    dealt = deal(sizes(settings)[split], rng, lambda: draw_voice(rng), lambda: draw_sentence(split, rng))
    for speaker, number, text, voice in dealt:
        key = utterance_key(f"S{FIRST_SPEAKER[split] + speaker:04d}", FIRST_UTTERANCE + number)
        plan.append(Utterance(key, split, wav_path(Path(), split, key), text, text.replace(" ", ""), voice))
    return plan
