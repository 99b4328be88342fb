"""The cuts of one shard of a Lhotse Shar with their data: all files of the shard are read in step, by key.

A cut that one file has and another lacks is an error, and reading goes on with the next cut that all files have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from uio_pipes.base.errors import DataError
from uio_pipes.formats.shar.streams import JsonLines, StreamPosition, Value, ValueStream, open_stream
from uio_pipes.formats.tar.reader import UNREADABLE
from uio_pipes.io.access import Access

AHEAD = 1000  # cuts looked at to find the one that data belong to

Fail = Callable[[DataError], None]


class SharCut(NamedTuple):
    """A line of the cuts: its number, its content, and the values that the other files have for it."""

    line: int
    content: dict[str, Any]
    values: dict[str, Value]


class SharReader:
    """Reader of ``files`` (by field, ``cuts`` among them) from ``at`` on, as an earlier reader's ``tell()`` gave it.

    ``fail`` is called with each failure. Raises: DataError if a file cannot be opened.
    """

    def __init__(
        self, files: dict[str, str], access: Access, fail: Fail, at: dict[str, StreamPosition] | None = None
    ) -> None:
        at = at or {}
        self.files, self._fail = files, fail
        self._streams: dict[str, ValueStream] = {}
        self._held: dict[str, Value] = {}  # of a cut further on
        self._cuts: deque[SharCut] = deque()  # parsed, but not their turn yet
        self._over = False
        try:
            self._taken = at["cuts"][0] if at else 0
            self._lines = JsonLines(files["cuts"], access, self._taken)
            for field, url in files.items():
                if field != "cuts":
                    self._streams[field] = open_stream(field, url, access, at.get(field, []))
        except DataError:
            self.close()
            raise

    def tell(self) -> dict[str, StreamPosition]:
        return {"cuts": [self._taken], **{field: stream.tell() for field, stream in self._streams.items()}}

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        if hasattr(self, "_lines"):
            self._lines.close()

    def next(self) -> SharCut:
        """Return the next cut that all files have. Raises: StopIteration at the end of the shard."""
        while not self._over:
            cut = self._next_cut()
            if cut is None:
                self._finish()
                break
            if self._fill(cut):
                return cut
        raise StopIteration

    def _next_cut(self) -> SharCut | None:
        if not self._cuts:
            self._look_ahead(1)
        if not self._cuts:
            return None
        cut = self._cuts.popleft()
        self._taken = cut.line
        return cut

    def _look_ahead(self, count: int) -> None:
        """Read cuts ahead until ``count`` are at hand, or all that are left."""
        while len(self._cuts) < count:
            try:
                line = self._lines.next()
                if line.strip():
                    self._cuts.append(SharCut(self._lines.number, self._lines.parse(line), {}))
            except StopIteration:
                return
            except DataError as error:
                self._fail(error)

    def _fill(self, cut: SharCut) -> bool:
        """Add each file's value for the cut; return whether all files have one."""
        for field in self._streams:
            value = self._value(field, str(cut.content.get("id", "")))
            if value is not None:
                cut.values[field] = value
        return len(cut.values) == len(self._streams)

    def _value(self, field: str, key: str) -> Value | None:
        while not self._over:
            value = self._held.pop(field, None) or self._next_value(field, key)
            if value is None or value.key == key:
                return value
            self._look_ahead(AHEAD)
            if any(cut.content.get("id") == value.key for cut in self._cuts):
                self._held[field] = value
                message = f"{self.files[field]} has nothing for this cut: write the shard again"
                self._fail(DataError(f"missing_{field}", message, url=self.files["cuts"], member=key))
                return None
            message = f"no cut in {self.files['cuts']} (near {key!r}) has this name: write the shard again"
            self._fail(DataError("missing_cut", message, url=self.files[field], member=value.key))
        return None

    def _next_value(self, field: str, key: str) -> Value | None:
        """Return the next value of a file; None at its end, when the rest of the shard is lost."""
        while True:
            try:
                return self._streams[field].next()
            except StopIteration:
                lost = 1 + self._left()
                message = f"the file ends before {key!r}: {lost} of the shard's cuts are lost; fetch or write it again"
                self._fail(DataError("short_shard", message, url=self.files[field]))
                self._over = True
                return None
            except DataError as error:
                self._fail(error)
                if error.reason in UNREADABLE:
                    self._over = True
                    return None

    def _left(self) -> int:
        """Count the cuts that are still to come."""
        left = len(self._cuts)
        try:
            while True:
                left += bool(self._lines.next().strip())
        except (StopIteration, DataError):
            return left

    def _finish(self) -> None:
        """Check, at the end of the cuts, that the other files end too."""
        self._over = True
        for field, stream in self._streams.items():
            try:
                value = self._held.pop(field, None) or stream.next()
            except StopIteration:
                continue
            except DataError as error:
                self._fail(error)
            else:
                message = (
                    f"the cuts end before {value.key!r}, which has data: fetch or write {self.files['cuts']} again"
                )
                self._fail(DataError("short_shard", message, url=self.files[field], member=value.key))
