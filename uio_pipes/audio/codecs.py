"""Decoding of m4a, aac and wma with FFmpeg through PyAV (the optional extra ``codecs``).

Their headers do not hold the number of samples, so only decoding shows the length. A file that was cut off is noticed
by this: m4a, a box that reaches beyond the end of the file, or packets that the index names and that are missing;
aac, an incomplete last frame (a cut between two frames leaves a sound file); wma, fewer bytes than the header says, or
less audio, as where FFmpeg passes over packets that are damaged.
Formats: ISO/IEC 14496-12 (MP4), ISO/IEC 14496-3 (ADTS) and Microsoft's ASF specification.
"""

from __future__ import annotations

import io
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.containers import check_finite, check_longest, id3_size
from uio_pipes.base.errors import DataError
from uio_pipes.io.local import FileData, open_data

CODED = frozenset({"m4a", "aac", "wma"})

_PREROLL = 0.5  # seconds decoded before a segment: more than what a codec remembers
_ASF_FILE = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")  # the object that holds the file's size
_U64 = Struct("<Q").unpack_from


class Decoded(NamedTuple):
    """Decoded ``samples`` (C, S) float32, beginning with sample ``first`` of the recording. ``total``: samples up to
    the end of the recording, or to where decoding ended."""

    samples: npt.NDArray[np.float32]
    first: int
    total: int
    sample_rate: int


def decode_coded(data: FileData, form: str, start: float | None, end: float | None) -> Decoded:
    """Decode the bytes of a file, or a local file, at least from ``start`` to ``end`` seconds.

    Raises DataError: ``missing_codec`` without PyAV, ``bad_audio``, ``truncated_audio``, ``nan_audio``.
    """
    av, whole = _library(form), start is None and end is None
    if form != "m4a":  # the others have no index to seek by, and all their bytes are needed to notice a cut
        if not isinstance(data, bytes):
            with open_data(data) as file:
                data = file.read()
        start = end = None
    check_coded(data, form)
    try:
        with (
            open_data(data) as file,
            av.open(file, **any_titles(av)) as container,
        ):
            if not container.streams.audio:
                raise DataError("bad_audio", f"the {form} file contains no audio")
            return _decode(av, container, container.streams.audio[0], start, end, bounded=whole)
    except av.error.FFmpegError as error:
        raise DataError("bad_audio", f"FFmpeg cannot decode this {form}: {error.strerror}") from error


def any_titles(av: ModuleType) -> dict[str, Any]:
    """Return what opens a file whose titles may be in any encoding; from PyAV 19 on, they always may."""
    return {} if int(av.__version__.split(".")[0]) >= 19 else {"metadata_errors": "replace"}


def check_coded(data: FileData, form: str) -> None:
    """Raise DataError ``truncated_audio`` or ``bad_audio`` if that is visible without decoding."""
    if form == "m4a":
        with open_data(data) as file:
            _check_boxes(file)
    elif isinstance(data, bytes):
        (_check_adts if form == "aac" else _check_asf)(data)


def _library(form: str) -> ModuleType:
    try:
        import av
    except ImportError:
        message = f"{form} audio needs FFmpeg's decoders: pip install 'uio_pipes[codecs]'"
        raise DataError("missing_codec", message) from None
    library: ModuleType = av
    return library


