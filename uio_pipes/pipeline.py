"""The description of a graph, and its functional form.

A :class:`Pipeline` is an immutable chain of stages: a source, and what is done with what comes out of it. Describing
does no I/O; :meth:`Pipeline.build` makes the nodes that run it in one lane. Each stage is one file in ``stages/`` or
``sources/`` and one line in this class.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec

from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import stable_hash
from uio_pipes.base.printable import counted
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node, name_node
from uio_pipes.core.outlet import Outlet
from uio_pipes.core.pulse import MANY, SLACK
from uio_pipes.core.stage import Stage
from uio_pipes.sources.load_from_raw import LoadFromRaw
from uio_pipes.sources.load_from_tar import LoadFromTar
from uio_pipes.sources.load_records import LoadRecords
from uio_pipes.sources.open_files import OpenFiles
from uio_pipes.sources.sharding_filter import ShardingFilter
from uio_pipes.stages.add_noise import AddNoise
from uio_pipes.stages.batch import Batch
from uio_pipes.stages.bucket_batch import BucketBatch
from uio_pipes.stages.concat import Concat
from uio_pipes.stages.ctc_filter import CtcFilter
from uio_pipes.stages.decode_audio import DecodeAudio
from uio_pipes.stages.deltas import Deltas
from uio_pipes.stages.dynamic_batch import DynamicBatch
from uio_pipes.stages.exclude import Exclude
from uio_pipes.stages.fbank import FbankFeatures
from uio_pipes.stages.filter import Filter
from uio_pipes.stages.flat_map import FlatMap
from uio_pipes.stages.global_cmvn import GlobalCmvn
from uio_pipes.stages.language import Language
from uio_pipes.stages.log_mel_spectrogram import LogMelSpectrogram
from uio_pipes.stages.map import Map
from uio_pipes.stages.mfcc import MfccFeatures
from uio_pipes.stages.mono import Mono
from uio_pipes.stages.normalize_text import NormalizeText
from uio_pipes.stages.overlay import Overlay
from uio_pipes.stages.pad import Pad
from uio_pipes.stages.random_crop import RandomCrop
from uio_pipes.stages.repeat import Repeat
from uio_pipes.stages.resample import Resample
from uio_pipes.stages.reverberate import Reverberate
from uio_pipes.stages.segments import Segments
from uio_pipes.stages.shuffle import Shuffle
from uio_pipes.stages.skip import Skip
from uio_pipes.stages.sort import Sort
from uio_pipes.stages.speaker import Speaker
from uio_pipes.stages.spec_aug import SpecAug
from uio_pipes.stages.spec_sub import SpecSub
from uio_pipes.stages.spec_trim import SpecTrim
from uio_pipes.stages.speed_perturb import SpeedPerturb
from uio_pipes.stages.take import Take
from uio_pipes.stages.through import Through
from uio_pipes.stages.tokenize import Tokenize
from uio_pipes.stages.volume_perturb import VolumePerturb

if TYPE_CHECKING:
    from uio_pipes.run.dataset import PipelineDataPipe, PipelineDataset
    from uio_pipes.seeing.peek import Peek

__all__ = ["Pipeline"]

P = ParamSpec("P")


def functional(stage: Callable[P, Stage]) -> Callable[Concatenate[Pipeline, P], Pipeline]:
    """The method ``pipeline.name(…)`` that adds ``stage``, with the stage's own signature, documentation and source."""
    shown = inspect.signature(stage)
    name: str = stage.name  # type: ignore[attr-defined]

    def add(self: Pipeline, /, *args: P.args, **kwargs: P.kwargs) -> Pipeline:
        try:
            shown.bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(shown.parameters) or "nothing"
            raise PipelineError(f"{name}: {error}; it takes {names}") from None
        return self._then(stage(*args, **kwargs))

    add.__name__, add.__qualname__, add.__doc__ = name, f"Pipeline.{name}", stage.__doc__
    add.__signature__ = _as_method(shown)  # type: ignore[attr-defined]
    add.__wrapped__ = stage  # type: ignore[attr-defined]  # whose source ``inspect.getsource`` and IPython's ?? show
    return add


