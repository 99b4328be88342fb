"""m4a, aac and wma files, made by FFmpeg's own encoders."""

import io
from fractions import Fraction

import numpy as np
import pytest

CODECS = {"m4a": ("ipod", "aac"), "alac": ("ipod", "alac"), "aac": ("adts", "aac"), "wma": ("asf", "wmav2")}
FRAME = 1024  # samples given to the encoders at a time


def chirp(samples: int, rate: int, channels: int = 1) -> np.ndarray:
    """(C, S) float32: a tone that rises, never the same; each channel half of the one before."""
    t = np.arange(samples) / rate
    tone = 0.4 * np.sin(2 * np.pi * (200 * t + 90 * t * t)) * np.minimum(1, np.minimum(t, t[::-1]) * 20)
    return np.stack([tone / 2**i for i in range(channels)]).astype(np.float32)


def encode(wav: np.ndarray, rate: int, suffix: str) -> bytes:
    """(C, S) float32 as an m4a, alac (in m4a), aac or wma file of 96 kbit/s a channel."""
    av = pytest.importorskip("av")
    form, codec = CODECS[suffix]
    kind = "s16p" if codec == "alac" else "fltp"
    data = np.ascontiguousarray(np.round(wav * 32767).astype(np.int16) if codec == "alac" else wav)
    layout = "mono" if len(wav) == 1 else "stereo"
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=form) as file:
        stream = file.add_stream(codec, rate=rate, layout=layout, format=kind)
        stream.bit_rate = 96_000 * len(wav)
        frames = []
        for at in range(0, data.shape[1], FRAME):
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(data[:, at : at + FRAME]), kind, layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, at, Fraction(1, rate)
            frames.append(frame)
        for frame in [*frames, None]:
            file.mux(stream.encode(frame))
    return buffer.getvalue()
