"""What reads lists: ``list_files``, their lines, and ``sharding_filter``, each lane's share of what a source gives;
``resampled`` and ``declare``, which all sources can have; ``load_from_raw`` and ``load_records``, which load one
utterance of each item, and their node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar, Literal

from uio_pipes.audio.containers import DECLARED, Declared
from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError, LeftOut, ListError
from uio_pipes.base.hashing import stable_hash
from uio_pipes.core.capabilities import Branch, Connects, FileList, LooksAhead, ReadsFiles, Upstream
from uio_pipes.core.items import Item, Record, SampleMaker, Upcoming, without_traceback
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.pulse import PULSE
from uio_pipes.core.roles import Flow, Source, check_there
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Stage, Trait, names
from uio_pipes.formats.lists.json_lines import first_objects, parse
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.formats.naming import asked, check_asked, names_of, transcript
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.opened_ahead import settled
from uio_pipes.io.opening import reference


@dataclass(frozen=True)
class ListFiles(ReadsFiles, Source):
    """Lines of data lists. ``shuffle``: in another order in each epoch, by hashes of seed, epoch and number."""

    name: ClassVar[str] = "list_files"
    gives: ClassVar[str] = "item"

    paths: tuple[str, ...] = field(metadata=NO_IDENTITY)
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)

    def table(self) -> ItemTable:
        """Read the lists. Raises: ListError naming list and line."""
        return ItemTable(self.paths, self.access)

    def files(self, listed: list[FileList]) -> list[FileList]:
        return [FileList(self.table, self.access)]

    def item(self, table: ItemTable, number: int, origin: Origin) -> Item:
        return Item(table[number], table.place(number), origin, self.access, table.expected(number))


@dataclass(frozen=True)
class Resampled(Connects, Flow):
    """Draw items of the source with replacement, as many as there are: ``resampled=True`` of all sources."""

    name: ClassVar[str] = "resampled"
    takes: ClassVar[tuple[str, ...]] = ("item", "file", "record")
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE
    note: ClassVar[str] = "drawn with replacement, anew in each epoch"

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        return upstream(replace(lane, resampled=True))


@dataclass(frozen=True)
class Declare(Flow):
    """Say how far audio may differ from what its list declares: ``tolerance=`` and ``longer=`` of all sources."""

    name: ClassVar[str] = "declare"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE

    tolerance: float | None = None
    longer: Literal["fail", "trim"] = "fail"

    def check(self, before: Sequence[Stage]) -> None:
        check_there("tolerance or longer", ["wav"], before)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _DeclareNode(source, Declared(self.tolerance, self.longer == "trim"))


class _DeclareNode(Node):
    def __init__(self, source: Node, declared: Declared) -> None:
        super().__init__(source)
        self.declared = declared

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        sample.fields[DECLARED] = self.declared
        return sample


@dataclass(frozen=True)
class ShardingFilter(Connects, Flow):
    """Give each lane its share of the data: item ``p`` of the epoch goes to lane ``p % lanes``.

    Put it directly after ``list_files`` (shards are dealt out), after a ``mix``, or anywhere before the batches. A
    graph without it can run in one lane only, that is on one rank with at most one worker. With as many lanes as
    there are workers in all, which is the default, the shares are WeNet's
    ``data[rank::world_size][worker::num_workers]``.

    Raises:
        PipelineError: there is one already; a second one would keep a share of a share and lose the rest.
    """

    name: ClassVar[str] = "sharding_filter"
    takes: ClassVar[tuple[str, ...]] = ("any",)
    traits: ClassVar[Trait] = Trait.DEALS

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        """The nodes before it are the same for all lanes."""
        return _ShardingNode(upstream(lane.common()), lane)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        lanes, first = len(counts), first_lane(path)
        return [len(range((lane - first) % lanes, n, lanes)) for lane, n in enumerate(counts)]


def first_lane(path: str) -> int:
    """Return the lane (modulo their number) of the first item, where ``path`` names the source of a mix."""
    return stable_hash("first lane", path) if path else 0


class _ShardingNode(Node):
    state_fields = ("gap",)

    def __init__(self, source: Node, lane: Lane) -> None:
        super().__init__(source)
        self.lane = lane

    def start(self) -> None:
        # Items to skip before the next one of ours. The sources of a mix begin with different lanes; otherwise the
        # first lane would get the first item of each.
        self.gap = (self.lane.index - first_lane(self.lane.source)) % self.lane.count

    def next(self) -> Any:
        if self.gap:
            gap, self.gap = self.gap, 0
            self.source.skip(gap)
        item = self.source.next()
        self.gap = self.lane.count - 1
        return item

    def remaining(self) -> tuple[int, int]:
        held, items = self.source.remaining()
        return held, -(-max(0, items - self.gap) // self.lane.count)


class Loading(Flow):
    """A stage that makes one utterance of each item; its audio is not opened yet. Items have an
    ``origin`` and a ``place``, for messages."""

    gives: ClassVar[str] = "sample"
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE

    def load(self, item: Any) -> dict[str, Any]:
        """Return the fields of ``item``. Raises: DataError."""
        raise NotImplementedError

    def loader(self, lane: Lane) -> Callable[[Any], dict[str, Any]]:
        """Return the function that loads the items of one lane."""
        return self.load

    def key(self, item: Any, error: DataError) -> str:
        """Return the name of the utterance that failed with ``error``, as far as it is known."""
        raise NotImplementedError

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        if lane.drawn is not None:
            lane.drawn.load = self.load
        return _LoadingNode(source, lane, self)


class _LoadingNode(Node):
    def __init__(self, source: Node, lane: Lane, stage: Loading) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage
        self.loaded = SampleMaker(lane)
        self.upcoming: Upcoming[Any] = Upcoming(source, stage.loader(lane), lane)

    def next(self) -> Sample:
        while True:
            item, fields = self.upcoming.next()
            if not isinstance(fields, DataError):
                fields = self._settled(item, fields)
            if isinstance(fields, DataError):
                if not isinstance(fields, LeftOut):  # which is only counted
                    fields.key, fields.item = self.stage.key(item, fields), item.origin.item
                self.lane.ledger.fail(fields, self.stage.name)
            else:
                self.lane.ledger.succeeded(self.stage.name)
                return self.loaded.sample(fields, item.origin, item if isinstance(item, Record) else item.place)

    def _settled(self, item: Any, fields: dict[str, Any]) -> dict[str, Any] | DataError:
        """Return the fields with the paths where files are, or the error if looking for one hangs."""
        try:
            PULSE.at("load", item)
            return fields | {name: settled(fields[name]) for name in ("wav", "feat") if name in fields}
        except DataError as error:
            return without_traceback(error)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        self.upcoming.clear()
        super().reset(initial_state)

    def get_state(self) -> dict[str, Any]:
        return self.upcoming.get_state()

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.upcoming)


@dataclass(frozen=True)
class LoadFromRaw(LooksAhead, Loading):
    """Read the utterances of a raw list: one JSON object per line, ``{"key": …, "wav": path or URL, "txt": …}``.

    A line may also have ``start`` and ``end`` (seconds: the utterance is that segment of the recording),
    ``duration`` (seconds: the audio's header is then not read to plan), ``speaker``, ``feat`` (path of a .npy array
    (T, F), instead of ``wav``), and any other name: all are kept as fields.

    Args:
        fields: our names of fields whose names in the lines are others, as in ``{"wav": "audio", "txt": "text"}``.
            Default: None, all have ours.
        text: name that holds the transcript; None if utterances need none: ``txt`` is then there where a line has it.
            Default: "txt".
    """

    name: ClassVar[str] = "load_from_raw"
    takes: ClassVar[tuple[str, ...]] = ("item",)

    fields: Mapping[str, str] | None = names()
    text: str | None = "txt"

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.text is None or (isinstance(self.text, str) and bool(self.text))
        require(ok, self.name, "text must be the name of the transcript, or None", self.text, 'as in text="sentence"')
        names_of(self.name, self._names)

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        return Trait.ONE_TO_ONE if self.text is not None else Trait.ONE_TO_ONE | Trait.TEXTLESS

    @cached_property
    def _names(self) -> dict[str, str]:
        """Our names of fields, with those in the lines."""
        theirs = transcript(self.name, self.text, self.fields)
        return {**(self.fields or {}), **({} if theirs == "txt" else {"txt": theirs})}

    def look(self, before: Branch) -> None:
        tables = [each.lines() for each in before._files()] if self._names else []
        records = chain.from_iterable(map(first_objects, tables))
        check_asked(records, asked(self._names, self.text), tables[0].place(0) if tables else "")

    def loader(self, lane: Lane) -> Callable[[Item], dict[str, Any]]:
        return partial(self.load, needs_text=lane.needs_text)

    def load(self, item: Item, needs_text: bool = True) -> dict[str, Any]:
        try:
            needed = needs_text and self.text is not None
            return parse(item.text, item.place, self._names, needed, lambda path, of: reference(path, item.access, of))
        except ListError as error:
            if not item.origin.item:  # the first line: a list of another kind
                raise
            raise DataError("bad_line", f"not a JSON object: {item.text[:80]!r}", url=item.place) from error

    def key(self, item: Item, error: DataError) -> str:
        return error.member


@dataclass(frozen=True)
class LoadRecords(Loading):
    """Read the utterances of a source with random access: indexed tars, TouchDatasets, Kaldi tables, manifests.

    ``uio.from_tar_index``, ``uio.from_indexed``, ``uio.from_kaldi``, ``uio.from_nemo`` and others end with this stage.
    Audio is read when the batch is made.
    """

    name: ClassVar[str] = "load_records"
    takes: ClassVar[tuple[str, ...]] = ("record",)

    def load(self, item: Record) -> dict[str, Any]:
        return item.records.fields(item.number)

    def key(self, item: Record, error: DataError) -> str:
        return error.key or item.key
