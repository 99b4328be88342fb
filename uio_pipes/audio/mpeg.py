"""MP3 files without their length in the header: we count the frames, and give libsndfile their number.

Most encoders begin a file with a frame without audio that holds the number of the others ("Xing", or "Info" if the
bitrate is constant). Streams have none (``ffmpeg … -f mp3 - > a.mp3``, radio), and neither have files of old encoders.
There libsndfile guesses the length from the size and the first bitrate. If the guess is too long, the file looks as if
it was cut off; if it is too short, the rest of the recording would be lost without notice.

Format: ISO/IEC 11172-3 and 13818-3, layer III; the Xing header as LAME, FFmpeg and libsndfile write and read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from uio_pipes.audio.sniff import id3_size
from uio_pipes.base.errors import DataError

_KBITS = (
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG 2 and 2.5
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),  # MPEG 1
)
_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}  # by MPEG version
_TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"3DI")  # tags that may follow the last frame


def with_length(data: bytes) -> bytes:
    """Return an MP3 file with its length in the header, as libsndfile needs it. Other files are returned as they are.

    Raises: DataError ``truncated_audio`` if it was cut off inside a frame; ``bad_audio`` if it holds several recordings
    or is damaged between two frames.
    """
    begin = _after_tags(data, 0)
    kind = _kind(data, begin)
    if kind is None or not data[begin + 2] >> 4:  # 0: of no standard bitrate
        return data
    first = kind.length(data, begin)
    at = begin + kind.side + (4 if data[begin + 1] & 1 else 6)
    if data[at : at + 4] in (b"Xing", b"Info") and data[at + 7] & 1:
        told = int.from_bytes(data[at + 8 : at + 12], "big")
        frames, _ = _walk(data, begin + first, kind)
        if told and frames > told + 1:  # some encoders count the header as well
            raise DataError(
                "bad_audio",
                f"the MP3 file holds {frames} frames, but its header says {told}, and only these would be decoded. If "
                "it is several recordings joined, split it, or re-encode it as one file: ffmpeg -i FILE OUT.flac",
            )
        if told:
            return data
    empty = data[at : at + 4] in (b"Xing", b"Info") or data[begin + 36 : begin + 40] == b"VBRI"
    frames, end = _walk(data, start := begin + first if empty else begin, kind)
    _check_end(data, end, kind)
    return kind.header(data[begin : begin + 4], frames) + data[start:]


class _Kind(NamedTuple):
    """The properties that all frames of a file share."""

    version: int
    rate: int
    side: int  # bytes between a frame's 4 of header and its audio

    def length(self, data: bytes, at: int) -> int:
        """Return the length in bytes of the frame at ``at``; 0 if no frame of this kind begins there."""
        if len(data) - at < 4 or data[at] != 0xFF or data[at + 1] >> 1 != 0x71 | self.version << 2:
            return 0
        word = data[at + 2]
        kbits = _KBITS[self.version == 3][word >> 4] if word >> 4 < 15 else 0
        if not kbits or (word >> 2 & 3 == 3) or _RATES[self.version][word >> 2 & 3] != self.rate:
            return 0
        return (144_000 if self.version == 3 else 72_000) * kbits // self.rate + (word >> 1 & 1)

    def header(self, first: bytes, frames: int) -> bytes:
        """Make a frame without audio that holds the number of ``frames`` and is otherwise as the ``first`` of them."""
        head = bytes([0xFF, first[1] | 1, 0x90 | first[2] & 0x0C, first[3]])
        body = bytes(self.side) + b"Info" + bytes([0, 0, 0, 1]) + frames.to_bytes(4, "big")
        return (head + body).ljust(self.length(head, 0), b"\0")


def _kind(data: bytes, at: int) -> _Kind | None:
    """Return the kind of the frame of layer III that begins at ``at``, None if there is none."""
    head = data[at : at + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
        return None
    version, rate = head[1] >> 3 & 3, head[2] >> 2 & 3
    if version == 1 or rate == 3 or head[2] >> 4 == 15:
        return None
    mono = head[3] >> 6 == 3
    return _Kind(version, _RATES[version][rate], (17 if mono else 32) if version == 3 else (9 if mono else 17))


def _walk(data: bytes, at: int, kind: _Kind) -> tuple[int, int]:
    """Count the frames from ``at`` on. Return their number and the end of the last whole one."""
    frames = 0
    while True:
        length = kind.length(data, at)
        if length and at + length <= len(data):
            frames += 1
            at += length
        elif (after := _after_tags(data, at)) == at:
            return frames, at
        else:
            at = after


def _check_end(data: bytes, at: int, kind: _Kind) -> None:
    """Raise DataError if anything but the end of the file, padding or tags follows its last whole frame, at ``at``."""
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


def _after_tags(data: bytes, at: int) -> int:
    """Return where the ID3 tags that begin at ``at`` end."""
    while data[at : at + 3] == b"ID3" and len(data) >= at + 10:
        at += id3_size(data[at : at + 10])
    return at
