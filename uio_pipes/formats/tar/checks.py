"""Checks of a shard against its index, its list and the manifest. No torch in here."""

from __future__ import annotations

import os
import posixpath
from zlib import crc32

import numpy as np

from uio_pipes.base.errors import NOTES, DataError, ListError
from uio_pipes.base.urls import beside, path_of, plural, redact
from uio_pipes.formats.lists.manifest import ShardEntry
from uio_pipes.formats.naming import finding
from uio_pipes.formats.tar.index import ArchiveIndex, load
from uio_pipes.formats.tar.members import BLOCK
from uio_pipes.formats.tar.reader import TarUtterance
from uio_pipes.io.access import Access
from uio_pipes.io.opening import identity, is_local, open_binary
from uio_pipes.io.references import Ref

SUFFIX = ".uioidx"
AT_ONCE = 32  # remote indexes that are fetched at the same time


def sidecar_path(url: str, folder: str | None = None) -> str:
    """Return the path of a shard's index: beside the shard, or under ``folder`` by the shard's whole path."""
    if folder is None:
        return beside(url, SUFFIX)
    inner = path_of(url).partition("://")[2] or url
    relative = posixpath.normpath("/" + inner).lstrip("/")  # never above the folder
    return posixpath.join(folder, relative) + SUFFIX


def has_sidecar(url: str, access: Access | None = None, folder: str | None = None) -> bool:
    """Return whether the shard at ``url`` has an index, valid or not."""
    name = sidecar_path(url, folder)
    if (path := is_local(name)) is not None:
        return os.path.exists(path)
    try:
        open_binary(name, access).close()
    except DataError as error:
        return error.reason != "missing_file"
    return True


def _remedy(url: str, folder: str | None, members: bool = False) -> str:
    return f"make it with uio index {'--members ' * members}{redact(url)}" + (f" --into {folder}" if folder else "")


def read_sidecar(
    url: str, access: Access | None = None, folder: str | None = None, members: bool = False
) -> ArchiveIndex:
    """Read the index of the archive at ``url``; ``members``: of which only members are asked for.

    Raises: ListError if there is none, or it is damaged, or knows no utterances although these are asked for.
    """
    name, shown, remedy = sidecar_path(url, folder), redact(url), _remedy(url, folder, members)
    try:
        with open_binary(name, access) as file:
            index = load(file, redact(name), url, remedy)
    except DataError as error:
        if error.reason == "missing_file":
            raise ListError(f"the shard {shown} has no index ({redact(name)}): {remedy}") from error
        raise ListError(f"cannot read the index {redact(name)}: {error.message}") from error
    if not (index.grouping or members):
        raise ListError(f"the index {redact(name)} lists the members of {shown}, but no utterances: {remedy}")
    return index


def open_sidecar(
    url: str, access: Access | None = None, folder: str | None = None, members: bool = False
) -> ArchiveIndex:
    """Like :func:`read_sidecar`, for the current archive. Raises: ListError also if the index is stale."""
    index = read_sidecar(url, access, folder, members)
    check_fresh(index, url, access, folder)
    return index


def check_fresh(index: ArchiveIndex, url: str, access: Access | None = None, folder: str | None = None) -> None:
    """Check that the size and stamp of the archive are those in its index. Raises: ListError if they differ."""
    shown = redact(url)
    try:
        size, stamp = identity(url, access)
    except DataError as error:
        raise ListError(f"cannot read the shard {shown}, which is indexed: {error.message}") from error
    if index.shard.differs(size, stamp):
        was = f"{index.shard.size} bytes, {index.shard.stamp or 'no time'}"
        raise ListError(
            f"the index of {shown} is stale: it was made for {was}; the shard now has {size} bytes, "
            f"{stamp or 'no time'}: {_remedy(url, folder, not index.grouping)}"
        )


# failures that are not utterances
NO_UTTERANCE = frozenset(["missing_end", "changed_shard", "unsupported_member", "bad_member_name"]) | NOTES


def no_raw_line(text: str, place: str) -> None:
    """Refuse a line of a raw list, or of a JSON file, in a list of shards. Raises: ListError."""
    if text.startswith("{"):
        of_wids = '"shardlist"' in text or not text.strip("{ ")
        what = (
            "This is no list but a JSON file, as webdataset's wids has for its shards: name these instead, as in "
            "from_shard_list('FOLDER/*.tar')"
            if of_wids
            else "This is a raw list: use from_raw_list (WeNet's data_type raw)"
        )
        raise ListError(f"{place} is a JSON object, not a path or URL of a shard: {redact(text)[:80]} … {what}")


def listed_in(error: DataError, url: str, place: str, expected: ShardEntry | None = None) -> DataError:
    """Return ``error``, which kept a shard from being opened, with the shard's place in the list, and what its manifest
    expects of it: that is lost."""
    lost = f", {plural(expected.utterances, 'utterance')} by its manifest" if expected is not None else ""
    message = f"{error.message} (listed in {place}{lost})"
    return DataError(error.reason, message, url=error.url or url, member=error.member, offset=error.offset)


def against_manifest(
    url: str, expected: ShardEntry, seen: int, size: int | None, crc: str | None = None
) -> DataError | None:
    """Return the error for a shard that differs from its entry in the manifest: in the number of utterances, or else in
    length or CRC32. ``size``, ``crc``: None if they are not known."""
    if seen != expected.utterances:
        return miscounted(url, expected.utterances, seen)
    if size in (expected.bytes, None) and crc in (expected.crc32, None):
        return None
    then, now = f"{expected.bytes} bytes", f"{size}"
    if crc is not None:
        then, now = f"{then} of CRC32 {expected.crc32}", f"{now} of {crc}"
    message = (
        f"the manifest says {then}, the file has {now}: fetch it again, or if it was packed again, recreate its "
        "list's manifest (uio index --manifest)"
    )
    return DataError("changed_shard", message, url=url)


def miscounted(url: str, expected: int, seen: int, who: str = "manifest") -> DataError:
    """Return the error for a shard with another number of utterances than its manifest or its index says."""
    message = (
        f"the {who} says {plural(expected, 'utterance')}, the shard has {seen} (failed ones included): fetch the "
        "shard again, or if it was packed again, recreate its list's manifest (uio index --manifest)"
    )
    return DataError("short_shard" if seen < expected else "long_shard", message, url=url)


class Checks:
    """The CRC32 of each member of one shard, from its index. Raises: ListError if there is no index."""

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
        crcs = {member.name: member.crc for member in self._index.members(number)}
        if crcs.keys() != utterance.fields.keys() or self._index.key(number) != utterance.key:
            raise self._differ(utterance, "another utterance is here")
        for suffix, payload in utterance.fields.items():
            if isinstance(payload, Ref):
                payload.crc = crcs[suffix]
            elif crc32(payload) != crcs[suffix]:
                raise self._differ(utterance, f"the CRC32 of the {suffix} is another")

    def _differ(self, utterance: TarUtterance, what: str) -> DataError:
        message = f"the bytes differ from those that were indexed ({what}): fetch or pack the file again"
        return finding("bad_crc", message, self._url, utterance.key, utterance.offset)
