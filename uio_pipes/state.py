"""What a saved state looks like, and how states of ranks are joined.

A loader's state is a flat dict of strings: ``meta`` and one ``lane_000017`` for each lane. Both are JSON. ``meta``
stamps what the state belongs to (schema, seed, epoch, lanes, graph, list); a lane holds its position, its counts and
the state of its nodes. Nothing in it is a tensor, a pickle or audio.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from uio_pipes.errors import StateError
from uio_pipes.ledger import Ledger

__all__ = [
    "SCHEMA",
    "lane_name",
    "lanes_in",
    "merge_states",
    "pack",
    "read_lane",
    "read_meta",
    "shard_stamps",
    "unpack",
]

SCHEMA = 1
_TYPES = {"H": 0x10000, "I": 0x100000000}


def pack(column: Iterable[int]) -> str:
    """Non-negative ints below 2³² as a string: 2 bytes each where they fit, else 4, in base64."""
    values = list(column)
    code = "H" if max(values, default=0) < _TYPES["H"] else "I"
    return code + base64.b64encode(array(code, values).tobytes()).decode()


def unpack(text: str) -> list[int]:
    """What :func:`pack` packed."""
    column = array(text[0])
    column.frombytes(base64.b64decode(text[1:]))
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
    _check("meta", meta, _META | {name: _step for name in ("stream", "step", "skip") if name in meta})
    return meta


def read_lane(state: Mapping[str, Any], lane: int) -> dict[str, Any]:
    """A lane's part of a state. Raises: StateError if it is not there."""
    saved = _read(state, lane_name(lane))
    _check(lane_name(lane), saved, _LANE)
    if not 0 <= saved["at"] <= saved["k"]:
        raise StateError(f"{lane_name(lane)} is damaged (at {saved['at']}, k {saved['k']}); use an older checkpoint")
    return saved


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _step(value: object) -> bool:
    return _count(value) and int(value) < 1 << 32  # type: ignore[call-overload]


def _are_counts(value: object) -> bool:
    """Whether a ledger, or a position, saved this."""
    if not isinstance(value, dict) or not set(Ledger.SAVED) <= set(value):
        return False
    tables = [value["skipped"], value["streaks"]]
    numbers = [n for name, n in value.items() if name not in ("skipped", "streaks")]
    return all(isinstance(t, dict) and all(map(_count, t.values())) for t in tables) and all(map(_count, numbers))


_META = {
    "epoch": _count,
    "seed": lambda v: isinstance(v, int),
    "lanes": lambda v: _step(v) and v > 0,
    "ended": lambda v: isinstance(v, bool),
    "graph": lambda v: isinstance(v, list),
    "list": lambda v: isinstance(v, list),
}
_LANE = {
    "epoch": _count,
    "pass": _count,
    "k": _count,
    "at": _count,
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


def lanes_in(state: Mapping[str, Any]) -> set[int]:
    """Numbers of the lanes in a state. Raises: StateError if a key is none of a state's."""
    try:
        return {int(key.removeprefix("lane_")) for key in state if key != "meta"}
    except (ValueError, AttributeError) as error:
        raise StateError(f"this is no state of a uio_pipes loader: {error}") from error


def lane_age(text: str) -> tuple[int, int, bool, int]:
    """How far a lane's string is: (epoch, pass, done, k)."""
    lane = json.loads(text)
    return lane["epoch"], lane["pass"], lane["done"], lane["k"]


def merge_states(states: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Join states that ranks saved one by one into one that holds the newest state of each lane.

    Args:
        states: what each rank's ``loader.state_dict()`` returned.

    Raises:
        StateError: the states are of different runs (seed, lanes, graph or list).
    """
    known = [dict(s) for s in states]
    if not known:
        raise StateError("merge_states got no state: pass the state_dict() of each rank")
    metas = [read_meta(s) for s in known]
    newest = max(range(len(known)), key=lambda i: (metas[i]["epoch"], metas[i]["ended"], metas[i].get("step", 0)))
    for meta in metas:
        for field in ("seed", "lanes", "graph", "list"):
            if meta[field] != metas[newest][field]:
                raise StateError(
                    f"{field}: one state has {meta[field]!r}, another {metas[newest][field]!r}; "
                    "join only states that the ranks of one run saved"
                )
    merged: dict[str, str] = {"meta": known[newest]["meta"]}
    for state in known:
        for key, text in state.items():
            if key != "meta" and (key not in merged or lane_age(text) > lane_age(merged[key])):
                merged[key] = text
    return {key: merged[key] for key in sorted(merged)}
