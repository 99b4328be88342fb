"""``from_indexed``: the utterances of TouchDatasets, in any order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from uio_pipes.base.checks import require
from uio_pipes.core.sample import Origin
from uio_pipes.formats.touch.table import IndexedTable
from uio_pipes.io.access import CACHE_SIZE, PLAIN, Access
from uio_pipes.sources.listing import Listing
from uio_pipes.sources.load_records import Record

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["ListIndexed", "from_indexed"]


@dataclass(frozen=True)
class ListIndexed(Listing):
    """Utterances of TouchDatasets, none read yet. ``shuffle``: in another order each epoch, truly random."""

    name: ClassVar[str] = "list_indexed"
    gives: ClassVar[str] = "record"

    dirs: tuple[str, ...]
    shuffle: bool = False
    metainfo: str | None = None
    verify: Literal["crc"] | None = None
    indexes: str | None = None
    access: Access = field(default=PLAIN, repr=False)

    def __post_init__(self) -> None:
        ok = self.metainfo is None or (isinstance(self.metainfo, str) and self.metainfo and "/" not in self.metainfo)
        rule = "metainfo must be the name of a pair of files without .bin or .idx"
        require(bool(ok), "from_indexed", rule, self.metainfo, 'try "metainfo_v2"')
        require(
            self.verify in (None, "crc"), "from_indexed", "verify must be 'crc' or None", self.verify, "leave it out"
        )
        require(isinstance(self.shuffle, bool), "from_indexed", "shuffle must be True or False", self.shuffle, "say")

    def describe(self, *, stable: bool = False) -> str:
        """For fingerprints without the paths: what the indexes hold has a fingerprint of its own."""
        return f"list_indexed(shuffle={self.shuffle})" if stable else super().describe()

    def table(self) -> IndexedTable:
        return IndexedTable(self.dirs, self.metainfo, self.access, self.verify == "crc", self.indexes)

    def item(self, table: IndexedTable, number: int, origin: Origin) -> Record:
        return Record(table, number, origin)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus


def from_indexed(
    dirs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    shuffle: bool = False,
    metainfo: str | None = None,
    verify: Literal["crc"] | None = None,
    indexes: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from TouchDatasets: folders with ``audio.bin``, ``audio.idx``, ``metainfo.bin``,
    ``metainfo.idx``.

    Utterances have the fields ``key``, ``txt``, ``wav``, ``sample_rate``, and whatever else the metadata holds
    (``speaker``, ``info``, …). Audio is read when the batch is made; of a segment (``start``, ``end``) only its own
    bytes.

    Args:
        dirs: folder(s), data list(s) with ``FOLDER audio+metainfo`` per line, globs, braces, URLs (one that ends in
            .list, .lst or .txt is a data list, any other one a folder).
        shuffle: whether to deal the utterances in another order in each epoch: a random order of all, without a
            buffer. Default: False.
        metainfo: name of the metadata to read, such as "metainfo_v2". Default: None, the name that the data list
            says, or else "metainfo".
        verify: "crc" compares audio and metadata of each utterance with the CRC32s that the command ``uio index`` wrote
            (``bad_crc``). A recording is then read as a whole, once, before its first segment. Default: None, no
            comparison.
        indexes: folder that ``uio index --into`` wrote the checksums to. Default: None, they are beside the data.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote files. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a folder or list is missing, damaged or of another kind.
    """
    from uio_pipes.pipeline import Pipeline

    given: list[Any] = [dirs] if isinstance(dirs, (str, os.PathLike)) else list(dirs)
    ok = bool(given) and all(isinstance(d, (str, os.PathLike)) and os.fspath(d).strip() for d in given)
    require(ok, "from_indexed", "dirs must be a folder or a data list, or several", dirs, "name a folder")
    access = Access.of("from_indexed", storage_options, cache, cache_size)
    into = None if indexes is None else os.fspath(indexes)
    stage = ListIndexed(tuple(os.fspath(d) for d in given), shuffle, metainfo, verify, into, access)
    return Pipeline((stage,)).sharding_filter().load_records()
