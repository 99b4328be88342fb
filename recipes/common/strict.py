"""Read nested mappings (from YAML) into frozen dataclasses: every key must be known, every value of the right type."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

__all__ = ["ConfigError", "check", "read"]

T = TypeVar("T")
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class ConfigError(ValueError):
    """The configuration is wrong; the message names the key, its value, and the values that are allowed."""


def check(ok: bool, key: str, rule: str, value: object) -> None:
    """Raise ConfigError unless ``ok``."""
    if not ok:
        raise ConfigError(f"{key} must be {rule}, not {value!r}")


def read(kind: type[T], value: object, where: str = "") -> T:
    """Return ``value`` as the dataclass ``kind``; ``where`` is its key in the file, for messages.

    Raises: ConfigError that names the key and, if it is unknown, the nearest known one.
    """
    if value is None:
        value = {}  # a block whose keys are all commented out
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where or 'the configuration'} must be a block of keys ({_keys(kind)}), not {value!r}")
    hints = get_type_hints(kind)
    for name in value:
        if name not in hints:
            raise ConfigError(_unknown(str(name), list(hints), where))
    return kind(**{str(name): _convert(hints[name], v, _join(where, str(name))) for name, v in value.items()})


def _convert(kind: Any, value: object, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return read(kind, value, where)  # type: ignore[arg-type]
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # X | None
        return None if value is None else _convert(args[0], value, where)
    if origin is Literal:
        check(value in args, where, f"one of {', '.join(map(str, args))}", value)
        return value
    if origin is tuple:
        check(isinstance(value, (list, tuple)), where, f"a list, each of it {_WORDS[args[0]]}", value)
        return tuple(_convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(cast("Sequence[object]", value)))
    return _scalar(kind, value, where)


def _scalar(kind: type, value: object, where: str) -> Any:
    if kind is float and isinstance(value, str):  # YAML 1.1 takes 1e-3, without a point, for a text
        try:
            value = float(value)
        except ValueError:
            check(False, where, _WORDS[kind], value)
    fits = isinstance(value, (int, float) if kind is float else kind)
    check(fits and (kind is bool or not isinstance(value, bool)), where, _WORDS[kind], value)
    return kind(value)


def _unknown(name: str, known: list[str], where: str) -> str:
    nearest = get_close_matches(name, known, 1, cutoff=0.0)
    return f"there is no key {_join(where, name)}; the nearest is {_join(where, nearest[0])} (all: {', '.join(known)})"


def _keys(kind: Any) -> str:
    return ", ".join(field.name for field in dataclasses.fields(kind))


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
