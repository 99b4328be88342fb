"""The position of a rank in an epoch, fresh or read from a saved state, and the numbers of its steps.

Step n of an epoch is the n-th batch of each rank in it, from 0. On another number of ranks counting goes on where the
state was saved. From where it was loaded, or the epoch began, the batches of later steps can be made again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from uio_pipes.base.checks import is_whole, require_whole
from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.base.urls import plural
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.core.statistics import Stats, Waits
from uio_pipes.run.dealing import Deal, RankRest, Turns, left_of
from uio_pipes.run.lane_runner import Position
from uio_pipes.run.options import RunOptions
from uio_pipes.run.state import LaneState, Meta, lane_name, lanes_in, read_lane, read_meta

logger = logging.getLogger("uio_pipes")


@dataclass
class EpochProgress:
    """The position of a rank in an epoch: after the last batch that its trainer received.

    Attributes:
        lanes: number of lanes in this epoch. positions: those of this rank's lanes.
        ranks: number of ranks with which the data began, for what follows the step.
        stream: epoch whose data this is: with ``steps_per_epoch`` the one in which the stream began.
        step: number of the next step in this epoch.
        since: epoch and step since which there have been as many ranks and lanes.
        began: the step, and the states of these lanes, from which on steps can be made again.
        lost: the steps since then before which nothing was left of a batch, whose place in the stream another took.
        skip: batches to pass over before the next one.
        over: numbers of batches to pass over when their turn comes. The run looks at this very list.
        ended: the epoch is over: for this rank, as its trainer saw, or for all ranks, as a state says.
        delivered: utterances that all ranks have delivered, known at the end of an epoch that they ended together.
        left_out: utterances (at least) and list items that no rank delivered, known likewise.
        loaded: the state that this was read from, until the first batch.
        ahead: the next epoch, if other ranks had begun it when the state was saved.
        deal: how the ranks dealt what was left when the first of them had no batch any more.
        waits: how long the trainer has waited for batches, in this process. read: the bytes that its workers have read
            for them, and the requests that they have made again. buffers: bytes, estimated, in full buffers.
    """

    epoch: int
    lanes: int
    positions: dict[int, Position]
    stream: int
    ranks: int
    since: list[int]
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
    deal: Deal | None = None
    waits: Waits = field(default_factory=Waits)
    read: list[int] = field(default_factory=lambda: [0, 0])
    buffers: int = 0

    @classmethod
    def fresh(cls, epoch: int, options: RunOptions) -> EpochProgress:
        """Return the beginning of an epoch."""
        mine = lanes_of(options.lanes, options.rank, options.world_size)
        positions = {lane: Position(LaneState(epoch)) for lane in mine}
        found = cls(epoch, options.lanes, positions, epoch, options.step_ranks, [epoch, 0])
        found.begin_here()
        return found

    @classmethod
    def loaded_from(cls, meta: Meta, state: Mapping[str, Any], rank: int, world_size: int) -> EpochProgress:
        """Return the position of the rank in ``state``. Raises: StateError if it lacks lanes of this rank."""
        present = lanes_in(state, meta.lanes)
        deal = Deal.read(meta.deal)
        if deal is not None and (deal.ranks != world_size or not present.issuperset(deal.of(rank))):
            deal = None  # the ranks deal anew as soon as one of them has no batch
        mine: Sequence[int] = lanes_of(meta.lanes, rank, world_size) if deal is None else deal.of(rank)
        _check_present(meta, present, mine, f"rank {rank} of {world_size}")
        lanes = {lane: read_lane(state, lane) for lane in present}
        if deal is not None:  # what was counted in a lane is its rank's; in a state that was joined, that of all ranks
            joined = (meta.deal or {})["rank"] is None
            own: Collection[int] = lanes_of(meta.lanes, rank, world_size) if joined else present
            mine = [*mine, *sorted({*own} & present - {*(deal.lanes if joined else mine)})]
            if joined and not deal.counts(rank):
                lanes |= {lane: replace(lanes[lane], counts={}) for lane in deal.of(rank)}
        stream = meta.data_epoch
        for lane, saved in lanes.items():
            if saved.epoch != stream and not saved.done:
                raise StateError(
                    f"lane {lane} is from epoch {saved.epoch}, the state from epoch {meta.epoch}: join only states "
                    "that the ranks saved in the same epoch"
                )
        begun = {lane: saved for lane, saved in lanes.items() if saved.epoch == stream}
        over = len(present) == meta.lanes == len(begun) and all(saved.done for saved in lanes.values())
        found = cls(
            meta.epoch,
            meta.lanes,
            {lane: Position(begun.get(lane, LaneState(stream))) for lane in mine},
            stream,
            meta.ranks or world_size,
            meta.since if meta.world_size == world_size else meta.place,
            meta.step,
            meta.skip,
            [range(*one) for one in meta.over or ()],
            ended=meta.ended or (over and meta.stream is None),
            loaded={str(k): str(v) for k, v in state.items()},
            ahead=None if meta.ahead is None else cls.loaded_from(read_meta(meta.ahead), meta.ahead, rank, world_size),
            deal=deal,
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
        found = self.fresh(epoch, options)
        if found.lanes == self.lanes and (self.ended or self.received):
            found.since = min(found.since, self.since)
        return found

    def go_on(self) -> None:
        """Begin the next epoch of the same stream."""
        self.epoch, self.step, self.ended, self.loaded = self.epoch + 1, 0, False, None
        self.over.clear()
        self.begin_here()

    def pass_over(self, steps: range | int, options: RunOptions) -> None:
        """Skip the next so many batches, or these steps of the epoch when they are due.

        Raises: PipelineError if it is neither, or the steps have no numbers.
        """
        if not isinstance(steps, range):
            if not is_whole(steps):
                rule = "a number of batches, a range of steps, or a function of keys"
                raise PipelineError(f"skip: takes {rule}, not {steps!r}; for a set of keys, give its .__contains__")
            require_whole("skip: count", steps, 0)
            if options.shares:  # as numbers: all ranks pass over them at the same steps, across a deal, too
                first = max([self.step, *(one.stop for one in self.over if self.step in one)])
                self.over.append(range(first, first + steps))
            else:
                self.skip += steps
            return
        if steps and (steps[0] < 0 or steps.step < 1):
            raise PipelineError(f"skip: a range of steps must go up from 0 or more, not {steps!r}")
        stop = steps.stop if options.steps_per_epoch is None else min(steps.stop, options.steps_per_epoch)
        self.over.append(range(steps.start, stop, steps.step))

    def go_by(self, deal: Deal, rests: Collection[RankRest], rank: int) -> None:
        """Go on with the lanes that are dealt to a rank, of those that are left."""
        mine = {lane: left_of(lane, rests, deal.counts(rank)) for lane in deal.of(rank)}
        ended = {lane: one for lane, one in self.positions.items() if one.state.done}
        self.positions.clear()
        self.positions.update(ended | {lane: Position(state) for lane, state in mine.items()})
        self.deal, self.loaded = deal, None
        self.begin_here()

    def turns(self, rank: int) -> Turns | None:
        """Return the turns that a rank takes, if others run the same lane."""
        if self.deal is None or not self.deal.in_turns:
            return None
        (lane,) = self.deal.of(rank)
        return self.deal.turns(rank, self.positions[lane].state.k)

    def begin_here(self) -> None:
        """Count the steps that :meth:`before` goes back to from where the lanes stand now."""
        self.began = self.step, {lane: replace(position.state) for lane, position in self.positions.items()}
        self.lost = []

    def before(self, step: int, in_steps: bool) -> EpochProgress:
        """Return a position from which batch ``step`` of this epoch is the next one that is not skipped. It is this
        position, the one with which it began, or the beginning of the epoch.

        Raises: StateError if the epoch, or with ``steps_per_epoch`` the stream, began with other ranks or elsewhere.
        """
        first, states = self.step, {lane: position.saved() for lane, position in self.positions.items()}
        ahead = self.skip if in_steps else 0  # in a stream others take their place
        if step < first or self.ended:
            first, began = self.began
            counted = self.deal is None and sum(one.k for one in began.values()) == first  # none was lost on the way
            if step < first and not in_steps and self.since <= [self.epoch, 0] and counted:
                first, began = 0, {lane: LaneState(self.stream) for lane in self.positions}
            states = {lane: _with_marks(state, states[lane]) for lane, state in began.items()}
            ahead = sum(one <= step for one in self.lost)
        if step < first:
            raise StateError(
                f"step {step} of epoch {self.epoch} comes before step {first}, from which on batches can be made "
                f"again: load a checkpoint that was saved at step {step} or earlier"
            )
        new: dict[str, Any] = {"over": [], "lost": [], "ended": False, "loaded": None, "ahead": None}
        new |= {"waits": Waits(), "read": [0, 0]}
        positions = {lane: Position(state) for lane, state in states.items()}
        return replace(self, positions=positions, step=first, skip=step - first + ahead, **new)

    def check_ranks(self, options: RunOptions) -> None:
        """Raises: StateError if ranks that step together are more than the lanes of a loaded state."""
        if options.world_size <= self.lanes or self.ended or options.shares or not options.together:
            return
        until = "as its stream goes on in every epoch" if options.in_steps else f"until epoch {self.epoch} ends"
        apart = "" if options.in_steps else 'or share the lanes by uneven="share", '
        without = options.world_size - self.lanes
        raise StateError(
            f"lanes: the state has {self.lanes}, so {without} of {options.world_size} ranks would have nothing to "
            f"deliver. Continue with at most {plural(self.lanes, 'rank')}, {until}; {apart}or start an epoch with "
            "set_epoch. To be able to use more ranks later, set the lanes from the start: Loader(lanes=64)"
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
            since=self.since,
            skip=self.skip,
            over=self._to_come(),
            mixes=options.mixes.saved,
            excluded=options.excluded.saved,
            ranks=self.ranks if options.pipeline._follows_steps else None,
            ahead=self._ahead(options, fingerprints),
            deal=None if self.deal is None else self.deal.saved(options.rank),
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
        return self.step if self.deal is not None else sum(position.state.k for position in self.positions.values())

    def stats(self, graph: Graph) -> Stats:
        """Return the counts of this rank's lanes."""
        stats = Stats(delivered=self.delivered, left_out=self.left_out, items_are_utterances=not graph._opens_files)
        for position in self.positions.values():
            stats.add(position.counts)
        stats.waits = Waits(dict(self.waits.counts), self.waits.seconds)
        (stats.bytes_read, stats.retries), stats.buffers = self.read, self.buffers
        if self.positions:
            stats.remembered = max(position.remembered for position in self.positions.values())
        return stats


def _with_marks(state: LaneState, later: LaneState) -> LaneState:
    """Return a state of a lane with the marks of settings that a later one knows; what has none changes there."""
    marks, now = later.settings.get("marks", {}), later.settings.get("before", 0) + later.k
    return replace(state, settings={"before": state.settings.get("before", 0), "marks": marks, "from": now})


def _check_present(meta: Meta, present: set[int], mine: Sequence[int], rank: str) -> None:
    missing = len(mine) - sum(lane in mine for lane in present)  # a damaged state may claim billions of lanes
    if missing:
        first = next(lane for lane in mine if lane not in present)
        raise StateError(
            f"lanes: the state has {meta.lanes} lanes, but {missing} that {rank} runs now are not in it (lane "
            f"{first}, …). Join the states of all ranks by uio.merge_states or uio.gather_state; "
            f"torch.distributed.checkpoint needs the same lane count: Loader(lanes={meta.lanes})"
        )
