"""The three roles of a stage: an :class:`Op` works on one utterance, a :class:`Flow` orders, holds, groups or splits
what passes, and a :class:`Source` begins a graph."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.length import Plan
from uio_pipes.audio.timeline import Timeline
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws, Permutation, pick, picks
from uio_pipes.base.memory import remembers
from uio_pipes.core.capabilities import KnowsFields, branches_of
from uio_pipes.core.chain import ANY, audio_names, check_stream
from uio_pipes.core.items import Record
from uio_pipes.core.lane import ROUND_BITS, Lane, Site
from uio_pipes.core.origin import MAKERS, Origin
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Deferred, Node, Stage, Trait
from uio_pipes.core.stage_link import MovingLink, StageLink, decoder, decodes, own_names


class Flow(Stage):
    """A stage that orders, holds, groups or splits what passes. It writes :meth:`build`, and mostly a node of its own.
    Subclasses are frozen dataclasses."""


@dataclass(frozen=True)
class Op(Stage):
    """A stage that works on one utterance when a field that it writes is touched.

    Subclasses name the fields they read and write, say what they do to the planned length, and write into
    ``sample.fields``. ``draws`` is the sample's generator for this stage, the same in ``plan`` and ``apply``. Audio
    that a stage reads is decoded, unless it is the stage that sets ``sample_rate``. ``may_lack``: those of the fields
    that it ``reads`` which an utterance may lack. ``moves``: the fields by which :meth:`move` moves a timeline; None if
    all times stay.
    """

    gives: ClassVar[str] = "sample"
    note: ClassVar[str] = "when the batch is made"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE
    reads: ClassVar[Collection[str]] = ()
    writes: ClassVar[Collection[str]] = ()
    may_lack: ClassVar[Collection[str]] = ()
    moves: ClassVar[Collection[str] | None] = None

    of = ""  # the stream that it works on (see OfStream)

    @property
    def changes_length(self) -> bool:
        """True if :meth:`plan` does something."""
        return getattr(self.plan, "__func__", None) is not Op.plan

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        """Return the planned length after this stage: an upper bound for what :meth:`apply` makes.

        Args:
            plan: the planned length of the ``sample`` before; None if it has none.
            sample: the utterance, not realized yet.
            draws: the random generator that :meth:`apply` gets, too.
        """
        return plan

    def apply(self, sample: Sample, draws: Draws) -> None:
        """Compute the fields that this stage writes.

        Args:
            sample: the utterance; what the stage reads is there.
            draws: the random generator of this utterance in this stage.
        """
        raise NotImplementedError

    def move(self, timeline: Timeline, sample: Sample, draws: Draws) -> Timeline:
        """Return the ``timeline`` of the ``sample`` after this stage; before :meth:`apply`, with the same ``draws``."""
        raise NotImplementedError

    def check(self, before: Sequence[Stage]) -> None:
        """Raises: PipelineError if this stage cannot work here: what it reads is not there, is still to be decoded, or
        is made anew by a stage that comes too late, such as one that works on audio after features. ``before``: the
        stages before it."""
        if not sees_all(before):
            return
        needed = {*self.reads} - {*self.may_lack}
        if {*self.reads} == {"txt"} and not self.of and (source := _textless(before)) is not None:
            rule = f"{self.name} needs the transcript, but {source.name} makes it optional"
            how = "as in text='txt'" if hasattr(source, "text") else "as txt in fields"
            raise PipelineError(f"{rule}: remove {self.name}, or name the transcript there, {how}")
        whole = {self.of} if self.of and "feat" not in needed else needed if not self.of else set[str]()
        check_there(self.name, whole - {"sample_rate", "*"}, before)
        audio = needed & {"wav", "sample_rate"} and not decodes(self)
        if audio and (stored := _stored(self.of, before)) is not None:
            problem = f"{self.name} needs decoded audio, but the audio of {stored.name} is not decoded here"
            raise PipelineError(f"{problem}: put {decoder(self.of)} before {self.name}")
        makes, made = {*self.writes} - {*self.reads}, {"wav"}
        for stage in before:
            if not isinstance(stage, Op) or stage.of != self.of:
                continue
            if "feat" in stage.writes and "wav" in self.writes:
                rule = f"{self.name} works on audio, but {stage.name} has already turned it into features"
                raise PipelineError(f"{rule}: put {self.name} before {stage.name}")
            if "feat" in makes & {*stage.writes} - {*stage.reads}:
                rule = f"{self.name} computes features, but {stage.name} before it has already done so"
                order = "" if stage.name == self.name else f"put {self.name} before {stage.name}, or "
                raise PipelineError(f"{rule}: {order}remove one")
            if late := sorted(makes & ({*stage.reads} - {*stage.may_lack}) - made):
                rule = f"{stage.name} works on {late[0]}, but {self.name} creates it only later"
                raise PipelineError(f"{rule}: put {self.name} before {stage.name}, or remove one")
            made |= {*stage.writes}

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        moving = None if self.moves is None or self.of else MovingLink(self, site)
        return Deferred(source, StageLink(self, site), moving)


@dataclass(frozen=True)
class OfStream(Op):
    """A stage that can work on any stream of an utterance. In the stream ``of="prompt"``, the field ``prompt`` takes
    the place of ``wav`` (or of ``txt``), ``prompt_feat`` that of ``feat``, and so on. It knows only the usual names."""

    of: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_stream(self.name, self.of)


def sees_all(stages: Sequence[Stage]) -> bool:
    """True if no function or node of the user's is among ``stages``, so that all work on utterances is known."""
    return not any(Trait.OPAQUE in stage.traits for stage in stages)


