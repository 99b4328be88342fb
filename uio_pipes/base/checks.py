"""Checks of arguments: an error states the rule, the value and the remedy, and the name that was probably intended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from math import isfinite
from typing import Any

from uio_pipes.base.errors import PipelineError


def is_whole(value: object) -> bool:
    """True if ``value`` is an int (and no bool)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """True if ``value`` is a finite int or float (and no bool)."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def is_weight(value: object) -> bool:
    """True if ``value`` can be the weight of a source: 0, or a number that is neither tiny nor huge."""
    return is_number(value) and (value == 0 or 1e-100 < value < 1e100)  # type: ignore[operator]


def _all(fits: Callable[[object], bool], value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(fits, value))


KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "int": ("a whole number", is_whole),
    "int | None": ("a whole number or None", lambda v: v is None or is_whole(v)),
    "float": ("a number", is_number),
    "float | None": ("a number or None", lambda v: v is None or is_number(v)),
    "str": ("a string", lambda v: isinstance(v, str)),
    "bool": ("True or False", lambda v: isinstance(v, bool)),
    "bool | None": ("True, False or None", lambda v: v is None or isinstance(v, bool)),
    "Sequence[float]": ("a list of numbers", lambda v: _all(is_number, v)),
    "Sequence[int] | None": ("a list of whole numbers", lambda v: v is None or _all(is_whole, v)),
}


def require(condition: bool, stage: str, rule: str, value: object, remedy: str) -> None:
    """Raises: PipelineError that states the rule, the value and the remedy, unless ``condition`` holds."""
    if not condition:
        raise PipelineError(f"{stage}: {rule}, not {value!r}; {remedy}")


def refuse(condition: object, stage: str, sentence: str, remedy: str) -> None:
    """Raises: PipelineError with the ``sentence`` and the remedy if ``condition`` holds: for arguments that collide."""
    if condition:
        raise PipelineError(f"{stage}: {sentence}; {remedy}")


def in_words(names: Iterable[str], word: str = "and") -> str:
    """Return names as a sentence lists them: "a", "a and b", "a, b and c"."""
    *others, last = [*names] or [""]
    return f"{', '.join(others)} {word} {last}" if others else last


def require_paths(stage: str, rule: str, given: Any, remedy: str = "name a file") -> tuple[str, ...]:
    """Return a path, or several, as a tuple. Raises: PipelineError that states the rule, the value and the remedy."""
    one = isinstance(given, (str, os.PathLike)) or not isinstance(given, Iterable)
    paths = [given] if one else list(given)
    ok = bool(paths) and all(isinstance(p, (str, os.PathLike)) and os.fspath(p).strip() for p in paths)
    require(ok, stage, rule, given, remedy)
    return tuple(map(os.fspath, paths))


def require_root(stage: str, given: Any) -> str | None:
    """Return the folder or URL at which relative paths start, or None. Raises: PipelineError."""
    ok = given is None or (isinstance(given, (str, os.PathLike)) and bool(os.fspath(given)))
    require(ok, stage, "root must be a folder", given, "omit it for the default")
    return None if given is None else os.fspath(given)


def check_names(stage: str, name: str, value: object) -> None:
    """Raises: PipelineError unless ``value``, of the argument ``name``, lists names of fields, each once."""
    ok = isinstance(value, (list, tuple)) and bool(value) and all(isinstance(n, str) and n for n in value)
    ok = ok and len(set(value)) == len(value)  # type: ignore[call-overload, arg-type]
    require(ok, stage, f"{name} must be a list of field names without duplicates", value, 'as in ["txt", "whisper"]')


def require_whole(name: str, value: object, least: int | None = None) -> None:
    """Raises: PipelineError unless ``value``, of the argument ``name``, is a whole number, ``least`` or more."""
    if not is_whole(value) or (least is not None and value < least):  # type: ignore[operator]
        bound = "" if least is None else f", {least} or more"
        raise PipelineError(f"{name} must be a whole number{bound}, not {value!r}")


def require_range(
    stage: str, name: str, value: object, least: float, most: float, unit: str = ""
) -> tuple[float, float]:
    """Return ``value``, the argument ``name`` of ``stage``, as a pair (lowest, highest) within two bounds.

    Raises: PipelineError that states the rule, the value and the remedy.
    """
    bounds = f"{least:,g} to {most:,g} {unit}".rstrip()
    rule = f"{name} must be (lowest, highest), within {bounds}"
    remedy = f"try ({value}, {value})" if is_number(value) else "give two numbers, the lower one first"
    ok = isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_number, value))
    require(ok and least <= value[0] <= value[1] <= most, stage, rule, value, remedy)  # type: ignore[index]
    return (value[0], value[1])  # type: ignore[index]


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the nearest of the ``known`` names: one of which this is the beginning, in the singular if need be, or
    the other way round; else the most similar one. None if none is near."""
    names = sorted(known, key=lambda one: (len(one), one))
    single = name.removesuffix("s")
    if len(single) > 3 and (found := [one for one in names if one.startswith(single) or name.startswith(one)]):
        return found[0]
    return next(iter(get_close_matches(name, names, 1, cutoff)), None)
