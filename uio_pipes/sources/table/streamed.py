"""Archives read in their own order: each member meets the rows that name it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, LeftOut, StateError
from uio_pipes.base.urls import redact, suffix_of
from uio_pipes.core.buffer import changed, check_stamp, reopening, taken
from uio_pipes.core.capabilities import Uncountable
from uio_pipes.core.graph import Graph
from uio_pipes.core.items import File, Loaded
from uio_pipes.core.lane import Lane, Site, Taken
from uio_pipes.core.ledger import Tally
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow, Source
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Trait
from uio_pipes.formats.archives.archive import is_archive, is_hidden
from uio_pipes.formats.archives.directory import AUDIO, CUT
from uio_pipes.formats.archives.reading import ArchiveReader, MemberStart, Passed, open_reader
from uio_pipes.formats.tar.reader import UNREADABLE, suspect, unchecked
from uio_pipes.io.opening import stamp
from uio_pipes.sources.table.archives import ANYWHERE, ArchiveTable
from uio_pipes.stages.reading.open_files import Far, NextFiles, begin

_SHOWN = 3  # names in a message


@dataclass
class RowsMet:
    """How many of the ``rows`` that may be in any of the ``archives`` have audio there, told at the end of the epoch.

    ``met``: numbers of such rows by the number of the archive. It is a :class:`~uio_pipes.core.ledger.Tally`.
    """

    rows: int
    archives: int
    met: dict[int, npt.NDArray[np.int64]] = field(default_factory=dict)
    reported: bool = False

    def add(self, other: RowsMet) -> None:
        self.met.update(other.met)

    @property
    def complete(self) -> bool:
        """Whether all archives were read."""
        return len(self.met) == self.archives

    def verdict(self, last: bool) -> str | None:
        if self.reported or not (self.complete or last):
            return None
        self.reported = True
        if not (found := self._lost() if self.complete else self._unknown()):
            return None
        return (
            f"{found}, since neither indexes (uio index --members) nor the rows (archives='{{…}}.tar.gz') tell where "
            "audio is"
        )

    def _lost(self) -> str:
        """Return what no archive has and what two have; "" if all is there once."""
        met = np.concatenate(list(self.met.values()))
        distinct = len(np.unique(met))
        lost, twice = self.rows - distinct, len(met) - distinct
        if not (lost or twice):
            return ""
        return (
            f"of {self.rows} rows {lost} {'has' if lost == 1 else 'have'} no audio in any of {self.archives} archives, "
            f"and {twice} came once more from another one. They are not counted"
        )

    def _unknown(self) -> str:
        return (
            f"this process read {len(self.met)} of {self.archives} archives from beginning to end, so that rows "
            "without audio, and utterances that are in two archives, are not counted"
        )


def rows_without_audio(pipeline: Graph, tallies: Mapping[str, Tally]) -> Iterator[DataError]:
    """Yield the failures of rows whose audio might have been in any of several archives, and was in none: of a pipeline
    that was read in one go, of which all lanes together counted ``tallies``."""
    for place, stage in pipeline._places():
        tally = tallies.get(place)
        if isinstance(stage, JoinRows) and isinstance(tally, RowsMet) and tally.complete:
            table: ArchiveTable = stage.listing.table()
            anywhere = np.flatnonzero(table.homes == ANYWHERE)
            yield from table.missed(np.setdiff1d(anywhere, np.concatenate([*tally.met.values()])).tolist(), 0)


class _Met(NamedTuple):
    """Where the audio of a row was: its offset, and up to where the archive had been read by then."""

    offset: int
    read: MemberStart

    def is_after(self, end: MemberStart) -> bool:
        """Return whether it may come from after the sound part of the stream that ``end`` is about."""
        within = len(end) - 1
        return self.read[:within] == end[:within] and self.read[within : within + 1] > end[within:]


@dataclass(frozen=True)
class JoinRows(Uncountable, Flow):
    """Read archives in their order, and join each member to the rows of the table that name it."""

    name: ClassVar[str] = "join_rows"
    takes: ClassVar[tuple[str, ...]] = ("file",)
    gives: ClassVar[str] = "sample"
    reasons: ClassVar[frozenset[str]] = frozenset(["no_row", "not_kept", "dropped"])

    listing: Source = field(metadata=NO_IDENTITY, repr=False)  # of the table and its archives

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        return self.listing.traits

    def uncountable_reason(self, kind: str) -> str:
        return "what is in archives shows only when they are read"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _JoinNode(source, lane, self, site.within(lane.source).removeprefix("/"))


class _JoinNode(Node):
    """State: the source's from before the current archive, where in it the next member begins, and how many rows of
    it have been given. Which rows were met before is found by going through the members again."""

    def __init__(self, source: Node, lane: Lane, stage: JoinRows, place: str) -> None:
        super().__init__(source)
        self.lane, self.stage, self.stage_place = lane, stage, place
        self.files, self.loaded = NextFiles(source), Loaded(lane)
        self.reader: ArchiveReader | None = None
        self.table: ArchiveTable | None = None

    def start(self) -> None:
        self.file: File | None = None
        self.far: Far | None = None
        self.before: dict[str, Any] = {}
        self.taken = Taken(self.lane.pulse)
        self.stamp = ""
        self.member: Passed | None = None
        self.rows: list[int] = []  # those of the member
        self.given = 0
        self._forget()

    def _forget(self) -> None:
        """Forget what is known of an archive."""
        self.met = dict[int, _Met]()  # the rows whose audio came
        self.unnamed = list[str]()  # some audio that no row names
        self.cut = False  # whether the archive ended before its end

    def next(self) -> Sample:
        while True:
            try:
                if self.reader is None:
                    self._open_next()
                return self._sample(self._row())
            except StopIteration:
                if self.reader is None:
                    raise
                self._end()
            except DataError as error:
                self._failed(error)

    def _row(self) -> int:
        """Return the number of the next row whose audio is there. Raises: StopIteration, DataError."""
        assert self.reader is not None
        while self.given == len(self.rows):
            self.files.prepare(self.far)
            self._meet()
        self.given += 1
        return self.rows[self.given - 1]

    def _meet(self) -> None:
        """Read a member, find its rows, count it if it has none or came already. Raises: StopIteration, DataError."""
        assert self.table is not None
        assert self.file is not None
        assert self.reader is not None
        self.member, self.rows, self.given = None, list[int](), 0
        try:
            member = self.member = self.reader.next()
        except DataError as error:
            self.cut |= error.reason in CUT
            raise
        value = None if is_hidden(member.name) else self.table.archives.match(member.name)
        if value is None:
            return
        rows = self.table.rows_of(value, self.file.origin.item)
        is_audio = suffix_of(member.name) in AUDIO
        if rows and rows[0] in self.met:
            raise self._duplicate("the archive had a member of this name before, which was read")
        if not rows and is_audio and self.table.is_elsewhere(value):
            raise self._duplicate("another archive has a member of this name, which is read")
        if not rows and is_audio:
            self.lane.ledger.count("no_row")
            self.unnamed += [value][: _SHOWN - len(self.unnamed)]
        self.met |= dict.fromkeys(rows, _Met(member.start[0], self.reader.read))
        self.rows = rows

    def _duplicate(self, what: str) -> DataError:
        assert self.file is not None
        assert self.member is not None
        where: Any = {"url": self.file.url, "member": self.member.name, "offset": self.member.start[0]}
        return DataError("duplicate_member", f"{what}: pack it without the second one", **where)

    def _sample(self, number: int) -> Sample:
        assert self.table is not None
        assert self.file is not None
        assert self.member is not None
        item, _, sub, pass_, source = self.file.origin
        offset, *inner = self.member.start
        sub = (*sub, *inner, *([self.given - 1] if len(self.rows) > 1 else []))
        try:
            fields = self.table.fields(number, item, self.member.payload)
        except DataError as error:
            if not isinstance(error, LeftOut):  # which is only counted
                error.key = self.table.key(number, error)
            raise
        self.lane.ledger.fine(self.stage.name)
        origin = Origin(item, offset, sub, pass_, source)
        return self.loaded.sample(fields, origin, self.file.url)

    def _failed(self, error: DataError) -> None:
        if self.file is not None:
            error.item = self.file.origin.item
        out_of_reach = self.reader is None or error.reason in UNREADABLE
        if self.table is None or not self.table.archives.may_lack(error):
            self.lane.ledger.fail(error, self.stage.name)
        if out_of_reach:
            self._end(reached=False)

    def _end(self, reached: bool = True) -> None:
        """Close the archive, and report what only its end shows."""
        found, missed = list[DataError](), list[DataError]()
        item = None if self.file is None else self.file.origin.item
        if item is not None and self.table is not None and not self.lane.ledger.quiet:
            found = [*self._at_end(reached)]
            rows = self.table.rows_in(item).tolist()  # whose audio did not come are missed
            missed = [*self.table.missed((row for row in rows if row not in self.met), item)]
        # With a failure of the whole archive, the rows that are lost with it are only counted.
        whole = self.cut or not reached or any(error.reason == "unmatched_archive" for error in found)
        if self.reader is not None:
            self.reader.close()
        self.reader, self.file, self.far, self.stamp = None, None, None, ""
        self.member, self.rows, self.given = None, [], 0
        self._forget()
        for error in found:
            error.item = item
            self.lane.ledger.fail(error, self.stage.name)
        for error in missed:
            if whole and error.reason == "no_audio":
                self.lane.ledger.count(error.reason)
            else:
                error.item = item
                self.lane.ledger.fail(error, self.stage.name)
                self.lane.ledger.fine(self.stage.name)  # these rows do not follow each other: no streak of failures

    def _at_end(self, reached: bool) -> Iterator[DataError]:
        """Yield what is wrong with the archive as a whole, and with utterances that came out of a damaged stream."""
        assert self.table is not None
        assert self.file is not None
        item, url = self.file.origin.item, self.file.url
        if anywhere := int((self.table.homes == ANYWHERE).sum()):
            tally = self.lane.ledger.tallies.setdefault(self.stage_place, RowsMet(anywhere, len(self.table)))
            assert isinstance(tally, RowsMet)
            met_here = np.fromiter(self.met, np.int64, len(self.met))
            tally.met[item] = met_here[self.table.homes[met_here] == ANYWHERE]
        if self.reader is None:
            return
        sound = self.reader.sound
        for number, met in self.met.items() if sound else ():
            if any(met.is_after(end) for end in sound):
                with suppress(DataError):  # of a row that was not delivered
                    yield suspect(url, self.table.fields(number, item, b"")["key"], met.offset)
        if self.reader.unchecked:
            yield unchecked(url)
        if (
            reached
            and self.unnamed
            and not self.met
            and is_archive(url)
            and (names := self.table.members(item, _SHOWN))
        ):
            yield self._unmatched(names)

    def _unmatched(self, wanted: list[str]) -> DataError:
        """Return the error of an archive of which nothing has a row, although rows name members that may be in it:
        then it is named otherwise than rows say."""
        assert self.table is not None
        assert self.file is not None
        there, named = (", ".join(map(repr, some)) for some in (self.unnamed, wanted))
        message = (
            f"no row names any of its audio: by match={self.table.archives.expression!r} it has {there}, …; rows name "
            f"{named}, …; say how members match rows (match=…, fields['wav']), or leave the archive out"
        )
        return DataError("unmatched_archive", message, url=self.file.url)

    # Opening and states

    def _open_next(self) -> None:
        self.before, self.file, self.far = self.files.next()
        self.taken = Taken(self.lane.pulse)
        self._open()

    def _open(self) -> None:
        assert self.file is not None
        listing, file = self.stage.listing, self.file
        self.table = self.lane.shared(("table", listing), listing.table)
        self.far = self.far or begin(file, 0)
        self.reader = open_reader(file.url, file.access, self.far)

    def get_state(self) -> dict[str, Any]:
        if self.reader is None or self.file is None:
            return {"source": self.files.get_state()}
        self.stamp = self.stamp or self._stamp(self.file)
        within = self.member is not None and self.given < len(self.rows)
        at = self.member.start if self.member is not None and within else self.reader.at
        state = {"source": self.before, "at": [*at], "given": self.given if within else 0, "stamp": self.stamp}
        return {**state, "url": redact(self.file.url), **self.taken.saved()}

    def _stamp(self, file: File) -> str:
        return stamp(file.url) if self.far is None else self.far.stamp

    def remaining(self) -> tuple[int, int]:
        held, items = super().remaining()
        return held, items + len(self.files)

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None
        self.files.clear()
        super().reset(None if initial_state is None else initial_state["source"])
        if initial_state is not None and len(initial_state) > 1:
            self._reopen(tuple(initial_state["at"]), initial_state["given"], initial_state["stamp"])
            self.taken = Taken(self.lane.pulse, initial_state)

    def _reopen(self, at: MemberStart, given: int, old: str) -> None:
        """Go through the archive again up to ``at``, and through so many rows of the member there."""
        self.before = self.source.get_state()
        self.file = taken(self.source, self.stage.name)
        assert self.file is not None
        with reopening():
            self._open()
            check_stamp(self.file.url, old, self._stamp(self.file))
        assert self.reader is not None
        quiet, self.lane.ledger.quiet = self.lane.ledger.quiet, True
        try:
            while self.reader.at < at or (given and (self.member is None or self.member.start < at)):
                self._pass_over()
        finally:
            self.lane.ledger.quiet = quiet
        if self.reader.at < at or given > len(self.rows):
            raise StateError(changed(self.stage.name, "the archive has other members now"))
        self.given = given or len(self.rows)
        self.stamp = old

    def _pass_over(self) -> None:
        try:
            self._meet()
        except StopIteration:
            raise StateError(changed(self.stage.name, "the archive ended early")) from None
        except DataError as error:
            if error.reason in UNREADABLE:
                raise
