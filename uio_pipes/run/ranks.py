"""Which processes share the data, which of them get the same batches, and how ranks wait for each other."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from math import prod
from threading import Timer
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
import torch.distributed as dist

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hints import keyword_hints
from uio_pipes.run.private import group_named_by_its_members, timeout_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

logger = logging.getLogger("uio_pipes")
ProcessGroups = dict[tuple[int, ...], weakref.ref[Any]]  # ours, by their members
PATIENCE = timedelta(minutes=30)  # for which ranks wait for each other at least; it is torch's default for gloo
WARN_AFTER = 60.0  # seconds after which a rank says for whom it waits
_groups: weakref.WeakKeyDictionary[Any, ProcessGroups] = weakref.WeakKeyDictionary()  # by the world that they are in
# What collectives sent last: with torch 2.6, destroy_process_group hangs if only a thread of gloo has a tensor.
_sent: deque[Any] = deque(maxlen=4)


class RankPlace(NamedTuple):
    """The place of this process among those that share the data.

    Attributes:
        rank: its number among them, and world_size: how many they are.
        peer: its number among the processes of the same ``rank``, which get the same batches. Default: 0.
        members: the global ranks of those that share the data, if they can talk to each other. Default: None.
        peers: the global ranks of those of the same ``rank``, if the first of them reads for all. Default: none.
        mesh: with ``peers``, the global ranks of all. Default: none.
        early: whether this process is alone only since nobody said otherwise, nor was there a process group yet.
    """

    rank: int
    world_size: int
    peer: int = 0
    members: tuple[int, ...] | None = None
    peers: tuple[int, ...] = ()
    mesh: tuple[int, ...] = ()
    early: bool = False

    @property
    def reads(self) -> bool:
        """True if this process reads its data by itself."""
        return not (self.peers and self.peer)

    def check(self) -> None:
        """Raises: PipelineError if there is a process group by now, each rank of which would get everything."""
        if self.early and is_grouped() and dist.get_world_size() > 1:
            raise PipelineError(
                "the loader was made before torch.distributed was initialized, so that each rank would get all the "
                "data: make it after init_process_group, or with partition=False if each rank should get all"
            )
        if self.early and (world := os.environ.get("WORLD_SIZE", "1")) != "1":
            _warn_of_no_group(world)


@cache
def _warn_of_no_group(world: str) -> None:
    logger.warning(
        "this process is one of %s (WORLD_SIZE), but they have no process group, so each of them gets all the data: "
        "call init_process_group before the loader is made, or give it rank=… and world_size=…",
        world,
    )


def is_grouped() -> bool:
    """Return whether this process has joined others by ``torch.distributed``."""
    return dist.is_available() and dist.is_initialized()


@keyword_hints
@dataclass(frozen=True)
class Ranks:
    """The processes that share the data, if not all do: ``uio.Loader(…, ranks=uio.Ranks(mesh=mesh, data="dp"))``.

    Args:
        group: the process group whose members share the data, instead of all processes. Default: None.
        mesh: a ``DeviceMesh`` with names, instead of a group. Processes that differ only in dimensions which ``data``
            does not name, as of tensor, context or pipeline parallelism, get the same batches (``loader.peer`` is their
            number among them), see ``peers``; rank and world size are counted along ``data``. Default: None.
        data: the dimension of the mesh along which batches differ, or several, as in ``("dp_replicate", "dp_shard")``.
            Default: None, the only one.
        peers: how processes that get the same batches come to them. "read": each reads and computes by itself.
            "receive": the first of them does, and sends every batch to the others over the network (gloo). Then all
            processes of the mesh iterate over the loader, in step. Default: "read".

    Raises:
        PipelineError: an argument breaks a rule.
    """

    group: dist.ProcessGroup | None = None
    mesh: DeviceMesh | None = None
    data: str | Sequence[str] | None = None
    peers: Literal["read", "receive"] = "read"

    def __post_init__(self) -> None:
        if self.group is not None and self.mesh is not None:
            raise PipelineError("group and mesh mean the same: give only one of them")
        if self.peers not in ("read", "receive"):
            raise PipelineError(f"peers must be 'read' or 'receive', not {self.peers!r}")
        if self.peers == "receive" and self.mesh is None:
            raise PipelineError("peers='receive': only a mesh says which processes get the same batches; give mesh=…")
        if self.data is not None and self.mesh is None:
            raise PipelineError(f"data={self.data!r} names dimensions of a mesh: give mesh=…, too")


def place_of_rank(
    rank: int | None = None, world_size: int | None = None, ranks: Ranks | None = None, partition: bool = True
) -> RankPlace:
    """Return the place that is given, or that of this process in ``torch.distributed``. Without ``partition`` each
    process is alone.

    Raises: PipelineError if the arguments break a rule.
    """
    if not isinstance(partition, bool):
        raise PipelineError(f"partition must be True or False, not {partition!r}")
    if not isinstance(ranks, Ranks | None):
        raise PipelineError(f"ranks must be uio.Ranks(…), not {ranks!r}; as in ranks=uio.Ranks(group=…)")
    if ranks is not None and (rank, world_size) != (None, None):
        raise PipelineError("rank and world_size mean the same as ranks=uio.Ranks(…): remove ranks")
    ranks = ranks or Ranks()
    if ranks.mesh is not None:
        place = _in_mesh(ranks.mesh, ranks.data)
        if ranks.peers == "read" or len(place.peers) == 1:
            place = place._replace(peers=(), mesh=())
    elif ranks.group is not None:
        place = _in_group(ranks.group)
    else:
        place = _given(rank, world_size)
    return place if partition else RankPlace(0, 1, place.peer if place.peers else 0, peers=place.peers)


def private_group(members: Sequence[int]) -> Any:
    """Return a private gloo group, so our messages never mix with the trainer's collectives.

    Only its members call this: nothing waits for other processes. See :func:`waiting` for how long they wait.
    """
    members = tuple(sorted(members))
    ours = _groups.setdefault(dist.group.WORLD, {})
    group = ours[members]() if members in ours else None
    if group is None:
        with waiting(members, "to connect"), group_named_by_its_members():
            group = dist.new_group(list(members), backend="gloo", timeout=patience(), use_local_synchronization=True)
        ours[members] = weakref.ref(group)  # torch.distributed owns it: destroy_process_group ends its threads
    return group


def all_reduced(word: Any, members: Sequence[int], what: str, op: Any = dist.ReduceOp.SUM) -> Any:
    """Reduce a tensor in place over the ranks of a private group, and return it; ``what`` is as for :func:`waiting`."""
    group = private_group(members)
    with waiting(members, what):
        dist.all_reduce(word, op, group=group)
    _sent.append(word)
    return word


def all_gathered(mine: Any, members: Sequence[int], what: str) -> list[Any]:
    """Return what the ranks of a private group send, in their order: a collective. ``mine``: what can be pickled."""
    data = torch.frombuffer(bytearray(pickle.dumps(mine)), dtype=torch.uint8)
    block = data.new_zeros(int(all_reduced(torch.tensor(len(data)), members, what, dist.ReduceOp.MAX)))
    block[: len(data)] = data  # pickle passes over what follows its end
    blocks = [torch.empty_like(block) for _ in members]
    with waiting(members, what):
        dist.all_gather(blocks, block, group=private_group(members))
    _sent.append([block, *blocks])
    return [pickle.loads(one.numpy().data) for one in blocks]


@contextlib.contextmanager
def waiting(members: Sequence[int], what: str, warn: bool = True) -> Iterator[None]:
    """Around a wait in a private group: name who waits for what if the others do not come, or have ended.

    Ranks wait as long as in the trainer's own group, and at least ``PATIENCE``. ``warn``: whether a warning says so
    after ``WARN_AFTER``; it costs a thread, which is too dear for each batch.
    """
    began, rank = time.monotonic(), dist.get_rank()
    others = [str(member) for member in members if member != rank]
    these = f"rank{'s' * (len(others) > 1)} {', '.join(others)}" if len(others) < 9 else f"{len(others)} ranks"
    alike = "all ranks must iterate their loaders and save alike"
    said = f"rank %d has waited {WARN_AFTER:g} s for %s %s, and goes on waiting: {alike}"
    timer = Timer(WARN_AFTER, logger.warning, (said, rank, these, what)) if warn else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" in str(error):  # one was killed, which torch's signal handler raises anywhere
            raise
        most = patience()
        if time.monotonic() - began < most.total_seconds():
            why = "the connection is lost, since a process has ended or given up; load the last state to go on"
        else:
            why = f"they did not come within {most} (h:mm:ss): {alike}; if one works that long by itself, allow more: "
            why += "init_process_group(timeout=…)"
        raise RuntimeError(f"rank {rank} waited for {these} {what}: {why}") from error
    finally:
        if timer is not None:
            timer.cancel()


def patience() -> timedelta:
    """Return how long ranks wait for each other."""
    return max(PATIENCE, timeout_of(dist.group.WORLD))


def _given(rank: int | None, world_size: int | None) -> RankPlace:
    if world_size is not None:
        require_whole("world_size", world_size, 1)
    if rank is not None:
        require_whole("rank", rank)
    if (rank is None) != (world_size is None):
        raise PipelineError("give both rank and world_size, or neither")
    world = dist.group.WORLD if is_grouped() else None
    if rank is None or world_size is None:
        return RankPlace(0, 1, early=True) if world is None else _in_group(world)
    if not 0 <= rank < world_size:
        raise PipelineError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, not {rank}")
    same = world is not None and dist.get_world_size() == world_size
    return RankPlace(rank, world_size, members=tuple(range(world_size)) if same else None)


def _in_group(group: Any) -> RankPlace:
    if not isinstance(group, dist.ProcessGroup):
        raise PipelineError(f"group must be a process group of torch.distributed, not {group!r}")
    rank = dist.get_rank(group)
    if rank < 0:
        raise PipelineError("this process is not in the given group: create the loader only in its members")
    members = tuple(dist.get_process_group_ranks(group))
    return RankPlace(rank, len(members), members=members)


def _in_mesh(mesh: Any, data: str | Sequence[str] | None) -> RankPlace:
    """Return the place by the coordinates in ``data``, the dimensions that have data of their own; peers by the others.

    Nothing is sent: the mesh knows all ranks.
    """
    if not hasattr(mesh, "mesh_dim_names"):
        raise PipelineError(f"mesh must be a DeviceMesh, not {mesh!r}")
    names, place = mesh.mesh_dim_names, mesh.get_coordinate()
    if names is None:
        raise PipelineError('the mesh has no names: init_device_mesh("cuda", (8, 2), mesh_dim_names=("dp", "tp"))')
    if data is None and len(names) == 1:
        data = names
    wanted = (data,) if isinstance(data, str) else tuple(data) if isinstance(data, (list, tuple)) else ()
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(names):
        rule = "data must name the dimensions of the mesh along which batches differ, each once"
        raise PipelineError(f"{rule}, of {', '.join(names)}, not {data!r}")
    if place is None:
        raise PipelineError("this process is not in the mesh: create the loader only in its members")
    along = [names.index(name) for name in wanted]
    others = [dim for dim in range(len(names)) if dim not in along]
    rank, peer = (_number([place[d] for d in dims], [mesh.mesh.shape[d] for d in dims]) for dims in (along, others))
    places = mesh.mesh.permute(*along, *others).reshape(-1, prod(mesh.mesh.shape[d] for d in others))
    mine, same, whole = (tuple(part.flatten().tolist()) for part in (places[:, peer], places[rank], places))
    return RankPlace(rank, len(mine), peer, mine, same, whole)


def _number(place: Sequence[int], shape: Sequence[int]) -> int:
    """Return the number of a place in row-major order."""
    number = 0
    for at, size in zip(place, shape, strict=True):
        number = number * size + at
    return number
