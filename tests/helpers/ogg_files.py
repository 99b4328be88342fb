"""Ogg files, made by libsndfile, and their pages taken apart and put together again."""

import io
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import soundfile

END = 4  # the flag of a stream's last page


def ogg(seconds: float, subtype: str = "VORBIS", rate: int = 16_000, seed: int = 0) -> bytes:
    """A mono file of noise that grows louder: "VORBIS" or "OPUS"."""
    noise = np.random.default_rng(seed).standard_normal(round(seconds * rate))
    noise *= np.linspace(0.02, 0.2, len(noise))
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", rate, 1, format="OGG", subtype=subtype) as file:
        for at in range(0, len(noise), rate):
            file.write(noise[at : at + rate])
    return buffer.getvalue()


class Page(NamedTuple):
    flags: int
    position: int
    stream: int
    number: int
    segments: bytes
    body: bytes

    def bytes(self) -> bytes:
        """With its CRC-32, bit by bit as RFC 3533 has it."""
        head = struct.pack("<4sBBqIII", b"OggS", 0, self.flags, self.position, self.stream, self.number, 0)
        page = head + bytes([len(self.segments)]) + self.segments + self.body
        crc = 0
        for byte in page:
            crc ^= byte << 24
            for _ in range(8):
                crc = (crc << 1 ^ (0x04C11DB7 if crc & 0x80000000 else 0)) & 0xFFFFFFFF
        return page[:22] + struct.pack("<I", crc) + page[26:]


def pages(data: bytes) -> Iterator[Page]:
    """Of a sound file."""
    at = 0
    while at < len(data):
        _, _, flags, position, stream, number, _, count = struct.unpack_from("<4sBBqIIIB", data, at)
        segments = data[at + 27 : at + 27 + count]
        end = at + 27 + count + sum(segments)
        yield Page(flags, position, stream, number, segments, data[at + 27 + count : end])
        at = end


def join(all_of_them: list[Page]) -> bytes:
    return b"".join(page.bytes() for page in all_of_them)
