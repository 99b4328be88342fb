"""``load_from_tar``: the utterances of tar shards, in order, none lost silently."""

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
from uio_pipes.core.capabilities import Branch, KnowsFields, LooksAhead
from uio_pipes.core.items import File
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, Trait, least, names, one_of
from uio_pipes.formats.naming import asked, check_asked, transcript
from uio_pipes.formats.tar.checks import NO_UTTERANCE, Checks, against_manifest, listed_in, miscounted
from uio_pipes.formats.tar.fields import as_fields, check_members, member_of, payloads_under, read_by, text_of
from uio_pipes.formats.tar.members import MAX_MEMBER
from uio_pipes.formats.tar.reader import UNREADABLE, TarReader, suspects, unchecked
from uio_pipes.io.access import Access
from uio_pipes.io.opening import Opened, known_size, open_ahead
from uio_pipes.io.stream import open_source
from uio_pipes.stages.reading.open_files import Interleaved, NextFiles, OpenFiles
from uio_pipes.stages.reading.stream_node import StreamNode

_TEXT = re.compile(r"[^\s:./]+(\.[^\s:./]+)*(:.+)?")


@dataclass(frozen=True)
class LoadFromTar(KnowsFields, LooksAhead, Flow):
    """Read the utterances of tar shards: consecutive members with the same key are one utterance.

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

    grouping: Literal["wenet", "webdataset"] = one_of(("wenet", "webdataset"), "wenet")
    text: str | None = "txt"
    verify: Literal["crc"] | None = one_of(("crc", None), None, "leave it out")
    max_member: int = least(1, MAX_MEMBER, "try 1 << 30")
    fields: Mapping[str, str] | None = names(members=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "text must be a suffix (txt), a suffix and a field of its JSON (json:text), or None"
        ok = isinstance(self.text, str | None) and (self.text is None or bool(_TEXT.fullmatch(self.text)))
        require(ok, self.name, rule, self.text, "look at it with tar -tf")
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

    def look(self, before: Branch) -> None:
        names = dict(self.fields or {}) | ({"txt": self.transcript} if self.transcript != "txt" else {})
        shards = [(each.lines()[0], each.access) for each in before._files()] if names else []
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
            return _TarNode(source, lane, self)
        return Interleaved(source, count, lambda files: _TarNode(source, lane, self, files))


class _TarNode(StreamNode):
    """State: ``at``: where in the shard the next utterance begins; ``seen``: utterances before, with failed ones."""

    stage: LoadFromTar

    def __init__(self, source: Node, lane: Lane, stage: LoadFromTar, files: NextFiles | None = None) -> None:
        super().__init__(source, lane, stage, files)
        self.needs_text = lane.needs_text and stage.text is not None
        self.transcript = stage.transcript

    def open(self, state: Mapping[str, Any] | None) -> TarReader:
        self.seen, self.checks = 0 if state is None else state["seen"], None
        offset, damaged, last = (0, 0, "") if state is None else state["at"]
        file: File = self.file
        try:
            self.opened = self.opened or open_ahead(file.url, file.access, offset)
            reader = self._reader(self.opened, offset, bool(damaged), last)
            if self.stage.verify is not None:
                self.checks = Checks(file.url, file.access)
        except DataError as error:
            raise listed_in(error, file.url, file.place, file.expected) from error
        return reader

    def _reader(self, opened: Opened | None, offset: int = 0, damaged: bool = False, last: str = "") -> TarReader:
        stream = open_source(self.file.url, self.file.access, opened)
        stage = self.stage
        text = member_of(self.transcript) if self.needs_text else ""
        limits: Any = {"largest": stage.max_member, "payloads": payloads_under(stage.fields)}
        return TarReader(self.file.url, stream, stage.grouping, offset, damaged, last, text=text, **limits)

    def read(self) -> Sample:
        self.files.prepare(self.opened)
        utterance = self.reader.next()
        if self.checks is not None:
            self.checks.apply(utterance)
        stage, url = self.stage, self.file.url
        text = text_of(utterance, url, self.transcript) if self.needs_text else None
        fields = as_fields(utterance, url, text, stage.fields)
        item, _, sub, pass_, source = self.file.origin
        origin = tuple.__new__(Origin, (item, utterance.offset, sub, pass_, source))
        self.seen += 1
        return self.loaded.sample(fields, origin, url)

    def tell(self) -> dict[str, Any]:
        offset, damaged, last = self.reader.tell()
        return {"at": [offset, int(damaged), last], "seen": self.seen}

    def fails(self, error: DataError) -> bool:
        if error.reason == "unclear_end" and self.file is not None and self.file.expected is not None:
            return False  # its manifest says more
        if self.reader is not None and error.reason not in NO_UTTERANCE | UNREADABLE:
            self.seen += 1
        return True

    def at_end(self, reached: bool) -> Iterator[DataError]:
        """Yield what is wrong with the shard as a whole: suspicious utterances of a damaged stream, and differences
        from its manifest or index."""
        reader, url, expected = self.reader, self.file.url, self.file.expected
        if reader is None:
            return  # it could not be opened: that is one failure, with all that is lost
        if self.checks is None and not self.lane.ledger.quiet:
            if reader.sound is not None:
                yield from suspects(lambda: self._reader(None), reader.sound, url)
            if reader.unchecked:
                yield unchecked(url)
        if expected is not None and self.opened is not None:
            bad = against_manifest(url, expected, self.seen, known_size(self.opened))
            yield from [bad] if bad is not None else []
        elif self.checks is not None and self.checks.utterances != self.seen:
            yield miscounted(url, self.checks.utterances, self.seen, "index")
