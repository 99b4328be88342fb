"""A cache of bounded size in bytes, which drops what was used least recently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Lru:
    """Keep the values used last, at most ``limit`` bytes in all. Not safe for use from several threads."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the value kept under ``key``, or else that of ``make()``, kept if its ``size`` allows it."""
        if key in self._entries:
            self._entries.move_to_end(key)
            known: T = self._entries[key][0]
            return known
        value = make()
        taken = size(value)
        if taken <= self.limit:
            self._entries[key] = (value, taken)
            self.held += taken
            while self.held > self.limit:
                self.held -= self._entries.popitem(last=False)[1][1]
        return value

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries
