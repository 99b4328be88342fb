"""Which processes share the data, which of them get the same batches, and how one that reads hands them to the others.

Peers get the same batches. Each has a merge of its own, which asks for messages in the same order; on the first peer
they come from the runners of its lanes and are sent on, on the others they are received. So positions, states,
statistics and errors are the same on all of them.

A message goes to each peer in two sends of gloo: how long it is, and one block of bytes. A broadcast that is left in
the middle could not be given up; a send that nobody receives costs nothing. The peer that reads gives a batch to its
trainer once all others have it, so it may end at any time, and never runs far ahead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from uio_pipes.base.checks import require_whole
from uio_pipes.base.elsewhere import understood
from uio_pipes.base.errors import PipelineError
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.private import group_named_by_its_members, timeout_of
from uio_pipes.run.shared_memory import ALIGN
from uio_pipes.run.workers import MessageSource, Runner, as_arrays, as_tensors, checked, failed, pinned

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

logger = logging.getLogger("uio_pipes")
ProcessGroups = dict[tuple[int, ...], weakref.ref[Any]]  # ours, by their members
PATIENCE = timedelta(minutes=30)  # for which ranks wait for each other at least; it is torch's default for gloo
_groups: weakref.WeakKeyDictionary[Any, ProcessGroups] = weakref.WeakKeyDictionary()  # by the world that they are in


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
                "data: make it after init_process_group, or with partition=False if each rank shall get all"
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


@understood
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
            raise PipelineError("group and mesh say the same in different ways: give one of them")
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
        raise PipelineError("rank, world_size and ranks=uio.Ranks(…) say the same in different ways: leave ranks out")
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
    """Return a gloo group of our own, so that our messages never mix with the trainer's collectives.

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


@contextlib.contextmanager
def waiting(members: Sequence[int], what: str) -> Iterator[None]:
    """Around a wait in a private group: name who waits for what if the others do not come, or have ended.

    Ranks wait as long as in the trainer's own group, and at least ``PATIENCE``.
    """
    began = time.monotonic()
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" in str(error):  # one was killed, which torch's signal handler raises anywhere
            raise
        rank, most = dist.get_rank(), patience()
        others = [str(member) for member in members if member != rank]
        these = f"rank{'s' * (len(others) > 1)} {', '.join(others)}" if len(others) < 9 else f"{len(others)} ranks"
        if time.monotonic() - began < most.total_seconds():
            why = "the connection is lost, since a process has ended or given up; load the last state to go on"
        else:
            why = f"they did not come within {most} (h:mm:ss). All ranks must iterate their loaders and save alike; if "
            why += "one works that long by itself, allow more: init_process_group(timeout=…)"
        raise RuntimeError(f"rank {rank} waited for {these} {what}: {why}") from error


def patience() -> timedelta:
    """Return how long ranks wait for each other."""
    return max(PATIENCE, timeout_of(dist.group.WORLD))


def _given(rank: int | None, world_size: int | None) -> RankPlace:
    if world_size is not None:
        require_whole("world_size", world_size, 1)
    if rank is not None:
        require_whole("rank", rank)
    if (rank is None) != (world_size is None):
        raise PipelineError("rank and world_size are given together, or neither")
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
        raise PipelineError("this process is not in the group that was given: make the loader in its members only")
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
        raise PipelineError("this process is not in the mesh: make the loader in its members only")
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


_runs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # by the peers' group


