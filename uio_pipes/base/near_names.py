"""The name that was meant by one that there is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the nearest of the ``known`` names: one of which this is the beginning, in the singular if need be, or
    the other way round; else the most similar one. None if none is near."""
    names = sorted(known, key=lambda one: (len(one), one))
    single = name.removesuffix("s")
    if len(single) > 3 and (found := [one for one in names if one.startswith(single) or name.startswith(one)]):
        return found[0]
    return next(iter(get_close_matches(name, names, 1, cutoff)), None)
