"""Checks of a shard as a whole: its line in the list, and its content against the manifest. No torch in here."""

from __future__ import annotations

from uio_pipes.base.errors import NOTES, DataError, ListError
from uio_pipes.base.printable import counted
from uio_pipes.base.redact import redact
from uio_pipes.formats.lists.manifest import ShardEntry

# failures that are not utterances
NO_UTTERANCE = frozenset(["missing_end", "changed_shard", "unsupported_member", "bad_member_name"]) | NOTES


def no_raw_line(text: str, place: str) -> None:
    """Refuse a line of a raw list in a list of shards. Raises: ListError."""
    if text.startswith("{"):
        raise ListError(
            f"{place} is a JSON object, not a path or URL of a shard: {redact(text)[:80]} … "
            "This is a raw list: use from_raw_list (WeNet's data_type raw)"
        )


def listed_in(error: DataError, url: str, place: str) -> DataError:
    """Return ``error``, which kept a shard from being opened, with the shard's place in the list."""
    message = f"{error.message} (listed in {place})"
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
        f"the manifest says {then}, the file has {now}: fetch it again, or if it was packed anew, write its list's "
        "manifest anew (uio index --manifest)"
    )
    return DataError("changed_shard", message, url=url)


def miscounted(url: str, expected: int, seen: int, who: str = "manifest") -> DataError:
    """Return the error for a shard with another number of utterances than its manifest or its index says."""
    message = (
        f"the {who} says {counted(expected, 'utterance')}, the shard has {seen} (failed ones included): fetch the "
        "shard again, or if it was packed anew, write its list's manifest anew (uio index --manifest)"
    )
    return DataError("short_shard" if seen < expected else "long_shard", message, url=url)
