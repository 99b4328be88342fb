"""``from_parquet``: the rows of Parquet files, in any order of row groups, and of rows within each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from uio_pipes.base.checks import require, require_paths
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.urls import AnyPath, is_named
from uio_pipes.core.capabilities import KnowsFields
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Source, SourceNode
from uio_pipes.core.stage import NO_IDENTITY, Node, Trait, names
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.naming import names_of
from uio_pipes.io.access import PLAIN, Access, AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.parquet.columns import PAYLOADS, ParquetColumn
from uio_pipes.sources.parquet.table import (
    LIGHT,
    SUFFIXES,
    Cell,
    ParquetTable,
    RowGroup,
    RowOrder,
    columns_here,
    columns_within,
    fields_in,
)
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.stages.reading.loading import Loading


class ParquetRow(NamedTuple):
    """A row that has not been read yet, and its position in the order of the epoch."""

    table: ParquetTable
    number: int
    origin: Origin
    order: RowOrder
    position: int

    @property
    def key(self) -> str:
        return self.table.key(self.number)

    @property
    def place(self) -> str:
        return self.table.place(self.number)


@dataclass(frozen=True)
class ListParquet(KnowsFields, Source):
    """Rows of Parquet files. ``shuffle``: row groups, and the rows in each, in another order in each epoch."""

    name: ClassVar[str] = "list_parquet"
    sentence: ClassVar[str] = "Parquet, such as data sets on the Hugging Face Hub"
    traits: ClassVar[Trait] = Trait.DECODED

    paths: tuple[str, ...] = field(metadata=NO_IDENTITY)
    shuffle: bool = False
    columns: tuple[str, ...] | None = None
    access: Access = field(default=PLAIN, repr=False)
    fields: Mapping[str, str] | None = names()

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if is_named(seen.path, SUFFIXES):
            return Found("Parquet file", from_parquet, (seen.path,), records=lambda: columns_within(seen.path))
        listed = any(is_named(line, SUFFIXES) for line in seen.entries[:1])
        return Found("list of Parquet files", from_parquet, (seen.path,)) if listed else None

    def table(self) -> ParquetTable:
        """Read the footers. Raises: ListError naming the file."""
        return ParquetTable(self.paths, self.access, self.fields or {}, self.columns)

    @cached_property
    def first_columns(self) -> list[ParquetColumn]:
        """The columns to read, as the first file has them, if the files are on this machine. Raises: ListError."""
        return columns_here(self.paths, self.access, self.fields or {}, self.columns)

    def lacking(self, name: str) -> str:
        there, made = self.first_columns, self.fields or {}
        if not there or name in made or name in (column.field for column in there):
            return ""
        values = {column.name: b"" if column.heavy else None for column in there}
        return f"the files have no such column: {named_otherwise(name, values, given=made)}"

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return _ParquetNode(self, lane, site)


class _ParquetNode(SourceNode):
    order: RowOrder

    def make_order(self) -> RowOrder:
        orders = self.lane.shared("row orders", WeakValueDictionary[Hashable, RowOrder])
        seed = self.lane.order_key(self.site) if self.stage.shuffle or self.lane.resampled else None
        key = (self.stage, seed, self.lane.resampled)
        order = orders.get(key)
        if order is None:
            order = orders[key] = RowOrder(self.table.rows, self.lane.count, seed, self.lane.resampled)
        return order

    def next(self) -> ParquetRow:
        record = super().next()
        return ParquetRow(self.table, record.number, record.origin, self.order, self.position - 1)


@dataclass(frozen=True)
class LoadFromParquet(Loading):
    """The utterances in the rows of Parquet files. The row group that a lane enters next is read ahead."""

    name: ClassVar[str] = "load_from_parquet"
    takes: ClassVar[tuple[str, ...]] = ("record",)

    def loader(self, lane: Lane) -> Callable[[ParquetRow], dict[str, Any]]:
        return _RowReader(lane).load

    def key(self, item: ParquetRow, error: DataError) -> str:
        return error.key or item.key


class _RowReader:
    """Loads the rows of one lane; it holds the row group that the lane is in, and the next one."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.at = -1
        self.group: RowGroup | None = None
        self.ahead: RowGroup | None = None

    def load(self, item: ParquetRow) -> dict[str, Any]:
        at, row = item.table.locate(item.number)
        if self.group is None or at != self.at:
            self.at, self.group, self.ahead = at, item.table.group(at), None
        if self.lane.makes_batches and self.ahead is None:
            self._begin(item)
        fields = fields_in(self.group, row)
        if self.lane.makes_batches:
            for name in PAYLOADS:
                if isinstance(cell := fields.get(name), Cell):
                    with suppress(DataError):  # which it raises when it is touched
                        fields[name] = cell.taken()
        return fields

    def _begin(self, item: ParquetRow) -> None:
        following = item.order.following(item.position)
        self.ahead = self.group if following is None else item.table.group(following)
        assert self.group is not None
        assert self.ahead is not None
        for group in (self.group, self.ahead):
            group.begin(LIGHT, *(c.name for c in group.columns if c.heavy and c.field in PAYLOADS))


