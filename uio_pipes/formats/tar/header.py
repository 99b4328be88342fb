"""One 512-byte tar header: v7, ustar and GNU, its checksum verified."""

from __future__ import annotations

import zlib
from typing import NamedTuple

BLOCK = 512
ZEROS = bytes(BLOCK)
_MODULUS = 65521  # of Adler-32
_MAX_SIZE = 1 << 60  # bytes: more is damage, and no file system could be asked for it


class BadHeader(ValueError):
    """These bytes are not a tar header; the text says why."""


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
    if ((zlib.adler32(block) & 0xFFFF) - 1 - stored - sum(field) + 256) % _MODULUS and stored != _signed_sum(block):
        raise BadHeader("its checksum is wrong")
    name = block[:100].split(b"\0", 1)[0]
    if block[345] and block[257:263] == b"ustar\0":
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    return Header(name.decode("utf-8", "surrogateescape"), _size(block[124:136]), block[156:157])


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


def _signed_sum(block: bytes) -> int:
    """Return the sum of signed bytes, which some old tars wrote."""
    return sum(byte - 256 if byte > 127 else byte for byte in block[:148] + block[156:]) + 256


def _size(field: bytes) -> int:
    try:  # GNU: a binary number
        size = int.from_bytes(field[1:], "big") if field[0] == 0x80 else int(field.strip(b"\0 ") or b"0", 8)
    except ValueError:
        size = -1
    if not 0 <= size < _MAX_SIZE:
        raise BadHeader(f"its size field is {field!r}")
    return size
