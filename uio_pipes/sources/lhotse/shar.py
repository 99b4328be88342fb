"""``from_lhotse_shar``: the cuts of a Lhotse Shar with their recordings or features, read without Lhotse."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar

from uio_pipes.base.checks import require, require_paths
from uio_pipes.base.elsewhere import understood
from uio_pipes.base.errors import DataError, ListError, StateError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import AnyPath, inside, name_of, unsigned
from uio_pipes.core.buffer import OR_RESTART, reopening, taken
from uio_pipes.core.items import Item, Loaded
from uio_pipes.core.lane import Lane, Site, Taken
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow, Source
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import NO_IDENTITY, Node
from uio_pipes.formats.lists.table import expand
from uio_pipes.io.access import CACHE_SIZE, PLAIN, Access
from uio_pipes.io.opening import stamp
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.lhotse.shar_reader import SharCut, SharReader, as_fields
from uio_pipes.sources.lhotse.source import Pairs, WantedFields, pairs_of, unread

_NAME = re.compile(r"(?P<field>[^./]+)(?:\.(?P<number>[^/]*))?\.(?:tar|jsonl)(?:\.gz)?")
Sources = tuple[tuple[str, tuple[str, ...]], ...]


class SharTable:
    """The shards of a Shar; ``shards``: of each, its files by field, but for those ``unread``. Raises: ListError."""

    weights = None

    def __init__(self, sources: str | Sources, access: Access, unread: frozenset[str] = frozenset()) -> None:
        if isinstance(sources, str):
            found = _in_folder(sources, access)
        else:
            found = {name: [path for entry in paths for path in expand(entry, access)] for name, paths in sources}
        found = {name: paths for name, paths in found.items() if name not in unread}
        _check(found)
        names = list(found)
        self.shards = [dict(zip(names, files, strict=True)) for files in zip(*found.values(), strict=True)]
        bases = [unsigned(path).rpartition("/")[2] for shard in self.shards for path in shard.values()]
        self.digest = blake2b("\n".join(bases).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self.shards)

    def place(self, number: int) -> str:
        return str(self.shards[number]["cuts"])


def _in_folder(folder: str, access: Access) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in map(str, expand(inside(folder, "*"), access)):
        name = _NAME.fullmatch(name_of(path))
        if name is not None:
            found.setdefault(name["field"], []).append(path)
    if "cuts" not in found:
        raise ListError(
            f"the folder {folder} has no cuts.*.jsonl(.gz): it is not a Lhotse Shar, or not all of it is there"
        )
    return {"cuts": found.pop("cuts"), **dict(sorted(found.items()))}


def _check(found: Mapping[str, Sequence[str]]) -> None:
    """Check that each shard has a file of every field, of the same number. Raises: ListError."""
    if not found.get("cuts") or len(found) < 2:
        raise ListError(f"a Shar needs cuts and a field beside them (recording, features), not only {sorted(found)}")
    cuts = [_number(path) for path in found["cuts"]]
    for name, paths in found.items():
        numbers = [_number(path) for path in paths]
        if numbers != cuts:
            lacking = sorted(set(cuts) ^ set(numbers))[:3] or ["in another order"]
            raise ListError(
                f"cuts have {len(cuts)} shards and {name} {len(numbers)}, which do not pair by number "
                f"({', '.join(lacking)}): fetch what is missing, or name the files field by field"
            )


def _number(path: str) -> str:
    name = _NAME.fullmatch(name_of(path))
    return str(name["number"] or "") if name is not None else ""


@dataclass(frozen=True)
class ListShar(Source):
    """Shards of a Lhotse Shar: a folder, or paths (globs and braces too) for each field, but for those ``unread``."""

    name: ClassVar[str] = "list_shar"
    gives: ClassVar[str] = "item"

    sources: str | Sources = field(metadata=NO_IDENTITY)
    shuffle: bool = False
    unread: frozenset[str] = field(default=frozenset(), metadata=NO_IDENTITY)
    access: Access = field(default=PLAIN, repr=False)

    def table(self) -> SharTable:
        """Look up the files. Raises: ListError."""
        return SharTable(self.sources, self.access, self.unread)

    def item(self, table: SharTable, number: int, origin: Origin) -> Item:
        return Item(json.dumps(table.shards[number]), table.place(number), origin)


@dataclass(frozen=True)
class LoadFromShar(Flow):
    """The cuts of a Lhotse Shar as utterances. All files of a shard are read in step."""

    name: ClassVar[str] = "load_from_shar"
    takes: ClassVar[tuple[str, ...]] = ("item",)
    gives: ClassVar[str] = "sample"

    fields: Pairs = ()
    access: Access = field(default=PLAIN, repr=False)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _SharNode(source, lane, self)


class _SharNode(Node):
    """State: the source's from before the current shard, and where in each of its files the next cut begins."""

    def __init__(self, source: Node, lane: Lane, stage: LoadFromShar) -> None:
        super().__init__(source)
        self.lane, self.access, self.wanted = lane, stage.access, WantedFields(stage.fields)
        self.loaded = Loaded(lane)
        self.reader: SharReader | None = None

    def start(self) -> None:
        self._close()
        self.item: Item | None = None
        self.before: dict[str, Any] = {}
        self.taken = Taken(self.lane.pulse)
        self.stamps: dict[str, str] = {}

    def next(self) -> Sample:
        while True:
            try:
                if self.reader is None:
                    self._open_next()
                assert self.reader is not None
                sample = self._sample(self.reader.next())
            except StopIteration:
                if self.reader is None:
                    raise
                self._close()
            except DataError as error:
                self._fail(error)
            else:
                self.lane.ledger.fine(LoadFromShar.name)
                return sample

    def _fail(self, error: DataError) -> None:
        self.lane.ledger.fail(error, LoadFromShar.name)

    def _open_next(self) -> None:
        self.before = self.source.get_state()
        self.item = self.source.next()
        self.taken = Taken(self.lane.pulse)
        self._open(None)

    def _open(self, at: dict[str, list[int]] | None) -> None:
        assert self.item is not None
        self.stamps = {}
        self.reader = SharReader(_files(self.item), self.access, self._fail, at)

    def _close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None

    def _sample(self, cut: SharCut) -> Sample:
        assert self.item is not None
        place = f"{self.item.place}, line {cut.line}"
        try:
            fields = as_fields(cut.content, cut.values, self.wanted)
        except DataError as error:
            raise error.at(place, str(cut.content.get("id", ""))) from error
        return self.loaded.sample(fields, self.item.origin._replace(offset=cut.line), place)

    def _stamps(self) -> dict[str, str]:
        assert self.item is not None
        return {name: stamp(url, self.access) for name, url in _files(self.item).items()}

    def get_state(self) -> dict[str, Any]:
        if self.reader is None or self.item is None:
            return {"source": self.source.get_state()}
        self.stamps = self.stamps or self._stamps()
        state = {"source": self.before, "at": self.reader.tell(), "stamps": dict(self.stamps)}
        return state | self.taken.saved()

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(None if initial_state is None else initial_state["source"])
        if initial_state is None or len(initial_state) == 1:
            return
        self.before = self.source.get_state()
        self.item = taken(self.source, LoadFromShar.name)
        old = initial_state["stamps"]
        with reopening():
            new = self._stamps()
            if new != old:
                name = next(name for name in sorted({*new, *old}) if new.get(name) != old.get(name))
                rule = f"{name} of {self.item.place} changed since the state was saved"
                raise StateError(f"{rule}: {old.get(name)} then, {new.get(name)} now. Restore it, {OR_RESTART}")
            self._open({name: list(position) for name, position in initial_state["at"].items()})
        self.taken = Taken(self.lane.pulse, initial_state)
        self.stamps = dict(old)


