"""Decides when an epoch ends if some ranks have more batches than others, and counts its batches.

``join``: each rank ends with its own lanes. ``stop``: all end together with the first one. ``share``: what is left then
is dealt anew (:mod:`uio_pipes.run.dealing`). For the last two the ranks agree on a horizon H: up to H a rank runs
freely; at H it waits for one more batch or its end, and says how many batches it knows to exist. The minimum is the
next H. If it does not grow, the epoch is over, or dealt anew. With ``steps_per_epoch`` no rank may end, so it must
grow.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import PipelineError, StateError, UioError
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.run.empty_epochs import at_rest, no_batch
from uio_pipes.run.merge import Merge
from uio_pipes.run.options import RunOptions
from uio_pipes.run.ranks import RankPlace, all_gathered, all_reduced, is_grouped

UNEVEN = ("share", "stop", "join")
QUICK = 500e-6  # seconds: a batch that comes faster was ready, so more are counted before the ranks communicate
AHEAD = 8
NEUTRAL = [1 << 62, 0, 1, 1]  # what a process that receives its batches says: the one that reads speaks for it


def choose_uneven(uneven: str | None, ranks: RankPlace, pipeline: Graph) -> str:
    """Return the policy to use. Raises: PipelineError if it is unknown, or needs a process group that is missing."""
    if uneven is None:
        uneven = getattr(pipeline, "_uneven", "share") if is_grouped() else "join"
    if uneven not in UNEVEN:
        raise PipelineError(f"uneven must be {in_words(UNEVEN, 'or')}, not {uneven!r}")
    if ranks.world_size == 1:
        return "join"  # one rank ends by itself
    if uneven != "join" and ranks.members is None:
        raise PipelineError(
            f"uneven={uneven!r} lets {ranks.world_size} ranks agree on the end, which needs a process group of that "
            "size; "
            'call torch.distributed.init_process_group() first, or use uneven="join"'
        )
    return uneven


def require_steps_together(options: RunOptions) -> None:
    """Raises: StateError if ranks do not step together: they would hang when they gather their states."""
    if not options.together:
        raise StateError(
            'gather_state needs all ranks at the same step, which uneven="join" does not promise; let each rank save '
            "its own loader.state_dict() and join them by uio.merge_states when loading"
        )


class Horizon:
    """Decides before each batch whether all ranks continue.

    ``steps``: an epoch is a number of batches, so there is no end to agree on. ``pipeline``: for error messages.
    """

    def __init__(self, merge: Merge, uneven: str, ranks: RankPlace, pipeline: Graph, steps: bool) -> None:
        self.merge, self.pipeline, self.steps = merge, pipeline, steps
        self.endless = steps or pipeline._endless  # it is an error on all ranks if one has nothing left
        self.ranks = ranks
        self.members = ranks.mesh or ranks.members or ()
        self.agrees = bool(self.members) and ranks.world_size > 1 and uneven != "join"  # with other ranks, from next on
        self.until = 0
        self.over = False

    def allows(self, delivered: int) -> bool:
        """Return whether batch number ``delivered`` is to be delivered; if so, it has been fetched.

        Raises: ListError on all ranks if one of them has nothing to go on with.
        """
        if self.over:
            return False
        if not self.agrees:
            self.over = not (self.merge.known > delivered or self.merge.fetch())
            if self.over and self.endless:
                raise self._alone()
            return not self.over
        if delivered == self.until:
            self.until = self._agree(delivered)
            self.over = self.until == delivered
        if not self.over and self.merge.known <= delivered:
            self.merge.fetch()
        return not self.over

    def _agree(self, delivered: int) -> int:
        """Return the horizon that all ranks agree on, up to which each has batches."""
        merge = self.merge
        self._look_ahead(delivered)
        goes_on = merge.known > delivered or not self.endless
        mine = [merge.known, -int(merge.had_batches), int(merge.had_batches), int(goes_on)]
        word = torch.tensor(mine if self.ranks.reads else NEUTRAL)
        word = all_reduced(word, self.members, "to say how many batches they have", dist.ReduceOp.MIN)
        known, some_had, all_had, go_on = int(word[0]), bool(word[1]), bool(word[2]), bool(word[3])
        had = some_had if merge.shares else all_had
        if not (had and go_on):
            raise self.for_all(goes_on and merge.had_batches, had)
        return known

    def _alone(self) -> UioError:
        """Return the error that says why this rank has nothing to go on with."""
        merge, why = self.merge, self.merge.losses.describe(self.pipeline)
        if self.steps and not merge.had_batches and self.ranks.world_size > 1:
            return no_batch("use fewer ranks", why)
        return at_rest(why)

    def for_all(self, goes_on: bool, had: bool, choice: str = 'uneven="join"') -> UioError:
        """Build the error from all ranks' reasons, so that every rank raises the same.

        ``goes_on``: this rank could have continued; ``choice``: with what all ranks could have.
        """
        mine = f"rank {self.ranks.rank}: {self.merge.losses.describe(self.pipeline)}"
        mine = "" if goes_on or not self.ranks.reads else mine
        reasons = all_gathered(mine, self.members, "to say why they have no batch")
        why = "; ".join(filter(None, reasons))
        if had:
            return at_rest(why)
        return no_batch("use fewer ranks" + ("" if self.steps else f", or choose {choice}"), why)

    def _look_ahead(self, delivered: int) -> None:
        """Fetch some batches that are ready, and at least the next one. An error counts when its turn comes."""
        if not self.ranks.reads:
            _ = self.merge.known > delivered or self.merge.fetch()
            return
        for _ in range(AHEAD):
            began = time.perf_counter()
            try:
                if self.merge.known > delivered + AHEAD or not self.merge.fetch():
                    return
            except Exception:
                if self.merge.known > delivered:
                    return
                raise
            if self.merge.known > delivered and time.perf_counter() - began > QUICK:
                return

    def summed(self, *counts: int) -> list[int]:
        """Return the sums over the ranks, at the end of an epoch that they ended together."""
        word = torch.tensor(counts if self.ranks.reads or not self.agrees else [0] * len(counts))
        if self.agrees:
            word = all_reduced(word, self.members, "to end the epoch")
        return [int(count) for count in word]


class EpochLength:
    """The number of batches of each lane; counted when first asked for."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._of: tuple[int, int] | None = None
        self._lanes: list[int] | None = None
        self._unknown = ""  # the reason, if they are not known
        self.last_answer = 0  # batches of this rank, when it was last asked; 0 if it never was

    def forget(self) -> None:
        """Count again when next asked."""
        self._of = None

    def of_rank(self, stream: int, lanes: int, calls: bool, ranks: int) -> int:
        """Return the number for this rank. ``calls``: user functions may be called; ``ranks``: for which steps are
        counted. Raises: TypeError if unknown."""
        options = self._options
        of_lane = self._count(stream, lanes, calls, ranks)
        of_ranks = [
            sum(of_lane[lane] for lane in lanes_of(lanes, rank, options.world_size))
            for rank in range(options.world_size)
        ]
        shared = sum(of_ranks) + (options.world_size - 1 if options.tail == "repeat" else 0)
        together = {"share": shared // options.world_size, "stop": min(of_ranks)}
        self.last_answer = together.get(options.uneven, of_ranks[options.rank])
        return self.last_answer

    def _count(self, stream: int, lanes: int, calls: bool, ranks: int) -> list[int]:
        if self._of != (stream, lanes):
            from uio_pipes.run.planning import NotKnown, count_batches  # takes time, and most loaders do not need it

            options = self._options
            try:
                if any(len(weights) > 1 for weights in options.mixes.changes(stream, options.in_steps).values()):
                    raise NotKnown("weights of a mix have changed in this epoch")
                graph = options.mixes.scheduled(options.pipeline, stream, options.in_steps)
                self._lanes = graph._count(lanes) or count_batches(graph, lanes, options.seed, stream, calls, ranks)
            except NotKnown as error:
                self._lanes, self._unknown = None, str(error)
                error.__cause__ = error.__traceback__ = None  # frees the loader when it is forgotten
            self._of = (stream, lanes) if calls or self._lanes else None
        if self._lanes is None:
            raise TypeError(
                f"the number of batches is not known beforehand: {self._unknown}. Index the data (the command "
                "`uio index`, then from_tar_index), set steps_per_epoch, or count the batches once (a Loader "
                "replaces torch's DataLoader; do not wrap it in one)"
            )
        return self._lanes
