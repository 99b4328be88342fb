"""Joins states that ranks saved one by one: the newest state of each lane, even if one rank is an epoch ahead.

Under ``uneven="join"`` ranks do not wait for each other, so one may have begun epoch e + 1 while another is still in e,
or at its end without having asked for more. If all lanes of e are done, the result is a state of e + 1 in which lanes
that nobody has begun are fresh. Otherwise it is a state of e in which the lanes of ranks that went ahead are done; its
``meta`` holds, as ``ahead``, the state of e + 1 that the loader goes on with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from uio_pipes.base.errors import StateError
from uio_pipes.core.ledger import Ledger
from uio_pipes.run.dealing import added
from uio_pipes.run.state import LaneState, Meta, lane_age, lane_name, lanes_in, read_lane, read_meta


@dataclass(frozen=True)
class _Saved:
    """The part of one rank in one epoch. ``own``: the rank was in it, and does not only carry it as ``ahead``."""

    meta: Meta
    lanes: dict[int, str]
    own: bool = True

    @property
    def epoch(self) -> int:
        return self.meta.epoch

    @property
    def age(self) -> tuple[int, bool, int, int]:
        """Orders states. Of ranks in the same epoch, the one that knows most changes of mixes is the newest."""
        return self.epoch, self.meta.ended, self.meta.step, len(self.meta.changes)


def merge_states(states: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Join states that ranks saved one by one into one state, with the newest of each lane.

    Ranks may be one epoch apart (``uneven="join"``): nothing is lost or repeated.

    Args:
        states: the results of each rank's ``loader.state_dict()``.

    Raises:
        StateError: the states are of different runs (seed, lanes, graph or list), or more than an epoch apart.
    """
    given = list(states)
    if not given:
        raise StateError("merge_states got no state: pass the state_dict() of each rank")
    saved = [_saved(state) for state in given]
    carried = [_saved(s.meta.ahead, own=False) for s in saved if s.meta.ahead is not None]
    newest = _apart_since(max([*saved, *carried], key=lambda s: s.age), saved)
    _check_changes([one.meta for one in saved], newest.meta)
    _check_turns(saved, newest.meta)
    for one in [*saved, *carried]:
        _check_same(one, newest, ("seed", "graph", "list"))
        if one.epoch == newest.epoch or newest.meta.stream is not None:
            _check_same(one, newest, ("lanes",))
    merged = _newest(saved)
    same = all(one.meta.lanes == newest.meta.lanes for one in saved)
    late = any(one.epoch < newest.epoch for one in saved) and not all(
        done or epoch == newest.epoch for epoch, _, done, _ in map(lane_age, merged.values())
    )
    if newest.meta.stream is not None or (same and not late and not carried):
        return _state(newest.meta, merged)
    return _apart([*saved, *carried], newest)


def _saved(state: Mapping[str, Any], own: bool = True) -> _Saved:
    meta = read_meta(state)
    lanes = lanes_in(state, meta.lanes)
    return _Saved(meta, {lane: state[lane_name(lane)] for lane in lanes}, own)


def _apart_since(newest: _Saved, saved: list[_Saved]) -> _Saved:
    """Return the newest one, whose steps are numbers of this run from there on if ranks stand at other steps."""
    others = [one for one in saved if one.epoch == newest.epoch and one.meta.step != newest.meta.step]
    if all(lane_age(text)[2] for one in others for text in one.lanes.values()):  # they have ended
        return newest
    return replace(newest, meta=replace(newest.meta, since=newest.meta.place))


def _check_same(one: _Saved, other: _Saved, names: tuple[str, ...]) -> None:
    for name in names:
        ours, theirs = one.meta.saved()[name], other.meta.saved()[name]
        if ours != theirs:
            raise StateError(
                f"{name}: one state has {ours!r}, another {theirs!r}; join only states that the ranks of one run saved"
            )


def _check_changes(metas: list[Meta], newest: Meta) -> None:
    """Raises: StateError if ranks have given other weights to a mix than the newest one, or left out others."""
    for meta in metas:
        out, most = ([entry["keys"] for entry in one.excluded or []] for one in (meta, newest))
        if out != most[: len(out)]:
            raise StateError(
                "excluded: ranks exclude different utterances: call exclude with the same ones on all ranks"
            )
        for path, record in (meta.mixes or {}).items():
            ours, theirs = (
                [entry["weights"] for entry in one["journal"]] for one in (record, (newest.mixes or {})[path])
            )
            if ours != theirs[: len(ours)]:
                raise StateError(
                    f"mixes: one rank has changed the weights to {ours[-1]}, another to {theirs[-1]}: call "
                    "reweight with the same weights on all ranks"
                )


