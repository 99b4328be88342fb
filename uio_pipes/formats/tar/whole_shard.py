"""What is asked of a shard as a whole: its line in the list, and its end against the manifest. No torch in here."""

from __future__ import annotations

from uio_pipes.base.errors import NOTES, DataError, ListError
from uio_pipes.base.printable import counted
from uio_pipes.base.redact import redact
from uio_pipes.formats.lists.manifest import ShardEntry

__all__ = ["NO_UTTERANCE", "UNREADABLE", "against_manifest", "listed_in", "miscounted", "no_raw_line"]

# what was no utterance anyway
NO_UTTERANCE = frozenset(["missing_end", "changed_shard", "unsupported_member", "bad_member_name"]) | NOTES
UNREADABLE = frozenset(["missing_file", "unreadable_file", "changed_file"])


def no_raw_line(text: str, place: str) -> None:
    """Raises: ListError if the line of a list of shards is one of a raw list."""
    if text.startswith("{"):
        raise ListError(
            f"{place} is a JSON object, not a path or URL of a shard: {redact(text)[:80]} … "
            "This is a raw list: use from_raw_list (WeNet's data_type raw)"
        )


def listed_in(error: DataError, url: str, place: str) -> DataError:
    """``error``, which kept a shard from being opened, with the shard's place in the list."""
    message = f"{error.message} (listed in {place})"
    return DataError(error.reason, message, url=error.url or url, member=error.member, offset=error.offset)


def against_manifest(
    url: str, expected: ShardEntry, seen: int, size: int | None, crc: str | None = None
) -> DataError | None:
    """The error for a shard that is not what its list's manifest says: another number of utterances, or as many in a
    file of another length or CRC32. ``size``, ``crc``: None where they are not known."""
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
    """The error for a shard with another number of utterances than its list's manifest, or its index, says."""
    message = (
        f"the {who} says {counted(expected, 'utterance')}, the shard has {seen} (failed ones included): fetch the "
        "shard again, or if it was packed anew, write its list's manifest anew (uio index --manifest)"
    )
    return DataError("short_shard" if seen < expected else "long_shard", message, url=url)