def have_features(stages: Sequence[Stage], of: str = "") -> bool:
    """True if one of these stages makes features of the audio stream ``of``."""
    return any(isinstance(stage, Op) and "feat" in stage.writes and stage.of == of for stage in stages)


def check_there(stage: str, reads: Collection[str], before: Sequence[Stage]) -> None:
    """Raises: PipelineError if ``stage`` needs a field that the source says it lacks, and no stage ``before`` makes
    it."""
    for name in sorted({*reads} - {"key"}) if sees_all(before) else ():  # every utterance has a key
        if lacking := _lacking(name, before):
            maker = MAKERS.get(name) if name in ("feat", "label") else None  # audio comes from the source
            made = f"nothing creates it here: put {maker} before {stage}" if maker else lacking
            raise PipelineError(f"{stage} works on {name}, and {made}")


def check_labels(stage: str, length: Any, before: Sequence[Stage]) -> None:
    """Raises: PipelineError if a ``length`` by which ``stage`` goes, or one of a pair, is that of labels which nothing
    makes."""
    counted = "tokens" in (length if isinstance(length, tuple) else (length,))
    check_there(stage, ["label"] if counted else [], before)


def _lacking(name: str, stages: Sequence[Stage]) -> str:
    """Return what the source says of a field that it lacks; "" if it may have it, or a stage after it may make it."""
    for stage in reversed(stages):
        if isinstance(stage, KnowsFields):
            return stage.lacking(name)
        if mixed := not stage.takes and [_lacking(name, graph.stages) for graph in branches_of(stage).values()]:
            return mixed[0] if all(mixed) else ""
        if {name, "*"} & own_names(stage)[1] if isinstance(stage, Op) else _makes_utterances(stage):
            return ""
    return ""


def _makes_utterances(stage: Stage) -> bool:
    """True if a stage makes utterances of others, whose fields are unknown."""
    return stage.gives == "sample" and not {"item", "file", "record"} & {*stage.takes}


def _stored(of: str, stages: Sequence[Stage]) -> Stage | None:
    """Return the source whose audio, of the stream ``of``, comes as it is stored, and which no stage decodes."""
    audio = frozenset(audio_names(of)[name] for name in ("wav", "sample_rate")) if of else {"wav", "sample_rate"}
    for stage in reversed(stages):
        if not stage.takes:
            found = (_stored(of, graph.stages) for graph in branches_of(stage).values())
            alone = None if branches_of(stage) or Trait.DECODED in stage.traits else stage
            return next(filter(None, found), alone)
        reads, writes = own_names(stage) if isinstance(stage, Op) else (ANY, frozenset[str]())
        unknown = Trait.OPAQUE in stage.traits or (not isinstance(stage, Op) and _makes_utterances(stage))
        if unknown or not audio.isdisjoint(writes - reads):
            return None
    return None


