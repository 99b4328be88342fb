"""Columns of whole numbers as short strings, for saved states."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Iterable

_TYPES = {"H": 0x10000, "I": 0x100000000}


def pack(column: Iterable[int]) -> str:
    """Non-negative ints below 2³² as a string: 2 bytes each where they fit, else 4, in base64."""
    values = list(column)
    code = "H" if max(values, default=0) < _TYPES["H"] else "I"
    return code + base64.b64encode(array(code, values).tobytes()).decode()


def unpack(text: str) -> list[int]:
    """Return the column that :func:`pack` packed. Raises: ValueError if it is not that."""
    if text[:1] not in _TYPES:
        raise ValueError(f"it begins with {text[:1]!r}, not with one of {', '.join(_TYPES)}")
    column = array(text[0])
    column.frombytes(base64.b64decode(text[1:], validate=True))
    return column.tolist()
