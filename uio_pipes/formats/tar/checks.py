"""Checks of a shard's bytes against its index, while it is read from beginning to end."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from uio_pipes.base.errors import DataError
from uio_pipes.formats.findings import finding
from uio_pipes.formats.tar.index import BLOCK
from uio_pipes.formats.tar.index_files import open_sidecar
from uio_pipes.formats.tar.reader import TarUtterance
from uio_pipes.formats.tar.whole_shard import NO_UTTERANCE
from uio_pipes.io.access import Access
from uio_pipes.io.local import Ref


class Checks:
    """The CRC32 of each member of one shard, as its index has them. Raises: ListError if there is no index."""

    def __init__(self, url: str, access: Access) -> None:
        self._url = url
        self._index = open_sidecar(url, access)
        self._starts = self._index.columns["starts"]
        failed = sum(error.reason not in NO_UTTERANCE for error in self._index.errors)
        self.utterances = len(self._index) + failed  # failed ones included

    def apply(self, utterance: TarUtterance) -> None:
        """Check the members in memory; references are checked when they are read. Raises: DataError ``bad_crc``."""
        start = utterance.offset // BLOCK
        number = int(np.searchsorted(self._starts, start))
        if number == len(self._starts) or int(self._starts[number]) != start:
            raise self._differ(utterance, "no utterance begins here")
        crcs = {member.suffix: member.crc for member in self._index.members(number)}
        if crcs.keys() != utterance.fields.keys() or self._index.key(number) != utterance.key:
            raise self._differ(utterance, "another utterance is here")
        for suffix, payload in utterance.fields.items():
            if isinstance(payload, Ref):
                payload.crc = crcs[suffix]
            elif crc32(payload) != crcs[suffix]:
                raise self._differ(utterance, f"the CRC32 of the {suffix} is another")

    def _differ(self, utterance: TarUtterance, what: str) -> DataError:
        message = f"the bytes are not those that were indexed ({what}): fetch or pack the file again"
        return finding("bad_crc", message, self._url, utterance.key, utterance.offset)
