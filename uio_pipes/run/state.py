"""The format of a saved state, and its checks. Reading one imports no torch.

A loader's state is a flat dict of strings: ``meta`` and one ``lane_000017`` for each lane. Both are JSON. :class:`Meta`
says which run the state belongs to; a :class:`LaneState` holds a lane's position, its counts and the state of its
nodes. A state contains no tensor, no pickle and no audio.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple

from uio_pipes.base.checks import is_weight
from uio_pipes.base.errors import StateError
from uio_pipes.base.json_text import parse_json, whole
from uio_pipes.base.urls import redact
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.schedule import are_settings as are_settings

MixRecord = dict[str, Any]  # of a mix in a state: "weights" by source, and "journal"


class Where(NamedTuple):
    """Where a rank stands: epoch and step, and of how many ranks."""

    epoch: int
    step: int
    ranks: int


def are_mixes(records: object) -> bool:
    """Return whether these can be the mixes of a state."""

    def are_weights(value: object) -> bool:
        return isinstance(value, dict) and any(value.values()) and all(map(is_weight, value.values()))

    def is_entry(value: object) -> bool:
        if not isinstance(value, dict):
            return False
        return all(whole().fits(value.get(name)) for name in Where._fields) and are_weights(value.get("weights"))

    return isinstance(records, dict) and all(
        isinstance(one, dict)
        and are_weights(one.get("weights"))
        and isinstance(one.get("journal"), list)
        and len(one["journal"]) != 1
        and all(is_entry(entry) and entry["weights"].keys() <= one["weights"].keys() for entry in one["journal"])
        for one in records.values()
    )


def are_exclusions(journal: object) -> bool:
    """Return whether this can be the journal of what a run leaves out."""

    def is_entry(one: Any) -> bool:
        keys = one.get("keys") if isinstance(one, dict) else None
        texts = isinstance(keys, dict) and all(
            isinstance(of, list) and all(isinstance(key, str) for key in of) for of in keys.values()
        )
        return texts and all(whole().fits(one.get(name)) for name in Where._fields)

    return isinstance(journal, list) and all(map(is_entry, journal))


SCHEMA = 1
_MODULE = re.compile(r"\buio_pipes\.(?:[a-z_0-9]+\.)+")


# Checks of the values of fields

_is_count, _is_step = whole().fits, whole(1 << 32).fits


def _are_tuples(value: object, size: int) -> bool:
    """Return whether this is a list of so many counts each."""
    if not isinstance(value, list) or not all(isinstance(one, list) and len(one) == size for one in value):
        return False
    return all(_is_count(n) for one in value for n in one)


def _are_ranges(value: Any) -> bool:
    """Return whether this is [start, stop, step] of each range of numbers that are still to come."""
    return _are_tuples(value, 3) and all(step > 0 for _, _, step in value)


def _are_stretches(value: Any) -> bool:
    """Return whether this is [first step, ranks] of each stretch, one after the other."""
    if not value or not _are_tuples(value, 2):
        return False
    numbers = all(_is_step(first) and _is_step(ranks) and ranks for first, ranks in value)
    return numbers and all(a[0] < b[0] for a, b in pairwise(value))


def _are_counts(value: object) -> bool:
    """Return whether these can be the counts of a lane; one that has not begun has none."""
    if value == {}:
        return True
    if not isinstance(value, dict) or not set(Ledger.SAVED) <= set(value):
        return False
    tables = [value[name] for name in Ledger.TABLES if name in value]
    numbers = [n for name, n in value.items() if name not in Ledger.TABLES]
    return all(isinstance(t, dict) and all(map(_is_count, t.values())) for t in tables) and all(map(_is_count, numbers))


def _is_state(value: object) -> bool:
    return isinstance(value, dict) and "meta" in value and all(isinstance(text, str) for text in value.values())


# Metadata of fields: "fits" checks a saved value; "key" is the name in JSON if it differs. A default makes it optional.
COUNT = {"fits": _is_step}
FLAG = {"fits": lambda value: isinstance(value, bool)}
LIST = {"fits": lambda value: isinstance(value, list)}
RANGES = {"fits": _are_ranges}
PLACES = {"fits": lambda value: _are_tuples(value, 4), "optional": True}
PAIRS = {"fits": lambda value: _are_tuples(value, 2), "optional": True}


# The records


@dataclass
class Meta:
    """The run and the epoch that a state belongs to.

    Attributes:
        epoch: the current epoch. ended: it is over for all ranks.
        seed, graph, listed: what must be equal in the loader: its seed, a line for each stage, count and hash of lists.
        lanes: number of lanes that the epoch is dealt to.
        stream: with ``steps_per_epoch``, the epoch in which the stream began.
        step: number of the next step in this epoch. stretches: [first step, ranks] of each of its
            :mod:`~uio_pipes.run.progress`.
        skip: batches to pass over before the next one.
        mixes: the weights of mixes and what changed in them (see :mod:`uio_pipes.run.mixes`).
        excluded: the utterances left out by ``loader.exclude`` (see :mod:`uio_pipes.run.exclusions`).
        ranks: the number of ranks for which steps are counted, if something follows the step.
        over: ranges of batches to pass over when their turn comes, as [start, stop, step], by their numbers on a rank.
        ahead: the state of the next epoch, if some ranks had begun it.
    """

    epoch: int = field(metadata=COUNT)
    seed: int = field(metadata={"fits": lambda value: isinstance(value, int)})
    lanes: int = field(metadata={"fits": lambda value: _is_step(value) and value > 0})
    ended: bool = field(metadata=FLAG)
    graph: list[str] = field(metadata=LIST)
    listed: list[int | str] = field(metadata=LIST | {"key": "list"})
    stream: int | None = field(default=None, metadata=COUNT)
    step: int | None = field(default=None, metadata=COUNT)
    skip: int = field(default=0, metadata=COUNT)
    mixes: dict[str, dict[str, Any]] | None = field(default=None, metadata={"fits": are_mixes})
    excluded: list[dict[str, Any]] | None = field(default=None, metadata={"fits": are_exclusions})
    ranks: int | None = field(default=None, metadata={"fits": lambda value: _is_step(value) and value > 0})
    over: list[list[int]] | None = field(default=None, metadata=RANGES)
    stretches: list[list[int]] | None = field(default=None, metadata={"fits": _are_stretches})
    ahead: dict[str, str] | None = field(default=None, metadata={"fits": _is_state})

    @property
    def data_epoch(self) -> int:
        """The epoch whose data this is: with ``steps_per_epoch`` the one in which the stream began."""
        return self.epoch if self.stream is None else self.stream

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The changes of mixes, but for the weights that they began with, and of what is left out."""
        mixes = [entry for record in (self.mixes or {}).values() for entry in record["journal"][1:]]
        return mixes + (self.excluded or [])

    def saved(self) -> dict[str, Any]:
        """Return the fields that are saved, under their names in JSON."""
        given = {key: getattr(self, name) for name, key in _META_KEYS}
        return {"schema": SCHEMA, **{n: v for n, v in given.items() if v is not None and (n != "skip" or v)}}

    @property
    def text(self) -> str:
        """The entry ``meta`` of a state: JSON."""
        return json.dumps(self.saved(), ensure_ascii=False)


