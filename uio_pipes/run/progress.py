"""The position of a rank in an epoch, fresh or read from a saved state, and the numbers of its steps.

Step n of an epoch is the n-th batch of each rank in it, from 0. On another number of ranks counting goes on where the
state was saved. From where it was loaded, or the epoch began, the batches of later steps can be made again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from uio_pipes.base.checks import is_whole, require_whole
from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.base.urls import counted
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.core.statistics import Stats
from uio_pipes.run.lane_runner import Position
from uio_pipes.run.options import RunOptions
from uio_pipes.run.state import LaneState, Meta, lane_name, lanes_in, read_lane, read_meta

logger = logging.getLogger("uio_pipes")


def too_early(step: int, epoch: int, first: int) -> str:
    """Say that a step comes before the ``first`` one that can be made again."""
    return (
        f"step {step} of epoch {epoch} comes before step {first}, from which on batches can be made again: load a "
        f"checkpoint that was saved at step {step} or earlier"
    )


@dataclass
class EpochProgress:
    """The position of a rank in an epoch: after the last batch that its trainer received.

    Attributes:
        lanes: number of lanes in this epoch. positions: those of this rank's lanes.
        ranks: number of ranks with which the data began, for what follows the step.
        stream: epoch whose data this is: with ``steps_per_epoch`` the one in which the stream began.
        step: number of the next step in this epoch.
        began: the step, and the states of these lanes, from which on steps can be made again.
        lost: the steps since then before which nothing was left of a batch, whose place in the stream another took.
        skip: batches to pass over before the next one.
        over: numbers of batches to pass over when their turn comes. The run looks at this very list.
        ended: the epoch is over: for this rank, as its trainer saw, or for all ranks, as a state says.
        delivered: utterances that all ranks have delivered, known at the end of an epoch that they ended together.
        left_out: utterances (at least) and list items that no rank delivered, known likewise.
        loaded: the state that this was read from, until the first batch.
        ahead: the next epoch, if other ranks had begun it when the state was saved.
    """

    epoch: int
    lanes: int
    positions: dict[int, Position]
    stream: int
    ranks: int
    step: int = 0
    skip: int = 0
    over: list[range] = field(default_factory=list)
    began: tuple[int, dict[int, LaneState]] = (0, {})
    lost: list[int] = field(default_factory=list)
    ended: bool = False
    delivered: int = 0
    left_out: tuple[int, int] = (0, 0)
    loaded: dict[str, str] | None = None
    ahead: EpochProgress | None = None

    @classmethod
    def fresh(cls, epoch: int, options: RunOptions) -> EpochProgress:
        """Return the beginning of an epoch."""
        mine = lanes_of(options.lanes, options.rank, options.world_size)
        positions = {lane: Position(LaneState(epoch)) for lane in mine}
        found = cls(epoch, options.lanes, positions, epoch, options.counted or options.world_size)
        found.begin_here()
        return found

    @classmethod
    def loaded_from(cls, meta: Meta, state: Mapping[str, Any], rank: int, world_size: int) -> EpochProgress:
        """Return where the rank stood when ``state`` was saved. Raises: StateError if it lacks lanes of this rank."""
        present = lanes_in(state, meta.lanes)
        mine = lanes_of(meta.lanes, rank, world_size)
        _check_present(meta, present, mine, f"rank {rank} of {world_size}")
        lanes = {lane: read_lane(state, lane) for lane in present}
        stream = meta.data_epoch
        for lane, saved in lanes.items():
            if saved.epoch != stream and not saved.done:
                raise StateError(
                    f"lane {lane} is of epoch {saved.epoch}, the state of epoch {meta.epoch}: join only states that "
                    "the ranks saved in the same epoch"
                )
        begun = {lane: saved for lane, saved in lanes.items() if saved.epoch == stream}
        over = len(present) == meta.lanes == len(begun) and all(saved.done for saved in lanes.values())
        found = cls(
            meta.epoch,
            meta.lanes,
            {lane: Position(begun.get(lane, LaneState(stream))) for lane in mine},
            stream,
            meta.ranks or world_size,
            meta.step,
            meta.skip,
            [range(*one) for one in meta.over or ()],
            ended=meta.ended or (over and meta.stream is None),
            loaded={str(k): str(v) for k, v in state.items()},
            ahead=None if meta.ahead is None else cls.loaded_from(read_meta(meta.ahead), meta.ahead, rank, world_size),
        )
        found.begin_here()
        return found

    def at(self, epoch: int, options: RunOptions) -> EpochProgress:
        """Return the position in another epoch: its beginning, or what the state holds of ranks that were ahead.

        It warns if that drops what is left of an epoch that a loaded state is in the middle of.
        """
        if self.ahead is not None and self.ahead.epoch == epoch:
            return self.ahead
        in_the_middle = self.received > 0 and any(not one.state.done for one in self.positions.values())
        if self.loaded is not None and not self.ended and in_the_middle:
            logger.warning(
                "set_epoch(%d): the loaded state is of epoch %d, and what was left of it is not delivered; "
                "set_epoch(%d), or none, goes on there",
                *(epoch, self.epoch, self.epoch),
            )
        return self.fresh(epoch, options)

    def go_on(self) -> None:
        """Begin the next epoch of the same stream."""
        self.epoch, self.step, self.ended, self.loaded = self.epoch + 1, 0, False, None
        self.over.clear()
        self.begin_here()

    def pass_over(self, steps: range | int, options: RunOptions) -> None:
        """Pass over so many batches next, or these steps of the epoch when their turn comes.

        Raises: PipelineError if it is neither, or the steps have no numbers.
        """
        if not isinstance(steps, range):
            if not is_whole(steps):
                rule = "a number of batches, a range of steps, or a function of keys"
                raise PipelineError(f"skip: takes {rule}, not {steps!r}; of a set of keys give .__contains__")
            require_whole("skip: count", steps, 0)
            self.skip += steps
            return
        if steps and (steps[0] < 0 or steps.step < 1):
            raise PipelineError(f"skip: a range of steps must go up from 0 or more, not {steps!r}")
        if options.uneven == "repeat":
            raise PipelineError('skip: steps have no numbers under uneven="repeat": give a count when it is due')
        stop = steps.stop if options.steps_per_epoch is None else min(steps.stop, options.steps_per_epoch)
        self.over.append(range(steps.start, stop, steps.step))

    def begin_here(self) -> None:
        """Count the steps that :meth:`before` goes back to from where the lanes stand now."""
        self.began = self.step, {lane: replace(position.state) for lane, position in self.positions.items()}
        self.lost = []

    def before(self, step: int, in_steps: bool) -> EpochProgress:
        """Return a position from which batch ``step`` of this epoch is the next one that is not passed over.

        Raises: PipelineError if it lies before the position with which this one began.
        """
        first, states = self.step, {lane: position.saved() for lane, position in self.positions.items()}
        ahead = self.skip if in_steps else 0  # in a stream others take their place
        if step < first or self.ended:
            first, began = self.began
            states = {lane: _with_marks(state, states[lane]) for lane, state in began.items()}
            ahead = sum(one <= step for one in self.lost)
        if step < first:
            raise PipelineError(f"batch_at: {too_early(step, self.epoch, first)}")
        new: dict[str, Any] = {"over": [], "lost": [], "ended": False, "loaded": None, "ahead": None}
        positions = {lane: Position(state) for lane, state in states.items()}
        return replace(self, positions=positions, step=first, skip=step - first + ahead, **new)

    def check_ranks(self, options: RunOptions) -> None:
        """Raises: StateError if ranks that step together are more than the lanes of a loaded state."""
        if options.world_size <= self.lanes or self.ended or not options.together:
            return
        until = "as its stream goes on in every epoch" if options.in_steps else f"until epoch {self.epoch} ends"
        apart = "" if options.in_steps else 'or let each rank end with its own lanes by uneven="join", '
        without = options.world_size - self.lanes
        raise StateError(
            f"lanes: the state has {self.lanes}, so of {options.world_size} ranks {without} would have nothing to "
            f"deliver. Go on with at most {counted(self.lanes, 'rank')}, {until}; {apart}or begin an epoch anew by "
            "set_epoch. To go on with more ranks another time, fix the lanes from the start: Loader(lanes=64)"
        )

    def state(self, options: RunOptions, fingerprints: Mapping[str, Any]) -> dict[str, str]:
        """Return the state to save: until the first batch the one that was loaded."""
        if self.loaded is not None:
            return self.loaded | {"meta": self._now(self.loaded["meta"], options, fingerprints)}
        meta = Meta(
            epoch=self.epoch,
            seed=options.seed,
            lanes=self.lanes,
            ended=self.ended and options.together,
            graph=fingerprints["graph"],
            listed=fingerprints["list"],
            stream=self.stream if options.in_steps else None,
            step=self.step,
            world_size=options.world_size,
            skip=self.skip,
            over=self._to_come(),
            mixes=options.mixes.saved,
            excluded=options.excluded.saved,
            ranks=self.ranks if options.pipeline._follows_steps else None,
            ahead=self._ahead(options, fingerprints),
        )
        lanes = {lane_name(lane): position.saved().text(lane) for lane, position in self.positions.items()}
        return {"meta": meta.text, **lanes}

    def _now(self, text: str, options: RunOptions, fingerprints: Mapping[str, Any]) -> str:
        """Return the ``meta`` of the loaded state with what was asked of the loader since."""
        meta = read_meta({"meta": text})
        new = replace(meta, skip=self.skip, over=self._to_come(), excluded=options.excluded.saved)
        if options.mixes.saved != meta.mixes and (meta.mixes is not None or options.mixes.journals):
            new = replace(new, mixes=options.mixes.saved, graph=fingerprints["graph"], listed=fingerprints["list"])
            new = replace(new, ahead=self._ahead(options, fingerprints))
        return text if new == meta else new.text

    def _ahead(self, options: RunOptions, fingerprints: Mapping[str, Any]) -> dict[str, str] | None:
        return None if self.ahead is None else self.ahead.state(options, fingerprints)

    def known_since(
        self, state: dict[str, str], options: RunOptions, fingerprints: Mapping[str, Any]
    ) -> dict[str, str]:
        """Return an earlier state of the epoch with what changed since then by hand, where it came."""
        meta = self._now(state["meta"], options, fingerprints)
        if meta == state["meta"]:
            return state
        lanes = {}
        for lane, position in self.positions.items():
            then = read_lane(state, lane)
            lanes[lane_name(lane)] = _with_marks(then, position.state).text(lane)
        return state | lanes | {"meta": meta}

    def _to_come(self) -> list[list[int]] | None:
        """Return the ranges of batches to pass over that lie ahead, as they are saved."""
        return [[one.start, one.stop, one.step] for one in self.over if one.stop > self.step] or None

    @property
    def received(self) -> int:
        """Batches of these lanes that the trainer has received."""
        return sum(position.state.k for position in self.positions.values())

    def stats(self, graph: Graph) -> Stats:
        """Return the counts of this rank's lanes."""
        stats = Stats(delivered=self.delivered, left_out=self.left_out, items_are_utterances=not graph._opens_files)
        for position in self.positions.values():
            stats.add(position.counts)
        return stats


def _with_marks(state: LaneState, later: LaneState) -> LaneState:
    """Return a state of a lane with the marks of settings that a later one knows; what has none changes there."""
    marks, now = later.settings.get("marks", {}), later.settings.get("before", 0) + later.k
    return replace(state, settings={"before": state.settings.get("before", 0), "marks": marks, "from": now})


def _check_present(meta: Meta, present: set[int], mine: range, rank: str) -> None:
    missing = len(mine) - sum(lane in mine for lane in present)  # a damaged state may claim billions of lanes
    if missing:
        first = next(lane for lane in mine if lane not in present)
        raise StateError(
            f"lanes: the state has {meta.lanes} lanes, but {missing} that {rank} runs now are not in it (lane "
            f"{first}, …). Join the states of all ranks by uio.merge_states or uio.gather_state; "
            f"torch.distributed.checkpoint needs the same lane count: Loader(lanes={meta.lanes})"
        )
