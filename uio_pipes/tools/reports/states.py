"""Finds and reads saved loader states, compares two of them, divides one among other ranks and
workers, and tells how far it has come with the shards of a list."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from uio_pipes.base.errors import StateError
from uio_pipes.base.hashing import unpack
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import counted
from uio_pipes.core.lane import Lane, Site, lanes_of, worker_of
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.statistics import Stats
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.run.state import LaneState, Meta, first_difference, lane_name, lanes_in, read_lane, read_meta

if TYPE_CHECKING:
    from uio_pipes.stages.reading.loading import ListFiles

DEPTH = 12  # levels of dicts that are searched
MOST = 1 << 28  # bytes of a JSON file
_REFUSED = re.compile(r"(?:GLOBAL|class|function|type) (?:<class ')?([\w.]*\w)")


def find_state(path: str) -> tuple[str, dict[str, str]]:
    """Find the state in a file of ``torch.save`` or ``json.dump``; return the path of keys to it, and the state.

    Raises: StateError if there is none, if there are several, or if the file cannot be read safely.
    """
    found = list(_states(_read(path), (), DEPTH))
    if not found:
        raise StateError(
            f"{path} holds no state of a uio_pipes loader: no dict with meta and lane_000000, … under any key. Save "
            "loader.state_dict() (or uio.gather_state(loader)) in the checkpoint"
        )
    if len(found) > 1:
        names = ", ".join(".".join(keys) or "(top)" for keys, _ in found)
        raise StateError(f"{path} holds several states ({names}): save the one that you mean in a file of its own")
    keys, state = found[0]
    return ".".join(keys), state


def find_states(paths: Sequence[str]) -> list[dict[str, str]]:
    """Find the states in several files. Of a local folder, all files below it are taken that hold one.

    Raises: StateError as :func:`find_state`, or if a folder holds none.
    """
    found = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(find_state(path)[1])
            continue
        before = len(found)
        for file in sorted(Path(path).rglob("*")):
            if file.is_file():
                with contextlib.suppress(StateError):
                    found.append(find_state(str(file))[1])
        if len(found) == before:
            raise StateError(f"no file in the folder {path} holds the state of a uio_pipes loader")
    return found


def _read(path: str) -> Any:
    if os.path.isdir(path):
        raise StateError(f"{path} is a folder; name the checkpoint file in it")
    with _open(path) as file:
        head = file.read(64)
        file.seek(0)
        if not head.strip():
            raise StateError(f"{path} is empty: the checkpoint was not written completely; use an older one")
        read = _read_json if head.lstrip()[:1] in (b"{", b"[") else _read_torch
        return read(path, file)


def _open(path: str) -> BinaryIO:
    """Open a file for reading and seeking; a remote one is read as a whole."""
    local = is_local(path)
    if local is not None:
        return open(local, "rb")
    with open_binary(path) as stream:
        return io.BytesIO(stream.read())


def _read_torch(path: str, file: BinaryIO) -> Any:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's warnings say the same as the message below
            mapped = isinstance(file, io.BufferedReader) and zipfile.is_zipfile(file)  # tensors are not read then
            file.seek(0)
            return torch.load(path if mapped else file, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        found = _REFUSED.search(str(error))
        what = f" (weights_only refused {found[1]})" if found else ", or is not a file of torch.save"
        raise StateError(
            f"{path} holds more than tensors, numbers and strings{what}; it is not loaded, as it could run code. "
            "Save the loader's state in a file of its own"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, TypeError, AttributeError, OSError) as error:
        first = shorten(str(error).split("\n")[0].partition(". ")[0], 120, placeholder=" …")
        raise StateError(
            f"{path} is neither JSON nor an intact file of torch.save with weights only ({first}); "
            "use an older checkpoint, or save the loader's state in a file of its own"
        ) from error


def _read_json(path: str, file: BinaryIO) -> Any:
    if (size := file.seek(0, os.SEEK_END)) > MOST:
        raise StateError(f"{path} has {size} bytes: no state of a loader is that large")
    file.seek(0)
    try:
        return parse_json(file.read(), halves=True)
    except ValueError as error:
        raise StateError(f"{path} is damaged JSON ({str(error)[:120]}); use an older checkpoint") from error


def _states(value: Any, keys: tuple[str, ...], depth: int) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    if not isinstance(value, Mapping) or not depth:
        return
    if isinstance(value.get("meta"), str) and all(isinstance(k, str) for k in value):
        if any(k.startswith("lane_") for k in value):
            yield keys, {k: v for k, v in value.items() if k == "meta" or k.startswith("lane_")}
        return
    for key, inner in value.items():
        yield from _states(inner, (*keys, str(key)), depth - 1)


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
            total.add(vars(lane.stats) | {"waited_us": int(lane.stats.waited * 1e6)})
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


# The shards of a list


def progress(seen: StateView, data: str) -> tuple[dict[str, list[str]], StateView]:
    """Sort the items of the list ``data`` by how far they are; return ``seen``, too, with items where buffers begin.

    "done": all of it has left the buffers. "under way": open at the lane's offset, or certainly read in part. "not
    finished": after that in a lane that reads ahead, so it may be in buffers or even delivered, in part or completely.
    "to come": certainly not begun.

    Raises: StateError if the list is not the state's, or the order of its items does not follow from the state.
    """
    meta = seen.meta
    stage = _listed(meta, data)
    out: dict[str, list[str]] = {"done": [], "under way": [], "not finished": [], "to come": []}
    lanes = {lane.lane: lane for lane in seen.lanes}
    begun: set[int] = set()
    for p, item in enumerate(_order(stage, meta)):
        lane = lanes.get(p % meta.lanes)
        if lane is None:
            continue
        status = _status(lane, p, item, lane.lane in begun)
        if status != "done" and lane.lane not in begun:
            begun.add(lane.lane)
            if lane.ahead and not lane.url:
                lanes[lane.lane] = replace(lane, url=item, offset=0)
        out[status].append(item)
    return out, replace(seen, lanes=list(lanes.values()))


def _listed(meta: Meta, data: str) -> ListFiles:
    """Return the stage that reads the list, with the options of the state's graph."""
    from uio_pipes.sources.lists import list_files  # only here, as it needs torch

    lines = [str(line) for line in meta.graph]
    first = lines[0] if lines else ""
    cut = next((i for i, line in enumerate(lines) if line.startswith("sharding_filter")), None)
    if not first.startswith("list_files(") or cut != 1:
        raise StateError(
            "--data needs a graph that begins with list_files(…).sharding_filter(); this one begins with "
            f"{' → '.join(lines[:3])}: see the counts without --data"
        )
    pipeline = list_files(data, shuffle="shuffle=True" in first)
    if pipeline._list_fingerprint() != meta.listed:
        raise StateError(f"{data} is not the list of the state: its lines, or their number, are not the same")
    return cast("ListFiles", pipeline.stages[0])


def _order(stage: ListFiles, meta: Meta) -> Iterator[str]:
    from uio_pipes.run.lane_runner import items_of

    lane = Lane(Ledger(), 0, 1, meta.seed, meta.data_epoch)
    for item in items_of(stage.build(None, lane, Site(stage.name, 0))):
        yield item.key  # without credentials, as in a state


def _status(lane: LaneView, p: int, item: str, begun: bool) -> str:
    """Return how far item ``p`` is. ``begun``: an earlier item of its lane is not done."""
    if lane.done or (lane.position is not None and p < lane.position and item != lane.url):
        return "done"
    if item == lane.url or lane.exhausted or (lane.ahead and not (begun or lane.url)):
        return "under way"
    return "not finished" if lane.ahead else "to come"
