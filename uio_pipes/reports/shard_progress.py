"""The shards of a list by how far a saved loader state has come with them: done, under way, to come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from uio_pipes.base.errors import StateError
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.reports.states import LaneView, StateView
from uio_pipes.run.lane_runner import items_of
from uio_pipes.run.state import Meta
from uio_pipes.sources.lists import list_files
from uio_pipes.stages.reading.listing import ListFiles


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
    stage = pipeline.stages[0]
    assert isinstance(stage, ListFiles)
    return stage


def _order(stage: ListFiles, meta: Meta) -> Iterator[str]:
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
