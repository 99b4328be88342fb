"""The position of a rank in an epoch, fresh or read from a saved state, and the numbers of its steps.

Step n of an epoch is the n-th batch of each rank in it, from 0. On another number of ranks counting goes on where the
state was saved. So an epoch is made of stretches of steps that equally many ranks have made, and a state says where
each lane stood when they began: from there the batches of any step can be found again.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from uio_pipes.base.checks import is_whole, require_whole
from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.base.urls import counted
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.core.statistics import Stats
from uio_pipes.run.lane_runner import Place, Position
from uio_pipes.run.options import RunOptions
from uio_pipes.run.state import LaneState, Meta, lane_name, lanes_in, read_lane, read_meta

logger = logging.getLogger("uio_pipes")


@dataclass(frozen=True)
class Stretch:
    """Steps that equally many ranks make. ``places``: where lanes stood before it, as far as known; None, nothing has
    been read before."""

    first: int
    ranks: int
    places: Mapping[int, Place] | None = None

    def place(self, lane: int) -> Place | None:
        """Return where a lane stood before this stretch; None if that is not known."""
        return (0, 0) if self.places is None else self.places.get(lane)


def place_of(state: LaneState) -> Place:
    """Return where a lane stands."""
    return state.pass_, state.k


def stretch_at(stretches: list[Stretch], step: int) -> int | None:
    """Return the number of the stretch that a step belongs to; None if it comes before all of them."""
    return max((n for n, one in enumerate(stretches) if one.first <= step), default=None)


def followed_by(stretches: list[Stretch], new: Stretch) -> list[Stretch]:
    """Return the stretches with a new one from its first step on."""
    if new.places is not None and not any(any(place) for place in new.places.values()):
        new = Stretch(new.first, new.ranks)
    return [*(one for one in stretches if one.first < new.first), new]


def read_stretches(meta: Meta, lanes: Mapping[int, LaneState], world_size: int) -> list[Stretch]:
    """Return the stretches of a state's epoch, and a new one if it goes on with another number of ranks.

    ``lanes``: all that the state has. What an earlier version saved does not say how many ranks there were.
    """
    now = {lane: place_of(state) for lane, state in lanes.items()}
    whole = meta.data_epoch == meta.epoch
    found = []
    for first, ranks in meta.stretches or [[0 if whole else meta.step or 0, world_size]]:
        if first == 0 and whole and not any(_saved(meta, state, 0) for state in lanes.values()):
            found.append(Stretch(0, ranks))
        else:  # a lane without an entry has not moved since
            places = {lane: _saved(meta, state, first) or now[lane] for lane, state in lanes.items()}
            found.append(Stretch(first, ranks, places))
    return found if found[-1].ranks == world_size else followed_by(found, Stretch(meta.step or 0, world_size, now))


def _saved(meta: Meta, state: LaneState, first: int) -> Place | None:
    return next(((pass_, k) for epoch, step, pass_, k in state.places if (epoch, step) == (meta.epoch, first)), None)


def saved_places(stretches: list[Stretch], epoch: int, lane: int) -> list[list[int]]:
    """Return what a lane's state says of the stretches: [epoch, first step, pass, k] of each."""
    return [[epoch, one.first, *one.places[lane]] for one in stretches if one.places and lane in one.places]


