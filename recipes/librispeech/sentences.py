"""Sentences for the mini corpus: a handful of templates, about a hundred words, millions of sentences."""

from __future__ import annotations

from ..common.templates import Templates

__all__ = ["SENTENCES"]

SENTENCES = Templates(
    {
        "who": (
            "the captain",
            "the doctor",
            "my brother",
            "her sister",
            "the old man",
            "a young woman",
            "the children",
        ),
        "did": ("found", "carried", "sold", "painted", "remembered", "wanted"),
        "size": ("small", "heavy", "broken", "golden", "simple"),
        "thing": ("lamp", "letter", "basket", "window", "hammer", "picture", "bottle"),
        "where": ("under the bridge", "in the garden", "behind the church", "near the river", "at the market"),
        "when": ("this morning", "in the evening", "before dinner", "after midnight", "last winter"),
        "went": ("walked", "hurried", "travelled", "returned"),
        "town": ("london", "paris", "boston", "chicago"),
        "with": ("with a friend", "without a word", "in the rain", "on foot"),
        "weather": ("cold", "windy", "cloudy", "warm"),
        "digit": ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
        "tens": ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"),
        "number": ("{tens} {digit}", "{digit} hundred and {tens}", "{digit} thousand"),
        "count": ("dollars", "horses", "ships", "soldiers", "pages"),
        "sentence": (
            "{who} {did} the {size} {thing} {where}",
            "{when} {who} {did} a {thing} and a {size} {thing}",
            "{who} {went} to {town} {with} {when}",
            "it was {weather} in {town} and {weather} in {town}",
            "there were {number} {count} {where}",
            "{who} {did} {number} {count} {when}",
            "the number is {digit} {digit} {digit} {digit}",
            "where is the {size} {thing} that {who} {did}",
        ),
    }
)
