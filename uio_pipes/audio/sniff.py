"""What an audio file is by its first bytes, whatever it is called."""

from __future__ import annotations

__all__ = ["belies", "sniff"]

_MAGICS = (
    (0, b"RIFF", "wav"),
    (0, b"RF64", "wav"),
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (4, b"ftyp", "m4a"),
    (0, bytes.fromhex("3026b2758e66cf11"), "wma"),
    (0, b"ID3", "mp3"),
)
_NAMES = {"opus": "ogg", "oga": "ogg", "mp4": "m4a"}


def sniff(head: bytes) -> str | None:
    """The format as a suffix; None if it is unknown."""
    for at, magic, form in _MAGICS:
        if head[at : at + len(magic)] == magic:
            return form
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "aac" if head[1] & 0xF6 == 0xF0 else "mp3"
    return None


def belies(suffix: str, head: bytes) -> str | None:
    """The format that the first bytes show, if it is known and another than ``suffix`` says."""
    form = sniff(head)
    named = _NAMES.get(suffix, suffix)
    same = form == named or {form, named} == {"mp3", "aac"}  # tags may stand before both
    return None if form is None or same else form
