"""MP3 files whose length their header does not tell: their frames are counted, and libsndfile is given the count.

Most encoders begin a file with a frame of no audio that tells the number of those that follow ("Xing", or "Info" where
the bitrate is constant). A stream has none (``ffmpeg … -f mp3 - > a.mp3``, what radio sends), nor have files of old
encoders. Of these libsndfile guesses the length from the size and the first bitrate: too long a guess looks like a file
that was cut off, with too short a one the rest of the recording would be lost in silence.

Format: ISO/IEC 11172-3 and 13818-3, layer III; the Xing header as LAME, FFmpeg and libsndfile write and read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from uio_pipes.audio.sniff import id3_size
from uio_pipes.base.errors import DataError

__all__ = ["counted"]

_KBITS = (
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG 2 and 2.5
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),  # MPEG 1
)
_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}  # by MPEG version
_TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"3DI")  # what may follow the last frame


def counted(data: bytes) -> bytes:
    """An MP3 file as libsndfile needs it: with a header that tells its length. Other files are left as they are.

    Raises: DataError ``truncated_audio`` if it was cut off inside a frame; ``bad_audio`` if it holds several recordings
    or is damaged between two frames.
    """
    begin = _behind_tags(data, 0)
    kind = _kind(data, begin)
    if kind is None or not data[begin + 2] >> 4:  # 0: of no standard bitrate
        return data
    first = kind.length(data, begin)
    at = begin + kind.side + (4 if data[begin + 1] & 1 else 6)
    if data[at : at + 4] in (b"Xing", b"Info") and data[at + 7] & 1:
        told = int.from_bytes(data[at + 8 : at + 12], "big")
        frames, _ = _walk(data, begin + first, kind)
        if told and frames > told + 1:  # some encoders count the header, too
            raise DataError(
                "bad_audio",
                f"the MP3 file holds {frames} frames, but its header tells {told}, and only these would be decoded: if "
                "it is several recordings one behind another, split it, or make one of them: ffmpeg -i FILE OUT.flac",
            )
        if told:
            return data
    empty = data[at : at + 4] in (b"Xing", b"Info") or data[begin + 36 : begin + 40] == b"VBRI"
    frames, end = _walk(data, start := begin + first if empty else begin, kind)
    _check_end(data, end, kind)
    return kind.header(data[begin : begin + 4], frames) + data[start:]


class _Kind(NamedTuple):
    """What all frames of a file have in common."""

    version: int
    rate: int
    side: int  # bytes between a frame's 4 of header and its audio

    def length(self, data: bytes, at: int) -> int:
        """Bytes of the frame at ``at``; 0 if none of this kind begins there."""
        if len(data) - at < 4 or data[at] != 0xFF or data[at + 1] >> 1 != 0x71 | self.version << 2:
            return 0
        word = data[at + 2]
        kbits = _KBITS[self.version == 3][word >> 4] if word >> 4 < 15 else 0
        if not kbits or (word >> 2 & 3 == 3) or _RATES[self.version][word >> 2 & 3] != self.rate:
            return 0
        return (144_000 if self.version == 3 else 72_000) * kbits // self.rate + (word >> 1 & 1)

    def header(self, first: bytes, frames: int) -> bytes:
        """A frame without audio that tells the number of ``frames``, as the ``first`` of them is otherwise."""
        head = bytes([0xFF, first[1] | 1, 0x90 | first[2] & 0x0C, first[3]])
        body = bytes(self.side) + b"Info" + bytes([0, 0, 0, 1]) + frames.to_bytes(4, "big")
        return (head + body).ljust(self.length(head, 0), b"\0")


def _kind(data: bytes, at: int) -> _Kind | None:
    """Of the frame of layer III that begins at ``at``, None if there is none."""
    head = data[at : at + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return None
    version, rate = head[1] >> 3 & 3, head[2] >> 2 & 3
    if version == 1 or rate == 3 or head[2] >> 4 == 15:
        return None
    mono = head[3] >> 6 == 3
    return _Kind(version, _RATES[version][rate], (17 if mono else 32) if version == 3 else (9 if mono else 17))


def _walk(data: bytes, at: int, kind: _Kind) -> tuple[int, int]:
    """The number of frames from ``at`` on, and where the last whole one ends."""
    frames = 0
    while True:
        length = kind.length(data, at)
        if length and at + length <= len(data):
            frames += 1
            at += length
        elif (behind := _behind_tags(data, at)) == at:
            return frames, at
        else:
            at = behind


def _check_end(data: bytes, at: int, kind: _Kind) -> None:
    """Raises: DataError if something else than the file's end, padding or tags follows its last whole frame."""
    rest = data[at:]
    if rest.startswith(_TAGS) or not rest.strip(b"\0"):
        return
    if kind.length(data, at) or (len(rest) < 4 and rest[0] == 0xFF):
        what = f"its last frame, from byte {at} on, is incomplete"
        raise DataError("truncated_audio", f"the MP3 file was cut off: {what}; copy it again")
    if any(_two_frames(data, there, kind) for there in _syncs(data, at)):
        what = f"no frame begins at byte {at}, where one should"
        raise DataError("bad_audio", f"the MP3 file is damaged: {what}; copy it again")


def _syncs(data: bytes, at: int) -> Iterator[int]:
    while (at := data.find(b"\xff", at + 1)) >= 0:
        yield at


def _two_frames(data: bytes, at: int, kind: _Kind) -> bool:
    length = kind.length(data, at)
    return length > 0 and kind.length(data, at + length) > 0


def _behind_tags(data: bytes, at: int) -> int:
    """Where the ID3 tags that begin at ``at`` end."""
    while data[at : at + 3] == b"ID3" and len(data) >= at + 10:
        at += id3_size(data[at : at + 10])
    return at
