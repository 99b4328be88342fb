"""The texts and speakers of the mini corpus, chosen by the seed alone, before anything is spoken."""

from __future__ import annotations

import random
from pathlib import Path

from uio_pipes.tools.data.example_speech import Voice, draw_voice

from ..common.spoken import Settings, Utterance, deal
from .layout import DEV_PARTS, TEST_PARTS, TRAIN_PARTS, flac_path, utterance_key
from .sentences import SENTENCES

__all__ = ["MINI_PARTS", "SECONDS_EACH", "make_plan", "sizes"]

SECONDS_EACH = 2.6  # measured mean length of an utterance
MINI_PARTS = (TRAIN_PARTS[0], *DEV_PARTS, *TEST_PARTS)
FIRST_SPEAKER = {part: 1000 * (number + 1) for number, part in enumerate(MINI_PARTS)}  # no speaker in two parts
ACCENTS = ("en-us", "en-gb-x-rp")
OTHER_NOISE = 60.0  # standard deviation, of 32768: the parts named "other" are harder
CHAPTER = 12  # utterances


def sizes(settings: Settings) -> dict[str, int]:
    """Return the number of utterances in each part."""
    held_out = max(10, settings.utterances // 8)
    return {part: settings.utterances if part in TRAIN_PARTS else held_out for part in MINI_PARTS}


def make_plan(settings: Settings) -> list[Utterance]:
    """Return every utterance of the corpus, part by part, speaker by speaker."""
    return [utterance for part in MINI_PARTS for utterance in _plan_part(settings, part)]


def _plan_part(settings: Settings, part: str) -> list[Utterance]:
    # A string seeds `random.Random` through sha512: the same on every machine.
    rng = random.Random(f"{settings.seed} {part}")
    split, _, kind = part.partition("-")

    def voice() -> Voice:
        return draw_voice(rng, rng.choice(ACCENTS))

    plan = []
    for index, number, text, voice_of in deal(sizes(settings)[part], rng, voice, lambda: SENTENCES.draw(split, rng)):
        speaker, chapter = FIRST_SPEAKER[part] + index, number // CHAPTER
        key = utterance_key(speaker, 100 * speaker + chapter, number % CHAPTER)
        path, noise = flac_path(Path(part), key), OTHER_NOISE if kind == "other" else 0.0
        plan.append(Utterance(key, part, path, text.upper(), text, voice_of, noise))
    return plan
