"""``load_from_tar``: the utterances of tar shards, one by one, none silently lost."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from uio_pipes.errors import DataError, StateError
from uio_pipes.io.access import CACHE_SIZE
from uio_pipes.io.opening import stamp
from uio_pipes.io.redact import redact
from uio_pipes.io.stream import open_source
from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.sample import Chain, Sample, run_key
from uio_pipes.sources.features import LOAD_FEATURES
from uio_pipes.sources.list_files import list_files
from uio_pipes.sources.next_files import Far, NextFiles, begin
from uio_pipes.sources.open_files import NO_UTTERANCE, File, miscounted
from uio_pipes.sources.tar_checks import Checks
from uio_pipes.sources.tar_fields import as_fields, text_of
from uio_pipes.sources.tar_members import MAX_MEMBER
from uio_pipes.sources.tar_reader import TarReader, Utterance
from uio_pipes.stage import Stage, is_whole, require

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["LoadFromTar", "from_shard_list"]

UNREADABLE = frozenset(["missing_file", "unreadable_file", "changed_file"])
_TEXT = re.compile(r"[^\s:./]+(\.[^\s:./]+)*(:.+)?")


@dataclass(frozen=True)
class LoadFromTar(Stage):
    """Read the utterances of tar shards: consecutive members with one key are an utterance.

    Shards may be .tar, .tar.gz, .tar.zst, .tar.bz2 or .tar.xz. An utterance has the fields ``key``, ``txt``,
    ``wav`` (the bytes of the audio file, whatever its format) or ``feat`` ((T, F), from ``KEY.npy``); the bytes of
    its other members are fields named by their suffix. Where the list has a manifest, a shard with another number
    of utterances than it says is reported.

    Args:
        grouping: where a member's name is cut into key and suffix: "wenet" cuts at the last dot of the whole path,
            "webdataset" at the first dot of the base name. Default: "wenet".
        text: suffix of the member that holds the transcript, or "json:NAME" if it is the field NAME of the member
            ``KEY.json``. Default: "txt".
        verify: "crc" compares the bytes of every member with the CRC32 in the shard's index, which the command
            ``uio index`` makes. Default: None, no comparison.
        max_member: bytes; a larger member is skipped and counted as a failure. Default: 1,073,741,824 (1 GiB).
    """

    name: ClassVar[str] = "load_from_tar"
    takes: ClassVar[tuple[str, ...]] = ("file",)
    gives: ClassVar[str] = "sample"

    grouping: Literal["wenet", "webdataset"] = "wenet"
    text: str = "txt"
    verify: Literal["crc"] | None = None
    max_member: int = MAX_MEMBER

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("wenet", "webdataset")
        require(self.grouping in known, self.name, f"grouping must be one of {known}", self.grouping, "choose one")
        rule = "text must be a suffix (txt), or a suffix and a field of its JSON (json:text)"
        require(bool(_TEXT.fullmatch(self.text)), self.name, rule, self.text, "look at the shard with tar -tf")
        ok = self.verify in (None, "crc")
        require(ok, self.name, "verify must be 'crc' or None", self.verify, "leave it out to trust the bytes")
        require(self.max_member >= 1, self.name, "max_member must be 1 byte or more", self.max_member, "try 1 << 30")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _TarNode(source, lane, self)

    @classmethod
    def example(cls, corpus: Pipeline) -> Pipeline:
        return corpus


class _TarNode(Node):
    """State: the source's from before the shard under way, and where in the shard the next utterance begins."""

    def __init__(self, source: Node, lane: Lane, stage: LoadFromTar) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage
        self.chain, self.run_key = Chain(), run_key(lane)
        self.files = NextFiles(source)
        self.reader: TarReader | None = None

    def start(self) -> None:
        self.file: File | None = None
        self.far: Far | None = None  # what reads it, if it is remote
        self.reader = None
        self.before: dict[str, Any] = {}
        self.stamp = ""
        self.seen = 0  # utterances of the shard under way, failed ones too
        self.checks: Checks | None = None

    def next(self) -> Sample:
        while True:
            try:
                if self.reader is None:
                    self._open_next()
                assert self.reader is not None
                self.files.prepare(self.far)
                sample = self._sample(self.reader.next())
            except StopIteration:
                if self.reader is None:
                    raise
                miscounted = self._miscounted()
                self._close()
                if miscounted is not None:
                    self.lane.ledger.fail(miscounted, self.stage.name)
            except DataError as error:
                self._failed(error)
            else:
                self.seen += 1
                self.lane.ledger.fine(self.stage.name)
                return sample

    def _failed(self, error: DataError) -> None:
        if self.file is not None:
            error.item = self.file.origin.item
        out_of_reach = self.reader is None or error.reason in UNREADABLE
        if self.reader is not None:
            self.seen += error.reason not in NO_UTTERANCE and not out_of_reach
        self.lane.ledger.fail(error, self.stage.name)
        if out_of_reach:
            self._give_up()

    def _give_up(self) -> None:
        """The rest of this shard is out of reach."""
        short = self._miscounted() if self.file is not None else None
        if self.reader is not None:
            self._close()
        if short is not None:
            self.lane.ledger.fail(short, self.stage.name)

    def _miscounted(self) -> DataError | None:
        """The error if the shard, read to its end, held another number of utterances than the manifest says."""
        assert self.file is not None
        expected, seen = self.file.expected, self.seen
        if expected is None or seen == expected:
            return None
        error = miscounted(self.file.url, expected, seen)
        error.item = self.file.origin.item
        return error

    def _open_next(self) -> None:
        self.before, self.file, self.far = self.files.next()
        self.seen = 0
        self._open(0)

    def _open(self, offset: int, damaged: bool = False, last: str = "") -> None:
        assert self.file is not None
        try:
            self.far = self.far or begin(self.file, offset)
            source = open_source(self.file.url, self.file.access, self.far)
            self.reader = TarReader(
                self.file.url, source, self.stage.grouping, offset, damaged, last, largest=self.stage.max_member,
                text=self.stage.text.partition(":")[0],
            )  # fmt: skip
            if self.stage.verify is not None:
                self.checks = Checks(self.file)
        except DataError as error:
            raise _in_list(error, self.file) from error

    def _close(self) -> None:
        assert self.reader is not None
        self.reader.close()
        self.reader, self.file, self.far, self.stamp, self.checks = None, None, None, "", None

    def _sample(self, utterance: Utterance) -> Sample:
        assert self.file is not None
        if self.checks is not None:
            self.checks.apply(utterance)
        fields = as_fields(utterance.key, text_of(utterance, self.file.url, self.stage.text), utterance.fields)
        chain = self.chain.then(LOAD_FEATURES) if "feat" in fields else self.chain
        origin = self.file.origin._replace(offset=utterance.offset)
        return Sample(fields, origin, self.run_key, chain, self.file.url)

    def get_state(self) -> dict[str, Any]:
        if self.reader is None or self.file is None:
            return {"source": self.files.get_state()}
        self.stamp = self.stamp or self._stamp(self.file)
        offset, damaged, last = self.reader.tell()
        at = [offset, int(damaged), last]
        return {"source": self.before, "at": at, "seen": self.seen, "stamp": self.stamp, "url": redact(self.file.url)}

    def _stamp(self, file: File) -> str:
        return stamp(file.url) if self.far is None else self.far.stamp

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.files)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        if self.reader is not None:  # a node may be reset in the middle of a shard
            self._close()
        self.files.clear()
        super().reset(None if initial_state is None else initial_state["source"])
        if initial_state is None or "at" not in initial_state:
            return
        offset, damaged, last = initial_state["at"]
        self.seen = initial_state["seen"]
        if not (is_whole(offset) and 0 <= offset < 1 << 60 and isinstance(last, str) and is_whole(self.seen)):
            raise ValueError(f"no position in a shard: {initial_state['at']}, {self.seen!r}")
        self._reopen((offset, bool(damaged), last), initial_state["stamp"])

    def _reopen(self, at: tuple[int, bool, str], old: str) -> None:
        self.before = self.source.get_state()
        self.file = self.source.next()
        assert self.file is not None
        try:
            self.far = begin(self.file, at[0])
            new = self._stamp(self.file)
            if new != old:
                raise StateError(
                    f"{self.file.url} changed since the state was saved: {old} then, {new} now. Restore the shard, "
                    'or begin the epoch again with Loader(on_change="restart")'
                )
            self._open(*at)
        except DataError as error:
            raise StateError(
                f"the shard under way when the state was saved cannot be read now: {error}. Restore it, "
                'or begin the epoch again with Loader(on_change="restart")'
            ) from error
        self.stamp = old