@dataclass
class EpochProgress:
    """The position of a rank in an epoch: after the last batch that its trainer received.

    Attributes:
        lanes: number of lanes in this epoch. positions: those of this rank's lanes.
        ranks: number of ranks with which the data began, for what follows the step.
        stream: epoch whose data this is: with ``steps_per_epoch`` the one in which the stream began.
        step: number of the next step in this epoch. stretches: those of its steps, see :mod:`uio_pipes.run.progress`.
        others: lanes of other ranks, as the state has them that was loaded.
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
    stretches: list[Stretch]
    others: dict[int, LaneState] = field(default_factory=dict)
    step: int = 0
    skip: int = 0
    over: list[range] = field(default_factory=list)
    ended: bool = False
    delivered: int = 0
    left_out: tuple[int, int] = (0, 0)
    loaded: dict[str, str] | None = None
    ahead: EpochProgress | None = None

    @classmethod
    def fresh(cls, epoch: int, options: RunOptions) -> EpochProgress:
        """Return the beginning of an epoch."""
        mine = lanes_of(options.lanes, options.rank, options.world_size)
        return cls(
            epoch,
            options.lanes,
            {lane: Position(LaneState(epoch)) for lane in mine},
            epoch,
            options.counted or options.world_size,
            [Stretch(0, options.world_size)],
        )

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
        known = {lane: begun.get(lane, LaneState(stream)) for lane in lanes}
        stretches = read_stretches(meta, known, world_size)
        found = cls(
            meta.epoch,
            meta.lanes,
            {lane: Position(known.pop(lane)) for lane in mine},
            stream,
            meta.ranks or world_size,
            stretches,
            known,
            meta.step or 0,
            meta.skip,
            [range(*one) for one in meta.over or ()],
            ended=meta.ended or (over and meta.stream is None),
            loaded={str(k): str(v) for k, v in state.items()},
            ahead=None if meta.ahead is None else cls.loaded_from(read_meta(meta.ahead), meta.ahead, rank, world_size),
        )
        if meta.stream is None and not any(position.state.pass_ for position in found.positions.values()):
            found.step = found.stretches[-1].first + found._since()  # ranks need not step together
        return found

    def _since(self) -> int:
        """Return how many batches have been received since the last stretch began."""
        places = {lane: self.stretches[-1].place(lane) or (0, 0) for lane in self.positions}
        return sum(max(0, one.state.k - places[lane][1]) for lane, one in self.positions.items())

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
        self.stretches = self.stretches[-1:]
        self.begin_stretch()
        for position in self.positions.values():
            position.state.lost = []

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

    def begin_stretch(self) -> None:
        """Note that the next step comes from where the lanes stand now, whatever came before."""
        now = {lane: place_of(position.state) for lane, position in self.positions.items()}
        self.stretches = followed_by(self.stretches, Stretch(self.step, self.stretches[-1].ranks, now))

    def before(self, step: int, options: RunOptions, later: EpochProgress) -> EpochProgress:
        """Return a position from which batch ``step`` of this epoch is the next one that is not passed over.

        ``later``: a position that may be after the batch. It tells which lane has the batch: no other one has to run.

        Raises: PipelineError if it is not known where the batch came from.
        """
        later = later if (later.epoch, later.stream, later.lanes) == (self.epoch, self.stream, self.lanes) else self
        if self.leads_to(step):
            positions = {lane: Position(position.saved()) for lane, position in self.positions.items()}
            ahead = step - self.step + (self.skip if options.in_steps else 0)  # in a stream others take their place
            start = replace(self, positions=positions, skip=ahead, over=[], loaded=None)
        else:
            start = self._back(step, options.rank)
        for lane, position in start.positions.items():
            known = [found for one in (self, later) if (found := one.lane(lane)) is not None]
            latest = max(known, key=place_of, default=position.state)
            position.state.settings = position.state.settings_known(latest)
        if (place := later._place(step, options.rank)) is None or place[1] not in start.positions:
            return start
        k, lane = place
        only = start.positions[lane]
        only.state.lost = []  # all batches up to k are counted
        return replace(start, positions={lane: only}, skip=k - only.state.k)

    def leads_to(self, step: int) -> bool:
        """Return whether batch ``step`` of this epoch comes by going on from here."""
        return step >= self.step and not self.ended

    def _back(self, step: int, rank: int) -> EpochProgress:
        """Return the beginning of the stretch that a step belongs to. Raises: PipelineError if it is not known."""
        if (number := stretch_at(self.stretches, step)) is None:
            rule = f"step {step} of epoch {self.epoch} is before step {self.stretches[0].first}, from which the state"
            raise PipelineError(f"batch_at: {rule} knows where batches came from: load an earlier state")
        of = self.stretches[number]
        if rank >= of.ranks:
            rule = f"step {step} of epoch {self.epoch} was made by {counted(of.ranks, 'rank')}"
            raise PipelineError(f"batch_at: {rule}, so rank {rank} had no batch then: ask another rank")
        positions = self.begin_of(number, rank)
        if positions is None:
            rule = f"step {step} of epoch {self.epoch} was made by {of.ranks} ranks, and not all their lanes are known"
            raise PipelineError(f"batch_at: {rule}: load the state of all ranks (uio.gather_state, uio.merge_states)")
        first = {lane: Position(state) for lane, state in positions.items()}
        return replace(
            self, positions=first, step=of.first, skip=step - of.first, over=[], ended=False, loaded=None, ahead=None
        )

    def begin_of(self, number: int, rank: int) -> dict[int, LaneState] | None:
        """Return where the lanes of a rank stood when a stretch began; None if that is not known of all."""
        of, states = self.stretches[number], {}
        for lane in lanes_of(self.lanes, rank, of.ranks):
            if (place := of.place(lane)) is None:
                return None
            fresh = LaneState(self.stream, place[0], k=place[1])
            known = self.lane(lane) or fresh
            states[lane] = replace(fresh, settings=fresh.settings_known(known), lost=known.lost)
        return states

    def lane(self, lane: int) -> LaneState | None:
        """Return the last known state of a lane, of this rank or another."""
        return self.positions[lane].state if lane in self.positions else self.others.get(lane)

    def _place(self, step: int, rank: int) -> tuple[int, int] | None:
        """Return (k, lane) of a batch that lies before this position; None if that is not known."""
        number = stretch_at(self.stretches, step)
        if step >= self.step or number is None:
            return None
        of, now = self.stretches[number], {lane: place_of(one.state) for lane, one in self.positions.items()}
        end = self.stretches[number + 1] if number + 1 < len(self.stretches) else Stretch(self.step, of.ranks, now)
        batches = []
        for lane in lanes_of(self.lanes, rank, of.ranks):
            first, last, known = of.place(lane), end.place(lane), self.lane(lane)
            if first is None or last is None or first[0] != last[0]:
                return None
            lost = {k for pass_, k in known.lost if pass_ == first[0]} if known else set[int]()
            batches.append([(k, lane) for k in range(first[1], last[1]) if k not in lost])
        return next(islice(heapq.merge(*batches), step - of.first, None), None)

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
            stretches=[[one.first, one.ranks] for one in self.stretches],
            skip=self.skip,
            over=self._to_come(),
            mixes=options.mixes.saved,
            excluded=options.excluded.saved,
            ranks=self.ranks if options.pipeline._follows_steps else None,
            ahead=self._ahead(options, fingerprints),
        )
        lanes = {
            lane_name(lane): replace(position.saved(), places=saved_places(self.stretches, self.epoch, lane)).text(lane)
            for lane, position in self.positions.items()
        }
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
            lanes[lane_name(lane)] = replace(then, settings=then.settings_known(position.state)).text(lane)
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


def _check_present(meta: Meta, present: set[int], mine: range, rank: str) -> None:
    missing = len(mine) - sum(lane in mine for lane in present)  # a damaged state may claim billions of lanes
    if missing:
        first = next(lane for lane in mine if lane not in present)
        raise StateError(
            f"lanes: the state has {meta.lanes} lanes, but {missing} that {rank} runs now are not in it (lane "
            f"{first}, …). Join the states of all ranks by uio.merge_states or uio.gather_state; "
            f"torch.distributed.checkpoint needs the same lane count: Loader(lanes={meta.lanes})"
        )
