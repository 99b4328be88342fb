"""JSON of strangers: whatever is wrong with it is a ValueError."""

from __future__ import annotations

import json
from typing import Any

DIGITS = 300  # of a whole number: more is no float any more


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises: ValueError, also for brackets that are nested too deeply, and for endless numbers."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    try:
        decoder = _plain if len(text) <= DIGITS else _careful  # a Python function for each number is dear
        if text[:1] in ("{", "["):
            value, end = decoder.raw_decode(text)
            if end == len(text):
                return value
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"it has a number of {len(digits):,} digits")
    return int(digits)


_plain, _careful = json.JSONDecoder(), json.JSONDecoder(parse_int=_whole)
