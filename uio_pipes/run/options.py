"""The options of a loader, checked, and the differences to a state that is loaded into it."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch
from torch.utils.data import DataLoader, Dataset

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import DataError, PipelineError, StateError
from uio_pipes.base.urls import HIDDEN, redact
from uio_pipes.core.graph import Graph
from uio_pipes.core.ledger import Failures
from uio_pipes.formats.lists.quarantine import Quarantine
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, stamp
from uio_pipes.run.device import Mover
from uio_pipes.run.exclusions import Exclusions
from uio_pipes.run.mixes import Mixes, arranged
from uio_pipes.run.ranks import RankPlace
from uio_pipes.run.ray.fleet import Fleet, RayWorkers
from uio_pipes.run.state import Meta, first_difference, shard_stamps
from uio_pipes.run.tuning import LANES, WorkerPlan
from uio_pipes.stages.utterances.filter import Exclude

logger = logging.getLogger("uio_pipes")


class Listener(Protocol):
    """Something that wants to know where the batches of all loaders of this process come from."""

    def hear(self, message: Any, progress: Any, options: RunOptions) -> object:
        """Take note of a batch that is delivered, and of the position of the epoch behind it."""


LISTENERS: weakref.WeakSet[Listener] = weakref.WeakSet()


@dataclass(frozen=True)
class RunOptions:
    """The options of a loader, named after the arguments of :class:`~uio_pipes.run.loader.Loader`.

    ``num_workers`` counts the actors of a ``fleet``, too; ``ranks`` is where this process stands among those given.

    Raises: PipelineError if one breaks a rule.
    """

    pipeline: Graph
    seed: int
    num_workers: int | Literal["auto"]
    lanes: int
    ranks: RankPlace
    uneven: str
    steps_per_epoch: int | None
    prefetch_factor: int
    pin_memory: bool
    snapshot_every: int
    failures: Failures
    on_change: str
    mixes: Mixes = field(default_factory=Mixes)
    mover: Mover | None = None
    left_out: tuple[Callable[[str], bool], ...] = ()  # by loader.skip
    excluded: Exclusions = field(default_factory=Exclusions)
    heard: tuple[Callable[[str], object], ...] = ()  # called with each report of a failure
    delivered: tuple[Callable[[Any, Any], object], ...] = ()  # called with each message, and the progress after it
    utterances: bool = False  # to give those of each batch, finished, instead of its tensors
    counted: int | None = None  # ranks for which steps are counted; None, these
    fleet: Fleet | None = None  # that the workers run in, instead of processes of this machine

    def __post_init__(self) -> None:
        if not isinstance(self.pipeline, Graph):
            raise PipelineError(_no_pipeline(self.pipeline))
        require_whole("seed", self.seed)
        _check_workers(self.num_workers)
        for name, least in (("prefetch_factor", 1), ("snapshot_every", 1), ("lanes", 1)):
            require_whole(name, getattr(self, name), least)
        if self.steps_per_epoch is not None:
            require_whole("steps_per_epoch", self.steps_per_epoch, 1)
        _require_flag("pin_memory", self.pin_memory)
        if self.on_change not in ("error", "restart", "adopt"):
            raise PipelineError(f"on_change must be 'error', 'restart' or 'adopt', not {self.on_change!r}")
        self._check_graph()

    @classmethod
    def of(
        cls,
        pipeline: Graph,
        ranks: RankPlace,
        num_workers: int | Literal["auto"] | RayWorkers,
        lanes: int | None,
        **options: Any,
    ) -> RunOptions:
        """Return the options of a new loader. Raises: UioError if Ray, which is to run the workers, is not there."""
        fleet = Fleet(num_workers) if isinstance(num_workers, RayWorkers) else None
        count = num_workers.count if isinstance(num_workers, RayWorkers) else num_workers
        lanes = default_lanes(ranks.world_size, count) if lanes is None else lanes
        made = cls(pipeline, num_workers=count, lanes=lanes, ranks=ranks, fleet=fleet, **options)
        return replace(made, mixes=Mixes.of(pipeline))

    def _check_graph(self) -> None:
        kind = self.pipeline._kind
        if kind in ("item", "file", "record"):
            raise PipelineError(
                f"the pipeline gives {kind}s, not utterances: add .open_files().load_from_tar() or .load_from_raw()"
            )
        if self.lanes < self.ranks.world_size:
            raise PipelineError(
                f"{self.lanes} lanes cannot feed {self.ranks.world_size} ranks: lanes must be at least world_size; "
                "leave it out, or take a multiple of the number of ranks"
            )
        self.pipeline._check_lanes(self.lanes)

    @property
    def rank(self) -> int:
        return self.ranks.rank

    @property
    def world_size(self) -> int:
        return self.ranks.world_size

    @property
    def pins(self) -> bool:
        """True if batches are put in pinned memory: without a GPU there is none."""
        return self.pin_memory and torch.cuda.is_available()

    @property
    def plan(self) -> WorkerPlan:
        """The workers to run, if they are given."""
        return WorkerPlan(0 if self.num_workers == "auto" else self.num_workers, self.prefetch_factor)

    @property
    def tuned(self) -> bool:
        """True if this process finds out how many workers it needs."""
        return self.num_workers == "auto" and self.ranks.reads

    @property
    def in_steps(self) -> bool:
        """True if an epoch is a number of batches instead of all the data."""
        return self.steps_per_epoch is not None

    @property
    def of_workers(self) -> bool:
        """True if the ranks are workers of another loader, which decides about steps and says what it lacks."""
        return self.counted is not None

    @property
    def together(self) -> bool:
        """True if ranks step together, so that the epoch ends for all at once."""
        return self.uneven != "join" or self.in_steps

    @property
    def repeat(self) -> bool:
        """True if lanes that have ended begin again."""
        return self.uneven == "repeat" or self.in_steps


def _require_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise PipelineError(f"{name} must be True or False, not {value!r}")


def _no_pipeline(given: object) -> str:
    """Return what to give to a loader instead of something that is not a pipeline."""
    rule = f"pipeline must be a Pipeline, not {given!r}"
    if isinstance(getattr(given, "pipeline", None), Graph):
        return f"{rule}; give the pipeline that it was made of (its attribute .pipeline)"
    if isinstance(given, DataLoader):
        return f"{rule}; a Loader takes the place of torch's DataLoader, so give it the pipeline itself"
    if isinstance(given, (list, tuple, Dataset)):
        return f"{rule}; uio.from_iterable(…) makes one of a Dataset or a list of utterances"
    return f"{rule}; begin with uio.from_shard_list(…), uio.from_raw_list(…) or another uio.from_…"


def default_lanes(world_size: int, num_workers: int | Literal["auto"]) -> int:
    """Return the number of lanes that deals as WeNet does: one for each worker of each rank.

    If the workers are yet to be chosen, on each rank for itself, it depends on nothing but the number of ranks.
    """
    _check_workers(num_workers)
    return world_size * (LANES if num_workers == "auto" else max(1, num_workers))


def _check_workers(num_workers: object) -> None:
    if num_workers == "auto":
        return
    if isinstance(num_workers, str):
        raise PipelineError(f"num_workers must be a whole number or 'auto', not {num_workers!r}")
    require_whole("num_workers", num_workers, 0)


def open_quarantine(options: RunOptions) -> Quarantine | None:
    """Open the file for failures, if one is named and this process reads data.

    Raises: PipelineError if the graph reads it, or it cannot be written.
    """
    path, graph = options.failures.quarantine, options.pipeline
    if path is None or not options.ranks.reads:
        return None
    excluded = (stage.path for stage in graph._every_stage() if isinstance(stage, Exclude))
    if os.path.realpath(path) in map(os.path.realpath, excluded):
        raise PipelineError(
            f"quarantine={os.fspath(path)!r} is the file that the pipeline excludes, and would change while it is "
            "in use: write to another one and join them for the next run"
        )
    try:
        return Quarantine(path)
    except OSError as error:
        raise PipelineError(f"cannot write quarantine={os.fspath(path)!r}: {error.strerror}") from error


_ENDLESS = (
    'the epoch has no end: the pipeline has none (it has repeat(), or mix(…, stop="endless")), and the loader no '
    "steps_per_epoch. Give Loader(steps_per_epoch=…), unless the trainer itself stops after a number of steps"
)


def fingerprints_of(options: RunOptions, lanes: int) -> dict[str, Any]:
    """Return what a state is stamped with: a line for each stage, count and hash of the lists, which are read for it.

    The first rank warns of what is odd about graph and lists.
    """
    graph, listed = options.pipeline, options.pipeline._list_fingerprint()
    if options.rank == 0:
        for text in graph._warnings(lanes, int(listed[0])):
            logger.warning("%s", text)
        if graph._endless and not options.in_steps and not options.of_workers:
            logger.warning("%s", _ENDLESS)
    return {"graph": graph.fingerprint(), "list": listed}


REMEDY = 'Use the old value, or begin the epoch again with Loader(on_change="restart")'


def fitted(
    meta: Meta, state: Mapping[str, Any], options: RunOptions, fingerprints: Mapping[str, Any]
) -> tuple[RunOptions, list[str]]:
    """Return the options to go on with from a state, and how it differs from them, each difference as a sentence.

    Raises: StateError if it differs and the epoch is not to begin again for that, or if it contradicts itself.
    """
    options, changed = _fitted(meta, replace(options, excluded=Exclusions.of(meta)), fingerprints)
    changed += changed_shards(state, options.pipeline)
    if changed and options.on_change != "restart":
        raise StateError(changed[0])
    return options, changed


def _fitted(meta: Meta, options: RunOptions, fingerprints: Mapping[str, Any]) -> tuple[RunOptions, list[str]]:
    """Return the options to go on with, whose mixes are those of the state, and the differences, each as a sentence.

    If only mixes were edited since, the options have them as they are now, their sources in the state's order; that is
    a difference only if it is not to be adopted. Raises: StateError if the state contradicts itself.
    """
    records = meta.mixes or {}
    found = _differences(meta, options, fingerprints)
    if not found or not records:
        return replace(options, mixes=Mixes.of(options.pipeline, records)), found
    try:
        before = arranged(options.pipeline, records, edited=False)
    except KeyError as gone:
        remedy = f"keep it, with the weight 0, as utterances of it may still wait in buffers. {REMEDY}"
        return options, [f"a mix has no source {gone} any more, which the state has: {remedy}"]
    if _differences(meta, options, {"graph": before.fingerprint(), "list": before._list_fingerprint()}):
        return options, found
    graph = arranged(options.pipeline, records, edited=True)
    options = replace(options, pipeline=graph, mixes=Mixes.of(graph, records))
    edits = options.mixes.edits(records)
    if options.on_change != "adopt" or not edits:
        return options, [
            f'{text}. Go on from here with the new ones by Loader(on_change="adopt"). {REMEDY}' for text in edits
        ]
    options.mixes.check_dealt(graph, records)
    return options, []


def _differences(meta: Meta, options: RunOptions, fingerprints: Mapping[str, Any]) -> list[str]:
    out = []
    if (meta.stream is not None) != options.in_steps:
        was = "with" if meta.stream is not None else "without"
        steps = options.steps_per_epoch
        out.append(f"the state was saved {was} steps_per_epoch, this loader has {steps}. {REMEDY}")
    saved = meta.saved()
    for name, new in {"seed": options.seed, **fingerprints}.items():
        old = saved[name]
        if old == new:
            continue
        if name == "graph":
            old, new = first_difference(old, new)
        counts = name == "list" and old[:1] != new[:1]
        then = f"{old[0]} items then, {new[0]} now" if counts else f"{old!r} then, {new!r} now"
        out.append(f"{name} changed since the state was saved: {then}. {REMEDY}")
    return out


def changed_shards(state: Mapping[str, Any], graph: Graph) -> list[str]:
    """Return the shards that were open in the state and have changed since, each as a sentence."""
    out = []
    for url, old in shard_stamps(state).items():
        try:
            new = stamp(*(_reached(graph, url) if is_local(url) is None else (url,)))
        except DataError as error:
            new = error.message
        if new != old:
            out.append(
                f"{url} changed since the state was saved: {old} then, {new} now. Restore the shard, or begin the "
                'epoch again with Loader(on_change="restart")'
            )
    return out


def _reached(graph: Graph, url: str) -> tuple[str, Access]:
    """Return the URL with its credentials, which a state does not contain, and the options to open it with.

    Lists are read again only if these are not clear without them.
    """
    known = graph._files()
    different = any(one.access != known[0].access for one in known)
    if HIDDEN not in url and not different:
        return url, known[0].access if known else Access()
    for one in known:
        lines = one.lines()
        for number in range(len(lines)):
            if redact(lines[number]) == redact(url):
                return lines[number], one.access
    return url, Access()
