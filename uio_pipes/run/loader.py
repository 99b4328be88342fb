"""The loader: runs a pipeline's lanes in this process or in workers, and knows where each lane stands."""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import DataError, NothingRead, PipelineError, StateError
from uio_pipes.base.printable import counted
from uio_pipes.core.lane import lanes_of
from uio_pipes.core.ledger import Policy
from uio_pipes.core.statistics import Stats
from uio_pipes.formats.lists.quarantine import Quarantine
from uio_pipes.io.opening import is_local, stamp
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.device import Mover
from uio_pipes.run.epoch_end import choose, private_group, refuse_join
from uio_pipes.run.epoch_run import Batches, Progress, Run
from uio_pipes.run.lane_runner import Position
from uio_pipes.run.state import SCHEMA, first_difference, lane_name, lanes_in, read_lane, read_meta, shard_stamps
from uio_pipes.run.state_merging import merge_states
from uio_pipes.sources.open_files import OpenFiles
from uio_pipes.sources.reached import reach
from uio_pipes.stages.exclude import excluded_by

__all__ = ["Loader", "gather_state"]

logger = logging.getLogger("uio_pipes")
Uneven = Literal["stop", "join", "repeat"]


class Loader:
    """Run a pipeline: iterate over the batches of one epoch after another, from wherever its state says.

    Args:
        pipeline: what to run.
        seed: a whole number that all random choices depend on. Default: 0.
        num_workers: worker processes per rank; 0 runs the graph in this process. Default: 0.
        lanes: how many ordered streams an epoch is dealt to, at least ``world_size``. A fixed number, such as 64,
            makes epochs equal on any number of ranks and workers. Default: None, ranks × workers, which deals as
            WeNet does.
        rank: number of this process among all that train together. Default: None, from ``torch.distributed``, or 0
            without a process group.
        world_size: number of those processes; given together with ``rank``. Default: None, from
            ``torch.distributed``, or 1 without a process group.
        partition: whether each rank gets its own share; False gives every rank everything, as for validation.
            Default: True.
        uneven: what to do if ranks have unequally many batches: "stop" (all end when the first one ends), "join"
            (each ends with its own) or "repeat" (all end with the last one; the others begin again). Default: None,
            "stop" if there is a process group and otherwise "join".
        steps_per_epoch: batches of each rank in an epoch. The stream goes on in the next epoch, and begins again by
            itself when it ends. It is for streams without an end (``repeat()``) and for epochs of weeks. Statistics
            and budgets of failures then count from the beginning of the stream. Default: None, an epoch is all the
            data.
        prefetch: batches that each worker prepares ahead. Default: 2.
        pin_memory: whether to put batches in pinned memory, for copies to a GPU. Default: False.
        snapshot_every: batches of a lane between two snapshots; resuming passes over at most that many by plan.
            Default: 1.
        on_error: "skip" failed utterances and shards (each is counted, reported and left out), or "raise". Default:
            "skip".
        max_failures: failures in an epoch of one rank above which the run stops. Default: 10,000.
        max_consecutive_failures: failures in a row, within one stage, above which the run stops. Default: 100.
        on_change: what to do with a state of another list or graph: raise an "error", or "restart" its epoch.
            Default: "error".
        quarantine: path of a file to which each failure is appended once, as a JSON object, for
            ``pipeline.exclude`` in a later run and for ``uio verify --confirm``. Ranks and later runs may share it.
            Default: None.

    Raises:
        PipelineError: an argument breaks a rule.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        seed: int = 0,
        num_workers: int = 0,
        lanes: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        partition: bool = True,
        uneven: Uneven | None = None,
        steps_per_epoch: int | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
        snapshot_every: int = 1,
        on_error: Literal["skip", "raise"] = "skip",
        max_failures: int = 10_000,
        max_consecutive_failures: int = 100,
        on_change: Literal["error", "restart"] = "error",
        quarantine: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(pipeline, Pipeline):
            raise PipelineError(_no_pipeline(pipeline))
        require_whole("seed", seed)
        require_whole("num_workers", num_workers, 0)
        for name, number in (("prefetch", prefetch), ("snapshot_every", snapshot_every)):
            require_whole(name, number, 1)
        for name, chosen in (("lanes", lanes), ("steps_per_epoch", steps_per_epoch)):
            if chosen is not None:
                require_whole(name, chosen, 1)
        for name, flag in (("partition", partition), ("pin_memory", pin_memory)):
            if not isinstance(flag, bool):
                raise PipelineError(f"{name} must be True or False, not {flag!r}")
        self.pipeline, self.seed = pipeline, seed
        self.rank, self.world_size = _topology(rank, world_size, partition)
        self.num_workers, self.prefetch = num_workers, prefetch
        self.mover: Mover | None = None  # set by to_device
        self.pin_memory = pin_memory and torch.cuda.is_available()
        self.snapshot_every, self.on_change = snapshot_every, on_change
        self.policy = Policy(on_error, max_failures, max_consecutive_failures)
        self.uneven = choose(uneven, self.world_size)
        self.steps_per_epoch = steps_per_epoch
        self.lanes = self.world_size * max(1, num_workers) if lanes is None else lanes
        self.quarantine = self._open_quarantine(quarantine)
        self._check()
        self._asked: int | None = None  # by set_epoch, since the last iteration began
        self._lengths: list[int] | None = None  # batches of each lane, of this stream and so many lanes:
        self._lengths_of: tuple[int, int] | None = None
        self._unknown = ""  # why they are not known
        self._kept: Batches | None = None  # goes on in the next epoch, where steps make epochs
        self._active: weakref.ref[Batches] | None = None
        self._fingerprints: dict[str, Any] | None = None
        self._progress = self._fresh(0)

    def _open_quarantine(self, path: str | os.PathLike[str] | None) -> Quarantine | None:
        if path is None:
            return None
        if os.path.realpath(path) in excluded_by(self.pipeline):
            raise PipelineError(
                f"quarantine={os.fspath(path)!r} is the file that the pipeline excludes, and would change while it is "
                "in use: write to another one and join them for the next run"
            )
        try:
            return Quarantine(path)
        except OSError as error:
            raise PipelineError(f"cannot write quarantine={os.fspath(path)!r}: {error.strerror}") from error

    def _check(self) -> None:
        if self.on_change not in ("error", "restart"):
            raise PipelineError(f"on_change must be 'error' or 'restart', not {self.on_change!r}")
        if self.pipeline._kind in ("item", "file", "record"):
            raise PipelineError(
                f"the pipeline gives {self.pipeline._kind}s, not utterances: add .open_files().load_from_tar() or "
                f".load_from_raw()"
            )
        if self.lanes < self.world_size:
            raise PipelineError(
                f"{self.lanes} lanes cannot feed {self.world_size} ranks: lanes must be at least world_size; "
                "leave it out, or take a multiple of the number of ranks"
            )
        self.pipeline._check_lanes(self.lanes)

    # Where the loader stands

    @property
    def epoch(self) -> int:
        """The epoch under way, or to come."""
        return self._progress.epoch

    @property
    def finished(self) -> bool:
        """Whether the epoch is over, for this rank or for all."""
        return self._progress.ended

    def set_epoch(self, epoch: int) -> None:
        """Go to an epoch, before it is iterated over.

        Args:
            epoch: its number, from 0. If the loader's state is of that epoch, its position is kept; otherwise the epoch
                is started afresh.

        Raises:
            PipelineError: ``epoch`` is no whole number, or is below 0.
        """
        require_whole("epoch", epoch, 0)
        self._asked = epoch
        self._go_to(epoch)

    def _go_to(self, epoch: int) -> None:
        if self.steps_per_epoch is not None and epoch == self.epoch + 1:
            progress = self._progress  # the stream goes on
            progress.epoch, progress.step, progress.ended, progress.loaded = epoch, 0, False, None
        elif epoch != self.epoch:
            self._close()
            ahead = self._progress.ahead
            self._progress = ahead if ahead is not None and ahead.epoch == epoch else self._fresh(epoch)

    def skip(self, count: int) -> None:
        """Pass over the next batches of this rank, after a loss spike for example, by plan: nothing is decoded for it.

        It takes effect with the next batch; in the middle of an epoch workers begin anew there. A state remembers it,
        another epoch forgets it. Where ranks step together each one calls it, at the same step.

        Args:
            count: how many batches to pass over, 0 or more; added to what is still to be passed over.

        Raises:
            PipelineError: ``count`` is no whole number, or is below 0.
        """
        require_whole("skip: count", count, 0)
        self._progress.skip += count

    def __len__(self) -> int:
        """Batches of this rank in ``epoch``, whole, if no utterance fails; ``steps_per_epoch`` where that is set.

        Exact wherever nothing has to be read for it: indexed sources, and raw lists with ``duration``. Then the epoch's
        order is gone through by plan, filters, sort and batches by frames included, once per epoch; a list that only
        goes into ``batch`` is just counted. Every rank computes it by itself, the same. The user's functions are
        called for it. With one that filters or maps utterances ask before the iteration begins: during one it is not
        called a second time (``list(loader)`` would, which asks for the length of what it goes through).

        Raises: TypeError where only running tells: tar shards without an index, lengths that headers tell.
        """
        if self.steps_per_epoch is not None:
            return self.steps_per_epoch
        lanes = self._lane_lengths()
        ranks = [sum(lanes[i] for i in lanes_of(len(lanes), r, self.world_size)) for r in range(self.world_size)]
        return {"stop": min(ranks), "repeat": max(ranks)}.get(self.uneven, ranks[self.rank])

    def _lane_lengths(self) -> list[int]:
        """Batches of each lane in the epoch's stream. Raises: TypeError."""
        of = (self._progress.stream, self._progress.lanes)
        if self._lengths_of != of:
            from uio_pipes.run.planning import NotKnown, count_batches

            lengths, calls = self.pipeline._count(of[1]), not self._under_way()
            try:
                self._lengths = lengths or count_batches(self.pipeline, of[1], self.seed, of[0], calls)
            except NotKnown as error:
                self._lengths, self._unknown = None, str(error)
                error.__cause__ = error.__traceback__ = None  # frees this loader when it is forgotten
            self._lengths_of = of if calls or self._lengths else None
        if self._lengths is None:
            raise TypeError(
                f"the number of batches is not known beforehand: {self._unknown}. Index the data (the command "
                "`uio index`, then from_tar_index), set steps_per_epoch, or count the batches once (a Loader takes the "
                "place of torch's DataLoader, and is not put into one)"
            )
        return self._lengths

    def __bool__(self) -> bool:
        return True  # whatever its length

    def _fresh(self, epoch: int) -> Progress:
        mine = lanes_of(self.lanes, self.rank, self.world_size)
        return Progress(epoch, self.lanes, {lane: Position(epoch) for lane in mine}, stream=epoch)

    def state_dict(self) -> dict[str, str]:
        """Where each of this rank's lanes stands after the last batch that was received: a flat dict of strings.

        Before the first iteration it is what was loaded.
        """
        progress = self._progress
        if progress.loaded is not None:
            return progress.loaded | {"meta": _with_skip(progress.loaded["meta"], progress.skip)}
        meta = {
            "schema": SCHEMA,
            "epoch": progress.epoch,
            "seed": self.seed,
            "lanes": progress.lanes,
            "ended": progress.ended and self.together,
            **self.fingerprints(),
        }
        if self.steps_per_epoch is not None:
            meta.update(stream=progress.stream, step=progress.step)
        if progress.skip:
            meta["skip"] = progress.skip
        if progress.ahead is not None:
            meta["ahead"] = progress.ahead.loaded
        state = {"meta": json.dumps(meta, ensure_ascii=False)}
        state.update((lane_name(lane), position.text) for lane, position in progress.positions.items())
        return state

    @property
    def together(self) -> bool:
        """Whether ranks step together, so that the epoch ends for all at once."""
        return self.uneven != "join" or self.steps_per_epoch is not None

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go to where a state was saved, on other numbers of ranks and workers too: as many ranks as it has lanes.

        With more, ``uneven="join"`` leaves some without any; otherwise iterating over it raises StateError.

        Args:
            state_dict: what :meth:`state_dict`, ``uio.gather_state`` or ``uio.merge_states`` returned.

        Raises:
            StateError: the state is of another seed, list or graph (see ``on_change``), or lacks lanes of this rank;
                the message names the field, the old and the new value and the remedy.
        """
        meta = read_meta(state_dict)
        self._close()
        asked, self._asked, self._lengths_of = self._asked, None, None
        changed = self._changes(meta) + _changed_shards(state_dict, self.pipeline)
        if changed:
            if self.on_change == "error":
                raise StateError(changed[0])
            logger.warning("epoch %s begins again: %s", meta["epoch"], "; ".join(changed))
        self._asked = asked
        if changed:
            self._progress = self._fresh(meta["epoch"] if asked is None else asked)
            return
        self._progress = self._taken_from(meta, state_dict)
        if asked is not None:
            self._go_to(asked)

    def _taken_from(self, meta: dict[str, Any], state: Mapping[str, Any]) -> Progress:
        present = lanes_in(state, meta["lanes"])
        mine = lanes_of(meta["lanes"], self.rank, self.world_size)
        missing = len(mine) - sum(lane in mine for lane in present)
        if missing:
            first = next(lane for lane in mine if lane not in present)
            raise StateError(
                f"lanes: the state has {meta['lanes']} lanes, but {missing} that rank {self.rank} of "
                f"{self.world_size} runs "
                f"now are not in it (lane {first}, …). Join the states of all ranks by uio.merge_states or "
                f"uio.gather_state; "
                f"torch.distributed.checkpoint needs the same lane count: Loader(lanes={meta['lanes']})"
            )
        lanes = {lane: read_lane(state, lane) for lane in present}
        stream = meta.get("stream", meta["epoch"])
        for lane, saved in lanes.items():
            if saved["epoch"] != stream and not saved["done"]:
                raise StateError(
                    f"lane {lane} is of epoch {saved['epoch']}, the state of epoch {meta['epoch']}: join only "
                    f"states that the "
                    "ranks saved in the same epoch"
                )
        fresh = {lane for lane, saved in lanes.items() if saved["epoch"] != stream}
        positions = {i: Position(stream, None if i in fresh else lanes[i]) for i in mine}
        over = len(present) == meta["lanes"] and not fresh and all(saved["done"] for saved in lanes.values())
        ended = bool(meta["ended"]) or (over and "stream" not in meta)
        loaded = {str(k): str(v) for k, v in state.items()}
        ahead = self._taken_from(read_meta(meta["ahead"]), meta["ahead"]) if "ahead" in meta else None
        return Progress(
            meta["epoch"],
            meta["lanes"],
            positions,
            stream,
            meta.get("step", 0),
            meta.get("skip", 0),
            ended=ended,
            loaded=loaded,
            ahead=ahead,
        )

    def fingerprints(self) -> dict[str, Any]:
        """What a state is stamped with: the graph's lines, and the lists' count and hash. Reads the lists once."""
        if self._fingerprints is None:
            listed, lanes = self.pipeline._list_fingerprint(), self._progress.lanes
            for text in self.pipeline._warnings(lanes, int(listed[0])) if self.rank == 0 else ():
                logger.warning("%s", text)
            self._fingerprints = {"graph": self.pipeline.fingerprint(), "list": listed}
        return self._fingerprints

    def _changes(self, meta: dict[str, Any]) -> list[str]:
        """What in the state is not as it is here, each as a sentence."""
        remedy = 'Use what it was, or begin its epoch again with Loader(on_change="restart")'
        now = {"seed": self.seed, **self.fingerprints()}
        out = []
        if ("stream" in meta) != (self.steps_per_epoch is not None):
            was = "with" if "stream" in meta else "without"
            out.append(f"the state was saved {was} steps_per_epoch, this loader has {self.steps_per_epoch}. {remedy}")
        for name, new in now.items():
            old = meta.get(name)
            if old == new:
                continue
            if name == "graph" and isinstance(old, list):
                old, new = first_difference(old, new)
            out.append(f"{name} changed since the state was saved: {old!r} then, {new!r} now. {remedy}")
        return out

    # Iterating

    def __iter__(self) -> Iterator[Any]:
        """The batches from the current position to the end of the epoch; at the end of one, the next epoch's."""
        if self._asked is None and (self._progress.ended or self._all_received()):
            self._go_to(self.epoch + 1)
        if self._progress.ended:
            logger.warning(
                "epoch %d is over: nothing to deliver; set_epoch(%d) begins the next", self.epoch, self.epoch + 1
            )
        self._asked = None
        self._check_ranks()
        self.fingerprints()
        if self._kept is not None and not self._kept.closed:
            return Run(self, self._kept)
        self._close()
        batches = Batches(self, self._progress)
        self._kept = batches if self.steps_per_epoch is not None else None
        self._active = weakref.ref(batches)  # no cycle: forgotten batches end their workers at once
        return Run(self, batches)

    def _check_ranks(self) -> None:
        """Raises: StateError if ranks that step together are more than the lanes of a loaded state."""
        lanes, epoch = self._progress.lanes, self.epoch
        if self.world_size <= lanes or self._progress.ended or not self.together:
            return
        steps = self.steps_per_epoch is not None
        until = "as its stream goes on in every epoch" if steps else f"until epoch {epoch} ends"
        apart = "" if steps else 'or let each rank end with its own lanes by uneven="join", '
        raise StateError(
            f"lanes: the state has {lanes}, so of {self.world_size} ranks {self.world_size - lanes} would have nothing "
            f"to deliver. Go on with at most {counted(lanes, 'rank')}, {until}; {apart}or begin an epoch anew by "
            "set_epoch. To go on with more ranks another time, fix the lanes from the start: Loader(lanes=64)"
        )

    def _all_received(self) -> bool:
        """Whether the trainer took as many batches as there are by ``len``, and did not ask for the end."""
        progress = self._progress
        if progress.loaded is not None:
            return False
        if self.steps_per_epoch is not None:
            return progress.step >= self.steps_per_epoch
        counted = self._lengths and self._lengths_of == (progress.stream, progress.lanes)
        return bool(counted) and sum(p.state["k"] for p in progress.positions.values()) >= len(self)

    def _at_end(self, epoch: int, delivered: bool, error: NothingRead | None) -> None:
        """This rank's lanes have ended in ``epoch``: with an utterance, with nothing, or with failures alone."""
        if error is not None:
            raise error

    def _under_way(self) -> bool:
        active = self._active() if self._active is not None else None
        return active is not None and not active.closed

    def _close(self) -> None:
        active = self._active() if self._active is not None else None
        if active is not None:
            active.close()
        self._active = self._kept = None

    def stats(self) -> Stats:
        """Counts of this rank's lanes in the epoch under way, up to the last batch that was received."""
        progress = self._progress
        stats = Stats(
            delivered=progress.delivered,
            left_out=progress.left_out,
            items_are_utterances=not self.pipeline._has(OpenFiles),
        )
        for position in self._progress.positions.values():
            stats.add(position.counts)
        return stats

    def __repr__(self) -> str:
        run_by = f"{counted(self.num_workers, 'worker')}, {counted(self._progress.lanes, 'lane')}"
        where = f"rank {self.rank} of {self.world_size}, {run_by}"
        return f"Loader({where}, epoch {self.epoch}, uneven={self.uneven!r})\n{self.pipeline}"


