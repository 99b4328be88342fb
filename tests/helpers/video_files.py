"""Small video files, made by FFmpeg: the number of a frame can be read from its brightness."""

import io
from typing import Any

import numpy as np

FPS = 25
SHAPE = (48, 64)


def video(
    count: int, form: str = "mp4", codec: str = "libx264", gop: int = 10, shape: tuple[int, int] = SHAPE
) -> bytes:
    """``count`` frames, number ``i`` of brightness ``2 * i``; ``gop``: frames from one key frame to the next."""
    import av

    out = io.BytesIO()
    with av.open(out, "w", format=form) as container:
        stream: Any = container.add_stream(codec, rate=FPS)
        stream.height, stream.width = shape
        stream.pix_fmt, stream.gop_size = "yuv420p", gop
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(np.full((*shape, 3), 2 * i, np.uint8), format="rgb24")
            frame.pts = i
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return out.getvalue()


def numbers(frames: Any) -> list[int]:
    """The number of each frame, give or take what coding changes."""
    return [round(float(frame) / 2) for frame in np.asarray(frames, np.float64).mean((1, 2, 3))]


def near(frames: Any, expected: list[int]) -> bool:
    """Whether these are the expected frames: brightness is coded in steps."""
    found = numbers(frames)
    return len(found) == len(expected) and all(abs(a - b) <= 3 for a, b in zip(found, expected, strict=True))