def _in_list(error: DataError, file: File) -> DataError:
    message = f"{error.message} (listed in {file.place})"
    return DataError(error.reason, message, url=error.url or file.url, member=error.member, offset=error.offset)


def from_shard_list(
    paths: Any,
    *,
    shuffle: bool = False,
    grouping: Literal["wenet", "webdataset"] = "wenet",
    text: str = "txt",
    verify: Literal["crc"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from lists of tar shards: ``list_files(…).sharding_filter().open_files().load_from_tar()``.

    Args:
        paths: lists of shards, or the shards themselves, as for :func:`list_files`.
        shuffle: whether to deal the shards in another order in each epoch; utterances stay in the order of their
            shard, so add ``.shuffle()``. Default: False.
        grouping: where a member's name is cut into key and suffix: "wenet" cuts at the last dot of the whole path,
            "webdataset" at the first dot of the base name. Default: "wenet".
        text: suffix of the member that holds the transcript, or "json:NAME" if it is the field NAME of the member
            ``KEY.json``. Default: "txt".
        verify: "crc" compares the bytes of every member with the CRC32 in the shard's index, which the command
            ``uio index`` makes. Default: None, no comparison.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote shards. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a list is missing, empty or no list.
    """
    listed = list_files(paths, shuffle=shuffle, storage_options=storage_options, cache=cache, cache_size=cache_size)
    files = listed.sharding_filter().open_files()
    return files.load_from_tar(grouping=grouping, text=text, verify=verify)
