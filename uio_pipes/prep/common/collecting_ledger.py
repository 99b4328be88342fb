"""A ledger that keeps all failures of a source."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from uio_pipes.base.errors import NOTES, DataError
from uio_pipes.core.ledger import Ledger

logger = logging.getLogger("uio_pipes")


@dataclass
class Noting(Ledger):
    """A ledger without a budget."""

    found: list[DataError] = field(default_factory=list)

    def fail(self, error: DataError, stage: str) -> None:
        if self.quiet:
            return
        if error.reason in NOTES and not error.key:
            logger.warning("%s: %s", stage, error)  # of a whole shard: no utterance failed
        else:
            self.found.append(error)

    def take(self) -> list[DataError]:
        """Return the failures since the last call."""
        found, self.found = self.found, []
        return found
