"""The items of a node with their fields; fields in remote files are fetched before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from uio_pipes.base.errors import DataError, UioError
from uio_pipes.core.lane import Lane
from uio_pipes.io.local import Ref
from uio_pipes.io.lookahead import fetch_early, is_far

COUNT = 32  # items to look ahead
BYTES = 64 << 20  # of the items not yet given out, roughly

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


class _Item(NamedTuple):
    before: dict[str, Any]
    value: Any
    fields: dict[str, Any] | Exception


class Upcoming(Generic[T]):
    """Items of a node with their fields. If those are in remote files, the next ones are fetched ahead.

    ``load`` returns the fields of an item. Its DataErrors, and what the node raises, come out at their turn. The state
    is that of the first item not given out. While a lane is restored or skims, nothing is fetched ahead.
    """

    def __init__(self, source: Any, load: Callable[[T], dict[str, Any]], lane: Lane) -> None:
        self._source, self._load, self._lane = source, load, lane
        self._items: deque[_Item] = deque()
        self._far = self._ended = False
        self._count = COUNT

    def next(self) -> tuple[T, dict[str, Any] | DataError]:
        """Return an item with its fields, or with the error of loading them. Raises what the node raises."""
        if not self._items:
            if not self._lane.makes_batches:  # nothing is fetched ahead
                return self._one()
            self._ended = False
            self._take(1)
        if self._far and len(self._items) <= self._count // 2 and not self._ended and self._lane.makes_batches:
            self._take(self._count - len(self._items))
        item = self._items.popleft()
        if isinstance(item.fields, Exception) and not isinstance(item.fields, DataError):
            try:
                raise item.fields
            finally:
                del item  # its traceback leads to this frame, and so to the trainer's: all would be a circle
        return item.value, item.fields

    def _one(self) -> tuple[T, dict[str, Any] | DataError]:
        value = self._source.next()
        try:
            return value, self._load(value)
        except DataError as error:
            return value, _alone(error)

    def _take(self, count: int) -> None:
        taken: list[dict[str, Any]] = []
        for _ in range(count):
            self._lane.pulse.arrived += len(self._items) > 0  # or an endless source would rest: nothing came as yet
            before = self._source.get_state() if self._far else {}
            try:
                value = self._source.next()
            except Exception as error:
                self._items.append(_Item(before, None, _alone(error)))
                self._ended = True
                break
            try:
                fields: dict[str, Any] | Exception = self._load(value)
            except Exception as error:
                fields = _alone(error)
            self._items.append(_Item(before, value, fields))
            if isinstance(fields, Mapping):
                taken.append(fields)
        self._far = self._far or any(isinstance(v, Ref) and is_far(v) for fields in taken for v in fields.values())
        if self._far and self._lane.makes_batches:
            fetching = fetch_early(taken)
            if fetching > BYTES // 2:
                self._count = max(1, count * (BYTES // 2) // fetching)

    def clear(self) -> None:
        """Forget the items: the node is being reset."""
        self._items.clear()
        self._ended = False

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._items[0].before if self._items else self._source.get_state()
        return state

    def __len__(self) -> int:
        return len(self._items)


def _alone(error: E) -> E:
    """Return an expected error without its traceback: that holds the trainer's frames as long as the error is kept."""
    if isinstance(error, StopIteration | UioError):
        error.__traceback__ = None
    return error
