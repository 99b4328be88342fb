"""How far the shards of a list are, by a saved loader state: done, under way, to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from uio_pipes.base.errors import StateError
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.reports.state_view import LaneView, StateView
from uio_pipes.run.state import Meta
from uio_pipes.sources.list_files import ListFiles
from uio_pipes.starts.lists import list_files

__all__ = ["progress"]


def progress(seen: StateView, data: str) -> tuple[dict[str, list[str]], StateView]:
    """The items of the list ``data`` by how far they are, and ``seen`` with the names of those that buffers begin in.

    "done": all of it has left the buffers; "under way": open at the lane's offset, or certainly read in part; "not
    finished": behind it in a lane that reads ahead, so perhaps in buffers or even delivered, in part or as a whole; "to
    come": certainly not begun.

    Raises: StateError if the list is not the state's, or the graph orders it in a way that the state does not tell.
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
    """The list's stage, as the state's graph has it."""
    lines = [str(line) for line in meta.graph]
    first = lines[0] if lines else ""
    cut = next((i for i, line in enumerate(lines) if line.startswith("sharding_filter")), None)
    if not first.startswith("list_files(") or cut != 1:
        raise StateError(
            "--data tells shards of graphs that begin list_files(…).sharding_filter(); this one begins "
            f"{' → '.join(lines[:3])}: see the counts without --data"
        )
    pipeline = list_files(data, shuffle="shuffle=True" in first)
    if pipeline._list_fingerprint() != meta.listed:
        raise StateError(f"{data} is not the list of the state: another number of lines, or other lines")
    stage = pipeline.stages[0]
    assert isinstance(stage, ListFiles)
    return stage


def _order(stage: ListFiles, meta: Meta) -> Iterator[str]:
    node = stage.build(None, Lane(Ledger(), 0, 1, meta.seed, meta.data_epoch), Site(stage.name, 0))
    node.reset(None)
    while True:
        try:
            yield node.next().key  # without credentials, as states have it
        except StopIteration:
            return


def _status(lane: LaneView, p: int, item: str, begun: bool) -> str:
    """``begun``: an item of the lane before this one is not done."""
    if lane.done or (lane.position is not None and p < lane.position and item != lane.url):
        return "done"
    if item == lane.url or lane.exhausted or (lane.ahead and not (begun or lane.url)):
        return "under way"
    return "not finished" if lane.ahead else "to come"
