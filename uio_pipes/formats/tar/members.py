"""The members of a tar archive, in order; damage is an error, after which reading continues."""

from __future__ import annotations

from typing import NamedTuple, NoReturn
from zlib import adler32

from uio_pipes.base.errors import DataError
from uio_pipes.io.references import Ref
from uio_pipes.io.stream import ByteSource

BLOCK = 512
ZEROS = bytes(BLOCK)
_MODULUS = 65521  # of Adler-32
_MAX_SIZE = 1 << 60  # bytes: more is damage, and no file system could be asked for it


class BadHeader(ValueError):
    """These bytes are not a tar header; the message explains why."""


class Header(NamedTuple):
    """A member's ``name`` (directories included), its ``size`` in bytes and its type, one byte."""

    name: str
    size: int
    type: bytes


def parse_header(block: bytes) -> Header:
    """Parse the header in ``block`` (512 bytes). Raises: BadHeader."""
    field = block[148:156]
    try:
        stored = int(field.strip(b"\0 "), 8)
    except ValueError:
        raise BadHeader(f"its checksum field is {field!r}") from None
    # The low half of Adler-32 is 1 + the sum of the bytes, modulo 65521. The field itself counts as blanks.
    summed = (adler32(block) & 0xFFFF) - (adler32(field) & 0xFFFF)
    if (summed - stored + 256) % _MODULUS:  # some old tars wrote the sum of signed bytes
        signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + block[156:]) + 256
        if stored != signed:
            raise BadHeader("its checksum is wrong")
    name = block[:100].split(b"\0", 1)[0]
    if block[345] and block[257:263] == b"ustar\0":
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    field = block[124:136]
    try:  # GNU: a binary number
        size = int.from_bytes(field[1:], "big") if field[0] == 0x80 else int(field.strip(b"\0 ") or b"0", 8)
    except ValueError:
        size = -1
    if not 0 <= size < _MAX_SIZE:
        raise BadHeader(f"its size field is {field!r}")
    read = name.decode("utf-8", "surrogateescape"), size, block[156:157]
    return tuple.__new__(Header, read)  # in a third of the time that ``Header(…)`` takes, a function of Python's


def has_magic(block: bytes) -> bool:
    """Return whether ``block`` is marked as a ustar or GNU header."""
    return block[257:262] == b"ustar"


def padded(size: int) -> int:
    """Return how many bytes a payload of ``size`` bytes takes in the archive."""
    return -(-size // BLOCK) * BLOCK


def parse_pax(payload: bytes) -> dict[str, str]:
    """Parse the records ``length key=value\\n`` of a PAX header. Raises: BadHeader."""
    records = {}
    at, end = 0, len(payload.rstrip(b"\0"))
    while at < end:
        digits = payload[at : at + 8].partition(b" ")[0]
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = payload[at + len(digits) + 1 : at + max(0, length - 1)].partition(b"=")
        if not equals or payload[at + length - 1 : at + length] != b"\n":
            raise BadHeader(f"its PAX record {payload[at : at + 40]!r} is malformed")
        records[key.decode("utf-8", "surrogateescape")] = value.decode("utf-8", "surrogateescape")
        at += length
    return records


MAX_MEMBER = 1 << 30  # bytes: a member above that is passed over
_MAX_METADATA = 1 << 20  # bytes of a PAX header or a long name

_RECORD = 20  # blocks that GNU tar, Python and libarchive fill up with zeros
_RECORDS = (1, _RECORD, *(1 << n for n in range(5, 12)))  # other writers fill up nothing, or as tar -b says

_REGULAR = frozenset({b"0", b"\0", b"7"})
_NO_PAYLOAD = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})  # links, devices, directories, fifos: size is ignored
_METADATA = frozenset({b"L", b"K", b"x", b"X", b"g"})


class Member(NamedTuple):
    """A regular file in the archive. ``start``: its first header block; ``offset``, ``size``: its payload, in bytes."""

    name: str
    start: int
    offset: int
    size: int


