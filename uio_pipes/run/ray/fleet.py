"""The Ray actors of a loader, one for each of its workers, and the lanes that an actor runs. They stay from epoch to
epoch, and lost ones are replaced.

A message travels in two parts: its large tensors as arrays, which Ray's object store holds without copying them into a
pickle, and all else as bytes.

A new actor takes seconds to start. Until then a worker whose actor was lost has its lanes run by the actor of another
one, which is ready at once. So a cluster without room for a new actor goes on, too, if more slowly.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hints import keyword_hints
from uio_pipes.base.processes import import_ray, join_cluster, started_here
from uio_pipes.base.urls import plural
from uio_pipes.core.statistics import NodeStats
from uio_pipes.run.lane_runner import LaneStream, Message
from uio_pipes.run.stall import Whereabouts
from uio_pipes.run.workers import SMALL, AsArray, as_tensors, failed, is_plain, pinned, walk

Packed = tuple[bytes, list["np.ndarray[Any, Any]"]]


class _Place(NamedTuple):
    """The place of a tensor in a message: it is the array of this number."""

    array: int
    dtype: torch.dtype


class Lanes:
    """The actor. Calls of its first group are answered one after the other; ``ping`` and ``end`` belong to another."""

    def __init__(self) -> None:
        self._streams: dict[int, Iterator[Message] | None] = {}  # by the number that the trainer gave; None: ended

    def node(self) -> str:
        """Return the ID of the node where the actor runs."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def ping(self) -> tuple[Whereabouts, float, float]:
        """Return what the actor is at, since how many seconds, and the seconds of CPU that it has used."""
        seen = Whereabouts.here()
        return seen, time.monotonic() - seen.since, time.process_time()

    def begin(self, number: int, given: bytes, folder: str) -> None:
        """Begin lanes: ``given`` is a pickle of LaneOptions and the states of the lanes; paths start at ``folder``."""
        with contextlib.suppress(OSError):  # it may not be there, which matters only to relative paths
            os.chdir(folder)
        if number not in self._streams:
            self._streams[number] = _messages(given)

    def next(self, number: int, count: int) -> list[Packed]:
        """Return the next messages of these lanes, ``count`` if there are as many."""
        made: list[Packed] = []
        while len(made) < count and (stream := self._streams.get(number)) is not None:
            message = next(stream, None)
            if message is None:
                break
            try:
                made.append(_packed(message))
            except Exception as error:
                made.append(_packed(failed(error)))
        return made

    def end(self, number: int) -> None:
        """Drop these lanes, and all requests to them."""
        self._streams[number] = None


def _messages(given: bytes) -> Iterator[Message]:
    try:
        yield from LaneStream(*pickle.loads(given))  # from our own trainer
    except Exception as error:
        yield failed(error)


def pickled(value: Any) -> bytes:
    """Return a pickle, which may contain functions and classes of the trainer's script."""
    from ray import cloudpickle

    made: bytes = cloudpickle.dumps(value, protocol=4)
    return made


def _packed(message: Message) -> Packed:
    arrays: list[np.ndarray[Any, Any]] = []

    def placed(tensor: torch.Tensor) -> Any:
        if not is_plain(tensor):
            return tensor
        if tensor.nbytes <= SMALL:
            return AsArray(tensor)
        arrays.append(tensor.contiguous().numpy())
        return _Place(len(arrays) - 1, tensor.dtype)

    message.batch = walk(message.batch, torch.Tensor, placed)
    return pickled(message), arrays


def unpacked(packed: Packed, pin: bool) -> Message:
    """Return the message. Its tensors are copied out of the object store, where they could not be written to."""
    data, arrays = packed
    message: Message = pickle.loads(data)  # from our own actor

    def copied(place: _Place) -> torch.Tensor:
        array = arrays[place.array]
        made = torch.empty(array.shape, dtype=place.dtype, pin_memory=pin)
        np.copyto(made.numpy(), array)
        return made

    message.batch = walk(message.batch, _Place, copied)
    message.batch = as_tensors(message.batch)
    message.batch = pinned(message.batch) if pin else message.batch
    return message


QUIET = 0.5  # seconds without a message that is due, after which all actors are asked whether they are there
PATIENCE = 1.0  # seconds that an actor has to answer; double for each time that one did not, of late
AVOIDED = 30.0  # seconds for which nothing is started on a node that did not answer
REPORT_EVERY = 10.0  # seconds between two messages that an actor has not started yet
MOST = 1800.0  # seconds for which a loader waits for the first of its actors to start
DEFAULTS: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
PLACING = (
    "accelerator_type",
    "label_selector",
    "memory",
    "num_cpus",
    "num_gpus",
    "resources",
    "runtime_env",
    "scheduling_strategy",
)

NO_AGENT = (
    "Ray's agent (raylet) on the trainer's machine has ended (out of memory?), and without it no batch arrives: start "
    "Ray and the trainer again; the last state goes on with the next batch"
)

logger = logging.getLogger("uio_pipes")


