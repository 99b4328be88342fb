"""When an epoch ends on ranks that do not have equally many batches.

``join``: each rank ends with its own lanes. ``stop``: all end together when the first has no more. ``repeat``: all
end when the last one has, the others deal their lanes again in the meantime. For the last two the ranks agree on a
horizon H: up to H a rank runs freely; at H it waits for one more batch or its end, tells how many batches it knows to
exist, and the ranks take the minimum (of the longest, for ``repeat``). If H does not grow, the epoch is over. No rank
waits for a time, so none runs out of it.
"""

from __future__ import annotations

import time
import weakref
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from uio_pipes.errors import ListError, PipelineError, StateError
from uio_pipes.feed import Feed

__all__ = ["UNEVEN", "Horizon", "check_data", "choose", "private_group"]

UNEVEN = ("stop", "join", "repeat")
QUICK = 500e-6  # seconds: batches that come this fast were ready, so more of them are counted before the ranks talk
AHEAD = 8
_groups: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()  # world → our group in it


def choose(uneven: str | None, world_size: int) -> str:
    """The policy in force. Raises: PipelineError if it is unknown, or needs a process group that is not there."""
    grouped = dist.is_available() and dist.is_initialized()
    if uneven is None:
        uneven = "stop" if grouped else "join"
    if uneven not in UNEVEN:
        raise PipelineError(f"uneven must be one of {UNEVEN}, not {uneven!r}")
    if world_size == 1:
        return "join"  # one rank ends by itself
    if uneven != "join" and not (grouped and dist.get_world_size() == world_size):
        raise PipelineError(
            f"uneven={uneven!r} lets {world_size} ranks agree on the end, which needs a process group of that "
            f"size; call "
            'torch.distributed.init_process_group() first, or use uneven="join"'
        )
    return uneven


def private_group() -> Any:
    """A gloo group of this package's own, so that its few words never meet the trainer's collectives."""
    world = dist.group.WORLD
    group = _groups[world]() if world in _groups else None
    if group is None:
        group = dist.new_group(backend="gloo", timeout=timedelta(days=365))
        _groups[world] = weakref.ref(group)  # torch.distributed owns it: destroy_process_group must end its threads
    return group


class Horizon:
    """Decides before each batch whether all ranks go on."""

    def __init__(self, feed: Feed, uneven: str, world_size: int) -> None:
        self.feed, self.repeat = feed, uneven == "repeat"
        self.group = private_group() if world_size > 1 and uneven != "join" else None
        self.until = 0
        self.over = False

    def allows(self, delivered: int) -> bool:
        """Whether batch number ``delivered`` is to be delivered; it has been fetched then."""
        if self.over:
            return False
        if self.group is None:
            goes_on = self.feed.known > delivered or self.feed.fetch()
            self.over = not goes_on
            return not self.over
        if delivered == self.until:
            self.until = self._agree(delivered)
            self.over = self.until == delivered
        if not self.over and self.feed.known <= delivered:
            self.feed.fetch()
        return not self.over

    def _agree(self, delivered: int) -> int:
        """The horizon that all ranks agree on."""
        feed = self.feed
        self._look_ahead(delivered)
        mine = feed.natural if self.repeat and feed.natural is not None else feed.known
        word = torch.tensor([-mine if self.repeat else mine, int(feed.had_batches)])
        dist.all_reduce(word, dist.ReduceOp.MIN, group=self.group)
        horizon = int(word[0])
        if not word[1]:
            raise no_batch('use fewer ranks, or choose uneven="join"')
        return -horizon if self.repeat else horizon

    def _look_ahead(self, delivered: int) -> None:
        for _ in range(AHEAD):
            began = time.perf_counter()
            if self.feed.known > delivered + AHEAD or not self.feed.fetch():
                return
            if self.feed.known > delivered and time.perf_counter() - began > QUICK:
                return

    def left_out(self, utterances: int, items: int) -> tuple[int, int]:
        """Sums over the ranks, where they meet at the end of an epoch."""
        word = torch.tensor([utterances, items])
        if self.group is not None:
            dist.all_reduce(word, group=self.group)
        return int(word[0]), int(word[1])


def check_data(feed: Feed, uneven: str, world_size: int) -> None:
    """Raises: ListError on all ranks if one of them has no batch at all, where each is to make so many steps."""
    has = torch.tensor([int(feed.fetch())])
    if world_size > 1 and uneven != "join":
        dist.all_reduce(has, dist.ReduceOp.MIN, group=private_group())
    if not has:
        raise no_batch("use fewer ranks")


def no_batch(remedy: str) -> ListError:
    """The error of a rank that has nothing to step with."""
    return ListError(
        "a rank has no batch at all in this epoch, so ranks cannot step together: give the list at least as many "
        f"intact shards (or lines) as there are lanes, or {remedy}"
    )


def refuse_join() -> NoReturn:
    """Raises: StateError: ranks do not step together, so that a collective would wait for ever."""
    raise StateError(
        'gather_state needs all ranks at the same step, which uneven="join" does not promise; let each rank save its '
        "own loader.state_dict() and join them by uio.merge_states when loading"
    )
