"""The heartbeat of a process that runs lanes: what it is at, and since when.

Each stage notes what it begins, in a few attributes: no lock, no call of the system. Whoever asks why nothing comes
looks at them from another thread (:mod:`uio_pipes.run.stall`). What has hung once is known by name in the lane's state
(its :class:`~uio_pipes.core.schedule.Settings`); when its turn comes again, it fails at once, at the same place.
"""

from __future__ import annotations

import json
import threading
from time import monotonic
from typing import Any

from uio_pipes.base.errors import DataError
from uio_pipes.base.urls import redact
from uio_pipes.core.schedule import Settings

HUNG = "nothing came of it within stall_limit, so it is passed over: look at the disk or the server, and run again"
_NONE = Settings()


class Pulse:
    """What a process is at: a ``lane`` (None: none runs), with its ``settings``, in a ``thread``, perhaps on the way to
    where it was saved (``restoring``); there a ``stage`` that works on ``what`` (an utterance, file or item; ``more``:
    where in it, or what tells that) ``since`` a time of ``time.monotonic``."""

    __slots__ = ("_hung", "lane", "more", "restoring", "settings", "since", "stage", "thread", "what")

    def __init__(self) -> None:
        self.begin()

    def begin(self, lane: int | None = None, settings: Settings = _NONE, restoring: bool = False) -> None:
        """Note that a lane runs from now on, in this thread; or that none does."""
        self.stage, self.what, self.more, self.since = "", None, None, monotonic()
        self.lane, self.settings, self.restoring, self.thread = lane, settings, restoring, threading.get_ident()
        self._hung = settings.hung

    def at(self, stage: str, what: Any, more: Any = None) -> None:
        """Note what begins now. Raises: DataError ``hung`` if it has hung before."""
        if self.lane is None:
            return
        self.stage, self.what, self.more, self.since = stage, what, more, monotonic()
        if self._hung and self.name in self._hung:
            raise self.failure()

    @property
    def name(self) -> str:
        """The name of this item at this stage; "" if it is no single one."""
        origin, more = getattr(self.what, "origin", None), self.more
        return f"hung {self.stage} {json.dumps([*origin, more() if callable(more) else more])}" if origin else ""

    @property
    def file(self) -> str:
        """The file that is read, as far as it is known; otherwise the shard or the line of the list."""
        what, audio = self.what, getattr(self.what, "fields", {}).get("wav")
        if near := getattr(audio, "local_paths", ()):  # who asks where it is would wait for the disk, too
            audio = near[0].found or near[0]
        path = audio if isinstance(audio, str) else getattr(getattr(audio, "file", None), "path", None)
        return redact(str(path or getattr(what, "url", None) or getattr(what, "place", "")))

    def failure(self) -> DataError:
        """Return the error for an item that hangs."""
        return DataError("hung", HUNG, url=self.file)


PULSE = Pulse()
