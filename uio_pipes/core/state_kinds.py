"""The values that fields of a saved state can have. A damaged or forged state is refused before it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from uio_pipes.base.errors import DAMAGED, StateError, UioError

MOST = 1 << 63


class Kind(NamedTuple):
    """The rule for a field, in words and as a test of a value that came out of JSON."""

    rule: str
    fits: Callable[[Any], bool]


def whole(count: int = MOST) -> Kind:
    """Return the kind of whole numbers in ``range(count)``."""
    rule = f"a whole number from 0 to {count - 1}" if count < MOST else "a whole number, 0 or more"
    return Kind(rule, lambda value: type(value) is int and 0 <= value < count)


FLAG = whole(2)
TEXT = Kind("a string", lambda value: isinstance(value, str))
OBJECT = Kind("an object", lambda value: isinstance(value, dict))
SOMETHING = Kind("anything but null", lambda value: value is not None)
_ANY = Kind("anything", lambda value: True)
_LIKE = {
    bool: Kind("true or false", lambda value: type(value) in (bool, int)),
    int: Kind("a whole number of less than 64 bits", lambda value: type(value) is int and abs(value) < MOST),
    float: Kind("a number", lambda value: type(value) in (int, float)),
    str: TEXT,
    list: Kind("a list", lambda value: isinstance(value, list)),
    dict: OBJECT,
}


def like(start: object) -> Kind:
    """Return the kind of a field by the value that it starts with; None says nothing."""
    return _LIKE.get(type(start), _ANY)


def optional(kind: Kind) -> Kind:
    """Return the kind of values that are null or of ``kind``."""
    return Kind(f"{kind.rule}, or null", lambda value: value is None or kind.fits(value))


def listed(kind: Kind) -> Kind:
    """Return the kind of lists of ``kind``."""
    return Kind(f"a list, each {kind.rule}", lambda value: isinstance(value, list) and all(map(kind.fits, value)))


def rising(kind: Kind) -> Kind:
    """Return the kind of lists of ``kind`` in which each value is higher than the one before."""
    rule, fits = listed(kind)
    return Kind(f"{rule}, rising", lambda value: fits(value) and all(a < b for a, b in pairwise(value)))


@contextmanager
def refused(by: str) -> Iterator[None]:
    """Turn whatever the user's object ``by`` raises over a state into a StateError that names it."""
    try:
        yield
    except UioError:
        raise
    except Exception as error:
        raise StateError(
            f"{by} refused the state that it saved ({type(error).__name__}: {error}): the state is damaged, or "
            f"{by} changed since. Use an older checkpoint"
        ) from error


def read_field(state: object, name: str, kind: Kind, of: str) -> Any:
    """Return field ``name`` of ``state``, which belongs to ``of``. Raises: StateError."""
    if not isinstance(state, Mapping):
        raise StateError(f"{of}: its state is {repr(state)[:60]}, not an object; {DAMAGED}")
    if name not in state or not kind.fits(state[name]):
        found = f"is {repr(state[name])[:60]}" if name in state else "is missing"
        raise StateError(f"{of}: {name} {found}, but must be {kind.rule}; {DAMAGED}")
    return state[name]