def gather_state(loader: Loader) -> dict[str, str] | None:
    """Collect the state of all ranks' lanes on rank 0; other ranks get None.

    It is a collective: every rank calls it at the same step. Without a process group, or for a loader of one rank,
    it returns ``loader.state_dict()``.

    Args:
        loader: this rank's loader.

    Raises:
        StateError: under ``uneven="join"``, where ranks are not at the same step.
    """
    if loader.world_size == 1:
        return loader.state_dict()
    if not loader.together:
        refuse_join()
    states: list[Any] | None = [None] * loader.world_size if loader.rank == 0 else None
    dist.gather_object(loader.state_dict(), states, dst=0, group=private_group())
    return merge_states(states) if states is not None else None


def _no_pipeline(given: object) -> str:
    """Says what to give to a loader instead of something that is no pipeline."""
    rule = f"pipeline must be a Pipeline, not {given!r}"
    if isinstance(getattr(given, "pipeline", None), Pipeline):
        return f"{rule}; give the pipeline that it was made of (its attribute .pipeline)"
    if isinstance(given, DataLoader):
        return f"{rule}; a Loader takes the place of torch's DataLoader, so give it the pipeline itself"
    if isinstance(given, (list, tuple, Dataset)):
        return f"{rule}; uio.from_iterable(…) makes one of a Dataset or a list of utterances"
    return f"{rule}; begin with uio.from_shard_list(…), uio.from_raw_list(…) or another uio.from_…"


