"""The description of a graph, and its functional form.

A :class:`Pipeline` is an immutable chain of stages: a source, and what is done with what comes out of it. Describing
does no I/O; :meth:`Pipeline.build` makes the nodes that run it in one lane. Each stage is one file in ``stages/`` or
``sources/`` and one line in this class.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, overload

from uio_pipes.errors import PipelineError
from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.sources.list_files import ListFiles
from uio_pipes.sources.load_from_raw import LoadFromRaw
from uio_pipes.sources.load_from_tar import LoadFromTar
from uio_pipes.sources.open_files import OpenFiles
from uio_pipes.sources.sharding_filter import ShardingFilter
from uio_pipes.stage import Stage
from uio_pipes.stages.batch import Batch
from uio_pipes.stages.bucket_batch import BucketBatch
from uio_pipes.stages.decode_audio import DecodeAudio
from uio_pipes.stages.dynamic_batch import DynamicBatch
from uio_pipes.stages.fbank import FbankFeatures
from uio_pipes.stages.filter import Filter
from uio_pipes.stages.flat_map import FlatMap
from uio_pipes.stages.map import Map
from uio_pipes.stages.pad import Pad
from uio_pipes.stages.resample import Resample
from uio_pipes.stages.shuffle import Shuffle
from uio_pipes.stages.sort import Sort
from uio_pipes.stages.spec_aug import SpecAug
from uio_pipes.stages.speed_perturb import SpeedPerturb
from uio_pipes.stages.through import Through
from uio_pipes.stages.tokenize import Tokenize

if TYPE_CHECKING:
    from uio_pipes.dataset import PipelineDataset

__all__ = ["Pipeline"]

P = ParamSpec("P")


class functional(Generic[P]):
    """Makes ``pipeline.name(…)`` of a stage, with the stage's own signature (editors and type checkers see it)."""

    def __init__(self, stage: Callable[P, Stage]) -> None:
        self.stage = stage

    @overload
    def __get__(self, pipeline: None, owner: type[Pipeline]) -> Callable[P, Stage]: ...
    @overload
    def __get__(self, pipeline: Pipeline, owner: type[Pipeline]) -> Callable[P, Pipeline]: ...
    def __get__(self, pipeline: Pipeline | None, owner: type[Pipeline]) -> Callable[P, Pipeline] | Callable[P, Stage]:
        if pipeline is None:
            return self.stage

        def add(*args: P.args, **kwargs: P.kwargs) -> Pipeline:
            return pipeline.then(self.stage(*args, **kwargs))

        add.__doc__ = self.stage.__doc__
        add.__name__ = add.__qualname__ = self.stage.name  # type: ignore[attr-defined]
        signature = inspect.signature(self.stage)
        add.__signature__ = signature.replace(return_annotation="Pipeline")  # type: ignore[attr-defined]
        return add


