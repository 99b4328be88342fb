"""Reads the content of a saved loader state, compares two of them, and divides one among other ranks and workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from uio_pipes.base.errors import StateError
from uio_pipes.base.packing import unpack
from uio_pipes.base.printable import counted
from uio_pipes.core.lane import lanes_of, worker_of
from uio_pipes.core.statistics import Stats
from uio_pipes.run.state import LaneState, Meta, first_difference, lane_name, lanes_in, read_lane, read_meta


@dataclass(frozen=True)
class LaneView:
    """One lane: its position, its counts, and the shard that it has open.

    In a graph with buffers, ``url``, ``offset`` and ``position`` are those of the oldest utterance that they hold. A
    state does not contain the place up to which they have read since, only the number of utterances.
    """

    lane: int
    k: int
    pass_: int
    done: bool
    stats: Stats
    url: str = ""
    offset: int | None = None
    held: int = 0  # utterances in the last buffer of the graph; a state does not contain those of earlier ones
    since: int = 0  # utterances read since that place, except for those still in earlier buffers
    ahead: bool = False  # more may have been read than up to offset
    exhausted: bool = False  # all of the lane has been read
    position: int | None = None  # items of the epoch's order that have been read; None if one number cannot say it


@dataclass(frozen=True)
class StateView:
    """A whole state. ``missing``: lanes that are not in it, as they belong to other ranks."""

    meta: Meta
    lanes: list[LaneView]
    missing: list[int] = field(default_factory=list)

    @property
    def stats(self) -> Stats:
        total = Stats()
        for lane in self.lanes:
            _add(total, lane.stats)
        return total

    @property
    def done(self) -> int:
        return sum(lane.done for lane in self.lanes)


def view(state: Mapping[str, str]) -> StateView:
    """Read a state. Raises: StateError if it is damaged."""
    meta = read_meta(state)
    present = sorted(lanes_in(state, meta.lanes))
    missing = [lane for lane in range(min(meta.lanes, 1 << 20)) if lane not in set(present)]
    try:
        return StateView(meta, [_lane_view(lane, read_lane(state, lane)) for lane in present], missing)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StateError(f"the state is damaged ({type(error).__name__}: {error}); use an older checkpoint") from error


def _lane_view(number: int, saved: LaneState) -> LaneView:
    stats = Stats()
    stats.add(saved.counts)
    nodes = saved.node_states
    opened = next((n for n in _nested(nodes) if isinstance(n.get("url"), str)), {})
    at = opened.get("at")
    offset = at[0] if isinstance(at, list) and at and isinstance(at[0], int) else None
    buffers = [n for n in _nested(nodes, within=False) if "window" in n]
    since = sum(n["window"] for n in _nested(nodes) if "window" in n)
    return LaneView(
        number, saved.k, saved.pass_, saved.done, stats, opened.get("url", ""), offset,
        held=sum(len(unpack(n["held"])) for n in buffers),
        since=since,
        ahead=since > 0 or saved.k > saved.at,
        exhausted=bool(buffers) and all(n["exhausted"] for n in buffers),
        position=0 if nodes is None else _position(nodes),
    )  # fmt: skip


def _nested(nodes: Any, depth: int = 64, *, within: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the states of nodes, the last node's first; ``within``: also of those before a buffer, which are older."""
    if isinstance(nodes, dict) and depth:
        yield nodes
        if within or "window" not in nodes:
            for value in nodes.values():
                yield from _nested(value, depth - 1, within=within)
    elif isinstance(nodes, list) and depth:
        for value in nodes:
            yield from _nested(value, depth - 1, within=within)


def _position(nodes: Any) -> int | None:
    """Return how many items of the list have been read, without those in buffers; None if there are several lists."""
    found = [n["position"] for n in _nested(nodes) if isinstance(n.get("position"), int) and set(n) == {"position"}]
    return found[0] if len(found) == 1 else None


def _add(total: Stats, stats: Stats) -> None:
    total.add(vars(stats) | {"waited_us": int(stats.waited * 1e6)})


# Two states


def differences(old: StateView, new: StateView) -> dict[str, Any]:
    """Return what differs in ``new``: fields of ``meta`` as [old, new]; k, done and utterances of each lane."""
    changed: dict[str, Any] = {}
    was, now = old.meta.saved(), new.meta.saved()
    for name in sorted({*was, *now}):
        a, b = was.get(name), now.get(name)
        if a != b:
            changed[name] = list(first_difference(a, b)) if name == "graph" and a and b else [a, b]
    before, after = ({lane.lane: lane for lane in v.lanes} for v in (old, new))
    moved = []
    for number in sorted(before.keys() & after.keys()):
        a, b = before[number], after[number]
        if (a.pass_, a.k, a.done) != (b.pass_, b.k, b.done) or old.meta.epoch != new.meta.epoch:
            gained = b.stats.utterances - (a.stats.utterances if old.meta.epoch == new.meta.epoch else 0)
            moved.append({"lane": number, "k": [a.k, b.k], "done": [a.done, b.done], "utterances": gained})
    only = {"only_old": sorted(before.keys() - after.keys()), "only_new": sorted(after.keys() - before.keys())}
    return {"meta": changed, "lanes": moved, **only}


# Another topology


def moves(seen: StateView, world_size: int, num_workers: int) -> list[dict[str, Any]]:
    """Return for each rank and worker of the new topology its lanes, their batches so far, and how many are done.

    Raises: StateError if the state cannot be loaded there.
    """
    lanes = seen.meta.lanes
    if lanes < world_size:
        raise StateError(
            f"{counted(lanes, 'lane')} cannot feed {world_size} ranks until the epoch ends: go on with at most "
            f"{counted(lanes, 'rank')}, or begin the next epoch with more lanes"
        )
    if seen.missing:
        raise StateError(
            f"{len(seen.missing)} of {lanes} lanes are missing (lane {seen.missing[0]}, …): give the files of all ranks"
        )
    by_lane = {lane.lane: lane for lane in seen.lanes}
    out = []
    for rank in range(world_size):
        groups: dict[int, list[int]] = {}
        for lane in lanes_of(lanes, rank, world_size):
            groups.setdefault(worker_of(lane, world_size, num_workers), []).append(lane)
        for worker, mine in sorted(groups.items()):
            row = {"rank": rank, "worker": worker, "lanes": mine, "batches": sum(by_lane[i].k for i in mine)}
            out.append(row | {"done": sum(by_lane[i].done for i in mine)})
    return out


def per_rank(state: Mapping[str, str], world_size: int) -> list[dict[str, str]]:
    """Divide the state among ranks: each part has ``meta`` and the lanes that the rank runs."""
    lanes = read_meta(state).lanes
    names = [[lane_name(lane) for lane in lanes_of(lanes, rank, world_size)] for rank in range(world_size)]
    return [{"meta": state["meta"], **{name: state[name] for name in mine}} for mine in names]
