"""The bytes of recordings of which segments were decoded last. Of most formats a segment needs all bytes of a recording
that is a member of an archive or lies far away: its neighbours then take them from here."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

MOST = 1 << 27  # bytes held by a process: four hours of Opus, or one of MP3

_held: OrderedDict[Hashable, bytes] = OrderedDict()
_lock = threading.Lock()


def whole(key: Hashable, size: int, read: Callable[[], bytes]) -> bytes:
    """Return the ``size`` bytes of the recording ``key``, which are held until others need the room."""
    with _lock:
        if (data := _held.get(key)) is not None:
            _held.move_to_end(key)
            return data
    data = read()
    if size <= MOST:
        with _lock:
            _held[key] = data
            while sum(map(len, _held.values())) > MOST:
                _held.popitem(last=False)
    return data
