"""``buckets``: finds the boundaries of buckets that leave the least padding, by the planned lengths of utterances."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.core.capabilities import MakesBatches, with_branches
from uio_pipes.core.graph import Graph
from uio_pipes.core.lengths import FRAMES_AND_TOKENS, Length, Pair
from uio_pipes.reports.simulation import padding_of
from uio_pipes.run.planning import plan_utterances
from uio_pipes.stages.batches.buckets import count_of, index_of, longest_of, pairs_of

LengthArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BucketOf:
    """A bucket: the ``longest`` lengths in it, and its utterances, their frames and their share of padding."""

    longest: tuple[int, ...]
    utterances: int
    frames: int
    padding: tuple[float, ...]


@dataclass(frozen=True)
class FoundBuckets:
    """Boundaries for ``bucket_batch``, by the lengths that ``units`` name.

    ``padding``: share of padding by each of them, if each bucket is padded to its longest; ``left_out``: utterances by
    reason, ``failures`` of them by failing.
    """

    units: tuple[str, ...]
    boundaries: list[Any]
    buckets: list[BucketOf]
    padding: tuple[float, ...]
    left_out: dict[str, int]
    failures: int
    reports: list[str]

    @property
    def utterances(self) -> int:
        return sum(bucket.utterances for bucket in self.buckets)

    def summary(self) -> dict[str, Any]:
        """Return it for JSON; ``bucket_batch(bucket_boundaries=FILE)`` reads the first two."""
        return {
            "bucket_boundaries": self.boundaries, "lengths": list(self.units), "utterances": self.utterances,
            "padding": dict(zip(self.units, self.padding, strict=True)), "left_out": self.left_out,
            "buckets": [vars(bucket) for bucket in self.buckets],
        }  # fmt: skip


def find_buckets(graph: Graph, num_buckets: int | tuple[int, int], most: int | None = None) -> FoundBuckets:
    """Find boundaries for all utterances before the batches of ``graph``, or for the first ``most``.

    They go by the lengths by which ``graph`` makes batches; or else by frames, or by frames and tokens for a pair.

    Raises: PipelineError; ListError if there is no utterance.
    """
    if graph._endless and most is None:
        raise PipelineError("the pipeline has no end (repeat(), or a mix with stop='endless'): say how many to look at")
    plan = plan_utterances(_before_batches(graph), _lengths_of(graph, num_buckets), most)
    if not plan.lengths:
        why = f": {plan.reports[0]}" if plan.reports else ""
        raise ListError(f"no utterance has a length by which to put it into a bucket{why}")
    lengths = np.asarray([sizes.lengths for sizes in plan.sizes], np.int64).T
    in_pairs = isinstance(num_buckets, tuple)
    boundaries: list[Any]
    if isinstance(num_buckets, tuple):
        boundaries = pairs_of(lengths, num_buckets)
    else:
        boundaries = [longest + 1 for longest in longest_of(lengths[:, 0], num_buckets)[:-1]]
    index, frames = index_of(boundaries, in_pairs), np.asarray(plan.frames_of, np.int64)
    different, number = np.unique(lengths, axis=0, return_inverse=True)
    at = np.asarray([index(tuple(row) if in_pairs else row[0]) for row in different.tolist()])[number.reshape(-1)]
    of = [at == number for number in range(count_of(boundaries, in_pairs))]
    buckets = [_bucket(lengths[here], frames[here]) for here in of if here.any()]
    padded = np.sum([bucket.utterances * np.asarray(bucket.longest) for bucket in buckets], axis=0)
    padding = padding_of(lengths.sum(axis=0), padded)
    return FoundBuckets(plan.units, boundaries, buckets, padding, plan.skipped, plan.failures, plan.reports)


def shuffled(graph: Graph) -> Graph:
    """Return ``graph`` with its lists shuffled, so that its first utterances are a sample of all."""
    stages = [with_branches(stage, lambda _, branch: shuffled(branch)) for stage in graph.stages]
    return type(graph)(
        tuple(replace(s, shuffle=True) if "shuffle" in [f.name for f in fields(s)] else s for s in stages)  # type: ignore[call-arg]
    )


def _before_batches(graph: Graph) -> Graph:
    batching = [i for i, stage in enumerate(graph.stages) if "batch" in stage.gives]
    return Graph(graph.stages[: batching[0]]) if batching else graph


def _lengths_of(graph: Graph, num_buckets: int | tuple[int, int]) -> Length | Pair | None:
    """Return the lengths by which ``graph`` makes batches, if they are as many as those of the buckets."""
    making = [stage.sized_by for stage in graph.stages if isinstance(stage, MakesBatches)]
    of: Any = next((size for size in reversed(making) if size is not None), None)
    if isinstance(num_buckets, tuple):
        return of if isinstance(of, tuple) else FRAMES_AND_TOKENS
    return None if isinstance(of, tuple) else of


def _bucket(lengths: LengthArray, frames: LengthArray) -> BucketOf:
    longest = lengths.max(axis=0)
    padding = padding_of(lengths.sum(axis=0), len(lengths) * longest)
    return BucketOf(tuple(map(int, longest)), len(lengths), int(frames.sum()), padding)
