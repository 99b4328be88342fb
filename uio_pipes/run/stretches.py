"""The numbers of steps: one numbering for ``batch_at``, ``skip``, ``uio replay``, ``uio steps`` and ``uio seen``.

Step n of an epoch is the n-th batch of each rank in it, from 0. On another number of ranks counting goes on where the
state was saved. So an epoch is made of stretches of steps that equally many ranks have made, and a state says where
each lane stood when they began: from there the batches of any step can be found again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from uio_pipes.run.state import LaneState, Meta

Place = tuple[int, int]  # of a lane: its pass, and how many batches of it have passed


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