def _decode(
    av: ModuleType, container: Any, stream: Any, start: float | None, end: float | None, *, bounded: bool
) -> Decoded:
    seeks = start is not None and start > _PREROLL
    if start is not None and seeks:
        container.seek(int((start - _PREROLL) / stream.time_base), stream=stream)
    frames = _Frames(av.AudioResampler(format="fltp"))
    origin, began, until, packets, whole = stream.start_time or 0, None, 0.0, 0, True
    for packet in container.demux(stream):
        if packet.is_corrupt:
            raise _cut("its last packet is incomplete")
        packets += packet.size > 0
        if packet.pts is not None:
            until = max(until, float((packet.pts - origin + (packet.duration or 0)) * stream.time_base))
        for frame in packet.decode():
            began = frame.pts if began is None else began
            frames.add(frame)
            if bounded:
                check_longest(frames.samples, frames.sample_rate)
        if end is not None and until > end + _PREROLL:
            whole = False
            break
    if whole and not seeks and packets < stream.frames:
        raise _cut(f"its index names {stream.frames} packets, it holds {packets}")
    rate = frames.sample_rate or int(stream.rate)
    first = 0
    if seeks:  # beyond the end nothing is decoded; the index then says where the end is
        first = round(((stream.duration or 0) if began is None else began - origin) * stream.time_base * rate)
    total = first + frames.samples
    if whole and "m4a" in container.format.name:  # its last packet is padded, but holds its true duration
        total = min(total, round(until * rate))
    if whole and container.format.name == "asf" and len(container.streams) == 1 and stream.duration:
        declared = float(stream.duration * stream.time_base)
        if total < declared * rate - 1.5 * (512 if rate <= 16_000 else 1_024 if rate <= 22_050 else 2_048):
            # decoders may keep the last frame, of so many samples, to themselves
            raise _cut(f"its header says {declared:.3f} s, {total / rate:.3f} s could be decoded")
    samples = frames.joined()[:, : total - first]
    check_finite(samples)  # a damaged packet may decode to anything
    return Decoded(samples, first, total, rate)


class _Frames:
    """The decoded frames of a file."""

    def __init__(self, resampler: Any) -> None:
        self.samples = self.sample_rate = 0  # the decoder's rate: a header may hold half of it (HE-AAC)
        self._resampler = resampler
        self._pieces: list[npt.NDArray[np.float32]] = []

    def add(self, frame: Any) -> None:
        """Append a frame as planar float32. Raises: DataError if its rate or number of channels is another one."""
        for part in [frame] if frame.format.name == "fltp" else self._resampler.resample(frame):
            piece = part.to_ndarray()
            if self._pieces and (part.sample_rate, len(piece)) != (self.sample_rate, len(self._pieces[0])):
                message = "the sample rate or the number of channels changes within the file; encode it again"
                raise DataError("bad_audio", message)
            self.sample_rate = int(part.sample_rate)
            self.samples += piece.shape[1]
            self._pieces.append(piece)

    def joined(self) -> npt.NDArray[np.float32]:
        return np.concatenate(self._pieces, axis=1) if self._pieces else np.empty((1, 0), np.float32)


def _check_boxes(file: Any) -> None:
    """Walk the outermost boxes: each begins with 4 bytes of length; if that is 1, 8 bytes of it follow the name."""
    size, at = file.seek(0, io.SEEK_END), 0
    while at < size:
        file.seek(at)
        head = file.read(16)
        length = int.from_bytes(head[:4], "big")
        if length == 1:
            length = int.from_bytes(head[8:], "big")
        if length == 0 or not head[4:8].isascii():  # the box reaches to the end, or it is none
            return
        at += max(8, length)
    if at > size:
        raise _cut(f"its last box ends at byte {at}, the file at {size}")


def _check_adts(data: bytes) -> None:
    """Walk the frames: each header holds the length of its frame in 13 bits."""
    at = id3_size(data) if data[:3] == b"ID3" else 0
    while at + 7 <= len(data) and data[at] == 0xFF and data[at + 1] & 0xF6 == 0xF0:
        at += max(7, (data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5)
    if at > len(data) or (at < len(data) and data[at] == 0xFF and len(data) - at < 7):
        raise _cut("its last frame is incomplete")
    if at < len(data) and data[at : at + 3] != b"TAG":
        raise DataError("bad_audio", f"there is no AAC frame at byte {at}; encode the file again")


def _check_asf(data: bytes) -> None:
    at = data.find(_ASF_FILE, 0, 1 << 16)
    size = _U64(data, at + 40)[0] if 0 <= at <= len(data) - 48 else 0
    if size > len(data):
        raise _cut(f"its header says {size} bytes, it holds {len(data)}")


def _cut(what: str) -> DataError:
    return DataError("truncated_audio", f"the file was cut off ({what}); copy it again")
