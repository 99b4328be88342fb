"""The index of one tar shard, in a small file beside it: keys, texts, places of members, lengths of audio.

Its frame is that of all small files that stand beside data: magic, version, bytes of the header, CRC32 of all that
follows; a JSON header (here the shard's size, time or ETag and CRC32, the columns, the damaged spots); a body (the
columns, unsigned little-endian numbers and UTF-8 text). Nothing in it is executed, and every bound is checked before it
is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.tar.members import BLOCK  # offsets are counted in blocks
from uio_pipes.io.local import AudioInfo

_FIXED = Struct("<8sIII")


def framed(magic: bytes, version: int, header: dict[str, Any], body: bytes) -> bytes:
    """Return the bytes of such a file. ``magic``: eight bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return _FIXED.pack(magic, version, len(text), crc32(body, crc32(text))) + text + body


def unframed(data: bytes, magic: bytes, version: int) -> tuple[Any, int]:
    """Return the header and the offset of the body. Raises: ValueError for bytes that :func:`framed` did not make."""
    if len(data) < _FIXED.size or data[:8] != magic:
        raise ValueError("it does not begin like one")
    _, written, length, checksum = _FIXED.unpack_from(data)
    if written != version:
        raise ValueError(f"it has version {written}, this program reads {version}")
    if crc32(memoryview(data)[_FIXED.size :]) != checksum:
        raise ValueError("its checksum is wrong")
    at = _FIXED.size + length
    return parse_json(data[_FIXED.size : at]), at


def frame_size(head: bytes) -> int:
    """Return the bytes that such a file takes, if its header has those of its body as ``body``, by the first ones.

    Raises: ValueError.
    """
    if len(head) < _FIXED.size:
        raise ValueError("it does not begin like one")
    at = _FIXED.size + int(_FIXED.unpack_from(head)[2])
    return at + int(parse_json(head[_FIXED.size : at])["body"])


MAGIC, VERSION = b"UIOTARIX", 1
_DTYPES = {"u1", "u2", "u4", "u8"}
_TEXTS = ("keys", "txts")
PER_UTTERANCE = ("key_ends", "txt_ends", "starts", "member_ends", "samples", "sample_rates", "channels")
PER_MEMBER = ("suffix", "offset", "size", "crc")
FRAME_RATE = 100  # at which the length of features is kept, in Hz
_MOST = 1 << 48  # of any count: bytes, samples

IndexColumn = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class ShardStamp:
    """The identity of a shard when it was indexed. ``stamp``: ``mtime:ns``, ``etag:…``, or "" without either."""

    size: int
    stamp: str
    crc32: int
    compression: str = ""

    def differs(self, size: int, stamp: str) -> bool:
        """Return whether a shard of this size and stamp is another one."""
        kinds = self.stamp.partition(":")[0], stamp.partition(":")[0]
        return size != self.size or (kinds[0] == kinds[1] and stamp != self.stamp)


class IndexedMember(NamedTuple):
    """One member of an utterance: the place of its bytes in the shard, and their CRC32."""

    suffix: str
    offset: int
    size: int
    crc: int


@dataclass
class ShardIndex:
    """The utterances of one shard, by number, and its damaged spots.

    ``grouping``, ``text``: the options it was read with, see ``load_from_tar``; ``columns``: numbers per utterance and
    per member; ``keys``, ``txts``: all of them, joined.
    """

    shard: ShardStamp
    grouping: str
    text: str
    suffixes: Sequence[str]
    columns: dict[str, IndexColumn]
    keys: bytes
    txts: bytes
    errors: list[DataError] = field(default_factory=list)
    digest: str = ""

    def __len__(self) -> int:
        return len(self.columns["starts"])

    def key(self, number: int) -> str:
        return self._text("key_ends", self.keys, number)

    def txt(self, number: int) -> str:
        return self._text("txt_ends", self.txts, number)

    def _text(self, ends: str, texts: bytes, number: int) -> str:
        column = self.columns[ends]
        return texts[int(column[number - 1]) if number else 0 : int(column[number])].decode("utf-8", "replace")

    def start(self, number: int) -> int:
        """Return the byte offset of an utterance's first header."""
        return int(self.columns["starts"][number]) * BLOCK

    def members(self, number: int) -> Iterator[IndexedMember]:
        """Yield an utterance's members in the order of the shard."""
        ends, columns = self.columns["member_ends"], self.columns
        for i in range(int(ends[number - 1]) if number else 0, int(ends[number])):
            suffix = self.suffixes[columns["suffix"][i]]
            yield IndexedMember(
                suffix, int(columns["offset"][i]) * BLOCK, int(columns["size"][i]), int(columns["crc"][i])
            )

    def info(self, number: int) -> AudioInfo | None:
        """Return the length of the audio, or of features (frames, at 100 Hz); None if only decoding shows it."""
        columns = self.columns
        rate = int(columns["sample_rates"][number])
        return AudioInfo(int(columns["samples"][number]), rate, int(columns["channels"][number])) if rate else None

    @property
    def frames(self) -> int:
        """The total of 10 ms frames, as far as headers give it."""
        return int(self.lengths(100).sum())

    def lengths(self, rate: int) -> npt.NDArray[np.int64]:
        """Return the length of each utterance in samples at ``rate`` Hz, rounded up; 0 if only decoding shows it."""
        samples = self.columns["samples"].astype(np.int64)
        rates = np.maximum(self.columns["sample_rates"].astype(np.int64), 1)
        return -(-samples * rate // rates)

    def find(self, key: str) -> int | None:
        """Return the number of the first utterance with this key, None if there is none."""
        wanted, at = key.encode("utf-8", "surrogateescape"), -1
        ends = self.columns["key_ends"]
        while wanted and (at := self.keys.find(wanted, at + 1)) >= 0:
            number = int(np.searchsorted(ends, at, side="right"))
            begins = int(ends[number - 1]) if number else 0
            if begins == at and int(ends[number]) == at + len(wanted):
                return number
        return None


def dumps(index: ShardIndex) -> bytes:
    """Return the bytes of an index."""
    columns = {name: smallest(index.columns[name]) for name in (*PER_UTTERANCE, *PER_MEMBER)}
    body = b"".join([index.keys, index.txts, *(column.tobytes() for column in columns.values())])
    header = {
        "shard": vars(index.shard),
        "grouping": index.grouping,
        "text": index.text,
        "suffixes": list(index.suffixes),
        "utterances": len(index),
        "members": len(columns["suffix"]),
        "texts": [len(index.keys), len(index.txts)],
        "dtypes": {name: column.dtype.str[1:] for name, column in columns.items()},
        "errors": [[e.reason, e.message, e.member, e.offset, e.key] for e in index.errors],
    }
    return framed(MAGIC, VERSION, header, body)


def smallest(values: IndexColumn) -> IndexColumn:
    """Return the numbers in the smallest type that holds them."""
    most = int(values.max()) if len(values) else 0
    code = next(code for code in sorted(_DTYPES) if most < 1 << 8 * int(code[1]))
    return values.astype(f"<{code}")


def loads(data: bytes, name: str, url: str = "") -> ShardIndex:
    """Parse the index of the shard at ``url``. Raises: ListError naming the file for bytes that are not an index."""
    try:
        return _loads(data, url)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError, AttributeError) as error:
        raise ListError(
            f"the index {name} is damaged, or not an index ({error}): make it anew with uio index"
        ) from error


