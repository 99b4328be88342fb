"""The files that a node gives. The next remote file is begun while the current one is still being read."""

from __future__ import annotations

from typing import Any, NamedTuple

from uio_pipes.base.errors import UioError
from uio_pipes.core.items import File
from uio_pipes.io.opening import is_local, open_ahead
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.readahead import ReadAhead
from uio_pipes.io.remote import CachedFile

Far = ReadAhead | CachedFile


class _Next(NamedTuple):
    before: dict[str, Any]  # the source's state
    file: File | Exception  # or the error that the source raised
    far: Far | None


class NextFiles:
    """``next()`` gives the source's state before a file, the file, and its reader if that was begun already."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._next: _Next | None = None

    def next(self) -> tuple[dict[str, Any], File, Far | None]:
        """Return the next file. Raises what the source raises, at its turn."""
        found, self._next = self._next or self._take(), None
        if isinstance(found.file, Exception):
            try:
                raise found.file
            finally:
                del found  # its traceback leads to this frame, and so to the trainer's: all would be a circle
        return found.before, found.file, found.far

    def prepare(self, far: Far | None) -> None:
        """Begin the next file once all of ``far``, the current one, was requested; then request more of the next."""
        if self._next is not None:
            if isinstance(self._next.far, ReadAhead):
                self._next.far.prepare()
            return
        if not isinstance(far, ReadAhead) or not far.near_end():
            return
        found = self._take()
        if isinstance(found.file, File) and is_local(found.file.url) is None and not found.file.access.cache:
            found = found._replace(far=ReadAhead(RemoteFile(found.file.url, found.file.access)))
        self._next = found

    def _take(self) -> _Next:
        before = self._source.get_state()
        try:
            return _Next(before, self._source.next(), None)
        except (StopIteration, UioError) as error:
            return _Next(before, error.with_traceback(None), None)

    def get_state(self) -> dict[str, Any]:
        """Return the source's state from before the next file."""
        state: dict[str, Any] = self._next.before if self._next is not None else self._source.get_state()
        return state

    def clear(self) -> None:
        """Forget the next file: the source is being reset."""
        if self._next is not None and isinstance(self._next.far, ReadAhead):
            self._next.far.close()
        self._next = None

    def __len__(self) -> int:
        """The number of files taken from the source and not given yet."""
        return int(self._next is not None and isinstance(self._next.file, File))


def begin(file: File, offset: int) -> Far | None:
    """Begin to read ``file`` at ``offset`` if it is remote; None otherwise. Raises: DataError."""
    return open_ahead(file.url, file.access, offset) if is_local(file.url) is None else None