def _files(item: Item) -> dict[str, str]:
    try:
        found: dict[str, str] = parse_json(item.text)
    except ValueError as error:
        raise ListError(f"{item.place} is not a shard of a Lhotse Shar: use from_lhotse_shar") from error
    return found


@understood
def from_lhotse_shar(
    source: AnyPath | Mapping[str, AnyPath | Iterable[AnyPath]],
    *,
    shuffle: bool = False,
    fields: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: AnyPath | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from the cuts of a Lhotse Shar.

    Utterances have the same fields as those of :func:`from_lhotse_cuts`.

    Args:
        source: the folder; or ``{"cuts": paths, "recording": paths, …}`` to read only those fields, where paths may
            have globs and braces, and be URLs.
        shuffle: whether to deal the shards in another order in each epoch. Default: False.
        fields: names that the fields have in the Shar, by ours: ``{"wav": "target_recording"}``; None leaves a field
            out, and its files are not opened: ``{"feat": None}``. Default: None, all of them under their own names.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote files. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: ``source`` is neither a path nor such a dict.
        ListError: when the pipeline runs, if files are missing, or the shards of the fields do not pair.
    """
    access = Access.of("from_lhotse_shar", storage_options, cache, cache_size)
    pairs = pairs_of("from_lhotse_shar", fields)
    listed = ListShar(_sources(source), shuffle, unread(pairs), access)
    return Pipeline((listed,)).sharding_filter()._then(LoadFromShar(pairs, access))


def _sources(source: object) -> str | Sources:
    if isinstance(source, (str, os.PathLike)) and os.fspath(source):
        return str(os.fspath(source))
    rule = 'source must be a folder, or paths by field, {"cuts": …, "recording": …}'
    ok = isinstance(source, Mapping) and "cuts" in source and len(source) > 1
    require(ok, "from_lhotse_shar", rule, source, "name the folder that SharWriter wrote")
    assert isinstance(source, Mapping)
    rule = "paths of a field must be a path, or several in a list"
    return tuple((str(name), require_paths("from_lhotse_shar", rule, paths)) for name, paths in source.items())
