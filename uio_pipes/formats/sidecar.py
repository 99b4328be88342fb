"""The frame of the small files that stand beside data: magic, version, bytes of the header, CRC32 of all that follows;
a JSON header; a body."""

from __future__ import annotations

import json
from struct import Struct
from typing import Any
from zlib import crc32

from uio_pipes.base.json_text import parse_json

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