class _Plain(str):
    """An annotation that ``help`` shows as it is written, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _as_method(signature: inspect.Signature) -> inspect.Signature:
    """A stage's signature as that of the method that adds it."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [p.replace(annotation=_Plain(p.annotation)) for p in signature.parameters.values()]
    return signature.replace(parameters=[own, *given], return_annotation=_Plain("Pipeline"))


@dataclass(frozen=True)
class Pipeline:
    """An immutable, picklable description of a graph: a source and the stages chained on it.

    Begin with ``uio.from_shard_list(…)`` or another ``uio.from_…``, add stages by the methods named after them, and
    run it by ``uio.Loader(pipeline)``. Describing opens no file. ``print(pipeline)`` draws the graph and says what
    happens where.

    Args:
        stages: the stages in their order; the methods make them.
    """

    stages: tuple[Stage, ...]

    # the list and its files
    sharding_filter = functional(ShardingFilter)
    open_files = functional(OpenFiles)
    load_from_tar = functional(LoadFromTar)
    load_from_raw = functional(LoadFromRaw)
    load_records = functional(LoadRecords)
    # how much of what comes
    repeat = functional(Repeat)
    take = functional(Take)
    skip = functional(Skip)
    exclude = functional(Exclude)
    # one utterance at a time
    overlay = functional(Overlay)
    segments = functional(Segments)
    decode_audio = functional(DecodeAudio)
    resample = functional(Resample)
    speed_perturb = functional(SpeedPerturb)
    mono = functional(Mono)
    volume_perturb = functional(VolumePerturb)
    add_noise = functional(AddNoise)
    reverberate = functional(Reverberate)
    random_crop = functional(RandomCrop)
    concat = functional(Concat)
    normalize_text = functional(NormalizeText)
    tokenize = functional(Tokenize)
    language = functional(Language)
    speaker = functional(Speaker)
    filter = functional(Filter)
    ctc_filter = functional(CtcFilter)
    fbank = functional(FbankFeatures)
    mfcc = functional(MfccFeatures)
    log_mel_spectrogram = functional(LogMelSpectrogram)
    deltas = functional(Deltas)
    global_cmvn = functional(GlobalCmvn)
    spec_aug = functional(SpecAug)
    spec_sub = functional(SpecSub)
    spec_trim = functional(SpecTrim)
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

    def _then(self, stage: Stage) -> Pipeline:
        """This pipeline with ``stage`` at its end. Raises: PipelineError if it cannot stand there."""
        kind = self._kind
        takes = " or ".join(map(_plural, stage.takes))
        if kind != "any" and kind not in stage.takes and "any" not in stage.takes:
            raise PipelineError(
                f"{stage.name} works on {takes}, but what comes out of {self.stages[-1].name} is "
                f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}; {_remedy(kind, stage)}"
            )
        if stage.deals and self._deals:
            raise PipelineError(
                "a second sharding_filter would keep a share of a share and lose the rest; leave one out"
            )
        stage.check(self.stages)
        return Pipeline((*self.stages, stage))

    @property
    def _kind(self) -> str:
        """What comes out: "item" (of a list), "file", "sample", "batch", or "any" (a node of the user's)."""
        kind = "any"
        for stage in self.stages:
            kind = kind if stage.gives == "same" else stage.gives
        return kind

    def _sites(self) -> Iterator[tuple[Stage, Site]]:
        """The stages, each with its name and which one of that name it is."""
        seen: Counter[str] = Counter()
        for stage in self.stages:
            yield stage, Site(stage.name, seen[stage.name])
            seen[stage.name] += 1

    def build(self, lane: Lane) -> Node:
        """Make the nodes that run this pipeline in one lane: ``node.next()`` gives what comes out, until StopIteration.

        Args:
            lane: the lane, with its seed and epoch. A :class:`Loader` makes these by itself.

        Raises:
            PipelineError: there is more than one lane and no ``sharding_filter``.
        """
        self._check_lanes(lane.count)
        node = self._nodes(lane)
        slack = MANY if self._has(Through) else SLACK
        return Outlet(node, lane, slack) if any(stage.endless for stage in self.stages) else node

    def _nodes(self, lane: Lane) -> Node:
        """As :meth:`build`, for a part of a graph: another part may deal to lanes."""
        upstream: Any = lambda lane: None  # noqa: E731
        for stage, site in self._sites():
            upstream = partial(_connected, stage, upstream, site)
        built: Node = upstream(lane)
        return built

    def _has(self, kind: type[Stage]) -> bool:
        """Whether a stage of this kind is in the graph."""
        within = (p for stage in self.stages for p in stage.branches.values())
        return any(isinstance(stage, kind) for stage in self.stages) or any(p._has(kind) for p in within)

    @property
    def _endless(self) -> bool:
        """Whether an epoch of it has no end of its own."""
        ends = True
        for stage in self.stages:
            ends = (ends and not stage.endless) or isinstance(stage, Take)
        return not ends

    @property
    def _deals(self) -> bool:
        """Whether each lane gets its share of the data, not all of it."""
        return any(stage.deals for stage in self.stages)

    def _check_lanes(self, lanes: int) -> None:
        """Raises: PipelineError if there is more than one lane and no ``sharding_filter``."""
        if lanes > 1 and not self._deals:
            raise PipelineError(
                f"a graph for {lanes} lanes needs a sharding_filter, or every lane would deliver everything; "
                "put .sharding_filter() after list_files(…)"
            )

    def _list_fingerprint(self) -> list[int | str]:
        """Number of list items and a hash of them. Reads the lists. Raises: ListError."""
        content = self._content()
        return [sum(count for count, _ in content), stable_hash(*content) if len(content) > 1 else content[0][1]]

    def _content(self) -> list[tuple[int, str]]:
        """Of each list in the graph: number of items, and a hash of them. Reads the lists. Raises: ListError."""
        return [one for stage in self.stages for one in stage.content()]

    @property
    def _skims(self) -> bool:
        """Whether batches can be passed over without making them: not where a node of the user's looks at them."""
        batched = [i for i, stage in enumerate(self.stages) if "batch" in stage.gives]
        own = not batched or not any(isinstance(stage, Through) for stage in self.stages[batched[0] :])
        return own and all(p._skims for stage in self.stages for p in stage.branches.values())

    def _warnings(self, lanes: int, items: int | None = None) -> list[str]:
        """What a user should know before this runs in so many lanes. ``items``: of its lists, if known; else this may
        read them.
        """
        return [*self._idle(lanes, items), *(text for stage in self.stages for text in stage.warnings(lanes))]

    def _idle(self, lanes: int, items: int | None) -> list[str]:
        """Lanes that get no list item, where lists are dealt to them."""
        dealt = next((i for i, stage in enumerate(self.stages) if isinstance(stage, ShardingFilter)), None)
        if dealt is None or lanes == 1 or (dealt == 1 and items is not None and items >= lanes):
            return []
        counts = Pipeline(self.stages[: dealt + 1])._count(lanes)
        idle = [lane for lane, count in enumerate(counts or ()) if not count]
        if not counts or not idle or len(idle) == lanes:
            return []
        named = ", ".join(map(str, idle[:MOST])) + (", …" if len(idle) > MOST else "")
        return [
            f"{len(idle)} of {lanes} lanes {'has' if len(idle) == 1 else 'have'} nothing to deliver (of number "
            f"{named}), as there {'is' if sum(counts) == 1 else 'are'} only {counted(sum(counts), 'list item')} to "
            "deal: a rank or worker that runs no other lane stands idle. Use fewer ranks, workers or lanes, more "
            "(smaller) shards, or an index (`uio index`, from_tar_index), which deals utterances"
        ]

    def _count(self, lanes: int, source: str = "") -> list[int] | None:
        """How many items (batches) each lane gives if none fails; None: only running tells. Reads the lists."""
        counts: list[int] | None = [0] * lanes
        for stage in self.stages:
            counts = None if counts is None else stage.count(counts, source)
        return counts

    def fingerprint(self) -> list[str]:
        """One line for each stage: what must be unchanged for a saved state to fit."""
        return [stage.describe(stable=True) for stage in self.stages]

    def as_dataset(self, **options: Any) -> PipelineDataset:
        """Wrap the pipeline for torch's ``DataLoader`` and torchdata's ``StatefulDataLoader``.

        Give it to them with ``batch_size=None``, since batches come ready; see :class:`PipelineDataset`.

        Args:
            **options: those of :class:`Loader`, except for ``num_workers``, ``prefetch``, ``pin_memory``, ``uneven``
                and ``steps_per_epoch``, which belong to the other loader or to its trainer.

        Raises:
            PipelineError: an option breaks a rule.
        """
        from uio_pipes.run.dataset import PipelineDataset

        return PipelineDataset(self, **options)

    def as_datapipe(self, **options: Any) -> PipelineDataPipe:
        """An ``IterDataPipe`` of what the pipeline gives, for graphs of torch's own datapipes.

        Args:
            **options: as for :meth:`as_dataset`.

        Raises:
            PipelineError: an option breaks a rule.
        """
        from uio_pipes.run.dataset import PipelineDataPipe

        return PipelineDataPipe(self.as_dataset(**options))

    def peek(self) -> Peek:
        """Run one utterance; returns a table of it after every stage: fields, shapes, planned length, time."""
        from uio_pipes.seeing.peek import peek

        return peek(self)

    def plot(self, path: str | os.PathLike[str], count: int = 3) -> None:
        """Draw waveform, features and masks of the first utterances to a PNG. Needs ``pip install 'uio_pipes[plot]'``.

        Args:
            path: the file to write.
            count: how many utterances to draw, at least 1. Default: 3.

        Raises:
            PipelineError: ``count`` is below 1, there is neither audio nor features, or matplotlib is missing.
        """
        from uio_pipes.seeing.plot import plot

        plot(self, path, count)

    # A description holds no data: what asks it for some is told what does.

    def __iter__(self) -> NoReturn:
        raise TypeError(f"a Pipeline only describes a graph and gives no batches by itself. {RUN}")

    def __len__(self) -> NoReturn:
        raise TypeError(
            f"a Pipeline only describes a graph and has no length; len(uio.Loader(pipeline)) counts batches. {RUN}"
        )

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(
            "a Pipeline only describes a graph and cannot be indexed; uio.open_index(…) gives utterances of indexed "
            f"shards by key. {RUN}"
        )

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        lines = self._lines()
        width = min(75, max(len(text) for text, _ in lines))
        return "\n".join(f"{text:{width}}  {note}".rstrip() for text, note in lines)

    def _lines(self) -> list[tuple[str, str]]:
        """The graph: each stage's text, drawn, and its note."""
        lines: list[tuple[str, str]] = []
        for i, stage in enumerate(self.stages):
            branch = "" if i == 0 else "└─ " if i == len(self.stages) - 1 else "├─ "
            lines.append((branch + stage.describe(), f"· {stage.note}" if stage.note else ""))
            for name, pipeline in list(stage.branches.items())[:MOST]:
                first, *rest = pipeline._lines()
                lines.append((f"│  ╭─ {name}: {first[0]}", first[1]))
                lines += [(f"│  │  {text}", note) for text, note in rest]
            if len(stage.branches) > MOST:
                lines.append((f"│  ╭─ … {len(stage.branches)} sources in all", ""))
        return lines


def _connected(stage: Stage, upstream: Any, site: Site, lane: Lane) -> Node:
    return name_node(stage.connect(upstream, lane, site), lane, site)


RUN = (
    "To run it: for batch in uio.Loader(pipeline), or, in a loader of torch's, "
    "DataLoader(pipeline.as_dataset(), batch_size=None)"
)
MOST = 8  # sources of a mix that are drawn, lanes that are named


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
    if kind == "record":
        return "put .load_records() before it"
    return f"put it elsewhere: {stage.name} takes {' or '.join(map(_plural, stage.takes))}"