@dataclass
class LaneState:
    """The state of one lane after the last batch that the trainer received.

    Attributes:
        epoch, pass_: the epoch, and how often the lane began again within it.
        k: batches received in this pass. done: there are no more.
        counts: the counts of the lane's ledger.
        at: batches received when ``nodes`` was saved; resuming passes over the ``k - at`` batches since then.
        settings: where settings changed, see :class:`~uio_pipes.core.schedule.Settings`; empty if none can.
        places: where it stood when stretches of steps began: [epoch, first step, pass, k] of each.
        lost: [pass, k] of the batches in this epoch of a stream of which nothing was left.
        nodes: the state of the lane's nodes, as JSON; "null" before the first snapshot and after the last batch.
    """

    epoch: int = field(metadata=COUNT)
    pass_: int = field(default=0, metadata=COUNT | {"key": "pass"})
    k: int = field(default=0, metadata=COUNT)
    done: bool = field(default=False, metadata=FLAG)
    counts: dict[str, Any] = field(default_factory=dict, metadata={"fits": _are_counts})
    at: int = field(default=0, metadata=COUNT)
    settings: dict[str, Any] = field(default_factory=dict, metadata={"fits": are_settings, "optional": True})
    places: list[list[int]] = field(default_factory=list, metadata=PLACES)
    lost: list[list[int]] = field(default_factory=list, metadata=PAIRS)
    nodes: str = "null"

    def settings_known(self, later: LaneState) -> dict[str, Any]:
        """Return the settings with the marks that a later state of the lane knows; what has none changes there."""
        known = later.settings
        made = known.get("before", 0) + later.k
        return {"before": self.settings.get("before", 0), "marks": known.get("marks", {}), "from": made}

    @property
    def node_states(self) -> dict[str, Any] | None:
        """The state of the lane's nodes, parsed."""
        parsed: dict[str, Any] | None = json.loads(self.nodes)
        return parsed

    @property
    def text(self) -> str:
        """The entry of the lane in a state: JSON."""
        given = {key: getattr(self, name) for name, key in _LANE_KEYS}
        head = json.dumps(
            {key: value for key, value in given.items() if value or key not in ("settings", "places", "lost")}
        )
        return f'{head[:-1]}, "nodes": {self.nodes}}}'


def _keys(kind: type) -> list[tuple[str, str]]:
    """Return the names of a record's fields, each with its name in JSON."""
    return [(f.name, f.metadata.get("key", f.name)) for f in fields(kind) if f.metadata]


_META_KEYS, _LANE_KEYS = _keys(Meta), _keys(LaneState)