_STAGE = "from_parquet"


@reaches_files
def from_parquet(
    paths: AnyPath | Iterable[AnyPath],
    *,
    shuffle: bool = False,
    fields: Mapping[str, str] | None = None,
    columns: Iterable[str] | None = None,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from Parquet files with one utterance per row: ``uio.from_parquet("hf://datasets/…/*.parquet")``.

    Audio is a column of bytes, of ``{"bytes", "path"}`` (as Hugging Face stores it), of paths, or of lists of samples.
    The footers give the number of utterances, so that the length of an epoch is known before it begins, and any
    number of lanes get equally many. Of each row group only the columns that are needed are read, while the one before
    it is in use; columns of bytes other than the audio are read when they are touched. A column ``duration`` (seconds)
    gives the lengths, otherwise the audio's header does. Needs ``pip install 'uio_pipes[parquet]'``, and
    ``hf://`` also ``pip install huggingface_hub``.

    Args:
        paths: files, globs, ``{a,b}`` braces and URLs, or list files with one of these a line. Give one, or several in
            a list.
        shuffle: whether to deal the row groups, and the rows within each, in another order in each epoch. Add
            ``.shuffle(…)`` to mix rows of several row groups. Default: False.
        fields: our names of fields, with those of their columns, as in ``{"wav": "speech", "txt": "sentence"}``, or
            with expressions over them, as for :func:`from_table`, in which ``table`` stands for the path of the file.
            Default: None, the columns have ours, or those that are usual at Hugging Face: ``audio`` for ``wav``,
            ``text`` for ``txt``, ``id`` for ``key``. Without a column for it, ``key`` is made of the file's name and
            the number of the row.
        columns: names of the other columns to read. Default: None, all of them.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule, or pyarrow is not installed.
        ListError: the first of the files, if they are on this machine, has not the columns that were named; when the
            pipeline runs, if a file is missing, its footer is damaged, or its columns are not those of the first file.
    """
    if find_spec("pyarrow") is None:
        raise PipelineError("from_parquet needs pyarrow: pip install 'uio_pipes[parquet]'")
    given = require_paths(_STAGE, "paths must be a path or URL, or several", paths, "name a file, or *.parquet")
    require(isinstance(shuffle, bool), _STAGE, "shuffle must be True or False", shuffle, "choose one")
    names_of(_STAGE, fields)
    kept = None if columns is None else tuple(columns)
    ok = not isinstance(columns, str) and all(isinstance(name, str) for name in kept or ())
    require(ok, _STAGE, "columns must be names of columns", columns, 'as in ["speaker_id"]')
    stage = ListParquet(given, shuffle, kept, Access.of(_STAGE, **access), fields)
    stage.first_columns  # noqa: B018  the columns that were named must be there
    return Pipeline((stage,)).sharding_filter().then(LoadFromParquet())
