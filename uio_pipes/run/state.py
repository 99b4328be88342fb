"""What a saved state looks like. (How states of ranks are joined is in :mod:`uio_pipes.run.state_merging`.)

A loader's state is a flat dict of strings: ``meta`` and one ``lane_000017`` for each lane. Both are JSON. ``meta``
stamps what the state belongs to (schema, seed, epoch, lanes, graph, list); a lane holds its position, its counts and
the state of its nodes. Nothing in it is a tensor, a pickle or audio.
"""

from __future__ import annotations

import base64
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from uio_pipes.base.errors import StateError
from uio_pipes.core.ledger import Ledger

__all__ = [
    "SCHEMA",
    "first_difference",
    "lane_name",
    "lane_age",
    "lanes_in",
    "pack",
    "read_lane",
    "read_meta",
    "shard_stamps",
    "unpack",
]

SCHEMA = 1
_MODULE = re.compile(r"\buio_pipes\.(?:[a-z_0-9]+\.)+")  # earlier versions wrote where in the package a thing was
_TYPES = {"H": 0x10000, "I": 0x100000000}


def pack(column: Iterable[int]) -> str:
    """Non-negative ints below 2³² as a string: 2 bytes each where they fit, else 4, in base64."""
    values = list(column)
    code = "H" if max(values, default=0) < _TYPES["H"] else "I"
    return code + base64.b64encode(array(code, values).tobytes()).decode()


def unpack(text: str) -> list[int]:
    """What :func:`pack` packed. Raises: ValueError if it is not that."""
    if text[:1] not in _TYPES:
        raise ValueError(f"it begins with {text[:1]!r}, not with one of {', '.join(_TYPES)}")
    column = array(text[0])
    column.frombytes(base64.b64decode(text[1:], validate=True))
    return column.tolist()


def lane_name(lane: int) -> str:
    """The key of a lane in a state."""
    return f"lane_{lane:06d}"


def read_meta(state: Mapping[str, Any]) -> dict[str, Any]:
    """The ``meta`` of a state. Raises: StateError if this is no state of a loader, or of a newer schema."""
    meta = _read(state, "meta")
    if meta.get("schema") != SCHEMA:
        raise StateError(
            f"schema: the state has {meta.get('schema')!r}, this version reads {SCHEMA}; "
            "load it with the version of uio_pipes that saved it"
        )
    _check("meta", meta, _META | {name: fits for name, fits in _MAYBE.items() if name in meta})
    meta["graph"] = [_MODULE.sub("uio_pipes.", str(line)) for line in meta["graph"]]
    return meta


def read_lane(state: Mapping[str, Any], lane: int) -> dict[str, Any]:
    """A lane's part of a state. Raises: StateError if it is not there, or cannot be a lane's."""
    key = lane_name(lane)
    saved = _read(state, key)
    _check(key, saved, _LANE)
    for rule, holds in _rules(saved):
        if not holds:
            told = ", ".join(f"{name} {saved[name]!r}" for name in ("k", "at", "pass", "done"))
            nodes = "none" if saved["nodes"] is None else "some"
            raise StateError(f"{key} is damaged ({rule}: it has {told}, nodes: {nodes}); use an older checkpoint")
    return saved


