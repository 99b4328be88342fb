"""Texts and keys come from data: on a terminal, or on a page, their control characters are shown, not obeyed."""

from __future__ import annotations

import re

__all__ = ["counted", "printable"]

# Control characters, ends of lines, marks that turn the direction of what follows, halves of surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """``text`` with those as Python writes them: ``\\x1b``."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def counted(number: int, noun: str) -> str:
    """``1 shard``, ``2 shards``, ``1,500 batches``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith(('s', 'sh', 'ch', 'x')) else 's'}"