class Handover:
    """The messages of one run, from the peer that reads to the others. What an earlier run left is never received."""

    def __init__(self, ranks: RankPlace) -> None:
        self.reads = ranks.reads
        self.failed: Exception | None = None  # the error that was sent: no message follows it
        self._group = private_group(ranks.peers)
        self._first, *self._others = ranks.peers
        self._run = _runs[self._group] = _runs.get(self._group, 0) + 1
        self._sends: deque[list[Any]] = deque()  # for each message that a peer may not have received yet
        self._received = 0

    def sources(self, start: Callable[[], dict[int, Runner]], lanes: Iterable[int], pin: bool) -> dict[int, Any]:
        """Return lane → where its messages come from. Only the peer that reads starts runners.

        If they cannot be started, the first message is the error: so all peers hear of it.
        """
        if not self.reads:
            return dict.fromkeys(lanes, Receiving(self, pin))
        try:
            return self.handed_over(start())
        except Exception as error:
            return dict.fromkeys(lanes, HandedOver(_Failed(error), self))

    def handed_over(self, runner_of: dict[int, Runner]) -> dict[int, HandedOver]:
        """Return runners that send each message to the other peers, too."""
        return {lane: HandedOver(runner, self) for lane, runner in runner_of.items()}

    def send(self, message: Message) -> None:
        """Begin to send a message to all other peers."""
        block, pieces = _packed(message)
        tensors = torch.tensor([len(block), pieces]), block
        with self._waiting_for_others():
            self._sends.append([self._send(tensor, peer) for peer in self._others for tensor in tensors])

    def _send(self, tensor: torch.Tensor, peer: int) -> Any:
        return dist.isend(tensor, group=self._group, dst=peer, tag=self._run)

    def _waiting_for_others(self) -> contextlib.AbstractContextManager[None]:
        return waiting(self._others, "to take the batches that this one reads for them")

    def receive(self) -> Message:
        """Wait for the next message. Raises: RuntimeError if the peer that reads has ended."""
        length = torch.empty(2, dtype=torch.int64)
        self._wait(length)
        block = torch.empty(int(length[0]), dtype=torch.uint8)
        self._wait(block)
        return _unpacked(block, int(length[1]))

    def _wait(self, tensor: torch.Tensor) -> None:
        work = dist.irecv(tensor, group=self._group, src=self._first, tag=self._run)
        assert work is not None
        with waiting([self._first], "to hand over a batch that it has read"):
            work.wait(patience())

    def settle(self, count: int | None) -> None:
        """Wait until all peers have the first ``count`` messages of the run. None: all that were sent."""
        while self._sends and (count is None or self._received < count):
            with self._waiting_for_others():
                for work in self._sends.popleft():
                    work.wait(patience())
            self._received += 1


class HandedOver:
    """The messages of a runner, which all other peers get, too."""

    def __init__(self, runner: MessageSource, handover: Handover) -> None:
        self._runner, self._handover = runner, handover
        self.ahead = runner.ahead

    def take(self) -> Message:
        """Return the next message. An error is sent, and raised."""
        try:
            message = self._runner.take()
        except Exception as error:
            self._handover.send(failed(error))
            self._handover.failed = error
            raise
        self._handover.send(message)
        return message


class Receiving:
    """The messages that the peer that reads has sent."""

    ahead = False

    def __init__(self, handover: Handover, pin: bool) -> None:
        self._handover, self._pin = handover, pin

    def take(self) -> Message:
        """Return the next message; raise the error if it is one."""
        message = checked(self._handover.receive())
        message.memory = 0  # it is not this process that has buffers
        if self._pin:
            message.batch = pinned(message.batch)
        return message


class _Failed:
    """Lanes that could not be started."""

    ahead = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def take(self) -> Message:
        raise self._error


def _packed(message: Message) -> tuple[torch.Tensor, int]:
    """Return the message as one block of bytes, and the number of pieces in it: the pickle, and large arrays.

    Before the pieces stand their sizes. Each piece begins at a multiple of ``ALIGN``.
    """
    buffers: list[pickle.PickleBuffer] = []
    sent = Message(**{**vars(message), "batch": as_arrays(message.batch)})
    data = memoryview(pickle.dumps(sent, protocol=5, buffer_callback=buffers.append))
    pieces = [np.frombuffer(piece, np.uint8) for piece in (data, *(buffer.raw() for buffer in buffers))]
    sizes = np.array([piece.nbytes for piece in pieces])
    places, end = _places(sizes)
    made = torch.empty(end, dtype=torch.uint8)  # aligned
    block = made.numpy()
    block[: sizes.nbytes] = sizes.view(np.uint8)
    for place, piece in zip(places, pieces, strict=True):
        block[place] = piece
    return made, len(pieces)


def _unpacked(block: torch.Tensor, pieces: int) -> Message:
    """Return the message. Its large tensors are views of the block."""
    memory = block.numpy()
    places, _ = _places(memory[: 8 * pieces].view(np.int64))
    data, *buffers = (memory[place] for place in places)
    message: Message = pickle.loads(data.data, buffers=buffers)  # from a process of our own
    message.batch = as_tensors(message.batch)
    return message


def _places(sizes: np.ndarray[Any, Any]) -> tuple[list[slice], int]:
    """Return where pieces of these sizes lie in a block, and its length."""
    places, end = [], sizes.nbytes
    for size in sizes.tolist():
        begin = -(-end // ALIGN) * ALIGN
        end = begin + size
        places.append(slice(begin, end))
    return places, end
