"""``balance`` and ``balanced_batch``: what draws the order of a source by the values of a field.

The values are read once, before anything is delivered, from the rows of a table, the lines of a list or an index. An
order of an epoch is then an array that seed and epoch decide, so that a position in it is all that a state needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from uio_pipes.base.checks import refuse, require
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.hashing import Permutation, stable_hash
from uio_pipes.base.memory import Lru
from uio_pipes.base.urls import plural
from uio_pipes.core.buffer import Buffer
from uio_pipes.core.capabilities import Branch, Connects, LooksAhead, MakesBatches, Upstream
from uio_pipes.core.lane import ROUND_BITS, ROUNDS, DrawnOrder, Lane, Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow, Source, balanced
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, Trait, must_be
from uio_pipes.io.references import Ref
from uio_pipes.stages.order.mix_node import Shares
from uio_pipes.stages.reading.loading import Loading, Resampled, ShardingFilter

Load = Callable[[Any], dict[str, Any]]
RowNumbers = npt.NDArray[np.int64]


class Classes:
    """The utterances of a table by the values of the field ``by``. Raises: ListError for one without it.

    ``of``: the class of each, -1 if it is ``unread``; ``names``, ``sizes``: the value of each class, how many have it.
    """

    def __init__(self, stage: str, source: Source, load: Load, by: str, table: Any) -> None:
        known: dict[str, int] = {}
        self.of: npt.NDArray[np.int32] = np.full(len(table), -1, np.int32)
        for number in range(len(table)):
            try:
                fields = load(source.item(table, number, Origin(number)))
                value = fields.get(by)
                value = value.read() if isinstance(value, Ref) else value
            except DataError:  # it fails again, and is counted, when its turn comes
                continue
            if value is None:
                there = f"{table.place(number)} has {', '.join(fields)}"
                raise ListError(f"{stage}: an utterance has no {by!r} ({there}): add it, or draw by another field")
            text = value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else str(value)
            self.of[number] = known.setdefault(text, len(known))
        self.names = list(known)
        self.sizes: RowNumbers = np.bincount(self.of[self.of >= 0], minlength=len(known)).astype(np.int64)
        self.firsts: RowNumbers = np.cumsum(self.sizes) - self.sizes
        self.unread: RowNumbers = np.flatnonzero(self.of < 0)

    def drawn(self, which: RowNumbers, counts: RowNumbers, starts: RowNumbers, key: int) -> RowNumbers:
        """Return ``counts`` utterances of each of the classes ``which``, one class after the other.

        Those of a class come in an order chosen by ``key``, from the place ``starts`` on. After its last one comes its
        first one again, as another copy: see :class:`~uio_pipes.core.lane.DrawnOrder`.
        """
        mixed = Permutation(len(self.of), key).all()
        mixed = mixed[self.of[mixed] >= 0]
        members = mixed[np.argsort(self.of[mixed], kind="stable")]
        turn = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        copies, places = np.divmod(np.repeat(starts, counts) + turn, np.repeat(self.sizes[which], counts))
        out: RowNumbers = members[np.repeat(self.firsts[which], counts) + places] + copies * len(self.of)
        return out


_known = Lru("values by which utterances are drawn", 1 << 30)


class DrawsByClass(Connects, LooksAhead, Flow):
    """A stage that draws the order of the source by the values of a field. Subclasses are frozen dataclasses."""

    orders: ClassVar[Sequence[str]] = ()  # stages that may not stand between it and the source; none: no stage may

    by: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.by), self.name, "by must be the name of a field", self.by, 'as in by="speaker"')

    def check(self, before: Sequence[Stage]) -> None:
        at = next((at for at, stage in enumerate(before) if isinstance(stage, Loading)), 0)
        loading: Any = before[at]
        listed = at and isinstance(before[0], Source) and type(loading).load is not Loading.load
        between = [stage for stage in before[1:at] if not isinstance(stage, ShardingFilter)]
        known = listed and all(isinstance(stage, Resampled) for stage in between)
        sentence = f"the values of {self.by!r} are not known before {before[at or -1].name} has read all utterances"
        how = "index shards by `uio index` and begin with uio.from_tar_index"
        how += ", or use a table or a raw list (uio convert --to raw makes one); in a mix, put it into each of them"
        refuse(not known, self.name, sentence, how)
        after = [stage for stage in before[at + 1 :] if not self.orders or stage.name in self.orders]
        late = [stage.name for stage in (*between, *after)]
        sentence = f"it draws the order of the source itself, but {''.join(late[:1])} comes between them"
        how = f"remove {''.join(late[:1])}" if self.orders or between else f"put {self.name} directly after the source"
        refuse(late, self.name, sentence, how)

    def look(self, before: Branch) -> None:
        source, *others = before.stages
        assert isinstance(source, Source)
        self.read(source, next(stage.load for stage in others if isinstance(stage, Loading)), source.table())

    def read(self, source: Source, load: Load, table: Any) -> Classes:
        """Return the utterances by their values. Raises: ListError."""
        key = (source, load, self.by, table.digest)
        return _known.get(key, lambda: Classes(self.name, source, load, self.by, table), lambda made: 32 * len(table))

    def order(self, source: Source, load: Load, table: Any, lane: Lane, key: int) -> Any:
        """Return the order of a pass; ``key``: its seed."""
        raise NotImplementedError


@dataclass(frozen=True)
class Balance(DrawsByClass):
    """Let rare languages, speakers or data sets come more often: values with n utterances get a share of n ** power.

    An epoch stays as long as it was, and is shuffled. All utterances of a value come equally often: the next epoch goes
    on where this one stopped among them, and those that come again in an epoch are augmented anew. Put it directly
    after the source, which must know all its utterances before: a table, a raw list, or an index of shards. Their
    values are read when a loader starts. An utterance that lacks the field is an error.

    Args:
        by: the field, such as "lang", "speaker" or "dataset".
        power: 1 changes nothing, 0 gives each value the same share; between them, small ones come more often than they
            would by their size. Default: 0.5.

    Raises:
        ListError: when the loader starts, if an utterance has no such field.
    """

    name: ClassVar[str] = "balance"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE

    by: str
    power: float = must_be(0.5, "from 0 to 1", lambda power: 0 <= power <= 1, "0 gives each value the same share")

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        return upstream(replace(lane, drawn=DrawnOrder(self)))

    def order(self, source: Source, load: Load, table: Any, lane: Lane, key: int) -> Any:
        known = self.read(source, load, table)
        sizes: list[int] = known.sizes.tolist()
        total, shares = sum(sizes), Shares([size**self.power for size in sizes]).weights if sizes else []
        whole, before = sum(shares) or 1, lane.epoch + lane.pass_ % ROUNDS
        # What is left of whole numbers goes to other values in each epoch, in proportion.
        rest = accumulate((total * share % whole for share in shares), initial=key % whole)
        counts = [
            total * n // whole + b // whole - a // whole for n, (a, b) in zip(shares, pairwise(rest), strict=True)
        ]
        starts = [before * total * n // whole % size for n, size in zip(shares, sizes, strict=True)]
        every = stable_hash("balance", lane.seed, lane.source, self.by)  # the same in all epochs
        which = np.arange(len(sizes))
        drawn = known.drawn(which, np.array(counts, np.int64), np.array(starts, np.int64), every)
        drawn = np.concatenate([drawn, known.unread])[Permutation(len(table), key).all()]
        if (lengths := table.weights) is not None and lane.count > 1:
            drawn = drawn[balanced(np.arange(len(table)), lengths[drawn % len(table)], lane.count)]
        return drawn


@dataclass(frozen=True)
class BalancedBatch(MakesBatches, DrawsByClass):
    """Make batches of ``classes`` values of a field, such as speakers, with ``each`` utterances of each of them.

    This is for metric learning and speaker models. An epoch has about as many utterances as the source: each comes at
    least once, unless its value would fill more than its place in every batch. A value with fewer than ``each``
    utterances repeats them, as others do to fill their last group; what comes again is augmented anew. Those of a
    value stand side by side, and all lanes have equally many batches. What a filter leaves out, or fails, leaves its
    batch smaller.

    The order of the source is drawn for it, so ``shuffle`` and ``sort`` are not needed. The source must know all its
    utterances before: a table, a raw list, or an index of shards. Their values are read when a loader starts.

    Args:
        by: the field, such as "speaker". An utterance that lacks it is an error.
        classes: how many values a batch has, at least 1.
        each: how many utterances of each of them, at least 1.

    Raises:
        ListError: when the loader starts, if there are fewer values, or an utterance has no such field.
    """

    name: ClassVar[str] = "balanced_batch"
    gives: ClassVar[str] = "batch"
    orders: ClassVar[tuple[str, ...]] = ("balance", "shuffle", "sort", "concat")

    by: str
    classes: int = must_be(MISSING, "1 or more", lambda classes: classes >= 1, "as in classes=16")
    each: int = must_be(MISSING, "1 or more", lambda each: each >= 1, "as in each=4")

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        drawn = DrawnOrder(self)
        return _BalancedNode(upstream(replace(lane, drawn=drawn)), lane, drawn)

    def order(self, source: Source, load: Load, table: Any, lane: Lane, key: int) -> Any:
        known, lanes = self.read(source, load, table), lane.count
        if len(known.names) < self.classes and known.names:
            values = ", ".join(known.names[:8]) + ", …" * (len(known.names) > 8)
            have = f"classes is {self.classes}, but {self.by!r} has only {plural(len(known.names), 'value')} ({values})"
            raise ListError(f"{self.name}: {have}: give as many at most")
        groups, batches = self._groups(known.sizes, lanes, key)
        mixed = Permutation(len(groups), stable_hash(key, "classes")).all()
        groups, each = groups[mixed], self.each
        drawn = known.drawn(mixed, groups * each, np.zeros_like(groups), stable_hash(key, "utterances"))
        places = self._places(np.repeat(mixed, groups), batches, key)
        dealt = drawn.reshape(-1, each)[places].reshape(-1, lanes, self.classes * each)
        drawn = dealt.transpose(0, 2, 1).reshape(-1)
        return _Dealt(drawn, len(table), self.classes * each * lanes, known.unread, lanes)

    def _groups(self, sizes: RowNumbers, lanes: int, key: int) -> tuple[RowNumbers, int]:
        """Return how many groups of utterances each value gives, and how many batches there are, equally many a lane.

        A value is in a batch once at most. What is then left of the places goes round among the others.
        """
        needed = -(-sizes // self.each)
        batches = -(-int(needed.sum()) // (self.classes * lanes)) * lanes
        groups = np.minimum(needed, batches)
        while left := self.classes * batches - int(groups.sum()):
            free = np.flatnonzero(groups < batches)
            more = min(left // len(free), batches - int(groups[free].max()))
            chosen = free if more else free[Permutation(len(free), stable_hash(key, left)).all()[:left]]
            groups[chosen] += max(1, more)
        return groups, batches

    def _places(self, values: RowNumbers, batches: int, key: int) -> RowNumbers:
        """Return the groups of each batch, (batches, classes), of different values; ``values``: those of the groups,
        one value after the other.

        Each place of a batch takes as many groups as there are batches, in random order. A value has no more groups
        than that, so it comes twice in a batch only if it begins in one place and goes on in the next one.
        """
        out = np.empty((batches, self.classes), np.int64)
        before: RowNumbers = np.zeros(0, np.int64)
        for place in range(self.classes):
            order = Permutation(batches, stable_hash(key, "place", place)).all()
            first = place * batches
            if place and values[first] == values[first - 1]:
                same = np.flatnonzero(values == values[first])
                late, early = np.isin(order, before[same[0] - first :]), int((same >= first).sum())
                chosen = order[~late][:early]
                order = np.concatenate([chosen, order[~np.isin(order, chosen)]])
            out[order, place] = np.arange(first, first + batches)
            before = order
        return out


class _Dealt:
    """The order of a pass: row after row of a batch for each lane, and between them what cannot be read."""

    def __init__(self, drawn: RowNumbers, items: int, row: int, unread: RowNumbers, lanes: int) -> None:
        self.items = items  # in the table
        self._sorted = np.argsort(drawn, kind="stable")
        self._drawn, self._row = drawn[self._sorted], row
        whole = len(unread) // lanes
        at = np.repeat(np.arange(whole) * (len(drawn) // lanes) // max(1, whole) * lanes, lanes)
        self.numbers = np.concatenate([np.insert(drawn, at, unread[: whole * lanes]), unread[whole * lanes :]])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, position: int) -> int:
        return int(self.numbers[position])

    def row(self, number: int) -> int:
        """Return the row of an utterance, with its copy."""
        return int(self._sorted[np.searchsorted(self._drawn, number)]) // self._row


class _BalancedNode(Buffer):
    def __init__(self, source: Node, lane: Lane, drawn: DrawnOrder) -> None:
        super().__init__(source, lane, BalancedBatch.name)
        self.drawn = drawn

    def order(self) -> list[int]:
        return self.first

    def rebuild(self, order: list[int]) -> None:
        self.first = order  # the first utterance of the next batch, by which the last one was known to be whole

    def next(self) -> list[Sample]:
        batch = self.first
        own = self._batch_of(self.held[batch[0]]) if batch else None
        self.first = []
        while True:
            try:
                number, item = self.pull()
            except StopIteration:
                if not batch:
                    raise
                break
            self.hold(number, item)
            of = self._batch_of(item)
            if batch and of != own:
                self.first = [number]
                break
            batch, own = [*batch, number], of
        return [self.release(number) for number in batch]

    def _batch_of(self, item: Sample) -> tuple[int, int]:
        """Return the round and the row of an utterance."""
        origin = item.origin
        round_, copy = origin.pass_ >> ROUND_BITS, origin.pass_ % ROUNDS
        return round_, self.drawn.order.row(origin.item + copy * self.drawn.order.items)
