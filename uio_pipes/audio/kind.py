"""What kind of audio file some bytes are: by the first of them, nothing decoded.

Formats: Microsoft's RIFF/WAVE (mmreg.h), RFC 9639 (FLAC), RFC 3533 and 7845 (Ogg, Opus).
"""

from __future__ import annotations

import os

from uio_pipes.audio.codecs import coded

__all__ = ["suffix_of"]

_MAGIC = {b"RIFF": "wav", b"RIFX": "wav", b"RF64": "wav", b"fLaC": "flac"}


def suffix_of(data: bytes, name: str) -> str:
    """What the name of a file with these bytes should end in; by ``name`` where they do not tell."""
    if data[:4] in _MAGIC:
        return _MAGIC[data[:4]]
    if data[:4] == b"OggS":
        return "opus" if b"OpusHead" in data[:64] else "ogg"
    if kind := coded(data):
        return kind
    if data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] and data[1] & 0xE0 == 0xE0):
        return "mp3"
    suffix = os.path.splitext(name.partition("?")[0])[1].lower()[1:]
    return suffix if suffix.isalnum() else "wav"
