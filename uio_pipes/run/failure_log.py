"""What is logged of failures: the first ones of each kind, and how many there were in all."""

from __future__ import annotations

import logging
from collections import Counter

logger = logging.getLogger("uio_pipes")
LOGGED = 3  # failures of one kind that are logged in an epoch
HUSHED = (
    "more failures of this kind (%s) are counted from here on, not logged: see loader.stats().skipped, or note all "
)
HUSHED += "in a file by Loader(failures=uio.Failures(quarantine=…))"


class FailureLog:
    """The log of the failures of one rank in an epoch. A kind is a stage and a reason."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def add(self, lane: int, report: str, level: int = logging.WARNING) -> None:
        """Log a report such as ``decode_audio: a.wav: cannot be read [bad_audio]`` if it is among the first."""
        kind = _kind(report)
        self._counts[kind] += 1
        if self._counts[kind] <= LOGGED:
            logger.log(level, "lane %d: %s", lane, report)
        elif self._counts[kind] == LOGGED + 1:
            logger.log(level, HUSHED, kind)

    def end(self) -> None:
        """Log how many there were of those kinds of which not all were logged."""
        hushed = {kind: count for kind, count in self._counts.items() if count > LOGGED}
        self._counts.clear()
        for kind, count in hushed.items():
            logger.warning("%d failures %s on this rank", count, kind)


def _kind(report: str) -> str:
    stage, _, _ = report.partition(": ")
    reason = report.rpartition(" [")[2].rstrip("]")
    return f"{reason} in {stage}" if report.endswith("]") else stage