def _rules(saved: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """What a lane that was saved always keeps to."""
    yield "at must not be above k", saved["at"] <= saved["k"]
    if saved["done"]:
        yield "a lane that is done has no nodes, and at is k", saved["nodes"] is None and saved["at"] == saved["k"]
    else:
        yield "a lane has nodes once at is above 0", (saved["nodes"] is None) == (saved["at"] == 0)
    begun = saved["done"] or saved["k"] > 0 or saved["pass"] > 0
    yield "a lane that has begun has counts", bool(saved["counts"]) or not begun


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _step(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 32


def _are_counts(value: object) -> bool:
    """Whether a ledger, or a position, saved this."""
    if not isinstance(value, dict) or not set(Ledger.SAVED) <= set(value):
        return False
    tables = [value["skipped"], value["streaks"]]
    numbers = [n for name, n in value.items() if name not in ("skipped", "streaks")]
    return all(isinstance(t, dict) and all(map(_count, t.values())) for t in tables) and all(map(_count, numbers))


def _is_state(value: object) -> bool:
    return isinstance(value, dict) and "meta" in value and all(isinstance(text, str) for text in value.values())


_META = {
    "epoch": _step,
    "seed": lambda v: isinstance(v, int),
    "lanes": lambda v: _step(v) and v > 0,
    "ended": lambda v: isinstance(v, bool),
    "graph": lambda v: isinstance(v, list),
    "list": lambda v: isinstance(v, list),
}
_MAYBE: dict[str, Callable[[Any], bool]] = {"stream": _step, "step": _step, "skip": _step, "ahead": _is_state}
_LANE = {
    "epoch": _step,
    "pass": _step,
    "k": _step,
    "at": _step,
    "done": lambda v: isinstance(v, bool),
    "counts": lambda v: v == {} or _are_counts(v),
    "nodes": lambda v: v is None or isinstance(v, dict),
}


def _check(key: str, value: dict[str, Any], rules: dict[str, Callable[[Any], bool]]) -> None:
    for name, fits in rules.items():
        if name not in value or not fits(value[name]):
            raise StateError(f"{key} is damaged ({name} is {value.get(name)!r}); use an older checkpoint")


def shard_stamps(state: Mapping[str, Any]) -> dict[str, str]:
    """Shards under way when the state was saved: url → size or ETag then."""
    found: dict[str, str] = {}
    for key in state:
        if key.startswith("lane_"):
            _collect(_read(state, key).get("nodes"), found)
    return found


def _collect(nodes: object, found: dict[str, str]) -> None:
    if isinstance(nodes, dict):
        if isinstance(nodes.get("url"), str) and isinstance(nodes.get("stamp"), str):
            found[nodes["url"]] = nodes["stamp"]
        for value in nodes.values():
            _collect(value, found)


def _read(state: Mapping[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(state, Mapping) or not isinstance(state.get(key), str):
        raise StateError(
            f"{key} is missing or is no string: this is not a whole state of a uio_pipes loader. "
            "Pass what loader.state_dict(), gather_state or merge_states returned"
        )
    try:
        value = json.loads(state[key])
    except (ValueError, RecursionError) as error:
        raise StateError(f"{key} is damaged ({error}); use an older checkpoint") from error
    if not isinstance(value, dict):
        raise StateError(f"{key} is damaged (not an object); use an older checkpoint")
    return value


def lanes_in(state: Mapping[str, Any], count: int) -> set[int]:
    """Numbers of the lanes in a state of ``count`` lanes. Raises: StateError if a key is none of such a state's."""
    found = set()
    for key in state:
        number = str(key).removeprefix("lane_")
        if number.isascii() and number.isdecimal() and lane_name(int(number)) == key:
            found.add(int(number))
        elif key != "meta":
            raise StateError(f"this is no state of a uio_pipes loader: {key!r} is neither meta nor a lane's name")
    if found and max(found) >= count:
        raise StateError(f"the state has lane {max(found)}, but is of {count} lanes; use an older checkpoint")
    return found


def lane_age(text: str) -> tuple[int, int, bool, int]:
    """How far a lane's string is: (epoch, pass, done, k)."""
    lane = json.loads(text)
    return lane["epoch"], lane["pass"], lane["done"], lane["k"]


def first_difference(old: list[str], new: list[str]) -> tuple[str, str]:
    """The first stage in which two graphs differ."""
    for i in range(max(len(old), len(new))):
        a, b = (lines[i] if i < len(lines) else "(no stage)" for lines in (old, new))
        if a != b:
            return f"stage {i}: {a}", f"stage {i}: {b}"
    return str(old), str(new)
