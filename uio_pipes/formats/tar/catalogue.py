"""The indexes of a long list of shards, and what an epoch asks of all of them before it begins, kept in one file.

Of a list of 1,000 shards and more, ``uio index`` writes the file, or else the first process of a machine that opens all
indexes, while others wait for it. From then on an index is read when its shard is reached. Each index must still have
the size and time that it had, and when it is read the content: otherwise the file is made anew. It lies in the folder
of ``cache=``, or else in ``uio_pipes`` of the user's cache (``XDG_CACHE_HOME``).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.tar.checks import AT_ONCE, NO_UTTERANCE, open_sidecar, sidecar_path
from uio_pipes.formats.tar.index import ShardIndex, framed, unframed
from uio_pipes.io.access import PLAIN, Access
from uio_pipes.io.files import locked, write_bytes
from uio_pipes.io.opening import is_local

logger = logging.getLogger("uio_pipes")
MANY = 1_000  # shards from which on a catalogue is kept
MAGIC, VERSION = b"UIOCATLG", 1
RATE = 16_000  # Hz at which lengths are counted


_ShardNumbers = npt.NDArray[np.int64]
_Lengths = npt.NDArray[np.integer[Any]]


class Facts(NamedTuple):
    """What is known of a shard without its index.

    Attributes:
        utterances: their number.
        errors: damaged spots that the index knows of.
        seen: utterances, those among the damaged spots included.
        size, crc32: bytes of the shard, and their checksum.
        digest: of the index.
    """

    utterances: int
    errors: int
    seen: int
    size: int
    crc32: int
    digest: str

    @classmethod
    def of(cls, index: ShardIndex) -> Facts:
        """Return those of an index."""
        failed = sum(error.reason not in NO_UTTERANCE for error in index.errors)
        shard = index.shard
        return cls(len(index), len(index.errors), len(index) + failed, shard.size, shard.crc32, index.digest)


class Indexed:
    """A shard with its index, which is read when it is asked for if the rest is known."""

    __slots__ = ("_lengths", "_opened", "facts", "url")

    def __init__(
        self, url: str, facts: Facts, lengths: _Lengths | None, opened: Callable[[str], ShardIndex] | ShardIndex
    ) -> None:
        self.url, self.facts, self._lengths, self._opened = url, facts, lengths, opened

    def __len__(self) -> int:
        """The number of utterances and damaged spots."""
        return self.facts.utterances + self.facts.errors

    @property
    def index(self) -> ShardIndex:
        """The index. Raises: DataError ``changed_file`` if it is another one by now, or cannot be read any more."""
        if not isinstance(self._opened, ShardIndex):
            index = self._opened(self.url)
            if index.digest != self.facts.digest:
                message = "the index was written anew since the catalogue was made: start again"
                raise DataError("changed_file", message, url=self.url)
            self._opened = index
        return self._opened

    def add(self, error: DataError) -> None:
        """Add a damaged spot that the index does not know of."""
        self.index.errors.append(error)
        self.facts = self.facts._replace(errors=self.facts.errors + 1)

    @property
    def compression(self) -> str:
        """Its name, "" for none, as of all shards in catalogues."""
        return self._opened.shard.compression if isinstance(self._opened, ShardIndex) else ""

    @property
    def lengths(self) -> _Lengths:
        """Those of the utterances, in samples at 16 kHz; where only decoding shows them, estimated at 64 kbit/s."""
        if self._lengths is None:
            index = self.index
            self._lengths = index.lengths(RATE)
            if not self._lengths.all():
                total = np.concatenate([[0], np.cumsum(index.columns["size"].astype(np.int64))])
                ends = index.columns["member_ends"].astype(np.int64)
                sizes = total[ends] - total[np.concatenate([[0], ends[:-1]])]
                self._lengths = np.where(self._lengths > 0, self._lengths, sizes * 2)
        return self._lengths


def open_shards(urls: Sequence[str], access: Access = PLAIN, folder: str | None = None) -> list[Indexed]:
    """Open the indexes of all shards, or what a catalogue has of them, in order.

    Raises: ListError for the first that cannot be used.
    """
    if len(urls) < MANY:
        return _opened(urls, access, folder)
    catalogue = Catalogue(urls, access, folder)
    try:
        return catalogue.read() or catalogue.made()
    except OSError as error:
        logger.info("no catalogue of the indexes is kept (%s)", error)
        return _opened(urls, access, folder)


def keep_catalogue(urls: Sequence[str], access: Access = PLAIN, folder: str | None = None) -> None:
    """Write the catalogue of shards, if they are so many that one is kept. Raises: ListError."""
    if len(urls) >= MANY:
        open_shards(urls, access, folder)


def _opened(urls: Sequence[str], access: Access, folder: str | None) -> list[Indexed]:
    def opened(url: str) -> Indexed:
        index = open_sidecar(url, access, folder)
        return Indexed(url, Facts.of(index), None, index)

    if all(is_local(sidecar_path(url, folder)) is not None and is_local(url) is not None for url in urls):
        return list(map(opened, urls))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(opened, urls))


class Catalogue:
    """The file for some shards whose indexes are beside them, or under ``folder``."""

    def __init__(self, urls: Sequence[str], access: Access, folder: str | None) -> None:
        self._urls, self._access, self._folder = urls, access, folder
        self._indexes = [sidecar_path(url, folder) for url in urls]
        named = [*urls, *self._indexes[:1]]
        start = "" if all(name.startswith("/") or "://" in name for name in named) else os.getcwd()
        key = blake2b("\n".join([str(VERSION), start, *named]).encode(), digest_size=16)
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        kept = Path(access.cache) / "uio-catalogues" if access.cache else Path(cache) / "uio_pipes"
        self._path = kept / f"{key.hexdigest()}.catalogue"

    def made(self) -> list[Indexed]:
        """Open all indexes and write the file, unless another process has done it meanwhile. Raises: OSError."""
        with locked(self._path.with_suffix(".lock")):
            if (found := self.read()) is not None:
                return found
            before = self._identities()
            shards = _opened(self._urls, self._access, self._folder)
            if not any(shard.index.shard.compression for shard in shards):
                write_bytes(self._path, _dumps(shards, before))
            return shards

    def read(self) -> list[Indexed] | None:
        """Return what the file has; None if there is none that fits the indexes as they are."""
        try:
            data = self._path.read_bytes()
            numbers, digests, lengths = _loads(data, len(self._urls))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not np.array_equal(numbers[:, 5:], self._identities()):
            return None
        begin, found = 0, []
        for url, (count, errors, seen, size, crc), digest in zip(
            self._urls, numbers[:, :5].tolist(), digests, strict=True
        ):
            facts = Facts(count, errors, seen, size, crc, digest.hex())
            found.append(Indexed(url, facts, lengths[begin : begin + count], self._open))
            begin += count
        return found

    def _open(self, url: str) -> ShardIndex:
        try:
            return open_sidecar(url, self._access, self._folder)
        except ListError as error:
            self._path.unlink(missing_ok=True)
            raise DataError("changed_file", f"{error}; then start again", url=url) from error

    def _identities(self) -> _ShardNumbers:
        """Return size and time of the local indexes, 0 for others and those that are missing."""
        out = np.zeros((len(self._urls), 2), np.int64)
        for number, name in enumerate(self._indexes):
            if (path := is_local(name)) is not None:
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    out[number] = status.st_size, status.st_mtime_ns
        return out


def _dumps(shards: list[Indexed], identities: _ShardNumbers) -> bytes:
    numbers = np.concatenate([np.array([shard.facts[:5] for shard in shards], np.int64), identities], axis=1)
    lengths = np.concatenate([shard.lengths for shard in shards]).astype("<u4")
    digests = bytes.fromhex("".join(shard.facts.digest for shard in shards))
    header = {"shards": len(shards), "utterances": len(lengths)}
    return framed(MAGIC, VERSION, header, numbers.astype("<i8").tobytes() + digests + lengths.tobytes())


def _loads(data: bytes, count: int) -> tuple[_ShardNumbers, list[bytes], _Lengths]:
    """Return the numbers (shards, 7), the digests and all lengths. Raises: ValueError, KeyError, TypeError."""
    header, at = unframed(data, MAGIC, VERSION)
    if header["shards"] != count:
        raise ValueError("it is of other shards")
    numbers = np.frombuffer(data, "<i8", 7 * count, at).reshape(count, 7)
    at += numbers.nbytes
    digests = [data[begin : begin + 16] for begin in range(at, at + 16 * count, 16)]
    lengths = np.frombuffer(data, "<u4", header["utterances"], at + 16 * count)
    if numbers[:, 0].sum() != len(lengths):
        raise ValueError("it has other lengths than utterances")
    return numbers, digests, lengths
