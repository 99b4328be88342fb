"""``from_indexed``: the utterances of TouchDatasets, in any order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from uio_pipes.base.checks import check_names, require, require_paths
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.memory import Lru
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.roles import Source
from uio_pipes.core.stage import NO_IDENTITY, Node, Trait, names
from uio_pipes.formats.lists.table import Parts
from uio_pipes.formats.naming import Renames, asked, check_asked, names_of
from uio_pipes.formats.tar.checks import has_sidecar
from uio_pipes.formats.touchdataset import IndexedFile, remedy_for
from uio_pipes.io.access import PLAIN, Access, AccessOptions, Unpack, reaches_files
from uio_pipes.io.opening import is_local
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.sources.touchdataset.folder import (
    DEFAULT,
    FolderEntry,
    IndexedFolder,
    folders,
    is_touchdataset,
    names_folder,
    with_all_pairs,
)

_TEXTS = 256 << 20  # bytes of remote metadata and tokens that stay in memory
_OPENING = 16  # remote folders opened at a time


class IndexedTable(Parts):
    """All utterances of the given folders, in their order.

    Raises: ListError naming the folder, or the list's line.
    """

    def __init__(
        self,
        entries: tuple[str, ...],
        metainfo: str | None,
        access: Access,
        verify: bool = False,
        indexes: str | None = None,
        texts: tuple[str, ...] = DEFAULT,
        names: Renames = None,
    ) -> None:
        def one(entry: FolderEntry) -> IndexedFolder:
            folder = IndexedFolder(entry, access, texts, names)
            for file in folder.files if verify else ():
                file.compare(indexes)
            return folder

        self._folders = _open(list(folders(entries, metainfo, access)), one)
        super().__init__(map(len, self._folders))
        if not len(self):
            raise ListError(f"nothing in {', '.join(entries[:3])}: the folders have no utterance")
        check_asked(self._folders[0].first() if names else (), asked(names), self.place(0))
        self._texts = Lru("texts of folders", _TEXTS)
        parts = [tuple(file.digest for file in folder.files) for folder in self._folders]
        self.digest = blake2b(repr(parts).encode(), digest_size=16).hexdigest()

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        """Samples of each utterance, 0 without audio; if none has audio, its tokens or the bytes of its metadata."""
        audible = any(folder.audio is not None for folder in self._folders)
        sizes = [_sizes(folder, audible) for folder in self._folders]
        return np.concatenate(sizes, dtype=np.int64)

    @property
    def files(self) -> list[IndexedFile]:
        """All pairs of files."""
        return [file for folder in self._folders for file in folder.files]

    def place(self, number: int) -> str:
        folder, local = self._locate(number)
        return f"{folder.name}, utterance {local}"

    def key(self, number: int) -> str:
        try:
            return str(self.fields(number)["key"])
        except DataError:
            return self.place(number)

    def fields(self, number: int) -> dict[str, Any]:
        """Return ``key``, ``txt`` and the other fields of the metadata; what else is there as ``wav`` (a
        :class:`~uio_pipes.sources.touchdataset.folder.Pcm`), ``label``, and under the names of other modalities."""
        folder, local = self._locate(number)
        return folder.fields(local, self._fetch if folder.far else None)

    def _fetch(self, file: IndexedFile) -> bytes:
        data = file.data
        return self._texts.get(data.path, lambda: data.read(0, data.size), len)

    def _locate(self, number: int) -> tuple[IndexedFolder, int]:
        at, local = self.locate(number)
        return self._folders[at], local


def _sizes(folder: IndexedFolder, audible: bool) -> npt.NDArray[np.int32]:
    if audible and folder.audio is None:
        return np.zeros(len(folder), np.int32)
    return (folder.audio or folder.tokens or folder.files[0]).lengths


def _open(found: list[FolderEntry], one: Callable[[FolderEntry], IndexedFolder]) -> list[IndexedFolder]:
    if all(is_local(entry.folder) is not None for entry in found):
        return [one(entry) for entry in found]
    with ThreadPoolExecutor(_OPENING) as pool:
        return list(pool.map(one, found))


@dataclass(frozen=True)
class ListIndexed(Source):
    """Utterances of TouchDatasets, none read yet. ``shuffle``: in another random order in each epoch."""

    name: ClassVar[str] = "list_indexed"
    sentence: ClassVar[str] = "TouchDataset: `audio.bin/.idx`, `metainfo.bin/.idx`, other modalities, text, tokens"

    dirs: tuple[str, ...] = field(metadata=NO_IDENTITY)
    shuffle: bool = False
    metainfo: str | None = field(default=None, metadata=NO_IDENTITY)
    verify: Literal["crc"] | None = field(default=None, metadata=NO_IDENTITY)
    indexes: str | None = field(default=None, metadata=NO_IDENTITY)
    texts: tuple[str, ...] | None = DEFAULT
    access: Access = field(default=PLAIN, repr=False)
    fields: Mapping[str, str] | None = names()

    def __post_init__(self) -> None:
        ok = self.metainfo is None or (isinstance(self.metainfo, str) and self.metainfo and "/" not in self.metainfo)
        rule = "metainfo must be the name of a pair of files without .bin or .idx"
        require(bool(ok), "from_indexed", rule, self.metainfo, 'try "metainfo_v2"')
        ok = self.verify in (None, "crc")
        require(ok, "from_indexed", "verify must be 'crc' or None", self.verify, "leave it out")
        ok = isinstance(self.shuffle, bool)
        require(ok, "from_indexed", "shuffle must be True or False", self.shuffle, "choose one")
        given = dict(names_of("from_indexed", self.fields))
        rule = "fields are names in the metadata, and audio is in audio.bin, not there"
        require(given.keys().isdisjoint(["wav", "feat"]), "from_indexed", rule, given, "leave wav and feat out")

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not is_touchdataset(seen):
            return None
        if seen.is_folder or names_folder(seen.path):
            given = with_all_pairs(seen.path) if seen.is_folder else seen.path
            return Found("TouchDataset folder", from_indexed, (given,))
        return Found("list of TouchDataset folders", from_indexed, (seen.path,), listed=True)

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        return Trait.TEXTLESS if self.texts is None else Trait.NONE

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        stage = self if lane.needs_text else replace(self, texts=())
        return super(ListIndexed, stage).build(source, lane, site)

    def findings(self, table: IndexedTable, part: int, crc: bool, indexes: str | None) -> Iterator[DataError]:
        """Have the records compared with their checksums, if there are any, and yield what is wrong with these."""
        for file in table.files:
            if not has_sidecar(file.data.path, folder=indexes):
                if crc:
                    how = f"there are no checksums: make them with {remedy_for(file.data.path, indexes)}"
                    yield DataError("missing_index", how, url=file.data.path)
                continue
            try:
                file.compare(indexes)
            except ListError as error:
                yield DataError("stale_index", str(error), url=file.data.path)

    def table(self) -> IndexedTable:
        verify, texts = self.verify == "crc", self.texts or ()
        return IndexedTable(self.dirs, self.metainfo, self.access, verify, self.indexes, texts, self.fields)


@reaches_files
def from_indexed(
    dirs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    shuffle: bool = False,
    metainfo: str | None = None,
    verify: Literal["crc"] | None = None,
    indexes: str | os.PathLike[str] | None = None,
    texts: Sequence[str] | None = ("txt",),
    fields: Mapping[str, str] | None = None,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from TouchDatasets: folders with ``audio.bin``, ``audio.idx``, ``metainfo.bin``,
    ``metainfo.idx``.

    Utterances have the fields ``key``, ``txt``, ``wav``, ``sample_rate``, and whatever else the metadata holds
    (``speaker``, ``info``, …). Audio is read when the batch is made; of a segment (``start``, ``end``) only its own
    bytes. A data list may name other pairs of files: of ``FOLDER audio+video+metainfo`` each utterance has the bytes
    of its record as ``video``, read when touched; ``FOLDER metainfo`` gives texts without audio, ``FOLDER texttoken``
    the ids of tokens as ``label``. An entry without audio needs no ``key``: it then gets ``FOLDER:NUMBER``.

    Args:
        dirs: folder(s), data list(s) with ``FOLDER audio+metainfo`` per line, or such lines themselves, globs, braces,
            URLs (one that ends in .list, .lst or .txt is a data list, any other one a folder).
        shuffle: whether to deal the utterances in another order in each epoch: a random order of all, without a
            buffer. Default: False.
        metainfo: name of the metadata to read, such as "metainfo_v2". Default: None, the name that the data list
            says, or else "metainfo".
        verify: "crc" compares audio and metadata of each utterance with the CRC32s that the command ``uio index`` wrote
            (``bad_crc``). A recording is then read as a whole, once, before its first segment. Default: None, no
            comparison.
        indexes: folder that ``uio index --into`` wrote the checksums to. Default: None, they are beside the data.
        texts: names of the metadata's transcripts, such as ("txt", "whisper"), of which an utterance must have at least
            one; ``choose_text`` chooses among them. Dots lead into nested fields. Utterances with tokens need none, and
            with None no utterance does, as for pre-training. Default: ("txt",).
        fields: our names of fields whose names in the metadata, or of files, are others, as in ``{"txt": "text",
            "clip": "video"}``. Default: None, all have ours.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a folder or list is missing, damaged or of another kind.
    """
    rule = "dirs must be a folder or a data list, or several"
    given = require_paths("from_indexed", rule, dirs, "name a folder")
    reached = Access.of("from_indexed", **access)
    into = None if indexes is None else os.fspath(indexes)
    if texts is not None:
        check_names("from_indexed", "texts", texts)
    said = None if texts is None else tuple(texts)
    stage = ListIndexed(given, shuffle, metainfo, verify, into, said, reached, fields)
    return Pipeline((stage,)).sharding_filter().load_records()