def _textless(stages: Sequence[Stage]) -> Stage | None:
    """Return the source whose utterances need no transcript, if nothing after it makes or chooses those that have."""
    for stage in reversed(stages):
        mixed = not stage.takes and branches_of(stage).values()
        if Trait.TEXTLESS in stage.traits or (mixed and all(_textless(graph.stages) for graph in mixed)):
            return stage
        if isinstance(stage, Op):
            chooses = "txt" in stage.writes
        else:
            chooses = "sample" in stage.takes and Trait.ONE_TO_ONE not in stage.traits
        if chooses or Trait.OPAQUE in stage.traits:
            return None
    return None


class Source(Stage):
    """The beginning of a graph: its table knows how many utterances there are, and gives each by its number.

    Subclasses are frozen dataclasses with a field ``shuffle``; :meth:`table` opens a
    :class:`~uio_pipes.core.items.Records`, from which ``load_records`` reads. Paths and the like have the metadata
    :data:`~uio_pipes.core.stage.NO_IDENTITY`: the items have a fingerprint of their own, so that data can move.
    """

    takes: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[str] = "record"

    shuffle: bool

    def table(self) -> Any:
        """Open the items: a table with ``digest``, ``weights`` or None, and ``place(number)``. Raises: ListError."""
        raise NotImplementedError

    def item(self, table: Any, number: int, origin: Origin) -> Any:
        """Return item ``number`` of ``table``; it has a ``key`` and an ``origin``."""
        return Record(table, number, origin)

    def content(self) -> list[tuple[int, str]]:
        table = self.table()
        _read_lately.pop(self, None)
        _read_lately[self] = time.monotonic(), table
        while len(_read_lately) > _KEPT:
            _read_lately.pop(next(iter(_read_lately)), None)
        return [(len(table), table.digest)]

    def recent_table(self) -> Any:
        """Return the table that :meth:`content` has read a short time ago, in this process or before a fork; it is
        given once. Without one, it is read. Raises: ListError."""
        read, table = _read_lately.pop(self, (-math.inf, None))
        return table if time.monotonic() - read < LATELY else self.table()

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return SourceNode(self, lane, site)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return [len(self.table())] * len(counts)


LATELY = 60.0  # seconds in which a table is taken to be as it was read
_KEPT = 16  # tables that wait for lanes to begin
_read_lately: dict[Source, tuple[float, Any]] = {}
remembers("tables for lanes to come", lambda: len(_read_lately), _KEPT, "tables")


Order = Permutation | npt.NDArray[np.int64]


class ResampledOrder:
    """The numbers of as many items as there are, each drawn anew of all ``n``: draw ``d`` is a hash of ``key`` and d.

    ``weights``: lengths of the items, by which the draws are dealt to ``lanes`` that get equal sums.
    """

    def __init__(self, n: int, key: int, weights: npt.NDArray[np.int64] | None, lanes: int) -> None:
        self._n, self._key = n, key
        self._draws: range | npt.NDArray[np.int64] = range(n)
        if weights is not None and lanes > 1:
            self._draws = balanced(np.arange(n), weights[picks(key, n, n)], lanes)

    def __len__(self) -> int:
        return self._n

    def draw(self, position: int) -> int:
        """Return the number of the draw at a position."""
        return int(self._draws[position])

    def __getitem__(self, position: int) -> int:
        return pick(self._key, self.draw(position), self._n)


