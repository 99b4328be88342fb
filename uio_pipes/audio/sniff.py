"""The format of an audio file by its first bytes, whatever the file is called. Nothing is decoded.

Formats: Microsoft's RIFF/WAVE (mmreg.h), RFC 9639 (FLAC), RFC 3533 and 7845 (Ogg, Opus), ISO/IEC 14496-12 (MP4) and
14496-3 (ADTS), ISO/IEC 11172-3 (MP3), Microsoft's ASF, ID3 2.4.
"""

from __future__ import annotations

import os

from uio_pipes.io.regular import open_data

_FIRST_FOUR = {
    b"RIFF": "wav",
    b"RIFX": "wav",
    b"RF64": "wav",
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"\x1aE\xdf\xa3": "webm",
}
_ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
_NAMES = {"opus": "ogg", "oga": "ogg", "mp4": "m4a", "mka": "webm", "mkv": "webm", "weba": "webm"}


def sniff(data: bytes | str | os.PathLike[str]) -> str | None:
    """Return the format as a suffix ("wav", "flac", "mp3", …) by a file's first bytes, or by its path; None if unknown.

    An ID3 tag stands before mp3, and sometimes before aac: what follows the tag decides, if it is there.
    """
    with open_data(data) as file:
        head = file.read(16)
        if head[:3] != b"ID3" or len(head) < 10:
            return _sniff(head)
        file.seek(id3_size(head))
        form = _sniff(file.read(16))
    return form if form in ("m4a", "aac", "wma") else "mp3"


def sniff_codec(data: bytes) -> str | None:
    """Return the format as :func:`sniff` does, but "opus" for Ogg files that hold Opus."""
    form = sniff(data)
    return "opus" if form == "ogg" and b"OpusHead" in data[:64] else form


def belies(suffix: str, head: bytes) -> str | None:
    """Return the format that the first bytes show if it is known and not the one that ``suffix`` names, else None."""
    form = sniff(head)
    named = _NAMES.get(suffix, suffix)
    same = form == named or {form, named} == {"mp3", "aac"}  # a tag longer than ``head`` may stand before both
    return None if form is None or same else form


def id3_size(head: bytes) -> int:
    """Return the length in bytes of the ID3 tag that begins with ``head``: four times 7 bits give it."""
    return 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9])


def _sniff(head: bytes) -> str | None:
    if (form := _FIRST_FOUR.get(head[:4])) is not None:
        return form
    if head[4:8] == b"ftyp":
        return "m4a"
    if head.startswith(_ASF):
        return "wma"
    if head.startswith(b"ID3"):
        return "mp3"
    if head[:1] != b"\xff" or head[1:2] in (b"", b"\xfe"):  # the latter: a byte order mark of UTF-16
        return None
    if head[1] & 0xF6 == 0xF0:
        return "aac"
    return "mp3" if head[1] & 0xE0 == 0xE0 else None
