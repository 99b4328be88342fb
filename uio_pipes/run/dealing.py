"""How ranks share what is left when one of them has no batch any more (``uneven="share"``).

At the first step for which a rank has no batch, the ranks tell each other where the lanes stand that have not ended,
and deal these anew: each rank gets whole lanes, as long as there are as many as ranks. Of fewer lanes, each is run by
several ranks, which take turns: a rank makes its batches, and passes over those of the others by plan. So all ranks of
a lane stand at the same place after each step.

If a lane ends before each of its ranks had a turn, the ranks begin again after the step before: the lane gets as many
ranks as it has batches, and the other lanes get the rest. They also begin again if nothing is left of a batch, which
shows only when it is made: it is left out of the turns. The last step has fewer batches than ranks: it is left out, or
ranks without a batch make one of another rank again (``tail="repeat"``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

from uio_pipes.run.state import LaneState, lane_name, read_lane

LaneBatch = tuple[int, int]  # lane, and the number of the batch in it


@dataclass(frozen=True)
class Turns:
    """Which batches of a lane belong to a rank: from number ``first`` on, the one at ``turn`` of every ``ranks``.

    ``lost``: numbers of batches that are not counted. ``again``: another rank makes, and counts, the same ones.
    """

    turn: int
    ranks: int
    first: int
    lost: frozenset[int]
    again: bool

    def at(self, k: int) -> int:
        """Return whose turn batch ``k`` is; a lost one has that of the batch after it."""
        return (k - self.first - sum(self.first <= one < k for one in self.lost)) % self.ranks


@dataclass(frozen=True)
class Deal:
    """What was dealt: ``lanes`` that had not ended to ``ranks``.

    ``short``: lanes with fewer batches than they had ranks, and how many; ``lost``: batches of which nothing is left;
    ``steps``: those of this epoch at which the ranks have shared.
    """

    lanes: tuple[int, ...]
    ranks: int
    short: Mapping[int, int] = field(default_factory=dict)
    lost: frozenset[LaneBatch] = frozenset()
    steps: tuple[int, ...] = ()

    @property
    def in_turns(self) -> bool:
        """True if several ranks run the same lane."""
        return len(self.lanes) < self.ranks

    @property
    def last(self) -> bool:
        """True if fewer batches are left than there are ranks."""
        return len(self.places) < self.ranks

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """Of each rank that takes turns: its lane, its turn there, and how many ranks that lane has."""
        rest = [lane for lane in self.lanes if lane not in self.short]
        free = self.ranks - sum(self.short.values())
        of = {lane: len(range(i, free, len(rest))) for i, lane in enumerate(rest)} | {**self.short}
        return [(lane, turn, of[lane]) for lane in self.lanes for turn in range(of[lane])]

    def of(self, rank: int) -> tuple[int, ...]:
        """Return the lanes that a rank runs."""
        return (self._place(rank)[0],) if self.in_turns else self.lanes[rank :: self.ranks]

    def turns(self, rank: int, first: int) -> Turns | None:
        """Return the turns of a rank, if it takes turns, in a lane that stands at batch ``first``."""
        if not self.in_turns:
            return None
        lane, turn, ranks = self._place(rank)
        lost = frozenset(k for number, k in self.lost if number == lane)
        return Turns(turn, ranks, first, lost, rank >= len(self.places))

    def counts(self, rank: int) -> bool:
        """Return whether a rank goes on with what others have counted in its lanes: one rank of each lane does."""
        return not self.in_turns or (rank < len(self.places) and not self._place(rank)[1])

    def _place(self, rank: int) -> tuple[int, int, int]:
        places = self.places
        return places[rank % len(places)]

    def saved(self, rank: int) -> dict[str, Any]:
        """Return what the state of a rank keeps."""
        short, lost = sorted(map(list, self.short.items())), sorted(map(list, self.lost))
        places = {"lanes": list(self.lanes), "ranks": self.ranks, "short": short, "lost": lost}
        return places | {"steps": list(self.steps), "rank": rank}

    @classmethod
    def read(cls, saved: Mapping[str, Any] | None) -> Deal | None:
        """Return what was saved."""
        if saved is None:
            return None
        lost = frozenset((lane, k) for lane, k in saved["lost"])
        return cls(tuple(saved["lanes"]), saved["ranks"], dict(saved["short"]), lost, tuple(saved["steps"]))


class RankRest(NamedTuple):
    """What a rank tells the others: where its lanes stand that have not ended, and which batch turned out to be lost.
    Also which lane ends before each of its ranks had a turn, and how many batches are left there."""

    lanes: Mapping[int, str]
    lost: LaneBatch | None = None
    short: tuple[int, int] | None = None


def deal_anew(rests: Collection[RankRest], before: Deal | None, ranks: int, step: int) -> Deal:
    """Return how ``ranks`` share what is left, from ``step`` on."""
    left = {lane for one in rests for lane in one.lanes}
    news = frozenset(one.lost for one in rests if one.lost is not None)
    short = dict(before.short) if before is not None and before.in_turns else {}
    short |= {one.short[0]: one.short[1] for one in rests if one.short is not None}
    for lane in short.keys() - (left - {lane for lane, _ in news}):
        del short[lane]
    lost, steps = (before.lost, before.steps) if before is not None else (frozenset(), ())
    return Deal(tuple(sorted(left)), ranks, short, news | lost, tuple(sorted({*steps, step})))


def left_of(lane: int, rests: Collection[RankRest], counted: bool) -> LaneState:
    """Return where a lane stands; ``counted``: with what all ranks have counted in it."""
    states = [read_lane({lane_name(lane): one.lanes[lane]}, lane) for one in rests if lane in one.lanes]
    return replace(states[0], counts=reduce(added, (one.counts for one in states)) if counted else {})


def added(counts: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sums of two counts of a lane."""
    sums: dict[str, Any] = {}
    for name in {**counts, **more}:
        one, other = counts.get(name), more.get(name)
        nested = isinstance(one, dict) or isinstance(other, dict)
        sums[name] = added(one or {}, other or {}) if nested else (one or 0) + (other or 0)
    return sums