class TarMembers:
    """Reader of headers from ``offset`` on. ``start``: offset of the last thing read; ``at``: of the next one.

    ``damaged``: the bytes before are damaged and reported, so that an archive that ends here is not reported again.
    ``note``: after a run of zero blocks that was taken for an archive's end but need not be one, ``unclear_end``.
    """

    def __init__(self, url: str, source: ByteSource, offset: int, damaged: bool, largest: int = MAX_MEMBER) -> None:
        self.start = self.at = offset
        self._largest = largest
        self._url, self._source, self.damaged = url, source, damaged
        self._block, self._last = b"", ""  # the last block read as a header; the last good member
        self._zeros, self._over = 0, False
        self.note: DataError | None = None

    def next(self) -> Member | None:
        """Return the next regular file; None for a run of zero blocks. Raises: StopIteration at the end.

        Raises: DataError ``bad_header``, ``truncated``, ``missing_end``, ``zeros``, ``unsupported_member``,
        ``huge_member``, or what the source raises. May be called again after each, except that a failing source fails
        again.
        """
        while not self._over:
            self.start = self.at
            self.note = None
            block = self._read()
            if len(block) < BLOCK:
                self._end(block)
            if block == ZEROS:
                self._skip_zeros()
                return None
            self._zeros = 0
            try:
                member = self._member(block)
            except BadHeader as error:
                raise self._resync(str(error)) from None
            if member is not None:
                return member
        raise StopIteration

    def cut_short(self, what: str, offset: int, end: int) -> DataError:
        """Return the error for an archive that ends within ``what`` at ``offset``, or the failure that made it end."""
        reason, message = "truncated", f"the archive ends within {what}: fetch or pack the file again"
        if self._source.failure is not None:
            reason, message = self._source.failure.reason, self._source.failure.message
        self.at, self._over = end, True
        return self._error(reason, message, offset)

    def _error(self, reason: str, message: str, offset: int) -> DataError:
        return DataError(reason, message, url=self._url, member=self._last, offset=offset)

    def _read(self) -> bytes:
        self._block = self._source.read_upto(self.at, BLOCK)
        return self._block

    def _end(self, rest: bytes) -> NoReturn:
        """Handle the end of the archive; ``rest`` is less than a block."""
        self._over = True
        sound = self._source.failure is None and not rest.strip(b"\0")
        if (sound and self._zeros >= 2) or (self.damaged and not rest):
            raise StopIteration
        end = self.at + len(rest)
        if not sound:
            raise self.cut_short("a header", self.at, end)
        self.at = end
        message = "the archive ends without the two zero blocks that every tar ends with: it is cut off, fetch it again"
        raise self._error("missing_end", message, end)

    def _skip_zeros(self) -> None:
        """Skip a run of zero blocks. Raises: DataError unless it can be the end of the archive: at least two blocks,
        after a member, filling the last record. If the file ends in it, a shorter run will do."""
        while (block := self._read()) == ZEROS:
            self._zeros, self.at = self._zeros + 1, self.at + BLOCK
        ended, size = len(block) < BLOCK, self._zeros * BLOCK
        if self.start > 0 and ended and self._zeros <= _RECORD + 1:
            return  # a cut within the usual zeros has lost nothing
        fills = any(self._zeros <= record + 1 for record in _RECORDS if self.at % (record * BLOCK) == 0)
        if self.start > 0 and self._zeros >= 2 and fills:
            self.note = None
            if ended or _is_header(block):
                what = "the end that tar -b writes" if ended else "one archive's end, and another archive follows"
                message = f"{size} bytes of zeros: {what}, or utterances were lost"
                remedy = "a manifest of the list (uio index) shows which is true"
                self.note = self._error("unclear_end", f"{message}; {remedy}", self.start)
            self.damaged = ended
            return
        self._zeros, self.damaged = 0, True
        message = (
            f"{size} bytes of zeros, which do not belong here in a tar: never written, or lost; fetch the file again"
        )
        error = self._error("zeros", message, self.start)
        if len(block) == BLOCK and not _is_header(block):
            self._resync("")
        raise error

    def _member(self, block: bytes) -> Member | None:
        """Return the member whose first header, perhaps of metadata, is ``block`` at ``at``; None for a directory."""
        long_name = ""
        pax: dict[str, str] = {}
        while (header := parse_header(block)).type in _METADATA:
            if header.type == b"L":
                long_name = self._metadata(header).split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
            elif header.type in b"xX":
                pax = parse_pax(self._metadata(header))
            self.at += BLOCK + padded(header.size)
            block = self._read()
            if len(block) < BLOCK:
                raise self.cut_short("a header", self.at, self.at + len(block))
        if not (long_name or pax):
            return self._located(header)
        sparse = any(key.startswith("GNU.sparse.") for key in pax)
        size = header.size
        if text := pax.get("size"):
            if not (text.isascii() and text.isdecimal() and len(text) < 19):
                raise BadHeader(f"its PAX size is {text[:40]!r}")
            size = int(text)
        return self._located(Header(pax.get("path") or long_name or header.name, size, b"S" if sparse else header.type))

    def _located(self, header: Header) -> Member | None:
        """Return the member that ``header``, at ``at``, describes, and skip it."""
        name, size, kind = header
        self.damaged, self._last = False, name
        offset = self.at + BLOCK
        self.at = offset if kind in _NO_PAYLOAD else offset + padded(size)
        if kind == b"5" or name.endswith("/"):
            return None
        if kind not in _REGULAR:
            message = f"a link, device or other special member (tar type {kind!r}): pack regular files, tar -h"
            raise self._error("unsupported_member", message, self.start)
        if size > self._largest:
            message = f"a member of {size} bytes, above the limit of {self._largest}: remove it, or raise max_member"
            self.damaged = True  # the utterance that it belongs to is lost with it
            raise self._error("huge_member", message, self.start)
        return tuple.__new__(Member, (name, self.start, offset, size))

    def _metadata(self, header: Header) -> bytes:
        if header.size > _MAX_METADATA:
            raise BadHeader(f"its metadata of {header.size} bytes are more than any name or attribute needs")
        payload = self._source.payload(self.at + BLOCK, header.size)
        if payload is None:
            raise self.cut_short("a header", self.at, self.at + BLOCK + header.size)
        return payload.read() if isinstance(payload, Ref) else payload

    def _resync(self, why: str) -> DataError:
        """Skip to the next header after the bad one at ``at``; return the error to raise."""
        bad, self.damaged = self._block, True
        message = f"not a tar header, {why} (it begins with {bad[:16]!r}): fetch or pack the file again"
        error = self._error("bad_header", message, self.at)
        self.at += BLOCK
        while len(block := self._read()) == BLOCK and not _is_header(block):
            self.at += BLOCK
        if bad[156:157] in _METADATA or b"PaxHeader" in bad[:100] or b"@LongLink" in bad[:100]:
            self._pass_over(block)  # with its metadata it has lost its name
        elif len(block) < BLOCK:
            self.at += len(block)
        return error

    def _pass_over(self, block: bytes) -> None:
        """Skip the member that ``block`` at ``at`` begins."""
        while len(block) == BLOCK and _is_header(block):
            header = parse_header(block)
            self.at += BLOCK + (0 if header.type in _NO_PAYLOAD else padded(header.size))
            if header.type not in _METADATA:
                return
            block = self._read()
        self.at += len(block) % BLOCK


def _is_header(block: bytes) -> bool:
    """Return whether ``block`` is a header beyond doubt: payload is searched for headers too."""
    if not has_magic(block):
        return False
    try:
        parse_header(block)
    except BadHeader:
        return False
    return True
