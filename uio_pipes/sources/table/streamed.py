"""Archives read in their own order, with each member joined to its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, LeftOut, StateError
from uio_pipes.base.urls import suffix_of
from uio_pipes.core.buffer import changed
from uio_pipes.core.capabilities import Uncountable
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Tally
from uio_pipes.core.origin import Origin
from uio_pipes.core.roles import Flow, Source
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Trait
from uio_pipes.formats.archives.archive import CUT, is_archive, is_hidden
from uio_pipes.formats.archives.directory import AUDIO
from uio_pipes.formats.archives.reading import ArchiveMember, ArchiveReader, MemberStart, open_reader
from uio_pipes.formats.tar.reader import UNREADABLE, suspect, unchecked
from uio_pipes.io.opening import open_ahead
from uio_pipes.sources.table.archives import ANYWHERE, ArchiveTable
from uio_pipes.stages.reading.stream_node import StreamNode

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
    """Yield the failures of rows whose audio is in none of several archives. ``tallies`` are the counts of all lanes of
    a pipeline that was read in one go."""
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
    reasons = ("no_row", "not_kept", "dropped")

    listing: Source = field(metadata=NO_IDENTITY, repr=False)  # of the table and its archives

    @property
    def traits(self) -> Trait:  # type: ignore[override]
        return self.listing.traits

    def uncountable_reason(self, kind: str) -> str:
        return "what is in archives shows only when they are read"

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _JoinNode(source, lane, self, site.within(lane.source).removeprefix("/"))


class _JoinNode(StreamNode):
    """State: ``at``: where in the archive the next member begins; ``given``: how many of its rows have been given.

    Which rows were met before is found by going through the members again.
    """

    stage: JoinRows

    def __init__(self, source: Node, lane: Lane, stage: JoinRows, place: str) -> None:
        super().__init__(source, lane, stage)
        self.stage_place = place

    def open(self, state: Mapping[str, Any] | None) -> ArchiveReader:
        self.member: ArchiveMember | None = None
        self.rows, self.given = list[int](), 0  # those of the member
        self.met = dict[int, _Met]()  # the rows whose audio came
        self.unnamed = list[str]()  # some audio that no row names
        self.cut = False  # whether the archive ended before its end
        self.table: ArchiveTable = self.lane.shared(("table", self.stage.listing), self.stage.listing.table)
        self.opened = self.opened or open_ahead(self.file.url, self.file.access)
        return open_reader(self.file.url, self.file.access, self.opened)

    def read(self) -> Sample:
        while self.given == len(self.rows):
            self.files.prepare(self.opened)
            self._meet()
        self.given += 1
        number = self.rows[self.given - 1]
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
        return self.loaded.sample(fields, Origin(item, offset, sub, pass_, source), self.file.url)

    def _meet(self) -> None:
        """Read a member, find its rows, count it if it has none or came already. Raises: StopIteration, DataError."""
        self.member, self.rows, self.given = None, [], 0
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
            raise self._duplicate(member, "the archive had a member of this name before, which was read")
        if not rows and is_audio and self.table.is_elsewhere(value):
            raise self._duplicate(member, "another archive has a member of this name, which is read")
        if not rows and is_audio:
            self.lane.ledger.count("no_row")
            self.unnamed += [value][: _SHOWN - len(self.unnamed)]
        self.met |= dict.fromkeys(rows, _Met(member.start[0], self.reader.read))
        self.rows = rows

    def _duplicate(self, member: ArchiveMember, what: str) -> DataError:
        where: Any = {"url": self.file.url, "member": member.name, "offset": member.start[0]}
        return DataError("duplicate_member", f"{what}: pack the archive without the second one", **where)

    def fails(self, error: DataError) -> bool:
        return self.file is None or not self.table.archives.may_lack(error)

    def at_end(self, reached: bool) -> Iterator[DataError]:
        """Yield what is wrong with the archive as a whole, and with utterances that came out of a damaged stream."""
        item, url, table = self.file.origin.item, self.file.url, self.table
        if self.lane.ledger.quiet:
            return
        if anywhere := int((table.homes == ANYWHERE).sum()):
            tally = self.lane.ledger.tallies.setdefault(self.stage_place, RowsMet(anywhere, len(table)))
            assert isinstance(tally, RowsMet)
            met_here = np.fromiter(self.met, np.int64, len(self.met))
            tally.met[item] = met_here[table.homes[met_here] == ANYWHERE]
        if self.reader is None:
            return
        sound = self.reader.sound
        for number, met in self.met.items() if sound else ():
            if any(met.is_after(end) for end in sound):
                with suppress(DataError):  # of a row that was not delivered
                    yield suspect(url, table.fields(number, item, b"")["key"], met.offset)
        if self.reader.unchecked:
            yield unchecked(url)
        unmatched = reached and self.unnamed and not self.met and is_archive(url)
        if unmatched and (names := table.members(item, _SHOWN)):
            self.cut = True
            yield self._unmatched(names)

    def _unmatched(self, wanted: list[str]) -> DataError:
        """Return the error of an archive of which nothing has a row, although rows name members that may be in it:
        then it is named otherwise than rows say."""
        there, named = (", ".join(map(repr, some)) for some in (self.unnamed, wanted))
        message = (
            f"no row names any of its audio: by match={self.table.archives.expression!r} it has {there}, …; rows name "
            f"{named}, …; say how members match rows (match=…, fields['wav']), or remove the archive"
        )
        return DataError("unmatched_archive", message, url=self.file.url)

    def end(self, reached: bool = True) -> None:
        """Close the archive, and report what only its end shows, then the rows whose audio did not come: with a failure
        of the whole archive, those that are lost with it are only counted."""
        file, ledger = self.file, self.lane.ledger
        super().end(reached)
        if file is None or ledger.quiet:
            return
        rows = self.table.rows_in(file.origin.item).tolist()
        for error in self.table.missed((row for row in rows if row not in self.met), file.origin.item):
            if (self.cut or not reached) and error.reason == "no_audio":
                ledger.count(error.reason)
            else:
                error.item = file.origin.item
                ledger.fail(error, self.stage.name)
                ledger.succeeded(self.stage.name)  # these rows do not follow each other: no streak of failures

    def tell(self) -> dict[str, Any]:
        if self.member is not None and self.given < len(self.rows):
            return {"at": [*self.member.start], "given": self.given}
        return {"at": [*self.reader.at], "given": 0}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go through the archive again up to the member, and through so many rows of it."""
        at, given = tuple(state["at"]), state["given"]
        with self.lane.ledger.quietly(True):
            while self.reader.at < at or (given and (self.member is None or self.member.start < at)):
                try:
                    self._meet()
                except StopIteration:
                    raise StateError(changed(self.stage.name, "the archive ended early")) from None
                except DataError as error:
                    if error.reason in UNREADABLE:
                        raise
        if self.reader.at < at or given > len(self.rows):
            raise StateError(changed(self.stage.name, "the archive has other members now"))
        self.given = given or len(self.rows)