def _check_turns(saved: list[_Saved], newest: Meta) -> None:
    """Raises: StateError if ranks that take turns in a lane stand at different steps: which of its batches have come
    is known only of the rank that saved it."""
    behind = [one.meta for one in saved if not one.meta.ended and one.meta.place < newest.place]
    deals = [meta.deal for meta in (newest, *behind) if meta.deal is not None]
    all_came = sum(one.meta.place == newest.place for one in saved) >= newest.world_size
    if behind and not all_came and any(len(deal["lanes"]) < deal["ranks"] for deal in deals):
        (epoch, step), last = min(meta.place for meta in behind), newest.place
        raise StateError(
            f"step: one state is of step {step} of epoch {epoch}, another of step {last[1]} of epoch {last[0]}, while "
            'ranks ran the same lanes in turns (uneven="share"), so each must have saved at the same step: pass the '
            "last states that all of them have of one step"
        )


def _newest(saved: Iterable[_Saved]) -> dict[int, str]:
    """Return the newest string of each lane. Ranks that took turns in one have counts of their own in it."""
    found: dict[int, str] = {}
    counted: dict[int, set[int | None]] = {}
    for one in saved:
        rank = (one.meta.deal or {}).get("rank")
        for lane, text in one.lanes.items():
            if lane not in found or lane_age(text) > lane_age(found[lane]):
                found[lane], counted[lane] = text, {rank}
            elif rank is not None and rank not in counted[lane] and lane_age(text) == lane_age(found[lane]):
                state, more = (read_lane({lane_name(lane): each}, lane) for each in (found[lane], text))
                found[lane] = replace(state, counts=added(state.counts, more.counts)).text(lane)
                counted[lane].add(rank)
    return found


def _state(meta: Meta, lanes: dict[int, str], ahead: dict[str, str] | None = None) -> dict[str, str]:
    meta = replace(meta, deal=meta.deal and {**meta.deal, "rank": None})
    return {lane_name(lane): lanes[lane] for lane in sorted(lanes)} | {"meta": replace(meta, ahead=ahead).text}


def _apart(saved: list[_Saved], newest: _Saved) -> dict[str, str]:
    """Return the state when some ranks are in an epoch and others in the next one."""
    _check_gaps(saved, newest)
    late = [s for s in saved if s.epoch == newest.epoch]
    early = [s for s in saved if s.epoch == newest.epoch - 1]
    reached = {lane for s in late if s.own for lane in s.lanes}
    if all(s.meta.lanes == newest.meta.lanes for s in early):
        over = reached
        unbegun = {lane for s in early for lane in s.lanes} - reached
    else:
        if not (worlds := [one.meta.world_size for one in late if one.own]):
            raise _incomplete(saved)
        world = worlds[0]
        ranks = {min(s.lanes) for s in late if s.own and s.lanes}
        over = {lane for lane in range(early[0].meta.lanes if early else 0) if lane % world in ranks}
        unbegun = {lane for lane in range(newest.meta.lanes) if lane % world not in ranks}
    before = _apart_since(max(early, key=lambda s: s.age), saved) if early else newest
    for one in early:
        _check_same(one, before, ("lanes",))
    ended = {lane: _fresh(lane, before.epoch, done=True) for lane in over}
    lanes = _newest(early) | ended
    if early and len(lanes) < before.meta.lanes:
        raise _incomplete(saved)
    later = {lane: _fresh(lane, newest.epoch) for lane in unbegun} | _newest(late)
    if all(lane_age(text)[2] for text in lanes.values()):
        return _state(newest.meta, later)
    return _state(before.meta, lanes, ahead=_state(newest.meta, later))


def _fresh(lane: int, epoch: int, done: bool = False) -> str:
    """Return the string of a lane that has not begun, or of one that is done and whose counts are unknown."""
    return LaneState(epoch, done=done, counts=Ledger().save() if done else {}).text(lane)


def _incomplete(saved: list[_Saved]) -> StateError:
    return StateError(
        "lanes: the states are of two epochs with different numbers of lanes "
        f"({sorted({s.meta.lanes for s in saved})}), and not of all ranks of one run: pass the newest state of every "
        "rank, and no others"
    )


def _check_gaps(saved: list[_Saved], newest: _Saved) -> None:
    """Raises: StateError if a rank was last seen more than one epoch before the newest."""
    known = {min(s.lanes) for s in saved if s.lanes and s.epoch >= newest.epoch - 1}
    for one in saved:
        if one.lanes and min(one.lanes) not in known:
            raise StateError(
                f"epoch: one state is of epoch {one.epoch}, another of {newest.epoch}; ranks that are further than one "
                "epoch apart cannot be joined. Pass the newest state of every rank"
            )