class SourceNode(Node):
    """Gives the items of a source, in the order of the pass. ``resampled``: they are drawn with replacement; each draw
    counts as a pass of its own, so that what comes again is augmented anew."""

    state_fields = ("position",)

    def __init__(self, stage: Source, lane: Lane, site: Site) -> None:
        super().__init__()
        self.stage, self.lane, self.site = stage, lane, site

    def start(self) -> None:
        self.table: Any = self.lane.shared(("table", self.stage), self.stage.recent_table)
        if (drawn := self.lane.drawn) is None:
            self.order = self.make_order()
        else:  # by a later stage, which knows all items
            make = partial(drawn.stage.order, self.stage, drawn.load, self.table, self.lane)
            self.order = drawn.order = self._shared(drawn.stage, make)
        self.position = 0

    def make_order(self) -> Any:
        """Return the number of the item at each position of this pass."""
        if self.lane.resampled:
            table, lanes = self.table, self.lane.count
            return self._shared("resampled", lambda key: ResampledOrder(len(table), key, table.weights, lanes))
        return self._shared(None, self._shuffled) if self.stage.shuffle else range(len(self.table))

    def _shared(self, kind: Hashable, make: Callable[[int], Any]) -> Any:
        """Return the order of this pass, which all lanes of the process that are in it share."""
        orders = self.lane.shared("orders", WeakValueDictionary[Hashable, Any])
        key = (self.stage, self.lane.order_key(self.site), kind)
        order = orders.get(key)
        if order is None:
            order = orders[key] = make(key[1])
        return order

    def _shuffled(self, key: int) -> Order:
        order = Permutation(len(self.table), key)
        weights = self.table.weights
        return order if weights is None or self.lane.count == 1 else balanced(order.all(), weights, self.lane.count)

    def next(self) -> Any:
        if self.position >= len(self.order):
            raise StopIteration
        if not self.position:
            self.begin()
        number, pass_ = int(self.order[self.position]), self.lane.pass_
        if self.lane.resampled:
            pass_ = (pass_ << ROUND_BITS) + self.order.draw(self.position)
        self.position += 1
        if self.lane.drawn is not None:
            copy, number = divmod(number, len(self.table))
            pass_ = (pass_ << ROUND_BITS) + copy
        return self.stage.item(self.table, number, Origin(number, 0, (), pass_, self.lane.source))

    def begin(self) -> None:
        """Report problems of the list itself, before its first item."""
        for note in getattr(self.table, "notes", ()):
            self.lane.ledger.fail(note, self.stage.name)

    def skip(self, n: int) -> None:
        if not self.position and n:
            self.begin()
        if self.position + n > len(self.order):
            self.position = len(self.order)
            raise StopIteration
        self.position += n

    def remaining(self) -> tuple[int, int]:
        return 0, len(self.order) - self.position


def balanced(order: npt.NDArray[np.int64], weights: npt.NDArray[np.int64], lanes: int) -> npt.NDArray[np.int64]:
    """Rearrange each group of ``lanes`` items of ``order``: the longest item goes to the lane with the least so far.

    Item ``p`` of the result belongs to lane ``p % lanes``; the sums of the lanes then differ by little more than the
    longest item (longest processing time first, Graham 1969, run by run).
    """
    out: npt.NDArray[np.int64] = order.copy()
    totals, whole_runs, step = [0] * lanes, len(order) // lanes * lanes, lanes * _RUNS
    bounds = sorted({*range(0, whole_runs, step), whole_runs, len(order)})
    for begin, end in pairwise(bounds):
        width = lanes if end <= whole_runs else end - begin
        _balance(out[begin:end].reshape(-1, width), weights, totals)
    return out


_RUNS = 4096  # sorted at once


def _balance(runs: npt.NDArray[np.int64], weights: npt.NDArray[np.int64], totals: list[int]) -> None:
    """Rearrange ``runs``, (number, lanes), and add the sums of their weights to ``totals``."""
    longest = np.argsort(-weights[runs], axis=1, kind="stable")
    runs[:] = np.take_along_axis(runs, longest, 1)
    lanes, places = range(runs.shape[1]), list[list[int]]()
    for sizes in weights[runs].tolist():
        least = sorted(lanes, key=totals.__getitem__)
        for lane, size in zip(least, sizes, strict=True):
            totals[lane] += size
        places.append(least)
    np.put_along_axis(runs, np.array(places).reshape(runs.shape), runs.copy(), 1)