def lane_name(lane: int) -> str:
    """Return the key of a lane in a state."""
    return f"lane_{lane:06d}"


def read_meta(state: Mapping[str, Any]) -> Meta:
    """Read the ``meta`` of a state. Raises: StateError if it is not a loader's, or its schema is another one."""
    saved = _read(state, "meta")
    if saved.get("schema") != SCHEMA:
        raise StateError(
            f"schema: the state has {saved.get('schema')!r}, this version reads {SCHEMA}; "
            "load it with the version of uio_pipes that saved it"
        )
    return Meta(**_checked(Meta, "meta", saved))


def read_lane(state: Mapping[str, Any], lane: int) -> LaneState:
    """Read one lane of a state. Raises: StateError if it is missing or damaged."""
    key = lane_name(lane)
    saved = _read(state, key)
    if "nodes" not in saved or not isinstance(saved["nodes"], dict | None):
        raise _damaged(key, "nodes", saved)
    given = _checked(LaneState, key, saved, optional=False)
    found = LaneState(**given, nodes=json.dumps(saved["nodes"], separators=(",", ":")))
    for rule, holds in _rules(found):
        if not holds:
            values = f"k {found.k}, at {found.at}, pass {found.pass_}, done {found.done}"
            nodes = "none" if saved["nodes"] is None else "some"
            raise StateError(f"{key} is damaged ({rule}: it has {values}, nodes: {nodes}); use an older checkpoint")
    return found


def _checked(kind: type, key: str, saved: dict[str, Any], optional: bool = True) -> dict[str, Any]:
    """Return the fields for a record of this ``kind``. Raises: StateError if one is missing, or has a wrong value."""
    given = {}
    for one in fields(kind):
        if not one.metadata:
            continue
        name = one.metadata.get("key", one.name)
        needed = not (optional or "optional" in one.metadata) or (
            one.default is MISSING and one.default_factory is MISSING
        )
        if name not in saved and not needed:
            continue
        if name not in saved or not one.metadata["fits"](saved[name]):
            raise _damaged(key, name, saved)
        given[one.name] = saved[name]
    return given


def _damaged(key: str, name: str, saved: dict[str, Any]) -> StateError:
    return StateError(f"{key} is damaged ({name} is {saved.get(name)!r}); use an older checkpoint")


def _rules(lane: LaneState) -> Iterator[tuple[str, bool]]:
    """Yield each rule that a saved lane keeps, and whether this one keeps it."""
    yield "at must not be above k", lane.at <= lane.k
    without = lane.nodes == "null"
    if lane.done:
        yield "a lane that is done has no nodes, and at is k", without and lane.at == lane.k
    else:
        yield "a lane has nodes once at is above 0", without == (lane.at == 0)
    begun = lane.done or lane.k > 0 or lane.pass_ > 0
    yield "a lane that has begun has counts", bool(lane.counts) or not begun


def shard_stamps(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the shards that were open when the state was saved: URL → size or ETag then."""
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
            f"{key} is missing or not a string: this is not a complete state of a uio_pipes loader. "
            "Pass what loader.state_dict(), gather_state or merge_states returned"
        )
    try:
        value = parse_json(state[key])
    except ValueError as error:
        raise StateError(f"{key} is damaged ({error}); use an older checkpoint") from error
    if not isinstance(value, dict):
        raise StateError(f"{key} is damaged (not an object); use an older checkpoint")
    return value


def lanes_in(state: Mapping[str, Any], count: int) -> set[int]:
    """Return the numbers of the lanes in a state. Raises: StateError if a key does not belong in one of ``count``."""
    found = set()
    for key in state:
        number = str(key).removeprefix("lane_")
        if number.isascii() and number.isdecimal() and lane_name(int(number)) == key:
            found.add(int(number))
        elif key != "meta":
            raise StateError(f"this is not a state of a uio_pipes loader: {key!r} is neither meta nor a lane's name")
    if found and max(found) >= count:
        raise StateError(f"the state has lane {max(found)}, but is of {count} lanes; use an older checkpoint")
    return found


def lane_age(text: str) -> tuple[int, int, bool, int]:
    """Return how far a saved lane has come: (epoch, pass, done, k)."""
    lane = json.loads(text)
    return lane["epoch"], lane["pass"], lane["done"], lane["k"]


def without_modules(graph: list[str]) -> list[str]:
    """Return a graph's lines as they are compared: earlier versions wrote in which module a class of ours was, and more
    of the queries of URLs."""
    return [redact(_MODULE.sub("uio_pipes.", str(line))) for line in graph]


def first_difference(old: list[str], new: list[str]) -> tuple[str, str]:
    """Return the first stage in which two graphs differ, as it is in each of them."""
    for i in range(max(len(old), len(new))):
        a, b = (lines[i] if i < len(lines) else "(no stage)" for lines in (old, new))
        if a != b:
            return f"stage {i}: {a}", f"stage {i}: {b}"
    return str(old), str(new)
