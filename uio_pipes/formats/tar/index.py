"""The index of one archive, in a small file beside it: the names, places and CRC32s of its members. It also has the
texts and lengths of utterances, and for a compressed archive, the points from which it can be read.

Its frame is that of all small files that stand beside data: magic, version, bytes of the header, CRC32 of all that
follows; a JSON header (its columns; here also the file's size, time or ETag and CRC32, and the damaged spots); a body
(the columns, little-endian numbers and UTF-8 text). Here, after it come the windows of the points, 32 KiB each, which
are read when they are needed. Nothing in it is executed, and the checksum tells any byte that is damaged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.formats.tar.members import BLOCK  # offsets are counted in blocks
from uio_pipes.io.compression import FRAME, WINDOW
from uio_pipes.io.files import plain
from uio_pipes.io.references import AudioInfo

_FIXED = Struct("<8sIII")


_DTYPES = {"u1": 1, "u2": 2, "u4": 4, "u8": 8, "i8": 8}  # with their bytes
IndexColumn = npt.NDArray[Any]  # of integers


def framed(magic: bytes, version: int, header: dict[str, Any], columns: Mapping[str, IndexColumn | bytes]) -> bytes:
    """Return the bytes of such a file. ``magic``: eight bytes."""
    arrays = {name: np.frombuffer(c, np.uint8) if isinstance(c, bytes) else c for name, c in columns.items()}
    described = {name: [column.dtype.str[1:], len(column)] for name, column in arrays.items()}
    text = json.dumps({**header, "columns": described}, separators=(",", ":")).encode()
    body = b"".join(column.tobytes() for column in arrays.values())
    return _FIXED.pack(magic, version, len(text), crc32(body, crc32(text))) + text + body


def unframed(file: BinaryIO, magic: bytes, version: int) -> tuple[Any, dict[str, IndexColumn], int]:
    """Return the header, the columns, and where they end in the file. Raises: ValueError, KeyError, TypeError or
    AttributeError for bytes that :func:`framed` did not make."""
    fixed = _read(file, _FIXED.size)
    if len(fixed) < _FIXED.size or fixed[:8] != magic:
        raise ValueError("it does not start like an index")
    _, written, length, checksum = _FIXED.unpack(fixed)
    if written != version:
        raise ValueError(f"it has version {written}, this program reads {version}")
    header, columns, at = parse_json(text := _read(file, length)), dict[str, IndexColumn](), 0
    sizes = [_DTYPES[dtype] * count for dtype, count in header["columns"].values()]
    body = _read(file, sum(sizes))
    if crc32(body, crc32(text)) != checksum:
        raise ValueError("its checksum is wrong")
    for (name, (dtype, count)), size in zip(header["columns"].items(), sizes, strict=True):
        columns[name] = np.frombuffer(body, f"<{dtype}", count, at)
        at += size
    return header, columns, _FIXED.size + length + at


def read_framed(path: Path, magic: bytes, version: int) -> tuple[Any, dict[str, IndexColumn]]:
    """Return the header and the columns of a file of our own. Raises: OSError, and as :func:`unframed`."""
    with open(path, "rb", opener=plain) as file:
        return unframed(file, magic, version)[:2]


def _read(file: BinaryIO, size: int) -> bytes:
    """Read ``size`` bytes, fewer only at the end: files on a network return what has just come in."""
    data = file.read(min(size, _PIECE))
    if len(data) == size:
        return data
    pieces = bytearray(data)
    while len(pieces) < size and (piece := file.read(min(size - len(pieces), _PIECE))):
        pieces += piece
    return bytes(pieces)


_PIECE = 1 << 20  # bytes
MAGIC, VERSION = b"UIOINDEX", 2
PER_MEMBER = ("tail", "offset", "size", "crc")
PER_GROUP = ("key_ends", "member_ends")
PER_UTTERANCE = ("group", "starts", "txt_ends", "samples", "sample_rates", "channels")
PER_POINT = ("compressed", "content", "bits", "window_crc")
COLUMNS = (*PER_MEMBER, *PER_GROUP, *PER_UTTERANCE, *PER_POINT)
FRAME_RATE = 100  # at which the length of features is kept, in Hz


@dataclass(frozen=True)
class ShardStamp:
    """The identity of a file when it was indexed. ``stamp``: ``mtime:ns``, ``etag:…``, or "" without either."""

    size: int
    stamp: str
    crc32: int
    compression: str = ""

    def differs(self, size: int, stamp: str) -> bool:
        """Return whether a file of this size and stamp is a different one."""
        kinds = self.stamp.partition(":")[0], stamp.partition(":")[0]
        return size != self.size or (kinds[0] == kinds[1] and stamp != self.stamp)


class MemberPlace(NamedTuple):
    """A member: its name (of an utterance's, its suffix), and where its bytes are in the content of the archive.

    ``crc``: their CRC32, if it is known; ``packed``: how many bytes they take in a zip that deflates them, else -1.
    """

    name: str
    offset: int
    size: int
    crc: int | None = None
    packed: int = -1


@dataclass
class ArchiveIndex:
    """The members of one archive, its utterances by number, and its damaged places.

    ``grouping``, ``text``: the options that utterances were read with, see ``load_from_tar``; "" if the index is of
    members only. ``columns``: numbers of each member, of each group of neighbours with one key, of each utterance, that
    is such a group, and of each point. A member's name is its key and one of the ``tails``. ``keys``, ``txts``: all of
    them, joined; ``content``: bytes of the uncompressed archive; ``windows``: those of the points, if they were just
    made; ``windows_at``: where they begin in the file of the index.
    """

    shard: ShardStamp
    grouping: str
    text: str
    tails: Sequence[str]
    columns: dict[str, IndexColumn]
    keys: bytes
    txts: bytes
    content: int
    errors: list[DataError] = field(default_factory=list)
    windows: list[bytes] = field(default_factory=list)
    windows_at: int = 0
    digest: str = ""

    def __post_init__(self) -> None:
        self._suffixes = [tail[1:].lower() for tail in self.tails]

    def __len__(self) -> int:
        return len(self.columns["group"])

    def _text(self, ends: str, texts: bytes, number: int) -> str:
        column = self.columns[ends]
        return texts[int(column[number - 1]) if number else 0 : int(column[number])].decode("utf-8", "surrogateescape")

    def places(self) -> Iterator[MemberPlace]:
        """Yield all members in the order of the archive."""
        members = zip(*(self.columns[name].copy().data for name in PER_MEMBER), strict=True)  # as Python's numbers
        done = begin = 0
        for key_end, member_end in zip(*(self.columns[name].copy().data for name in PER_GROUP), strict=True):
            key = self.keys[begin:key_end].decode("utf-8", "surrogateescape")
            for tail, offset, size, crc in islice(members, member_end - done):
                yield MemberPlace(key + self.tails[tail], offset * BLOCK, size, crc)
            begin, done = key_end, member_end

    @property
    def seekable(self) -> bool:
        """Whether members can be read in any order."""
        return not self.shard.compression or bool(len(self.columns["content"]))

    @property
    def file_size(self) -> int:
        """Bytes of the file of the index."""
        return self.windows_at + WINDOW * int(np.count_nonzero(self.columns["bits"] != FRAME))

    # Utterances

    def key(self, number: int) -> str:
        return self._text("key_ends", self.keys, int(self.columns["group"][number]))

    def txt(self, number: int) -> str:
        return self._text("txt_ends", self.txts, number)

    def start(self, number: int) -> int:
        """Return the byte offset of an utterance's first header."""
        return int(self.columns["starts"][number]) * BLOCK

    def members(self, number: int) -> Iterator[MemberPlace]:
        """Yield an utterance's members in the order of the archive, by their suffixes."""
        columns, group = self.columns, int(self.columns["group"][number])
        ends, offset = columns["member_ends"], columns["offset"]
        for i in range(int(ends[group - 1]) if group else 0, int(ends[group])):
            place = int(offset[i]) * BLOCK, int(columns["size"][i]), int(columns["crc"][i]), -1
            yield tuple.__new__(MemberPlace, (self._suffixes[columns["tail"][i]], *place))

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


def dumps(index: ArchiveIndex) -> bytes:
    """Return the bytes of a new index, with its windows."""
    header = {
        "shard": vars(index.shard),
        "grouping": index.grouping,
        "text": index.text,
        "tails": list(index.tails),
        "content": index.content,
        "errors": [[e.reason, e.message, e.member, e.offset, e.key] for e in index.errors],
    }
    columns = {name: _smallest(index.columns[name]) for name in COLUMNS}
    frame = framed(MAGIC, VERSION, header, {"keys": index.keys, "txts": index.txts, **columns})
    index.windows_at = len(frame)
    return frame + b"".join(index.windows)


def _smallest(values: IndexColumn) -> IndexColumn:
    """Return the numbers in the smallest type that holds them."""
    most = int(values.max()) if len(values) else 0
    return values.astype(next(f"<u{size}" for size in (1, 2, 4, 8) if most < 1 << 8 * size))


def load(file: BinaryIO, name: str, url: str = "", remedy: str = "recreate it with uio index") -> ArchiveIndex:
    """Read the index of the archive at ``url`` without its windows. Raises: ListError naming the file, if its bytes are
    not an index; DataError if they cannot be read."""
    try:
        return _parsed(file, url)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError, AttributeError) as error:
        raise ListError(f"the index {name} is damaged, or not an index ({error}): {remedy}") from error


def _parsed(file: BinaryIO, url: str) -> ArchiveIndex:
    header, columns, end = unframed(file, MAGIC, VERSION)
    keys, txts = columns.pop("keys").tobytes(), columns.pop("txts").tobytes()
    stamp, said = ShardStamp(**header["shard"]), (header["grouping"], header["text"], header["tails"])
    index = ArchiveIndex(stamp, *said, columns, keys, txts, header["content"], windows_at=end)
    for reason, message, member, offset, key in header["errors"]:
        error = DataError(reason, message, url=url, member=member, offset=offset)
        error.key = key
        index.errors.append(error)
    crc = crc32(txts, crc32(keys))
    for name in (*PER_MEMBER, *PER_GROUP, *PER_UTTERANCE):
        crc = crc32(columns[name].data, crc)
    content = stamp.size, stamp.crc32, len(index), len(index.errors), crc
    index.digest = blake2b(repr(content).encode(), digest_size=16).hexdigest()
    return index
