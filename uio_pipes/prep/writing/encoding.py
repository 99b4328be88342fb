"""Decoded samples as 16-bit PCM and as audio files. No torch in here, except to resample."""

from __future__ import annotations

import io
import wave
from typing import Literal

import numpy as np
import soundfile
from numpy.typing import NDArray

FRAMES_PER_SECOND = 100
FileForm = Literal["wav", "flac"]


def frames_of(samples: int, sample_rate: int) -> int:
    """Return the number of frames of 10 ms, rounded up, as lengths are planned everywhere."""
    return -(-samples * FRAMES_PER_SECOND // sample_rate)


def to_int16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Convert samples in [-1, 1] to 16-bit PCM, rounded and clipped."""
    scaled: NDArray[np.float32] = np.rint(samples * np.float32(32768))
    np.clip(scaled, -32768, 32767, out=scaled)
    return scaled.astype(np.int16)


def encode(samples: NDArray[np.int16], sample_rate: int, form: FileForm) -> bytes:
    """Return a mono wav or flac file of 16 bits."""
    buffer = io.BytesIO()
    if form == "flac":
        soundfile.write(buffer, samples, sample_rate, format="FLAC", subtype="PCM_16")
        return buffer.getvalue()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, sample_rate, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2", copy=False).tobytes())
    return buffer.getvalue()


def resampled(samples: NDArray[np.int16], rate: int, sample_rate: int) -> NDArray[np.int16]:
    import torch  # only here, for recordings of another rate

    from uio_pipes.dsp.resample import resample

    torch.set_num_threads(1)  # the cores are shared by processes, and one thread gives the same bits everywhere
    waveform = torch.from_numpy(samples.astype(np.float32) / np.float32(32768))[None]
    return to_int16(resample(waveform, rate, sample_rate)[0].numpy())
