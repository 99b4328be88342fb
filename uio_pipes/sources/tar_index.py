"""``from_tar_index``: the utterances of indexed tar shards, in any order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.urls import is_named, path_of, redact
from uio_pipes.core.items import Record
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Source
from uio_pipes.core.stage import NO_IDENTITY, names, one_of
from uio_pipes.formats.lists.table import ItemTable, Parts
from uio_pipes.formats.naming import LOOKED_AT, Renames, asked, check_asked, finding, transcript
from uio_pipes.formats.tar.catalogue import IndexedShards, open_shards
from uio_pipes.formats.tar.checks import SUFFIX, against_manifest
from uio_pipes.formats.tar.fields import as_fields, check_members, read_by
from uio_pipes.formats.tar.index import FRAME_RATE, MAGIC
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, TarUtterance
from uio_pipes.io.access import PLAIN, Access, AccessOptions, Unpack, reaches_files
from uio_pipes.io.background import Job, submit
from uio_pipes.io.local import MAX_OPEN, LocalFile, is_slow
from uio_pipes.io.opened_ahead import THREADS
from uio_pipes.io.opening import is_local, open_file
from uio_pipes.io.references import Payload, RandomFile, Ref
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.lists import list_files
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.stages.reading.loading import ListFiles


class TarIndex(Parts):
    """The utterances of indexed shards, numbered in the order of the list; a shard's damaged spots come after them.

    It is compact: a few arrays per shard, and no object per utterance.
    """

    def __init__(
        self, shards: IndexedShards, verify: bool = False, access: Access | None = None, names: Renames = None
    ) -> None:
        self.shards, self._verify, self._access, self._names = shards, verify, access, names
        super().__init__((shards.facts["utterances"] + shards.facts["errors"]).tolist())
        self.digest = blake2b(shards.facts["digest"].tobytes().hex().encode(), digest_size=16).hexdigest()
        self._files: dict[int, RandomFile] = {}
        self._ahead: dict[str, tuple[RandomFile, Job[int]]] = {}  # those that are opened before they are asked for
        if names and len(self.shards):
            check_asked(self._first(), asked(names), self.place(0))

    @property
    def failures(self) -> int:
        """The number of damaged spots that the indexes know of."""
        return int(self.shards.facts["errors"].sum())

    @property
    def weights(self) -> npt.NDArray[np.int64]:
        """Lengths in samples at 16 kHz; where only decoding shows them, estimated from the bytes at 64 kbit/s."""
        readable = np.ones(len(self), np.bool_)
        errors = self.shards.facts["errors"]
        for at in np.flatnonzero(errors).tolist():
            end = self.firsts[at + 1]
            readable[end - int(errors[at]) : end] = False
        out = np.zeros(len(self), np.int64)
        out[readable] = self.shards.lengths
        return out

    def place(self, number: int) -> str:
        return redact(self.shards.urls[self.locate(number)[0]])

    def key(self, number: int) -> str:
        """Return an utterance's key, or its shard if that has another index by now."""
        at, within = self.locate(number)
        try:
            index = self.shards[at]
        except DataError:
            return self.place(number)
        return index.key(within) if within < len(index) else index.errors[within - len(index)].key

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields as ``load_from_tar`` does. Raises: DataError if the shard is damaged there."""
        at, within = self.locate(number)
        index, url = self.shards[at], self.shards.urls[at]
        if within >= len(index):
            known = index.errors[within - len(index)]
            error = DataError(known.reason, known.message, url=known.url, member=known.member, offset=known.offset)
            error.key, error.item = known.key, number
            raise error
        utterance = self._utterance(at, within)
        members = utterance.fields
        info, audio = index.info(within), next((s for s in members if s in AUDIO_SUFFIXES), "")
        of_features = "npy" in members and (info is None or info.sample_rate == FRAME_RATE)
        if isinstance(payload := members.get("npy" if of_features else audio), Ref):
            payload.info = info
        text = transcript("from_tar_index", None, self._names, index.text or "txt")
        read = index.txt(within) if index.text == text else None
        fields = as_fields(utterance, url, read, self._names)
        if index.text and "txt" not in fields:
            raise finding("missing_text", f"the utterance has no {text}", url, utterance.key, utterance.offset)
        return fields

    def _utterance(self, at: int, within: int) -> TarUtterance:
        members, index = dict[str, Payload](), self.shards[at]
        if (file := self._files.get(at)) is None:
            url = self.shards.urls[at]
            if not self._files and not self._ahead and is_slow(is_local(url) or ""):
                self._ahead = {each: self._opened(each) for each in self.shards.urls[:MAX_OPEN]}  # that can stay open
            file, job = self._ahead.get(url) or (open_file(url, self._access), None)
            if job is not None:
                job.wait()  # what fails there fails again now
            if isinstance(file, LocalFile):
                file.look()
                if index.shard.differs(*file.identity):
                    message = "the shard was replaced since its index was opened: start again when no file changes"
                    raise DataError("changed_file", f"{message} any more", url=url)
            self._files[at] = file
        for suffix, offset, size, crc, _ in index.members(within):
            members[suffix] = Ref(file, offset, size, crc=crc if self._verify else None)
        return TarUtterance(index.key(within), index.start(within), members)

    def _opened(self, url: str) -> tuple[RandomFile, Job[int]]:
        file = open_file(url, self._access)
        return file, submit(lambda _: file.size, THREADS)

    def _first(self) -> Iterator[dict[str, Any]]:
        """Yield what expressions may read of the first utterances."""
        with suppress(DataError):
            for number in range(min(LOOKED_AT, len(self.shards[0]))):
                yield read_by(self._utterance(0, number), self.shards.urls[0], self._names)

    def start(self, number: int) -> int:
        """Return the offset of an utterance in its shard, 0 where :meth:`fields` raises an error."""
        at, within = self.locate(number)
        with suppress(DataError):
            if within < len(index := self.shards[at]):
                return index.start(within)
        return 0


@dataclass(frozen=True)
class ListTarIndex(Source):
    """Utterances of indexed shards. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "from_tar_index"
    sentence: ClassVar[str] = "the same with an index (`uio index`)"

    paths: tuple[str, ...] = field(metadata=NO_IDENTITY)
    shuffle: bool = False
    verify: Literal["crc"] | None = one_of(("crc", None), None, "leave it out to trust the bytes")
    indexes: str | None = field(default=None, metadata=NO_IDENTITY)
    access: Access = field(default=PLAIN, repr=False)
    fields: Mapping[str, str] | None = names(members=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_members(self.name, self.fields)

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not is_named(seen.path, SUFFIX) or not seen.head.startswith(MAGIC):
            return None
        shard = path_of(seen.path).removesuffix(SUFFIX) + seen.path[len(path_of(seen.path)) :]
        return Found("index of a tar shard", from_tar_index, (shard,))

    def table(self) -> TarIndex:
        """Open the indexes. Raises: ListError with the shard and the remedy."""
        shards = open_indexes(self.paths, self.access, self.indexes)
        for url, form in shards.compressed:
            raise ListError(
                f"{redact(url)} is compressed ({form}): its utterances can only be read one after the other. "
                "Unpack it and index it again, or read it with from_shard_list"
            )
        return TarIndex(shards, self.verify == "crc", self.access, self.fields)

    def item(self, table: TarIndex, number: int, origin: Origin) -> Record:
        return Record(table, number, origin._replace(offset=table.start(number)))

    def count(self, counts: list[int], path: str) -> list[int] | None:
        table = self.table()
        return None if table.failures else [len(table)] * len(counts)


def open_indexes(paths: tuple[str, ...], access: Access | None = None, folder: str | None = None) -> IndexedShards:
    """Return the shards of lists, globs and names with their indexes, compressed shards included.

    A shard gets one more error if the manifest of its list gives another number of utterances or other bytes.

    Raises: ListError.
    """
    table = ItemTable(paths, access)
    shards = open_shards(list(table), access or PLAIN, folder)
    facts = zip(*(shards.facts[name].tolist() for name in ("seen", "size", "crc32")), strict=True)
    for number, (expected, (seen, size, crc)) in enumerate(zip(table.each_expected(), facts, strict=True)):
        if expected is not None and (bad := against_manifest(shards.urls[number], expected, seen, size, f"{crc:08x}")):
            shards.add(number, bad)
    return shards


@reaches_files
def from_tar_index(
    paths: Any,
    *,
    shuffle: bool = False,
    verify: Literal["crc"] | None = None,
    indexes: str | None = None,
    fields: Mapping[str, str] | None = None,
    **access: Unpack[AccessOptions],
) -> Pipeline:
    """Start a pipeline from tar shards that ``uio index`` has indexed; their utterances are read in any order.

    The samples are the same as those of ``from_shard_list``. Lengths, texts and keys are in the index: planning,
    filtering and restoring read nothing else, an epoch's length is known before it begins, shuffling needs no
    buffer, and there may be more lanes than shards.

    Args:
        paths: lists of shards, globs, or the shards themselves, as for :func:`list_files`.
        shuffle: whether to deal all utterances in another order in each epoch, with equal durations for the lanes.
            Default: False.
        verify: "crc" compares all bytes that are read with their CRC32 in the index. Default: None, no comparison.
        indexes: folder that ``uio index --into`` wrote to. Default: None, beside the shards.
        fields: our names of fields, with the suffixes of their members, or ``SUFFIX:NAME`` for a field of a member's
            JSON, as in ``{"txt": "trans", "speaker": "json:speaker"}``; dots lead into nested fields. Default: None,
            ours are the suffixes.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        ListError: when the pipeline runs, if a shard has no index, or one of other bytes, or is compressed, or none of
            the first 100 utterances has what ``fields`` asks for.
    """
    listed = list_files(paths).stages[0]
    assert isinstance(listed, ListFiles)
    stage = ListTarIndex(listed.paths, shuffle, verify, indexes, Access.of("from_tar_index", **access), fields)
    return Pipeline((stage,)).sharding_filter().load_records()
