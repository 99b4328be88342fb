"""The number of batches in an epoch, if it is known before the end."""

from __future__ import annotations

from uio_pipes.core.lane import lanes_of
from uio_pipes.run.options import RunOptions


class EpochLength:
    """The number of batches of each lane; counted when first asked for."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._of: tuple[int, int] | None = None
        self._lanes: list[int] | None = None
        self._unknown = ""  # the reason, if they are not known

    def forget(self) -> None:
        """Count again when next asked."""
        self._of = None

    def known(self, stream: int, lanes: int) -> bool:
        """Return whether the batches have been counted for this stream and number of lanes."""
        return bool(self._lanes) and self._of == (stream, lanes)

    def of_rank(self, stream: int, lanes: int, calls: bool, ranks: int) -> int:
        """Return the number for this rank. ``calls``: user functions may be called; ``ranks``: for which steps are
        counted. Raises: TypeError if unknown."""
        options = self._options
        of_lane = self._count(stream, lanes, calls, ranks)
        of_ranks = [
            sum(of_lane[lane] for lane in lanes_of(lanes, rank, options.world_size))
            for rank in range(options.world_size)
        ]
        return {"stop": min(of_ranks), "repeat": max(of_ranks)}.get(options.uneven, of_ranks[options.rank])

    def _count(self, stream: int, lanes: int, calls: bool, ranks: int) -> list[int]:
        if self._of != (stream, lanes):
            from uio_pipes.run.planning import NotKnown, count_batches  # takes time, and most loaders do not need it

            graph = self._options.pipeline
            try:
                changes = self._options.mixes.changes(stream, self._options.in_steps)
                if any(len(weights) > 1 for weights in changes.values()):
                    raise NotKnown("weights of a mix have changed in this epoch")
                counted = None if changes else graph._count(lanes)
                seed = self._options.seed
                self._lanes = counted or count_batches(graph, lanes, seed, stream, calls, ranks, changes)
            except NotKnown as error:
                self._lanes, self._unknown = None, str(error)
                error.__cause__ = error.__traceback__ = None  # frees the loader when it is forgotten
            self._of = (stream, lanes) if calls or self._lanes else None
        if self._lanes is None:
            raise TypeError(
                f"the number of batches is not known beforehand: {self._unknown}. Index the data (the command "
                "`uio index`, then from_tar_index), set steps_per_epoch, or count the batches once (a Loader takes the "
                "place of torch's DataLoader, and is not put into one)"
            )
        return self._lanes
