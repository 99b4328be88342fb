"""``exclude``: leaves out the utterances of a quarantine file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, ClassVar, cast

from uio_pipes.base.checks import require
from uio_pipes.base.errors import NOTES, DataError, ListError, UioError
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Stage, Upstream
from uio_pipes.formats.lists.quarantine import Known, read_quarantine
from uio_pipes.io.regular import open_regular


@dataclass(frozen=True)
class Exclude(Stage):
    """Leave out the utterances that a quarantine file names, and count them as ``excluded``.

    ``Loader(quarantine=…)`` and ``uio verify --quarantine`` write such a file. Utterances are recognized by their
    shard (or list) and key, and are left out before anything of them is decoded. One that the file names and that
    fails while it is loaded is counted as ``excluded`` too, not as a failure. Put this stage directly after the one
    that loads utterances.

    Args:
        path: the quarantine file. It must be unchanged when a state is loaded.
    """

    name: ClassVar[str] = "exclude"
    reasons: ClassVar[frozenset[str]] = frozenset(["excluded"])

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.path, (str, os.PathLike)) and bool(os.fspath(self.path))
        require(ok, self.name, "path must be that of a quarantine file", self.path, "write one with uio verify")

    def describe(self, *, stable: bool = False) -> str:
        """As for every stage; fingerprints leave the path out, since the file has a fingerprint of its own."""
        return self.name if stable else super().describe()

    def content(self) -> list[tuple[int, str]]:
        try:
            with open_regular(self.path) as file:
                return [(0, blake2b(file.read(), digest_size=16).hexdigest())]
        except (DataError, OSError) as error:
            why = error.message if isinstance(error, DataError) else error.strerror
            raise ListError(f"cannot read the quarantine file {os.fspath(self.path)}: {why}") from error

    def fixed_files(self) -> set[str]:
        return {os.path.realpath(self.path)}

    def known(self) -> Known:
        """Read the file. Raises: ListError."""
        return Known(read_quarantine(self.path))

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        known = lane.shared(("quarantine", os.fspath(self.path)), self.known)
        ledger = cast(Ledger, _Forgiving(lane.ledger, known))
        return _ExcludeNode(upstream(replace(lane, ledger=ledger)), lane, known)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None


class _Forgiving:
    """The ledger of a lane for the stages before: utterances known to fail do not count as failures."""

    def __init__(self, ledger: Ledger, known: Known) -> None:
        self._ledger, self._known = ledger, known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def silent(self) -> Ledger:
        return cast(Ledger, _Forgiving(self._ledger.silent(), self._known))

    def fail(self, error: DataError, stage: str) -> None:
        if self._known.failure(error):
            if error.reason not in NOTES:  # an utterance with a mere note is counted when it is left out
                self._ledger.count("excluded")
        else:
            self._ledger.fail(error, stage)

    def handle(self, error: UioError, stage: str) -> None:
        if isinstance(error, DataError):
            self.fail(error, stage)
        else:
            self._ledger.handle(error, stage)


class _ExcludeNode(Node):
    def __init__(self, source: Node, lane: Lane, known: Known) -> None:
        super().__init__(source)
        self.lane, self.known = lane, known

    def next(self) -> Sample:
        while True:
            sample: Sample = self.source.next()
            if not self.known.utterance(sample.url, sample.key):
                return sample
            self.lane.ledger.count("excluded")
