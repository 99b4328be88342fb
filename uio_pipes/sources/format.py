"""The base of formats with rows: what these are, which fields of an utterance each gives, and which data are theirs.

All else follows from that: the utterances by number, with their keys and places; what is counted when a row cannot be
read; audio that is named relative to the file of its row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from uio_pipes.base.checks import require_paths
from uio_pipes.base.errors import DataError, LeftOut
from uio_pipes.base.urls import name_of
from uio_pipes.core.roles import Source
from uio_pipes.core.stage import NO_IDENTITY
from uio_pipes.formats.tables.rows import RowsByNumber
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.relative_paths import RelativeRef, relative_ref
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.seen import Found, Seen


class NamedByRow(RelativeRef):
    """A file that a row names."""

    __slots__ = ()
    remedy: ClassVar[str] = "correct the row, or fetch the file"

    def missing(self, path: str) -> DataError:
        message = "no such file, neither from the folder of the row's file nor from the working directory"
        return DataError("missing_file", f"{message}: {self.remedy}", url=path)


class RowPlace:
    """Where a row is: ``number`` of ``rows``."""

    __slots__ = ("number", "rows")

    def __init__(self, rows: Any, number: int) -> None:
        self.rows, self.number = rows, number

    def __str__(self) -> str:
        """For messages: ``train.jsonl, line 7``."""
        return str(self.rows.place(self.number))

    @property
    def file(self) -> str:
        """The file that the row is in, from which relative paths start."""
        return self.rows.file(self.number)  # type: ignore[no-any-return]

    @property
    def key(self) -> str:
        """A key for an utterance without one: FILE:LINE."""
        file, _, line = str(self).rpartition(", ")  # line 7, or row 7
        return f"{name_of(file)}:{line.rpartition(' ')[2]}"


def key_of(row: dict[str, Any], at: RowPlace) -> str:
    """Return ``key``, ``id``, or FILE:LINE."""
    key = row.get("key", row.get("id"))
    return at.key if key is None else str(key)


@dataclass(frozen=True)
class Format(Source):
    """A layout of data that a pipeline can begin with. Subclasses write :meth:`rows`, :meth:`utterance` and, for the
    commands, :meth:`fits`. One with further arguments is a frozen dataclass of these.

    Args:
        paths: what is read: a path or URL, or several.
        shuffle: whether to deal the utterances in another order in each epoch, without a buffer. Default: False.
        access: how files are reached. Default: as they are.
        root: folder or URL at which relative paths of audio start. Default: None, at the file of the row.

    Class attributes:
        name: of the stage, in messages and states.
        sentence: what the data are, in a few words.
        reasons: the words under which rows are left out on purpose, a tuple.
    """

    sentence: ClassVar[str]
    named: ClassVar[type[NamedByRow]] = NamedByRow

    paths: Any = field(metadata=NO_IDENTITY)  # the rows have a digest
    shuffle: bool = False
    access: Access = field(default=PLAIN, repr=False)
    root: str | None = field(default=None, metadata=NO_IDENTITY)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.paths, tuple):
            rule = "paths must be a path, or several in a list"
            object.__setattr__(self, "paths", require_paths(self.name, rule, self.paths))

    @classmethod
    def fits(cls, seen: Seen) -> bool:
        """Return whether the data at a path, as ``seen``, seem to be of this layout."""
        return False

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        """Return how data are read; None if they are of another layout."""
        return Found(cls.name, cls, (seen.path,)) if cls.fits(seen) else None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline that begins with these data."""
        return Pipeline((self,)).sharding_filter().load_records()

    def rows(self) -> RowsByNumber:
        """Open the rows. Raises: ListError if they cannot be used."""
        raise NotImplementedError

    def utterance(self, row: dict[str, Any], at: RowPlace) -> dict[str, Any]:
        """Return the fields of an utterance, made of a row, which may be changed. ``wav`` may be a path; ``at``: where
        the row is.

        Raises: LeftOut for a row that is not wanted, DataError for one that is no utterance.
        """
        return row

    def key(self, row: dict[str, Any], at: RowPlace) -> str:
        """Return the key of a ``row``, as far as it is known when its fields cannot be made; ``at``: where it is."""
        return str(row.get("key", ""))

    def audio(self, path: str, at: RowPlace) -> Any:
        """Return the audio that the row ``at`` names by a path. It is neither opened nor looked for yet."""
        return relative_ref(path, at.file if self.root is None else f"{self.root}/", self.access, self.named)

    def table(self) -> Utterances:
        return Utterances(self)


class Utterances:
    """The utterances of a format, one per row."""

    weights = None
    rows: Any

    def __init__(self, format: Format) -> None:
        self.format, self.rows = format, format.rows()
        self.place, self._row, self._made = self.rows.place, self.rows.row, format.utterance

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def digest(self) -> str:
        """A hash of all rows."""
        return str(self.rows.digest)

    @property
    def notes(self) -> Any:
        """Possible problems of the files that are not failures."""
        return self.rows.notes

    def key(self, number: int) -> str:
        try:
            return str(self.fields(number)["key"])
        except DataError as error:
            return error.member or self.place(number)

    def fields(self, number: int) -> dict[str, Any]:
        """Return the fields of an utterance, without opening anything. Raises: LeftOut, DataError."""
        at, row = RowPlace(self.rows, number), dict[str, Any]()
        try:
            row = self._row(number)
            fields = self._made(row, at)
            if type(path := fields.get("wav")) is str:
                fields["wav"] = self.format.audio(path, at)
            return fields
        except DataError as error:
            if error.url:  # it says where it happened
                raise
            kind = LeftOut if isinstance(error, LeftOut) else DataError
            raise kind(error.reason, error.message, url=str(at), member=self.format.key(row, at)) from error
