"""The checked options of a loader, and their differences from a loaded state."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, Dataset

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import DataError, PipelineError, StateError
from uio_pipes.base.urls import HIDDEN, redact
from uio_pipes.core.graph import Graph
from uio_pipes.formats.lists.quarantine import Quarantine
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, stamp
from uio_pipes.run.device import Mover
from uio_pipes.run.exclusions import Exclusions
from uio_pipes.run.lane_runner import LaneOptions
from uio_pipes.run.mixes import Mixes, arranged
from uio_pipes.run.ranks import RankPlace
from uio_pipes.run.ray.fleet import Fleet, RayWorkers
from uio_pipes.run.state import Meta, first_difference, shard_stamps
from uio_pipes.run.tracing import Tracing
from uio_pipes.run.tuning import LANES, WorkerPlan
from uio_pipes.stages.utterances.filter import Exclude

logger = logging.getLogger("uio_pipes")


@dataclass(frozen=True, kw_only=True)
class RunOptions(LaneOptions):
    """The options of a loader, named after the arguments of :class:`~uio_pipes.run.loader.Loader`: those of its lanes,
    and what it adds for ranks, workers and states.

    ``num_workers`` counts the actors of a ``fleet``, too; ``ranks`` is where this process stands among those given.

    Raises: PipelineError if one breaks a rule.
    """

    num_workers: int | Literal["auto"]
    ranks: RankPlace
    uneven: str
    steps_per_epoch: int | None
    prefetch_factor: int
    pin_memory: bool
    on_change: str
    tail: str = "drop"
    mixes: Mixes = field(default_factory=Mixes)
    mover: Mover | None = None
    excluded: Exclusions = field(default_factory=Exclusions)
    of_workers: bool = (
        False  # the ranks are workers of another loader, which decides about steps and says what it lacks
    )
    fleet: Fleet | None = None  # that the workers run in, instead of processes of this machine
    tracing: Tracing | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "repeat", self.in_steps)
        if not isinstance(self.pipeline, Graph):
            raise PipelineError(_no_pipeline(self.pipeline))
        require_whole("seed", self.seed)
        _check_workers(self.num_workers)
        for name, least in (("prefetch_factor", 1), ("snapshot_every", 1), ("lanes", 1)):
            require_whole(name, getattr(self, name), least)
        if self.steps_per_epoch is not None:
            require_whole("steps_per_epoch", self.steps_per_epoch, 1)
        if not isinstance(self.pin_memory, bool):
            raise PipelineError(f"pin_memory must be True or False, not {self.pin_memory!r}")
        if self.tail not in ("drop", "repeat"):
            raise PipelineError(f"tail must be 'drop' or 'repeat', not {self.tail!r}")
        if self.on_change not in ("error", "restart", "adopt"):
            raise PipelineError(f"on_change must be 'error', 'restart' or 'adopt', not {self.on_change!r}")
        kind = self.pipeline._kind
        if kind in ("item", "file", "record"):
            raise PipelineError(
                f"the pipeline gives {kind}s, not utterances: add .open_files().load_from_tar() or .load_from_raw()"
            )
        if self.lanes < self.ranks.world_size and not self.shares:
            raise PipelineError(
                f"{self.lanes} lanes cannot feed {self.ranks.world_size} ranks: lanes must be at least world_size "
                'unless they share them (uneven="share"); omit lanes, or use a multiple of the number of ranks'
            )
        self.pipeline._check_lanes(self.lanes)
        if self.shares and self.pipeline._uneven != "share":
            raise PipelineError(
                'uneven="share" moves lanes to other ranks within an epoch, away from the model that remembers the '
                'chunks before: choose uneven="stop", which is the default for chunks, or "join"'
            )

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
        place: Any = {"ranks": ranks, "step_ranks": ranks.world_size}
        made = cls(pipeline=pipeline, num_workers=count, lanes=lanes, fleet=fleet, **place, **options)
        return replace(made, mixes=Mixes.of(pipeline))

    @property
    def rank(self) -> int:
        return self.ranks.rank

    @property
    def world_size(self) -> int:
        return self.ranks.world_size

    @property
    def pins(self) -> bool:
        """True if batches are put in pinned memory, which needs a GPU."""
        return self.pin_memory and torch.cuda.is_available()

    @property
    def plan(self) -> WorkerPlan:
        """The given number of workers, if any."""
        return WorkerPlan(0 if self.num_workers == "auto" else self.num_workers, self.prefetch_factor)

    @property
    def tuned(self) -> bool:
        """True if this process chooses the number of workers itself."""
        return self.num_workers == "auto" and self.ranks.reads

    @property
    def in_steps(self) -> bool:
        """True if an epoch is a number of batches instead of all the data."""
        return self.steps_per_epoch is not None

    @property
    def shares(self) -> bool:
        """True if ranks share what is left of an epoch when one of them has no batch any more."""
        return self.uneven == "share" and not (self.in_steps or self.pipeline._endless)

    @property
    def together(self) -> bool:
        """True if ranks step together, so that the epoch ends for all at once."""
        return self.uneven != "join" or self.in_steps


def _no_pipeline(given: object) -> str:
    """Return what to give to a loader instead of something that is not a pipeline."""
    rule = f"pipeline must be a Pipeline, not {given!r}"
    if isinstance(getattr(given, "pipeline", None), Graph):
        return f"{rule}; give its pipeline (the attribute .pipeline)"
    if isinstance(given, DataLoader):
        return f"{rule}; a Loader replaces torch's DataLoader, so give it the pipeline itself"
    if isinstance(given, (list, tuple, Dataset)):
        return f"{rule}; uio.from_iterable(…) makes one of a Dataset or a list of utterances"
    return f"{rule}; begin with uio.from_shard_list(…), uio.from_raw_list(…) or another uio.from_…"


def default_lanes(world_size: int, num_workers: int | Literal["auto"]) -> int:
    """Return the number of lanes that distributes data like WeNet: one for each worker of each rank.

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
    'the epoch has no end: the pipeline is endless (repeat(), or mix(…, stop="endless")), and the loader no '
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
        remedy = f"keep it with weight 0, because its utterances may still be in buffers. {REMEDY}"
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
