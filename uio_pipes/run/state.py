"""The format of a saved state, and its checks. Reading one imports no torch.

A loader's state is a flat dict of strings: ``meta`` and one ``lane_000017`` for each lane. Both are JSON. :class:`Meta`
says which run the state belongs to; a :class:`LaneState` holds a lane's position, its counts and the state of its
nodes. Each entry ends in a checksum, so that damage of any kind is told. A state contains no tensor, no pickle and no
audio.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple
from zlib import crc32

from uio_pipes.base.errors import StateError

MixRecord = dict[str, Any]  # of a mix in a state: "weights" by source, and "journal"


class Where(NamedTuple):
    """The position of a rank: epoch and step, and the number of ranks."""

    epoch: int
    step: int
    ranks: int


SCHEMA = 1
_SUM = re.compile(r', "crc32": "([0-9a-f]{8})"\}\Z')


@dataclass
class Meta:
    """The run and the epoch that a state belongs to.

    Attributes:
        epoch: the current epoch. ended: it is over for all ranks.
        seed, graph, listed: what must be equal in the loader: its seed, a line for each stage, count and hash of lists.
        lanes: number of lanes that the epoch is dealt to.
        stream: with ``steps_per_epoch``, the epoch in which the stream began.
        step: number of the next step in this epoch. world_size: number of the ranks that saved the state.
        since: epoch and step since which there have been as many ranks and lanes, all of them at the same step.
        skip: batches to pass over before the next one.
        mixes: the weights of mixes and what changed in them (see :mod:`uio_pipes.run.mixes`).
        excluded: the utterances left out by ``loader.exclude`` (see :mod:`uio_pipes.run.exclusions`).
        ranks: the number of ranks for which steps are counted, if something follows the step.
        over: ranges of batches to pass over when their turn comes, as [start, stop, step], by their numbers on a rank.
        ahead: the state of the next epoch, if some ranks had begun it.
        deal: how the ranks share what was left when the first of them had no batch any more (see
            :mod:`uio_pipes.run.dealing`); ``rank``: whose counts are in the lanes, None for those of all.
    """

    epoch: int
    seed: int
    lanes: int
    ended: bool
    graph: list[str]
    listed: list[int | str] = field(metadata={"key": "list"})
    step: int
    world_size: int
    since: list[int]
    stream: int | None = None
    skip: int = 0
    mixes: dict[str, dict[str, Any]] | None = None
    excluded: list[dict[str, Any]] | None = None
    ranks: int | None = None
    over: list[list[int]] | None = None
    ahead: dict[str, str] | None = None
    deal: dict[str, Any] | None = None

    @property
    def data_epoch(self) -> int:
        """The epoch whose data this is: with ``steps_per_epoch`` the one in which the stream began."""
        return self.epoch if self.stream is None else self.stream

    @property
    def place(self) -> list[int]:
        """Epoch and step."""
        return [self.epoch, self.step]

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
        return _sealed("meta", json.dumps(self.saved(), ensure_ascii=False))


@dataclass
class LaneState:
    """The state of one lane after the last batch that the trainer received.

    Attributes:
        epoch, pass_: the epoch, and how often the lane began again within it.
        k: batches received in this pass. done: there are no more.
        counts: the counts of the lane's ledger.
        at: batches received when ``nodes`` was saved; resuming passes over the ``k - at`` batches since then.
        settings: where settings changed, see :class:`~uio_pipes.core.schedule.Settings`; empty if none can.
        nodes: the state of the lane's nodes, as JSON; "null" before the first snapshot and after the last batch.
    """

    epoch: int
    pass_: int = field(default=0, metadata={"key": "pass"})
    k: int = 0
    done: bool = False
    counts: dict[str, Any] = field(default_factory=dict)
    at: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    nodes: str = "null"

    @property
    def node_states(self) -> dict[str, Any] | None:
        """The state of the lane's nodes, parsed."""
        parsed: dict[str, Any] | None = json.loads(self.nodes)
        return parsed

    def passing_over(self, hung: str) -> LaneState:
        """Return this state with the mark of what has hung after it (:mod:`uio_pipes.core.pulse`)."""
        marks = {**self.settings.get("marks", {}), hung: [[self.pass_, self.k]]}
        return replace(self, settings={"before": 0, **self.settings, "marks": marks})

    def text(self, lane: int) -> str:
        """Return the entry of lane ``lane`` in a state: JSON."""
        given = {key: getattr(self, name) for name, key in _LANE_KEYS}
        head = json.dumps({key: value for key, value in given.items() if value or key != "settings"})
        return _sealed(lane_name(lane), f'{head[:-1]}, "nodes": {self.nodes}}}')


def _keys(kind: type) -> list[tuple[str, str]]:
    """Return the names of a record's fields, each with its name in JSON."""
    return [(f.name, f.metadata.get("key", f.name)) for f in fields(kind) if f.name != "nodes"]


_META_KEYS, _LANE_KEYS = _keys(Meta), _keys(LaneState)


def lane_name(lane: int) -> str:
    """Return the key of a lane in a state."""
    return f"lane_{lane:06d}"


def read_meta(state: Mapping[str, Any]) -> Meta:
    """Read the ``meta`` of a state. Raises: StateError if it is not a loader's, or its schema is another one."""
    saved = _read(state, "meta")
    if saved["schema"] != SCHEMA:
        raise StateError(
            f"schema: the state has {saved['schema']!r}, this version reads {SCHEMA}; "
            "load it with the version of uio_pipes that saved it"
        )
    return Meta(**{name: saved[key] for name, key in _META_KEYS if key in saved})


def read_lane(state: Mapping[str, Any], lane: int) -> LaneState:
    """Read one lane of a state. Raises: StateError if it is missing or damaged."""
    saved = _read(state, lane_name(lane))
    given = {name: saved[key] for name, key in _LANE_KEYS if key in saved}
    return LaneState(**given, nodes=json.dumps(saved["nodes"], separators=(",", ":")))


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


def _sealed(key: str, text: str) -> str:
    """Return an entry of a state, a JSON object, with a checksum of its name and content at its end."""
    return f'{text[:-1]}, "crc32": "{_sum(key, text[:-1])}"}}'


def _sum(key: str, content: str) -> str:
    return f"{crc32(f'{key}:{content}'.encode('utf-8', 'surrogatepass')):08x}"  # keys of utterances may have halves


def _read(state: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an entry of a state, checked. Raises: StateError if it is missing or damaged."""
    if not isinstance(state, Mapping) or not isinstance(state.get(key), str):
        raise StateError(
            f"{key} is missing or not a string: this is not a complete state of a uio_pipes loader. "
            "Pass what loader.state_dict(), gather_state or merge_states returned"
        )
    text: str = state[key]
    if (seal := _SUM.search(text)) is None:
        raise StateError(
            f"{key} does not end in a checksum: it was cut off, or saved before version 1 of the format; use another "
            "checkpoint"
        )
    if seal[1] != _sum(key, text[: seal.start()]):
        raise StateError(f"{key} is damaged (its checksum does not fit its content); use an older checkpoint")
    value: dict[str, Any] = json.loads(text)
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


def first_difference(old: list[str], new: list[str]) -> tuple[str, str]:
    """Return the first stage in which two graphs differ, as it is in each of them."""
    for i in range(max(len(old), len(new))):
        a, b = (lines[i] if i < len(lines) else "(no stage)" for lines in (old, new))
        if a != b:
            return f"stage {i}: {a}", f"stage {i}: {b}"
    return str(old), str(new)
