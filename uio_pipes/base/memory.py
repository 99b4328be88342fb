"""The caches of a process, each with a name and a bound; and how much it has read.

:func:`held` lists all of it: values used last (:class:`Lru`), results of functions (:func:`kept`), and what
:func:`remembers` counts, such as open files. A worker tells its trainer :func:`totals` with each batch:
``print(loader.stats())`` and ``uio bench`` show them.

``functools.lru_cache`` is for what stays below 1 MB in all, such as compiled expressions, or is read for each row. It
is listed as a number of results, without bytes, and so are idle connections and names.
"""

from __future__ import annotations

import os
import sys
import threading
from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import wraps
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
FILES, BYTES = "files", "bytes"
READ = [0, 0]  # bytes from files and servers, and requests made again, which the process has not told its trainer yet
OFTEN = 1.0  # seconds for which totals hold


class Held(NamedTuple):
    """What is remembered of one kind: ``amount`` of a ``unit`` now. ``limit``: the bound of each of ``number`` such
    caches; None where the data, or a number of values, are the bound."""

    name: str
    amount: int
    unit: str
    limit: int | None
    number: int = 1


class Lru:
    """A cache of the most recently used values, at most ``limit`` of a ``unit`` and ``most`` values, shared by all
    threads of a process."""

    def __init__(self, name: str, limit: int = sys.maxsize, unit: str = BYTES, most: int | None = None) -> None:
        self.name, self.limit, self.unit, self.most, self.held = name, limit, unit, most, 0
        self.lock = threading.RLock()  # a signal's handler may need a value at any time
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        _caches[id(self)] = self

    def __reduce__(self) -> tuple[object, ...]:
        return Lru, (self.name, self.limit, self.unit, self.most)  # a process begins with nothing

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the value kept under ``key``, or else that of ``make()``, kept if its ``size`` allows it."""
        with self.lock:
            if (entry := self._entries.get(key)) is not None:
                self._entries.move_to_end(key)
                known: T = entry[0]
                return known
        value = make()
        if (taken := size(value)) <= self.limit:
            with self.lock:
                self.held += taken - self._entries.pop(key, (None, 0))[1]  # of another thread, meanwhile
                self._entries[key] = value, taken
                while self.held > self.limit or (self.most is not None and len(self._entries) > self.most):
                    self.held -= self._entries.popitem(last=False)[1][1]
        return value

    def clear(self) -> None:
        """Forget all values."""
        with self.lock:
            self._entries.clear()
            self.held = 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries


def kept(name: str, most: int, size: Callable[[Any], int]) -> Callable[[F], F]:
    """Decorate a function: a process keeps the ``most`` results that were used last, and counts their ``size``."""

    def decorated(function: F) -> F:
        cache = Lru(name, most=most)

        @wraps(function)
        def result(*args: Any) -> Any:
            return cache.get(args, lambda: function(*args), size)

        result.cache_clear = cache.clear  # type: ignore[attr-defined]  # as functools has it
        return result  # type: ignore[return-value]

    return decorated


def bytes_in(value: object, depth: int = 4) -> int:
    """Return about how many bytes a value takes: the arrays and texts in it, in its attributes and in containers."""
    if isinstance(value, (str, bytes, bytearray)):
        return len(value)
    if isinstance(value, (Mapping, list, tuple, array)):
        few = list(islice(value.values() if isinstance(value, Mapping) else value, 100)) if depth else []
        return 8 * len(value) + sum(bytes_in(one, depth - 1) for one in few) * len(value) // max(1, len(few))
    size = getattr(value, "nbytes", None)
    return size if isinstance(size, int) else bytes_in(getattr(value, "__dict__", {}), depth - 1) if depth else 0


_caches: WeakValueDictionary[int, Lru] = WeakValueDictionary()


def _forget() -> None:
    """Renew the locks in a forked child: another thread of its parent may have held one."""
    for cache in _alive():
        cache.lock = threading.RLock()
    READ[:] = 0, 0  # what the parent has read, it counts


def _alive() -> list[Lru]:
    """Return all that there are; another thread may make one meanwhile."""
    return [cache for reference in _caches.valuerefs() if (cache := reference()) is not None]


os.register_at_fork(after_in_child=_forget)
_counted: list[tuple[str, Callable[[], int], int | None, str]] = []
_totals: tuple[float, tuple[int, int]] = -OFTEN, (0, 0)


def remembers(name: str, amount: Callable[[], int], limit: int | None, unit: str = BYTES) -> None:
    """Have :func:`held` list what a module keeps in its own way: the ``amount`` of it now, at most ``limit``."""
    _counted.append((name, amount, limit, unit))


def _own() -> Iterator[Held]:
    for name, amount, limit, unit in _counted:
        yield Held(name, amount(), unit, limit)
    kinds = defaultdict[tuple[str, str, int], list[int]](list)
    for cache in _alive():
        kinds[cache.name, cache.unit, cache.limit].append(cache.held)
    for (name, unit, limit), amounts in kinds.items():
        yield Held(name, sum(amounts), unit, None if limit == sys.maxsize else limit, len(amounts))


def held() -> list[Held]:
    """Return everything that this process caches, by name."""
    found = list(_own())
    for module in [name for name in sys.modules if name.startswith("uio_pipes.")]:
        for name, value in list(vars(sys.modules[module]).items()):
            if hasattr(value, "cache_info") and value.__module__ == module:
                of, known = value.cache_info(), f"{module.removeprefix('uio_pipes.')}.{name}"
                found.append(Held(known, of.currsize, "results", of.maxsize))
    return sorted(found, key=lambda one: one.name)


def totals() -> tuple[int, int]:
    """Return how many files this process holds open, and how many bytes are in its caches: as of now, or of a moment
    ago."""
    global _totals
    now = monotonic()
    if now - _totals[0] >= OFTEN:
        found = list(_own())
        files, bytes_ = (sum(one.amount for one in found if one.unit == unit) for unit in (FILES, BYTES))
        _totals = now, (files, bytes_)
    return _totals[1]
