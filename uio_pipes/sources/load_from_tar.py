"""``load_from_tar``: the utterances of tar shards, one by one, none silently lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from uio_pipes.errors import DataError, StateError
from uio_pipes.io.opening import stamp
from uio_pipes.io.stream import open_source
from uio_pipes.lane import Lane, Site
from uio_pipes.node import Node
from uio_pipes.sample import Chain, Sample, run_key
from uio_pipes.sources.features import LOAD_FEATURES
from uio_pipes.sources.list_files import list_files
from uio_pipes.sources.open_files import File
from uio_pipes.sources.tar_reader import AUDIO_SUFFIXES, TarReader, Utterance
from uio_pipes.stage import Stage, require

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline

__all__ = ["LoadFromTar", "from_shard_list"]

UNREADABLE = frozenset(["missing_file", "unreadable_file", "changed_file"])


@dataclass(frozen=True)
class LoadFromTar(Stage):
    """Utterances of tar shards (.tar, .tar.gz, .tar.zst, .tar.bz2, .tar.xz): consecutive members with one key.

    Fields: ``key``, ``txt``, ``wav`` (bytes of the audio file, whatever its format) or ``feat`` ((T, F), from
    ``KEY.npy``), and other members' bytes under their suffix. ``grouping``: "wenet" cuts names at the last dot of the
    whole path, "webdataset" at the first dot of the base name.
    """

    name: ClassVar[str] = "load_from_tar"
    takes: ClassVar[tuple[str, ...]] = ("file",)
    gives: ClassVar[str] = "sample"

    grouping: Literal["wenet", "webdataset"] = "wenet"

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("wenet", "webdataset")
        require(self.grouping in known, self.name, f"grouping must be one of {known}", self.grouping, "choose one")

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
        self.reader: TarReader | None = None

    def start(self) -> None:
        self.file: File | None = None
        self.reader = None
        self.before: dict[str, Any] = {}
        self.stamp = ""

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
                if error.reason in UNREADABLE and self.reader is not None:
                    self._close()  # the rest of this shard is out of reach
                self.lane.ledger.fail(error, self.stage.name)
            else:
                self.lane.ledger.fine(self.stage.name)
                return sample

    def _open_next(self) -> None:
        self.before = self.source.get_state()
        self.file = self.source.next()
        self._open(0, False)

    def _open(self, offset: int, damaged: bool) -> None:
        assert self.file is not None
        try:
            source = open_source(self.file.url)
            self.reader = TarReader(self.file.url, source, self.stage.grouping, offset, damaged)
        except DataError as error:
            raise _in_list(error, self.file) from error

    def _close(self) -> None:
        assert self.reader is not None
        self.reader.close()
        self.reader, self.file, self.stamp = None, None, ""

    def _sample(self, utterance: Utterance) -> Sample:
        assert self.file is not None
        fields: dict[str, Any] = {"key": utterance.key}
        for suffix, payload in utterance.fields.items():
            if suffix in AUDIO_SUFFIXES:
                fields.setdefault("wav", payload)
            elif suffix == "npy":
                fields["feat"] = payload
            elif suffix == "txt":
                fields["txt"] = self._text(payload if isinstance(payload, bytes) else payload.read(), utterance)
            else:
                fields[suffix] = payload
        chain = self.chain.then(LOAD_FEATURES) if "feat" in fields else self.chain
        origin = self.file.origin._replace(offset=utterance.offset)
        return Sample(fields, origin, self.run_key, chain, self.file.url)

    def _text(self, data: bytes, utterance: Utterance) -> str:
        assert self.file is not None
        try:
            return data.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError(
                "bad_text", f"the text is no UTF-8 ({error.reason} at byte {error.start})",
                url=self.file.url, member=f"{utterance.key}.txt", offset=utterance.offset,
            ) from error  # fmt: skip

    def get_state(self) -> dict[str, Any]:
        if self.reader is None or self.file is None:
            return {"source": self.source.get_state()}
        self.stamp = self.stamp or stamp(self.file.url)
        offset, damaged = self.reader.tell()
        return {"source": self.before, "at": [offset, int(damaged)], "stamp": self.stamp, "url": self.file.url}

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        if self.reader is not None:  # a node may be reset in the middle of a shard
            self._close()
        super().reset(None if initial_state is None else initial_state["source"])
        if initial_state is None or "at" not in initial_state:
            return
        self._reopen(initial_state["at"], initial_state["stamp"])

    def _reopen(self, at: list[int], old: str) -> None:
        self.before = self.source.get_state()
        self.file = self.source.next()
        assert self.file is not None
        try:
            new = stamp(self.file.url)
            if new != old:
                raise StateError(
                    f"{self.file.url} changed since the state was saved: {old} then, {new} now. Restore the shard, "
                    'or begin the epoch again with Loader(on_change="restart")'
                )
            self._open(at[0], bool(at[1]))
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
    paths: Any, *, shuffle: bool = False, grouping: Literal["wenet", "webdataset"] = "wenet"
) -> Pipeline:
    """Utterances from a list of tar shards: ``list_files(…).sharding_filter().open_files().load_from_tar()``."""
    return list_files(paths, shuffle=shuffle).sharding_filter().open_files().load_from_tar(grouping=grouping)
