"""Decoding of video frames with FFmpeg through PyAV (the optional extra ``video``).

A span is decoded from the last key frame before it on; what lies after it is not read. A file that was cut off is
noticed by the length that its header states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.audio.codecs import any_titles
from uio_pipes.base.errors import DataError
from uio_pipes.io.local import Positioned

_ROUNDING = 0.001  # seconds: Matroska's times are whole milliseconds
_SHORT = 0.5  # seconds by which other streams may outlast the frames, where only the length of the file is stated
_BACK = (0.0, 2.0, 20.0, float("inf"))  # seconds before the wanted ones from which to decode, if need be
_BUFFER = 256 << 10  # bytes that FFmpeg reads at a time

Frames = npt.NDArray[np.uint8]
ReadBytes = Callable[[int, int], bytes]  # of an offset and a number of bytes


def decode_video(
    read: ReadBytes, size: int, start: float | None, end: float | None, fps: float | None, shape: tuple[int, int] | None
) -> Frames:
    """Decode the frames from ``start`` to ``end`` seconds as RGB (T, C, H, W) from a file of ``size`` bytes.

    ``fps``: as many frames a second, each the one that is shown then; None: all that begin within the span, or else
    the one that is shown at its start. ``shape``: (height, width) to scale to.

    Raises DataError: ``missing_codec`` without PyAV, ``bad_video``, ``truncated_video``, ``bad_segment``.
    """
    av = _library()
    if not size:
        raise DataError("bad_video", "the video is empty (0 bytes): create it again, or remove it")
    begin = start or 0.0
    try:
        with av.open(Positioned(read, size), **any_titles(av), buffer_size=_BUFFER) as container:
            if not container.streams.video:
                raise DataError("bad_video", "the file contains no video")
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1  # the result must not depend on the machine
            length, tolerance = _length(container, stream)
            if length and begin >= length:
                raise DataError("bad_segment", f"the segment begins at {begin} s, but the video ends at {length:.3f} s")
            frames = _frames(container, stream, begin, end, length - tolerance)
            shown = _all(frames, begin, end) if fps is None else _sampled(frames, begin, end or length, fps)
            height, width = shape or (stream.height, stream.width)
            made = [frame.reformat(width=width, height=height, format="rgb24").to_ndarray() for frame in shown]
    except av.error.FFmpegError as error:
        raise DataError("bad_video", f"FFmpeg cannot decode this video: {error.strerror}") from error
    pixels: Frames = np.stack(made).transpose(0, 3, 1, 2)
    return pixels


def _library() -> ModuleType:
    try:
        import av
    except ImportError:
        message = "video needs FFmpeg's decoders: pip install 'uio_pipes[video]'"
        raise DataError("missing_codec", message) from None
    library: ModuleType = av
    return library


def _length(container: Any, stream: Any) -> tuple[float, float]:
    """Return the seconds that the header states, 0 for none, and by how much frames may end earlier."""
    if stream.duration is not None:
        return float(stream.duration * stream.time_base), _ROUNDING
    return (container.duration or 0) / 1e6, _SHORT


def _frames(container: Any, stream: Any, start: float, end: float | None, least: float) -> Iterator[tuple[float, Any]]:
    """Yield frames with their times in seconds, from a key frame at or before ``start`` to the first one at ``end``.

    Raises: DataError if they end before ``least`` seconds.
    """
    last, gap = -1.0, 0.0
    for time, frame in _from(container, stream, start):
        last, gap = time, max(gap, time - last if last >= 0 else 0.0)
        yield time, frame
        if end is not None and time >= end:
            return
    until = least if end is None else min(end, least)
    if last < 0 or last + 2 * gap < until:
        raise DataError("truncated_video", f"its frames end {until - max(last, 0):.3f} s too early: fetch it again")


def _from(container: Any, stream: Any, start: float) -> Iterator[tuple[float, Any]]:
    """Yield frames with their times. Some formats have no index, and seeking in them may come out after ``start``."""
    origin = stream.start_time or 0
    for back in _BACK:
        target = max(0.0, start - back)
        if start > 0:
            at = origin + int(target / stream.time_base) if target else min(0, origin)
            container.seek(at, stream=stream)
            stream.codec_context.flush_buffers()
        frames = _decoded(container, stream, origin)
        first = next(frames, None)
        if target == 0 or (first is not None and first[0] <= start + _ROUNDING):
            break
    if first is not None:
        yield first
        yield from frames


def _decoded(container: Any, stream: Any, origin: int) -> Iterator[tuple[float, Any]]:
    for packet in container.demux(stream):
        if packet.is_corrupt:
            raise DataError("truncated_video", "a packet of the video is incomplete: fetch it again")
        for frame in packet.decode():
            if frame.pts is not None:
                yield float((frame.pts - origin) * stream.time_base), frame


def _all(frames: Iterator[tuple[float, Any]], start: float, end: float | None) -> Iterator[Any]:
    """Yield the frames that begin within the span; if there are none, the one that is shown at its start."""
    shown, found = None, False
    for time, frame in frames:
        if time >= start - _ROUNDING and (end is None or time < end - _ROUNDING):
            found = True
            yield frame
        if shown is None or time <= start:
            shown = frame
    if not found:
        yield shown


def _sampled(frames: Iterator[tuple[float, Any]], start: float, end: float, fps: float) -> Iterator[Any]:
    """Yield the frames that are shown at ``start``, 1 / ``fps`` seconds later, and so on before ``end``."""
    shown, count = None, max(1, ceil((end - start - _ROUNDING) * fps))
    given = 0
    for time, frame in frames:
        while shown is not None and given < count and start + given / fps < time - _ROUNDING:
            given += 1
            yield shown
        shown = frame
    for _ in range(given, count):  # the last one is shown until the end
        yield shown
