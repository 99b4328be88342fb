"""What two voices say to each other, and when: questions and answers, with pauses, overlaps and remarks in between.

A user asks, and the model answers shortly after the last word of the question. Some users hesitate before that word: a
pause alone is not the end of a turn. Some speak into the answer, or ask again before it has ended.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["ANSWERS", "CHANNELS", "MODEL", "USER", "Line", "Word", "lines", "placed"]

MODEL, USER = "SPEAKER_MAIN", "SPEAKER_USER"  # as moshi-finetune calls the model; it has no name for the other one
CHANNELS = {MODEL: 0, USER: 1}  # the model is on the left
NUMBERS = ("one", "two", "three", "four", "five", "six")
COLOURS = {"grass": "green", "snow": "white", "coal": "black", "blood": "red"}
OPPOSITES = {"hot": "cold", "big": "small", "old": "new", "long": "short"}
ANSWERS = (  # for each kind of question all of them, with their answers
    {f"what comes after {number}": f"{after} comes next" for number, after in pairwise(NUMBERS)},
    {f"what colour is {thing}": f"{thing} is {colour}" for thing, colour in COLOURS.items()},
    {f"what is the opposite of {thing}": f"the opposite is {other}" for thing, other in OPPOSITES.items()},
)
REMARKS = ("okay", "right", "thanks")
GAP = (0.01, 0.05)  # seconds between the words of a speaker
ANSWER = (0.2, 0.4)  # from the end of a question to its answer
HESITATION = (0.4, 0.9)
AFTER = (-0.3, 1.2)  # from the end of an answer to the next question; below 0 they overlap


@dataclass(frozen=True)
class Line:
    """What one speaker says in one go.

    ``after``: seconds from the end of the line before to its start; ``pause``: before its last word. ``aside``: the
    next line takes no notice of it.
    """

    speaker: str
    words: tuple[str, ...]
    after: float
    pause: float = 0.0
    aside: bool = False


@dataclass(frozen=True)
class Word:
    """A word in its place. ``start`` and ``end``: in samples."""

    start: int
    end: int
    text: str
    speaker: str


def lines(rng: random.Random) -> Iterator[Line]:
    """Draw what is said in a dialogue of two to four questions."""
    for _ in range(rng.randint(2, 4)):
        asked, answer = rng.choice(list(rng.choice(ANSWERS).items()))
        pause = rng.uniform(*HESITATION) if rng.random() < 0.4 else 0.0
        yield Line(USER, tuple(asked.split()), rng.uniform(*AFTER), pause)
        yield Line(MODEL, tuple(answer.split()), rng.uniform(*ANSWER))
        if rng.random() < 0.3:  # a remark into the answer
            yield Line(USER, (rng.choice(REMARKS),), -rng.uniform(0.3, 0.7), aside=True)


def placed(said: list[Line], length: Callable[[str, str], int], rate: int, rng: random.Random) -> list[Word]:
    """Return all words in the order of their starts.

    Args:
        said: what is said.
        length: tells how many samples a speaker needs for a word.
        rate: samples per second.
        rng: draws the gaps between words.
    """
    words, end = list[Word](), round(0.6 * rate)  # so that the first line, with its own gap, begins after 0
    spoken = dict.fromkeys(CHANNELS, 0)  # where each speaker has ended: nobody speaks over himself
    for line in said:
        at = max(end + round(line.after * rate), spoken[line.speaker] + round(GAP[1] * rate))
        for number, text in enumerate(line.words):
            if number:
                last = number == len(line.words) - 1
                at += round((rng.uniform(*GAP) + (line.pause if last else 0.0)) * rate)
            words.append(Word(at, at + length(text, line.speaker), text, line.speaker))
            at = words[-1].end
        spoken[line.speaker] = at
        if not line.aside:
            end = at
    return sorted(words, key=lambda word: (word.start, word.speaker))
