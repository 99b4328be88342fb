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
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import AnyPath, inside, name_of, unsigned
from uio_pipes.core.items import Item
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow, Source
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import NO_IDENTITY, Node
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.lists.table import expand
from uio_pipes.io.access import PLAIN, Access, AccessOptions, Unpack, reaches_files
from uio_pipes.io.opening import stamp
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.lhotse.shar_reader import SharCut, SharReader, as_fields
from uio_pipes.sources.lhotse.source import Pairs, WantedFields, pairs_of, unread
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.stages.reading.stream_node import StreamNode

_CUTS = re.compile(r"cuts(?:\.[^/]*)?\.jsonl(?:\.gz)?")
_NAME = re.compile(r"(?P<field>[^./]+)(?:\.(?P<number>[^/]*))?\.(?:tar|jsonl)(?:\.gz)?")
Sources = tuple[tuple[str, tuple[str, ...]], ...]


class SharTable:
    """The shards of a Shar; ``shards``: of each, its files by field, but for those ``unread``. Raises: ListError."""

    weights = None

    def __init__(self, sources: str | Sources, access: Access, unread: frozenset[str] = frozenset()) -> None:
        if isinstance(sources, str):
            found: dict[str, list[str]] = {}
            for path in map(str, expand(inside(sources, "*"), access)):
                name = _NAME.fullmatch(name_of(path))
                if name is not None:
                    found.setdefault(name["field"], []).append(path)
            if "cuts" not in found:
                raise ListError(
                    f"the folder {sources} has no cuts.*.jsonl(.gz): it is not a Lhotse Shar, or is incomplete"
                )
            found = {"cuts": found.pop("cuts"), **dict(sorted(found.items()))}
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
    sentence: ClassVar[str] = "Lhotse Shar"
    gives: ClassVar[str] = "item"

    sources: str | Sources = field(metadata=NO_IDENTITY)
    shuffle: bool = False
    unread: frozenset[str] = field(default=frozenset(), metadata=NO_IDENTITY)
    access: Access = field(default=PLAIN, repr=False)

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        there = any(map(_CUTS.fullmatch, seen.names)) and any(name.endswith(ARCHIVES) for name in seen.names)
        return Found("Lhotse Shar", from_lhotse_shar, (seen.path,)) if there else None

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


class _SharNode(StreamNode):
    """State: ``at``: where in each file of the shard the next cut begins."""

    stage: LoadFromShar

    def open(self, state: Mapping[str, Any] | None) -> SharReader:
        def fail(error: DataError) -> None:
            self.lane.ledger.fail(error, LoadFromShar.name)

        self.wanted = WantedFields(self.stage.fields)
        return SharReader(_files(self.file), self.stage.access, fail, None if state is None else state["at"])

    def read(self) -> Sample:
        cut: SharCut = self.reader.next()
        place = f"{self.file.place}, line {cut.line}"
        try:
            fields = as_fields(cut.content, cut.values, self.wanted)
        except DataError as error:
            raise error.at(place, str(cut.content.get("id", ""))) from error
        return self.loaded.sample(fields, self.file.origin._replace(offset=cut.line), place)

    def tell(self) -> dict[str, Any]:
        return {"at": self.reader.tell()}

    def url(self) -> str:
        return str(self.file.place)

    def stamp(self) -> dict[str, str]:
        return {name: stamp(url, self.stage.access) for name, url in _files(self.file).items()}


def _files(item: Item) -> dict[str, str]:
    try:
        found: dict[str, str] = parse_json(item.text)
    except ValueError as error:
        raise ListError(f"{item.place} is not a shard of a Lhotse Shar: use from_lhotse_shar") from error
    return found


@reaches_files
def from_lhotse_shar(
    source: AnyPath | Mapping[str, AnyPath | Iterable[AnyPath]],
    *,
    shuffle: bool = False,
    fields: Mapping[str, str | None] | None = None,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from the cuts of a Lhotse Shar.

    Utterances have the same fields as those of :func:`from_lhotse_cuts`.

    Args:
        source: the folder; or ``{"cuts": paths, "recording": paths, …}`` to read only those fields, where paths may
            have globs and braces, and be URLs.
        shuffle: whether to deal the shards in another order in each epoch. Default: False.
        fields: names that the fields have in the Shar, by ours: ``{"wav": "target_recording"}``; None leaves a field
            out, and its files are not opened: ``{"feat": None}``. Default: None, all of them under their own names.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: ``source`` is neither a path nor such a dict.
        ListError: when the pipeline runs, if files are missing, or the shards of the fields do not pair.
    """
    reached = Access.of("from_lhotse_shar", **access)
    pairs = pairs_of("from_lhotse_shar", fields)
    listed = ListShar(_sources(source), shuffle, unread(pairs), reached)
    return Pipeline((listed,)).sharding_filter().then(LoadFromShar(pairs, reached))


def _sources(source: object) -> str | Sources:
    if isinstance(source, (str, os.PathLike)) and os.fspath(source):
        return str(os.fspath(source))
    rule = 'source must be a folder, or paths by field, {"cuts": …, "recording": …}'
    ok = isinstance(source, Mapping) and "cuts" in source and len(source) > 1
    require(ok, "from_lhotse_shar", rule, source, "name the folder that SharWriter wrote")
    assert isinstance(source, Mapping)
    rule = "paths of a field must be a path, or several in a list"
    return tuple((str(name), require_paths("from_lhotse_shar", rule, paths)) for name, paths in source.items())