@keyword_hints
@dataclass(frozen=True)
class RayWorkers:
    """Workers of a loader as actors on a Ray cluster: ``uio.Loader(…, num_workers=uio.RayWorkers(8))``.

    The loader joins the cluster of ``ray.init(…)`` if the trainer has called it, otherwise the one that ``RAY_ADDRESS``
    names; without that it starts Ray on this machine. The nodes need this package and see the data at the same paths.

    Args:
        count: actors of each rank.
        options: options of Ray's for placing each of them, such as ``{"num_cpus": 2, "resources": {"cpu_node": 1}}``.
            Default: one CPU, and spread over the nodes.

    Raises:
        PipelineError: ``count`` is not a whole number, or is below 1; or an option is not for placing actors.
    """

    count: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_whole("RayWorkers: count", self.count, 1)
        if not isinstance(self.options, Mapping):
            raise PipelineError(f"RayWorkers: options must be a mapping, not {self.options!r}; as in {{'num_cpus': 2}}")
        for name in self.options:
            if name not in PLACING:
                raise PipelineError(f"RayWorkers: options must be of {', '.join(PLACING)}, not {name!r}; leave it out")


class LaneWorker(Protocol):
    """A worker whose lanes run in an actor of the fleet."""

    host: Host

    def moved(self, error: Exception | None, hung: Whereabouts | None) -> None:
        """Called when the actor is lost; ``error``: what it died of; ``hung``: what it is to pass over."""


def _end(ray: Any, homes: list[Host], pid: int) -> None:
    """End the actors of a fleet that is gone; Ray itself would do that some time later."""
    if pid == os.getpid() and ray.is_initialized():
        for host in homes:
            ray.kill(host.actor)


class Host:
    """An actor, as the trainer knows it.

    Errors of Ray's are kept without their traceback: a frame of Ray's there holds the error again, and with it our
    frames would hold the loader and its actors until a later collection of garbage.
    """

    def __init__(self, ray: Any, actor: Any, avoided: frozenset[str], first: bool) -> None:
        self._ray, self.actor, self.avoided, self.first = ray, actor, avoided, first
        self.node = self.name = ""  # ID and name of its node
        self.lost = False
        self.error: Exception | None = None  # why it could not be started
        self.since = time.monotonic()
        self.seen, self.used = Whereabouts(held=True), 0.0  # what it is at, and the seconds of CPU that it has used
        self._node = actor.node.remote()

    @property
    def started(self) -> bool:
        """True if it has started, wherever it is now."""
        if not self.node and self._ray.wait([self._node], timeout=0)[0]:
            try:
                self.node = self._ray.get(self._node)
            except self._ray.exceptions.RayError as error:
                self.error = error.with_traceback(None)
                return False
            nodes = {node["NodeID"]: node for node in self._ray.nodes()}
            self.name = nodes.get(self.node, {}).get("NodeName", self.node)
        return bool(self.node)

    def ping(self) -> Any:
        """Ask whether the actor responds."""
        return self.actor.ping.options(concurrency_group="pulse").remote()


