"""``load_from_raw``: utterances of WeNet's raw lists, a JSON object a line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from uio_pipes.errors import DataError, ListError
from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.sample import Chain, Sample, run_key
from uio_pipes.sources.features import LOAD_FEATURES
from uio_pipes.sources.list_files import Item, list_files
from uio_pipes.stage import Stage

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["LoadFromRaw", "from_raw_list"]


@dataclass(frozen=True)
class LoadFromRaw(Stage):
    """Utterances of a raw list: ``{"key": …, "wav": path or URL, "txt": …}`` a line.

    Optional: ``start`` and ``end`` (seconds: a segment of the recording), ``duration`` (seconds: saves reading the
    header), ``speaker``, ``feat`` (path of a .npy array (T, F) instead of ``wav``), and whatever else: kept as
    fields.
    """

    name: ClassVar[str] = "load_from_raw"
    takes: ClassVar[tuple[str, ...]] = ("item",)
    gives: ClassVar[str] = "sample"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _RawNode(source, lane)

    def count(self, counts: list[int], source: str) -> list[int] | None:
        return counts

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus


class _RawNode(Node):
    def __init__(self, source: Node, lane: Lane) -> None:
        super().__init__(source)
        self.lane = lane
        self.chain, self.run_key = Chain(), run_key(lane)

    def next(self) -> Sample:
        while True:
            item: Item = self.source.next()
            try:
                fields = parse(item)
            except DataError as error:
                self.lane.ledger.fail(error, LoadFromRaw.name)
            else:
                self.lane.ledger.fine(LoadFromRaw.name)
                chain = self.chain.then(LOAD_FEATURES) if "feat" in fields else self.chain
                return Sample(fields, item.origin, self.run_key, chain, item.place)


def parse(item: Item) -> dict[str, Any]:
    """Fields of one line.

    Raises:
        ListError: the line is no JSON object at all (another kind of list).
        DataError: ``bad_line``, ``missing_key``, ``missing_audio``, ``missing_text`` or ``bad_segment``.
    """
    if not item.text.startswith("{"):
        raise ListError(
            f'{item.place} is no JSON object: {item.text[:80]!r}. A raw list has {{"key", "wav", "txt"}} a line; '
            "if this is a list of shards, use from_shard_list (WeNet's data_type shard)"
        )
    try:
        fields: dict[str, Any] = json.loads(item.text)
    except ValueError as error:
        raise DataError("bad_line", f"damaged JSON: {error}", url=item.place) from error
    key = str(fields.get("key", ""))
    for name in ("key", "txt"):
        if isinstance(fields.get(name), (int, float)):
            fields[name] = str(fields[name])
    for reason, names in _REQUIRED.items():
        if not any(isinstance(fields.get(n), str) and (fields[n] or n == "txt") for n in names):
            raise DataError(reason, f"the line has no {' or '.join(names)}", url=item.place, member=key)
    _check_segment(fields, item.place, key)
    return fields


_REQUIRED = {"missing_key": ("key",), "missing_audio": ("wav", "feat"), "missing_text": ("txt",)}


def _check_segment(fields: dict[str, Any], place: str, key: str) -> None:
    start, end = fields.get("start"), fields.get("end")
    start = 0 if start is None else start
    numbers = all(type(v) in (int, float) and isfinite(v) for v in (start, 0 if end is None else end))
    if not numbers or start < 0 or (end is not None and end <= start):
        message = f"start and end must be seconds with 0 <= start < end, not {start!r} and {end!r}"
        raise DataError("bad_segment", message, url=place, member=key)


def from_raw_list(paths: Any, *, shuffle: bool = False) -> Pipeline:
    """Utterances from raw lists: ``list_files(…).sharding_filter().load_from_raw()``."""
    return list_files(paths, shuffle=shuffle).sharding_filter().load_from_raw()
