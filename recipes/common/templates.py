"""Sentences from a handful of templates: millions of them, of few words, each for one part of a mini corpus only.

A hash of its text assigns each sentence to train, dev or test. So no test sentence is ever heard in training, whatever
the size and the seed.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Templates", "split_of"]

_SLOT = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class Templates:
    """The choices for each slot, like ``{who}``; a choice may have slots. Sentences are those of the slot
    ``sentence``."""

    choices: Mapping[str, tuple[str, ...]]

    def expand(self, template: str, rng: random.Random) -> str:
        """Fill the slots of a template, and the slots of their contents."""
        while slot := _SLOT.search(template):
            template = template[: slot.start()] + rng.choice(self.choices[slot[1]]) + template[slot.end() :]
        return " ".join(template.split())

    def draw(self, split: str, rng: random.Random) -> str:
        """Draw a sentence of one part, with blanks between its words."""
        while split_of(sentence := self.expand("{sentence}", rng)) != split:
            pass
        return sentence

    def words(self) -> set[str]:
        """Return every word that a sentence can contain."""
        return {
            word for choices in self.choices.values() for choice in choices for word in _SLOT.sub(" ", choice).split()
        }


def split_of(sentence: str) -> str:
    """Return the part that a sentence belongs to: 8 of 10 to train, one to dev, one to test."""
    bucket = hashlib.sha1(sentence.replace(" ", "").encode()).digest()[0] % 10
    return {0: "dev", 1: "test"}.get(bucket, "train")