class Fleet:
    """The actors of a loader.

    Attributes:
        nodes: name of a node → what came from it.
    """

    def __init__(self, workers: RayWorkers) -> None:
        """Raises: UioError if Ray is not installed."""
        self.ray = import_ray("RayWorkers")
        self.nodes: dict[str, NodeStats] = {}
        self.numbers = itertools.count()
        self._settings = workers
        self._homes: list[Host] = []
        self._workers: weakref.WeakSet[LaneWorker] = weakref.WeakSet()
        self._replacing = threading.RLock()  # a thread that receives ahead may hear of the same loss as the trainer's
        self._avoided: dict[str, float] = {}  # node → until when
        self._silences: list[float] = []  # when actors did not answer
        self._reported = 0.0
        self._agent = ""  # the socket of Ray's agent on the trainer's machine

    def another(self) -> Fleet:
        """Return a fleet of its own with the same settings."""
        return Fleet(self._settings)

    # Who runs the lanes of a worker

    def enter(self, worker: LaneWorker, place: int) -> Host:
        """Let the fleet know a worker, the one of this number, and return its actor."""
        if self._homes and not self.ray.is_initialized():  # Ray was shut down meanwhile
            self._homes.clear()
        if not self._homes:
            join_cluster(self.ray, 2 * self._settings.count)
            weakref.finalize(self, _end, self.ray, self._homes, os.getpid())
            here = self.ray.get_runtime_context().get_node_id()
            self._agent = next((n["RayletSocketName"] for n in self.ray.nodes() if n["NodeID"] == here), "")
        while len(self._homes) <= place:
            self._homes.append(self._start(first=True))
        host = self.host(place)
        self._workers.add(worker)
        return host

    def leave(self, worker: LaneWorker) -> None:
        """Forget a worker."""
        self._workers.discard(worker)

    def host(self, place: int, alone: bool = False) -> Host:
        """Return the actor for a worker: its own, or while a new one starts, the least busy of the others (``alone``:
        its own in any case)."""
        home = self._homes[place]
        if alone or home.started or (home.first and time.monotonic() - home.since < REPORT_EVERY):
            return home
        self._tend()
        others = [host for host in self._homes if host.started and host.node not in self._avoided]
        return min(others, key=lambda host: sum(worker.host is host for worker in self._workers), default=home)

    def _start(self, first: bool = False) -> Host:
        now = time.monotonic()
        self._avoided = {node: until for node, until in self._avoided.items() if until > now}
        own = {"num_cpus": 0} if started_here() else {}  # its number of CPUs is what the first loader needed
        options = {**DEFAULTS, **own, **self._settings.options}
        if self._avoided and isinstance(options["scheduling_strategy"], str):
            apart = {"ray.io/node-id": f"!in({','.join(self._avoided)})"}
            options["label_selector"] = {**options.get("label_selector", {}), **apart}
        try:
            actor = self.ray.remote(concurrency_groups={"pulse": 1})(Lanes).options(**options).remote()
        except (TypeError, ValueError) as error:
            raise PipelineError(f"RayWorkers: options={dict(self._settings.options)!r}: {error}") from error
        return Host(self.ray, actor, frozenset(self._avoided), first)

    def stats(self, host: Host) -> NodeStats:
        """Return the counts of the node of an actor that has started."""
        return self.nodes.setdefault(host.name if host.started else "", NodeStats())

    # Losses

    def _check_agent(self) -> None:
        """Raises: RuntimeError if the agent of the trainer's machine is gone: no batch comes any more then, and Ray
        itself says nothing while actors on other machines answer."""
        with socket.socket(socket.AF_UNIX) as asked:
            try:
                asked.connect(self._agent)
            except ConnectionRefusedError as error:
                raise RuntimeError(NO_AGENT) from error
            except OSError:
                return  # it is not on this machine

    def check(self) -> None:
        """Ask all actors for a sign of life, and replace those that do not respond. Raises: RuntimeError if the agent
        of the trainer's machine is gone."""
        self._check_agent()
        hosts = [host for host in self._homes if host.started]
        pings = {host: host.ping() for host in hosts}
        self._silences = [at for at in self._silences if time.monotonic() - at < AVOIDED]
        patience = PATIENCE * 2 ** len(self._silences)
        if hosts:
            self.ray.wait(list(pings.values()), num_returns=len(hosts), timeout=patience)
        silent = False
        for host, ping in pings.items():
            try:
                seen, age, host.used = self.ray.get(ping, timeout=0)
                host.seen = seen._replace(since=time.monotonic() - age)  # its clock is another one
            except self.ray.exceptions.GetTimeoutError:
                silent = True
                self.lose(host, None)
            except self.ray.exceptions.RayError as error:
                self.lose(host, error.with_traceback(None))
        if silent:
            self._silences.append(time.monotonic())
        self._tend()

    def lose(self, host: Host, error: Exception | None, hung: Whereabouts | None = None) -> None:
        """Replace an actor that died of ``error``, ``hung`` there, or does not answer, and move its lanes."""
        with self._replacing:
            if host.lost or host not in self._homes:
                return
            self._check_agent()
            dead = isinstance(error, self.ray.exceptions.ActorDiedError)
            if not (dead or hung):  # the node may be cut off, or dead, and Ray does not know yet
                self._avoided[host.node] = time.monotonic() + AVOIDED
            node, why = host.name or "(none yet)", "died" if dead else "hangs" if hung else "does not answer"
            logger.warning("the Ray actor on node %s %s: its lanes continue on other actors", node, why)
            if host.started:
                self.stats(host).restarts += 1
            self._replace(host, error if dead else None, hung)

    def _replace(self, host: Host, error: Exception | None = None, hung: Whereabouts | None = None) -> None:
        host.lost = True
        self.ray.kill(host.actor)  # if it comes back, it is ended, and nobody listens to it
        self._homes[self._homes.index(host)] = new = self._start()
        if not host.started:
            new.since = host.since  # it is late from the beginning
        for worker in list(self._workers):
            if worker.host is host:
                worker.moved(error, hung)

    def _tend(self) -> None:
        """Tell of an actor that has not started yet, and try again if that failed, or may find room elsewhere now.
        Raises: RuntimeError if none has started for a long time."""
        now = time.monotonic()
        late = [
            host for host in self._homes if not host.started and now - max(host.since, self._reported) >= REPORT_EVERY
        ]
        if not late:
            return
        self._reported, seconds = now, now - late[0].since
        text = (
            f"{plural(len(late), 'Ray actor')} of {len(self._homes)} not started yet, for {seconds:.0f} s. Is there "
            f"room for options={ {**DEFAULTS, **self._settings.options} }? Free: {self.ray.available_resources()}. "
            "Other loaders may have the rest: end them, ask for less by RayWorkers(options=…), or add nodes"
        )
        if len(late) == len(self._homes) and seconds >= MOST:
            raise RuntimeError(text)
        logger.warning("%s", text)
        with self._replacing:
            avoided = {node for node, until in self._avoided.items() if until > now}
            for host in late:
                if not host.lost and (host.error is not None or host.avoided - avoided):
                    self._replace(host)