def _loads(data: bytes, url: str) -> ShardIndex:
    header, at = unframed(data, MAGIC, VERSION)
    body = memoryview(data)[at:]
    utterances, members = _count(header["utterances"]), _count(header["members"])
    texts = []
    for size in map(_count, header["texts"]):
        texts.append(data[at : at + size])
        at += size
    columns: dict[str, IndexColumn] = {}
    for name in (*PER_UTTERANCE, *PER_MEMBER):
        dtype = header["dtypes"][name]
        if dtype not in _DTYPES:
            raise ValueError(f"column {name} is of type {dtype!r}")
        count = utterances if name in PER_UTTERANCE else members
        columns[name] = np.frombuffer(data, f"<{dtype}", count, at)
        at += columns[name].nbytes
    if at != len(data):
        raise ValueError(f"it has {len(data)} bytes instead of {at}")
    keys, txts = texts
    stamp = _stamp(header["shard"])
    grouping, text, *suffixes = _names([header["grouping"], header["text"], *header["suffixes"]])
    index = ShardIndex(stamp, grouping, text, suffixes, columns, keys, txts)
    _check(index)
    index.errors = [_error(fields, url) for fields in header["errors"]]
    content = (stamp.size, stamp.crc32, utterances, len(index.errors), crc32(body))
    index.digest = blake2b(repr(content).encode(), digest_size=16).hexdigest()
    return index


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(f"{str(value)[:40]!r} is not a count")
    return value


def _stamp(fields: dict[str, Any]) -> ShardStamp:
    stamp, compression = fields["stamp"], fields["compression"]
    if not isinstance(stamp, str) or not isinstance(compression, str):
        raise ValueError("what it says of its shard is not text")
    return ShardStamp(_count(fields["size"]), stamp, _count(fields["crc32"]), compression)


def _names(names: list[Any]) -> list[str]:
    if not all(isinstance(name, str) for name in names):
        raise ValueError("its suffixes are not names")
    return names


def _error(fields: Any, url: str) -> DataError:
    reason, message, member, offset, key = fields
    if not all(isinstance(text, str) for text in (reason, message, member, key)):
        raise ValueError("what it says of a damaged spot is not text")
    error = DataError(reason, message, url=url, member=member, offset=None if offset is None else _count(offset))
    error.key = key
    return error


def _check(index: ShardIndex) -> None:
    """Check the bounds of all columns. Raises: ValueError."""
    columns = index.columns
    ends = {"key_ends": len(index.keys), "txt_ends": len(index.txts), "member_ends": len(columns["suffix"])}
    for name, end in ends.items():
        column = columns[name]
        if (int(column[-1]) if len(column) else 0) != end or (column[1:] < column[:-1]).any():
            raise ValueError(f"column {name} is out of bounds")
    if len(columns["suffix"]) and int(columns["suffix"].max()) >= len(index.suffixes):
        raise ValueError("column suffix is out of bounds")
    for name in ("starts", "offset", "size", "samples", "sample_rates", "channels"):
        if len(columns[name]) and int(columns[name].max()) >= _MOST // BLOCK:
            raise ValueError(f"column {name} is out of bounds")
    if not index.shard.compression and len(columns["offset"]):
        last = columns["offset"].astype(np.int64) * BLOCK + columns["size"].astype(np.int64)
        if int(last.max()) > index.shard.size:
            raise ValueError("a member ends after the shard")
