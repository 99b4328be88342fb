"""``load_from_tar``: the utterances of tar shards, one after the other, none silently lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Literal

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import redact
from uio_pipes.core.buffer import check_stamp, reopening, taken
from uio_pipes.core.capabilities import FileList, KnowsFields, LooksAhead
from uio_pipes.core.items import File, Loaded
from uio_pipes.core.lane import Lane, Site, Taken
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, Trait, names
from uio_pipes.formats.naming import asked, check_asked, transcript
from uio_pipes.formats.tar.checks import NO_UTTERANCE, Checks, against_manifest, listed_in, miscounted
from uio_pipes.formats.tar.fields import as_fields, check_members, member_of, payloads_under, read_by, text_of
from uio_pipes.formats.tar.members import MAX_MEMBER
from uio_pipes.formats.tar.reader import UNREADABLE, TarReader, TarUtterance, suspects, unchecked
from uio_pipes.io.access import Access
from uio_pipes.io.opening import known_size, stamp
from uio_pipes.io.stream import open_source
from uio_pipes.stages.reading.open_files import Far, Interleaved, NextFiles, OpenFiles, begin

_TEXT = re.compile(r"[^\s:./]+(\.[^\s:./]+)*(:.+)?")


@dataclass(frozen=True)
class LoadFromTar(KnowsFields, LooksAhead, Flow):
    """Read the utterances of tar shards: consecutive members with one key are an utterance.

    Shards may be .tar, .tar.gz, .tar.zst, .tar.bz2 or .tar.xz. An utterance has the fields ``key``, ``txt``,
    ``wav`` (the bytes of the audio file, whatever its format) or ``feat`` ((T, F), from ``KEY.npy``). Its other
    members are fields named by their suffix: ``speaker``, ``spk``, ``gender``, ``age``, ``lang``, ``language``,
    ``dialect``, ``accent``, ``task``, ``domain``, ``emotion``, ``text`` and the like as text, others as bytes. Where
    the list has a manifest, a shard with another number of utterances or bytes than it says is reported.

    Args:
        grouping: where a member's name is cut into key and suffix: "wenet" cuts at the last dot of the whole path,
            "webdataset" at the first dot of the base name. Default: "wenet".
        text: suffix of the member that holds the transcript, or "json:NAME" if it is the field NAME of the member
            ``KEY.json``; None if utterances need none: ``txt`` is then there where a shard has it. Default: "txt".
        verify: "crc" compares each member with its CRC32 in the shard's index (``uio index``). Default: None, trusted.
        max_member: bytes; a larger member is skipped and counted as a failure. Default: 1,073,741,824 (1 GiB).
        fields: our names of fields with their members' suffixes, or with ``SUFFIX:NAME`` for a field of a member's
            JSON, as in ``{"txt": "trans", "speaker": "json:speaker"}``. Default: None, ours.
    """

    name: ClassVar[str] = "load_from_tar"
    takes: ClassVar[tuple[str, ...]] = ("file",)
    gives: ClassVar[str] = "sample"

    grouping: Literal["wenet", "webdataset"] = "wenet"
    text: str | None = "txt"
    verify: Literal["crc"] | None = None
    max_member: int = MAX_MEMBER
    fields: Mapping[str, str] | None = names(members=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.grouping in ("wenet", "webdataset")
        require(known, self.name, "grouping must be 'wenet' or 'webdataset'", self.grouping, "choose one")
        rule = "text must be a suffix (txt), a suffix and a field of its JSON (json:text), or None"
        ok = isinstance(self.text, str | None) and (self.text is None or bool(_TEXT.fullmatch(self.text)))
        require(ok, self.name, rule, self.text, "look at it with tar -tf")
        require(self.verify in (None, "crc"), self.name, "verify must be 'crc' or None", self.verify, "leave it out")
        require(self.max_member >= 1, self.name, "max_member must be 1 byte or more", self.max_member, "try 1 << 30")
        check_members(self.name, self.fields, self.grouping)
        transcript(self.name, self.text, self.fields)

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        return Trait.TEXTLESS if self.text is None else Trait.NONE

    @property
    def transcript(self) -> str:
        """The suffix of the transcript's member, or ``SUFFIX:NAME``."""
        return transcript(self.name, self.text, self.fields)

    def check(self, before: Sequence[Stage]) -> None:
        several = any(isinstance(stage, OpenFiles) and stage.interleave > 1 for stage in before[:-1])
        rule = "open_files(interleave=…) must stand directly before load_from_tar"
        require(not several, self.name, rule, before[-1].name if before else "", "put nothing between them")

    def lacking(self, name: str) -> str:
        return (
            "shards have none, unless fields names them" if name == "label" and name not in (self.fields or {}) else ""
        )

    def look(self, listed: list[FileList]) -> None:
        names = dict(self.fields or {}) | ({"txt": self.transcript} if self.transcript != "txt" else {})
        shards = [(each.lines()[0], each.access) for each in listed] if names else []
        records = chain.from_iterable(self._first(*shard, names) for shard in shards)
        check_asked(records, asked(names, self.text), redact(shards[0][0]) if shards else "")

    def _first(self, url: str, access: Access, names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield what expressions may read of the utterances of a shard, as far as it can be read."""
        with suppress(DataError, StopIteration), closing(open_source(url, access)) as source:
            reader = TarReader(url, source, self.grouping, text="", payloads=payloads_under(self.fields))
            while True:
                yield read_by(reader.next(), url, names)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        count = getattr(source, "at_once", 1)
        if count == 1:
            return _TarNode(source, lane, self, NextFiles(source))
        return Interleaved(source, count, lambda files: _TarNode(source, lane, self, files))


class _TarNode(Node):
    """State: the source's from before the current shard, and where in the shard the next utterance begins."""

    def __init__(self, source: Node, lane: Lane, stage: LoadFromTar, files: NextFiles) -> None:
        super().__init__(source)
        self.lane, self.stage, self.files = lane, stage, files
        self.loaded = Loaded(lane)
        self.needs_text = lane.needs_text and stage.text is not None
        self.transcript = stage.transcript
        self.reader: TarReader | None = None

    def start(self) -> None:
        self.file: File | None = None
        self.far: Far | None = None  # reads the file, if it is remote
        self.reader = None
        self.before: dict[str, Any] = {}
        self.taken = Taken(self.lane.pulse)
        self.stamp = ""
        self.seen = 0  # utterances of the current shard, including failed ones
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
                self._end()
            except DataError as error:
                self._failed(error)
            else:
                self.seen += 1
                self.lane.ledger.fine(self.stage.name)
                return sample

    def _failed(self, error: DataError) -> None:
        if self.file is not None:
            error.item = self.file.origin.item
            if error.reason == "unclear_end" and self.file.expected is not None:
                return  # its manifest says more
        out_of_reach = self.reader is None or error.reason in UNREADABLE
        if self.reader is not None:
            self.seen += error.reason not in NO_UTTERANCE and not out_of_reach
        self.lane.ledger.fail(error, self.stage.name)
        if out_of_reach:
            self._end()

    def _end(self) -> None:
        """Close the shard, which was read as far as possible, and report what only its end shows."""
        found = list(self._at_end()) if self.file is not None else []
        for error in found:
            error.item = self.file.origin.item if self.file is not None else None
        if self.reader is not None:
            self._close()
        for error in found:
            self.lane.ledger.fail(error, self.stage.name)

    def _at_end(self) -> Iterator[DataError]:
        """Yield what is wrong with the shard as a whole: suspicious utterances of a damaged stream, and differences
        from its manifest or index."""
        assert self.file is not None
        reader, url, expected = self.reader, self.file.url, self.file.expected
        if reader is None:
            return  # it could not be opened: that is one failure, with all that is lost
        if self.checks is None and not self.lane.ledger.quiet:
            if reader.sound is not None:
                yield from suspects(lambda: self._reader(None), reader.sound, url)
            if reader.unchecked:
                yield unchecked(url)
        if expected is not None:
            bad = against_manifest(url, expected, self.seen, known_size(url, self.far))
            yield from [bad] if bad is not None else []
        elif self.checks is not None and self.checks.utterances != self.seen:
            yield miscounted(url, self.checks.utterances, self.seen, "index")

    def _open_next(self) -> None:
        self.before, self.file, self.far = self.files.next()
        self.taken = Taken(self.lane.pulse)
        self.seen = 0
        self._open(0)

    def _open(self, offset: int, damaged: bool = False, last: str = "") -> None:
        assert self.file is not None
        try:
            self.far = self.far or begin(self.file, offset)
            self.reader = self._reader(self.far, offset, damaged, last)
            if self.stage.verify is not None:
                self.checks = Checks(self.file.url, self.file.access)
        except DataError as error:
            raise listed_in(error, self.file.url, self.file.place, self.file.expected) from error

    def _reader(self, far: Far | None, offset: int = 0, damaged: bool = False, last: str = "") -> TarReader:
        assert self.file is not None
        stream = open_source(self.file.url, self.file.access, far)
        stage = self.stage
        text = member_of(self.transcript) if self.needs_text else ""
        limits: Any = {"largest": stage.max_member, "payloads": payloads_under(stage.fields)}
        return TarReader(self.file.url, stream, stage.grouping, offset, damaged, last, text=text, **limits)

    def _close(self) -> None:
        assert self.reader is not None
        self.reader.close()
        self.reader, self.file, self.far, self.stamp, self.checks = None, None, None, "", None

    def _sample(self, utterance: TarUtterance) -> Sample:
        assert self.file is not None
        if self.checks is not None:
            self.checks.apply(utterance)
        stage, url = self.stage, self.file.url
        text = text_of(utterance, url, self.transcript) if self.needs_text else None
        fields = as_fields(utterance, url, text, stage.fields)
        item, _, sub, pass_, source = self.file.origin
        origin = tuple.__new__(Origin, (item, utterance.offset, sub, pass_, source))
        return self.loaded.sample(fields, origin, self.file.url)

    def get_state(self) -> dict[str, Any]:
        if self.reader is None or self.file is None:
            return {"source": self.files.get_state()}
        self.stamp = self.stamp or self._stamp(self.file)
        offset, damaged, last = self.reader.tell()
        state = {"source": self.before, "at": [offset, int(damaged), last], "seen": self.seen, "stamp": self.stamp}
        return {**state, "url": redact(self.file.url), **self.taken.saved()}

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
        if initial_state is not None and len(initial_state) > 1:
            offset, damaged, last = initial_state["at"]
            self.seen = initial_state["seen"]
            self._reopen((offset, bool(damaged), last), initial_state["stamp"])
            self.taken = Taken(self.lane.pulse, initial_state)

    def _reopen(self, at: tuple[int, bool, str], old: str) -> None:
        self.before = self.source.get_state()
        self.file = taken(self.source, self.stage.name)
        assert self.file is not None
        with reopening():
            self.far = begin(self.file, at[0])
            check_stamp(self.file.url, old, self._stamp(self.file))
            self._open(*at)
        self.stamp = old