@dataclass(frozen=True)
class Pipeline:
    """An immutable, picklable description: a source and the stages chained on it. Printing it draws the graph."""

    stages: tuple[Stage, ...]

    # the list and its files
    sharding_filter = functional(ShardingFilter)
    open_files = functional(OpenFiles)
    load_from_tar = functional(LoadFromTar)
    load_from_raw = functional(LoadFromRaw)
    # one utterance at a time
    decode_audio = functional(DecodeAudio)
    resample = functional(Resample)
    speed_perturb = functional(SpeedPerturb)
    tokenize = functional(Tokenize)
    filter = functional(Filter)
    fbank = functional(FbankFeatures)
    spec_aug = functional(SpecAug)
    map = functional(Map)
    flat_map = functional(FlatMap)
    through = functional(Through)
    # order and batches
    shuffle = functional(Shuffle)
    sort = functional(Sort)
    batch = functional(Batch)
    dynamic_batch = functional(DynamicBatch)
    bucket_batch = functional(BucketBatch)
    pad = functional(Pad)

    def then(self, stage: Stage) -> Pipeline:
        """This pipeline with ``stage`` at its end. Raises: PipelineError if it cannot stand there."""
        kind = self.kind
        takes = " or ".join(map(_plural, stage.takes))
        if kind != "any" and kind not in stage.takes and "any" not in stage.takes:
            raise PipelineError(
                f"{stage.name} works on {takes}, but what comes out of {self.stages[-1].name} is "
                f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}; {_remedy(kind, stage)}"
            )
        if isinstance(stage, ShardingFilter) and any(isinstance(s, ShardingFilter) for s in self.stages):
            raise PipelineError(
                "a second sharding_filter would keep a share of a share and lose the rest; leave one out"
            )
        return Pipeline((*self.stages, stage))

    @property
    def kind(self) -> str:
        """What comes out: "item" (of a list), "file", "sample", "batch", or "any" (a node of the user's)."""
        kind = "any"
        for stage in self.stages:
            kind = kind if stage.gives == "same" else stage.gives
        return kind

    def sites(self) -> Iterator[tuple[Stage, Site]]:
        """The stages, each with its name and which one of that name it is."""
        seen: Counter[str] = Counter()
        for stage in self.stages:
            yield stage, Site(stage.name, seen[stage.name])
            seen[stage.name] += 1

    def build(self, lane: Lane) -> Node:
        """The nodes that run this pipeline in ``lane``.

        Raises: PipelineError if there is more than one lane and no ``sharding_filter``.
        """
        self.check_lanes(lane.count)
        dealt = any(isinstance(stage, ShardingFilter) for stage in self.stages)
        node: Any = None
        for stage, site in self.sites():
            dealt = dealt and not isinstance(stage, ShardingFilter)
            node = stage.build(node, lane.common() if dealt else lane, site)
        built: Node = node
        return built

    def check_lanes(self, lanes: int) -> None:
        """Raises: PipelineError if there is more than one lane and no ``sharding_filter``."""
        if lanes > 1 and not any(isinstance(s, ShardingFilter) for s in self.stages):
            raise PipelineError(
                f"a graph for {lanes} lanes needs a sharding_filter, or every lane would deliver everything; "
                "put .sharding_filter() after list_files(…)"
            )

    def list_fingerprint(self) -> list[int | str]:
        """Number of list items and a hash of them. Reads the lists. Raises: ListError."""
        tables = [stage.table() for stage in self.stages if isinstance(stage, ListFiles)]
        return [sum(map(len, tables)), " ".join(table.digest for table in tables)]

    @property
    def skims(self) -> bool:
        """Whether batches can be passed over without making them: not where a node of the user's looks at them."""
        batched = [i for i, stage in enumerate(self.stages) if "batch" in stage.gives]
        return not batched or not any(isinstance(stage, Through) for stage in self.stages[batched[0] :])

    def fingerprint(self) -> list[str]:
        """One line a stage: what must be unchanged for a state to fit."""
        return [stage.describe(stable=True) for stage in self.stages]

    def as_dataset(self, **options: Any) -> PipelineDataset:
        """An ``IterableDataset`` with ``state_dict``, for ``StatefulDataLoader``; see :class:`PipelineDataset`."""
        from uio_pipes.dataset import PipelineDataset

        return PipelineDataset(self, **options)

    def __str__(self) -> str:
        texts = [stage.describe() for stage in self.stages]
        width = min(72, max(map(len, texts)))
        lines = []
        for i, (stage, text) in enumerate(zip(self.stages, texts, strict=True)):
            branch = "" if i == 0 else "└─ " if i == len(texts) - 1 else "├─ "
            lines.append(f"{branch + text:{width + 3}}  {'· ' + stage.note if stage.note else ''}".rstrip())
        return "\n".join(lines)


def _plural(kind: str) -> str:
    return "batches" if kind == "batch" else f"{kind}s"


def _remedy(kind: str, stage: Stage) -> str:
    if stage.takes == ("batch",) and kind == "sample":
        return f"put .batch(…), .dynamic_batch(…) or .bucket_batch(…) before {stage.name}"
    if kind == "batch":
        return f"move {stage.name} before the stage that makes batches"
    if kind == "item":
        return "put .open_files().load_from_tar() (shards) or .load_from_raw() (JSON lines) before it"
    if kind == "file":
        return "put .load_from_tar() before it"
    return f"put it elsewhere: {stage.name} takes {' or '.join(map(_plural, stage.takes))}"
