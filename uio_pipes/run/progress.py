"""The position of a rank in an epoch: fresh or read from a saved state, and saved again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.base.printable import counted
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.core.statistics import Stats
from uio_pipes.run.options import RunOptions
from uio_pipes.run.position import Position
from uio_pipes.run.state import LaneState, Meta, lane_name, lanes_in, read_lane, read_meta


@dataclass
class EpochProgress:
    """The position of a rank in an epoch: after the last batch that its trainer received.

    Attributes:
        lanes: number of lanes in this epoch. positions: those of this rank's lanes.
        ranks: number of ranks for which steps are counted.
        stream: epoch whose data this is: with ``steps_per_epoch`` the one in which the stream began.
        step: batches delivered in this epoch, or passed over by their numbers, for ``steps_per_epoch``.
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
        begun = {lane for lane, saved in lanes.items() if saved.epoch == stream}
        over = len(present) == meta.lanes == len(begun) and all(saved.done for saved in lanes.values())
        return cls(
            meta.epoch,
            meta.lanes,
            {lane: Position(lanes[lane] if lane in begun else LaneState(stream)) for lane in mine},
            stream,
            meta.ranks or world_size,
            meta.step or 0,
            meta.skip,
            [range(*one) for one in meta.over or ()],
            ended=meta.ended or (over and meta.stream is None),
            loaded={str(k): str(v) for k, v in state.items()},
            ahead=None if meta.ahead is None else cls.loaded_from(read_meta(meta.ahead), meta.ahead, rank, world_size),
        )

    def at(self, epoch: int, options: RunOptions) -> EpochProgress:
        """Return the position in another epoch: its beginning, or what the state holds of ranks that were ahead."""
        return self.ahead if self.ahead is not None and self.ahead.epoch == epoch else self.fresh(epoch, options)

    def go_on(self) -> None:
        """Begin the next epoch of the same stream."""
        self.epoch, self.step, self.ended, self.loaded = self.epoch + 1, 0, False, None
        self.over.clear()

    def before(self, step: int, options: RunOptions, later: EpochProgress) -> EpochProgress:
        """Return a position from which batch ``step`` of this epoch is the next one that is not passed over.

        ``later``: a position that may be after the batch. It tells which lane has the batch: no other one has to run.

        Raises: PipelineError if it lies before what this position knows of a stream that began in an earlier epoch.
        """
        first = self.number(options.in_steps)
        if self.leads_to(step, options):
            positions = {lane: Position(position.saved()) for lane, position in self.positions.items()}
            start = replace(self, positions=positions, skip=step - first, over=[], loaded=None)
        elif self.stream == self.epoch:
            start = replace(EpochProgress.fresh(self.epoch, replace(options, lanes=self.lanes)), skip=step)
            start.ranks = self.ranks
        else:
            rule = f"step {step} of epoch {self.epoch} is before step {first}, where the loader stands"
            raise PipelineError(f"batch_at: {rule}: load an earlier state")
        same = (later.stream, later.lanes) == (self.stream, self.lanes)
        for lane, position in start.positions.items():
            latest = max(((later if same else self), self), key=lambda one: one.received).positions[lane].state
            position.state.settings = position.state.settings_known(latest)
        if not same or (place := later._place(start.received + start.skip)) is None:
            return start
        k, lane = place
        only = start.positions[lane]
        return replace(start, positions={lane: only}, skip=k - only.state.k)

    def leads_to(self, step: int, options: RunOptions) -> bool:
        """Return whether batch ``step`` of this epoch comes by going on from here."""
        return step >= self.number(options.in_steps) and (options.in_steps or self._in_order) and not self.ended

    def _place(self, number: int) -> tuple[int, int] | None:
        """Return (k, lane) of batch ``number`` since the stream began; None if that is not known."""
        if number >= self.received or not self._in_order:
            return None
        lanes = sorted(lane for lane, position in self.positions.items() if position.state.k)
        k = 0
        while number >= len(lanes):
            k, number = k + 1, number - len(lanes)
            lanes = [lane for lane in lanes if k < self.positions[lane].state.k]
        return k, lanes[number]

    @property
    def _in_order(self) -> bool:
        """True if this is what comes first of the lanes in their order: no lane began again, and no other number of
        ranks, each by itself, got some of them further."""
        states = {lane: position.state for lane, position in self.positions.items()}
        last = max(((state.k - 1, lane) for lane, state in states.items()), default=(0, 0))
        return all(not state.pass_ and (state.done or (state.k, lane) > last) for lane, state in states.items())

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
            step=self.step if options.in_steps else None,
            skip=self.skip,
            over=self._to_come(options),
            mixes=options.mixes.saved,
            ranks=self.ranks if options.pipeline._follows_steps else None,
            ahead=self._ahead(options, fingerprints),
        )
        lanes = {lane_name(lane): position.saved().text for lane, position in self.positions.items()}
        return {"meta": meta.text, **lanes}

    def _now(self, text: str, options: RunOptions, fingerprints: Mapping[str, Any]) -> str:
        """Return the ``meta`` of the loaded state with what was asked of the loader since."""
        meta = read_meta({"meta": text})
        new = replace(meta, skip=self.skip, over=self._to_come(options))
        if options.mixes.saved != meta.mixes and (meta.mixes is not None or options.mixes.journals):
            new = replace(new, mixes=options.mixes.saved, graph=fingerprints["graph"], listed=fingerprints["list"])
            new = replace(new, ahead=self._ahead(options, fingerprints))
        return text if new == meta else new.text

    def _ahead(self, options: RunOptions, fingerprints: Mapping[str, Any]) -> dict[str, str] | None:
        return None if self.ahead is None else self.ahead.state(options, fingerprints)

    def known_since(
        self, state: dict[str, str], options: RunOptions, fingerprints: Mapping[str, Any]
    ) -> dict[str, str]:
        """Return an earlier state of the epoch with the changes of mixes since then, where they came."""
        meta = self._now(state["meta"], options, fingerprints)
        if meta == state["meta"]:
            return state
        lanes = {}
        for lane, position in self.positions.items():
            then = read_lane(state, lane)
            lanes[lane_name(lane)] = replace(then, settings=then.settings_known(position.state)).text
        return state | lanes | {"meta": meta}

    def _to_come(self, options: RunOptions) -> list[list[int]] | None:
        """Return the ranges of batches to pass over that lie ahead, as they are saved."""
        next_ = self.number(options.in_steps)
        return [[one.start, one.stop, one.step] for one in self.over if one.stop > next_] or None

    def number(self, in_steps: bool) -> int:
        """Return the number of the next batch in this epoch."""
        return self.step if in_steps else self.received

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