def _topology(rank: int | None, world_size: int | None, partition: bool) -> tuple[int, int]:
    grouped = dist.is_available() and dist.is_initialized()
    if world_size is not None:
        require_whole("world_size", world_size, 1)
    if rank is not None:
        require_whole("rank", rank)
    if (rank is None) != (world_size is None):
        raise PipelineError("rank and world_size are given together, or neither")
    if rank is None or world_size is None:
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if grouped else (0, 1)
    if not 0 <= rank < world_size:
        raise PipelineError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, not {rank}")
    return (rank, world_size) if partition else (0, 1)


def _with_skip(meta: str, skip: int) -> str:
    """A state's ``meta`` with batches to pass over."""
    return meta if json.loads(meta).get("skip", 0) == skip else json.dumps({**json.loads(meta), "skip": skip})


def _changed_shards(state: Mapping[str, Any], pipeline: Pipeline) -> list[str]:
    """Shards under way in the state that are not as they were, each as a sentence."""
    out = []
    for url, old in shard_stamps(state).items():
        try:
            new = stamp(*(reach(pipeline, url) if is_local(url) is None else (url,)))
        except DataError as error:
            new = error.message
        if new != old:
            out.append(
                f"{url} changed since the state was saved: {old} then, {new} now. Restore the shard, or begin the "
                'epoch again with Loader(on_change="restart")'
            )
    return out
