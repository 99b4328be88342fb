"""The content of the mini corpus, chosen by the seed alone, before anything is spoken.

This is: who says which sentence in which recording, its subsets and confidence, the pauses, and the faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from uio_pipes.tools.data.example_speech import Voice, draw_voice

from ..aishell.plan import SECONDS_EACH
from ..aishell.sentences import draw_sentence
from .layout import TEST_SUBSETS

PAUSE = (0.2, 1.0)  # seconds between sentences
DOMAINS = ("drama", "news", "reading", "talk", "variety")
SPEAKERS = (2, 4)  # in a recording
HELD_OUT = {part: subset for subset, part in TEST_SUBSETS.items()}
# What is wrong with a line of the JSON, as in the real corpus
NO_FILE, PAST_THE_END, NO_TEXT = "missing_file", "past_the_end", "empty_text"


@dataclass(frozen=True)
class Line:
    """One sentence of a recording. ``fault``: what is wrong with its segment."""

    text: str
    voice: Voice
    pause: float
    subsets: tuple[str, ...]
    confidence: float
    fault: str = ""


@dataclass(frozen=True)
class Recording:
    """One recording. ``far``: in a meeting, with more noise and less voice. ``labelled``: has segments in the JSON."""

    aid: str
    path: str
    source: str
    tags: tuple[str, ...]
    lines: tuple[Line, ...] = field(repr=False)
    far: bool = False
    labelled: bool = True
    fault: str = ""


@dataclass(frozen=True)
class Settings:
    """Everything that the plan depends on: ``hours`` of training speech, in recordings of ``minutes``."""

    seed: int
    hours: float
    minutes: float = 3.0

    @property
    def lines(self) -> int:
        """The number of sentences in a recording."""
        return max(4, round(self.minutes * 60 / (SECONDS_EACH + sum(PAUSE) / 2)))

    def recordings(self, part: str) -> int:
        """Return the number of recordings; each held-out part has an eighth of those to train on."""
        train = max(2, round(self.hours * 60 / self.minutes))
        return train if part == "train" else max(1, train // 8)


def make_plan(settings: Settings) -> list[Recording]:
    """Return every recording, part by part, with the faults that the real corpus has."""
    plan = [recording for part in ("train", *HELD_OUT) for recording in _plan_part(settings, part)]
    rng = random.Random(f"{settings.seed} faults")
    gone = _recording("train", settings.recordings("train"), settings, rng, fault=NO_FILE)
    unlabelled = _recording("train", settings.recordings("train") + 1, settings, rng, labelled=False)
    return [*plan, gone, unlabelled]


def _plan_part(settings: Settings, part: str) -> list[Recording]:
    # A string seeds `random.Random` through sha512: the same on every machine.
    rng = random.Random(f"{settings.seed} {part}")
    return [_recording(part, number, settings, rng) for number in range(settings.recordings(part))]


def _recording(
    part: str, number: int, settings: Settings, rng: random.Random, fault: str = "", labelled: bool = True
) -> Recording:
    name, source, path = _names(part, number, rng)
    voices = [draw_voice(rng) for _ in range(rng.randint(*SPEAKERS))]
    lines = [_line(part, rng, voices) for _ in range(settings.lines)]
    if part == "train" and not fault and number < 2:
        lines[1 + number] = _spoilt(lines[1 + number], (NO_TEXT, PAST_THE_END)[number])
    tags = (rng.choice(DOMAINS),) if part == "train" else ()
    return Recording(name, path, source, tags, tuple(lines), part == "test_meeting", labelled, fault)


def _names(part: str, number: int, rng: random.Random) -> tuple[str, str, str]:
    """Return ``aid``, ``source`` and ``path``, formed as in the real corpus."""
    if part == "train":
        source = ("youtube", "podcast")[number % 2]
        letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
        tail = (
            "".join(rng.choice(letters) for _ in range(11)) if source == "youtube" else str(rng.randint(10**8, 10**9))
        )
        aid = f"{'Y' if source == 'youtube' else 'X'}{number:010d}_{tail}"
    else:
        source, aid = "third_party", f"{HELD_OUT[part]}_T{number:010d}"
    return aid, source, f"audio/{part}/{source}/B{number // 1000:05d}/{aid}.opus"


def _line(part: str, rng: random.Random, voices: list[Voice]) -> Line:
    words = draw_sentence({"train": "train", "dev": "dev"}.get(part, "test"), rng)
    # the corpus has no blanks in Mandarin, but for those that were overlooked
    text = words.replace(" ", "") if rng.random() < 0.95 else words.replace(" ", rng.choice((" ", "　")))
    subsets, confidence = _subsets(rng) if part == "train" else ((HELD_OUT[part],), 1.0)
    return Line(text, rng.choice(voices), round(rng.uniform(*PAUSE), 2), subsets, confidence)


def _subsets(rng: random.Random) -> tuple[tuple[str, ...], float]:
    """Draw subsets and confidence: 1 for M and S, at least 0.95 for L, 0.6 to 0.95 for W, which is weakly labelled."""
    draw = rng.random()
    if draw < 0.05:
        return ("W",), round(rng.uniform(0.6, 0.949), 3)
    if draw < 0.4:
        return ("L",), round(rng.uniform(0.95, 0.999), 3)
    return (("L",), ("L", "M"), ("L", "M", "S"))[rng.randint(0, 2)], 1.0


def _spoilt(line: Line, fault: str) -> Line:
    return Line("" if fault == NO_TEXT else line.text, line.voice, line.pause, ("L",), 1.0, fault)
