"""Cutting utterances out of a recording: opened once, decoded once, each segment encoded as 16-bit wav or flac.

No torch in here: the processes that pack start in a quarter of a second and stay small. The samples are those of
``uio_pipes`` in raw mode (``decode_audio`` of the same segment): equal for lossless formats; of Opus, which raw
mode enters in the middle, within 60 dB.
"""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from typing import Literal

import numpy as np
import soundfile
from numpy.typing import NDArray

from uio_pipes.prep.lists import Utterance

Form = Literal["wav", "flac"]
TOLERANCE = 0.01  # seconds by which a segment may end after its recording, as in decode_audio
BLOCK = 1 << 20  # samples decoded at a time
UNKNOWN = 2**62  # libsndfile's count of samples where the header tells none is above this


@dataclass(frozen=True)
class Failure:
    """An utterance that could not be cut: a ``reason`` to count it under, and what exactly was wrong."""

    reason: str
    detail: str


def cut_recording(wav: str, utterances: list[Utterance], sample_rate: int, form: Form) -> list[bytes | Failure]:
    """For each utterance of this recording, its audio file's bytes, or why there are none."""
    try:
        with soundfile.SoundFile(wav) as audio:
            rate, total = audio.samplerate, audio.frames
            ranges = [_range(utterance, rate, total) for utterance in utterances]
            wanted = max((found[1] for found in ranges if isinstance(found, tuple)), default=0)
            samples = _decode(audio, wanted)
    except FileNotFoundError:
        return [Failure("missing_file", f"no such file: {wav}")] * len(utterances)
    except (soundfile.SoundFileError, OSError) as error:
        reason = "bad_audio" if _exists(wav) else "missing_file"
        return [Failure(reason, f"{wav}: {error}")] * len(utterances)
    return [
        found if isinstance(found, Failure) else _encode(samples, *found, rate, sample_rate, form, wav)
        for found in ranges
    ]


def _exists(wav: str) -> bool:
    try:
        with open(wav, "rb"):
            return True
    except OSError:
        return False


def _range(utterance: Utterance, rate: int, total: int) -> tuple[int, int] | Failure:
    """First and last + 1 sample."""
    if not 0 < total < UNKNOWN:
        return Failure("empty_audio", f"{utterance.wav} has no samples")
    low = 0.0 if utterance.start is None else utterance.start * rate
    high = float(total) if utterance.end is None else utterance.end * rate
    first, last = round(low), min(round(high), total)
    if not 0 <= low < high <= total + TOLERANCE * rate or first >= last:
        where = f"{utterance.start} to {utterance.end} s of {utterance.wav}, which has {total / rate:.2f} s"
        return Failure("bad_segment", where)
    return first, last


def _decode(audio: soundfile.SoundFile, wanted: int) -> NDArray[np.int16]:
    """The first channel's first ``wanted`` samples, fewer if decoding ends early."""
    exact = audio.subtype == "PCM_16"
    samples = np.empty(wanted, np.int16)
    done = 0
    while done < wanted:
        block = audio.read(min(BLOCK, wanted - done), dtype="int16" if exact else "float32", always_2d=True)[:, 0]
        if not len(block):
            break
        samples[done : done + len(block)] = block if exact else to_int16(block)
        done += len(block)
    return samples[:done]


def to_int16(samples: NDArray[np.float32]) -> NDArray[np.int16]:
    """Of [-1, 1], as 16-bit PCM: rounded and clipped."""
    scaled: NDArray[np.float32] = np.rint(samples * np.float32(32768))
    np.clip(scaled, -32768, 32767, out=scaled)
    return scaled.astype(np.int16)


def _encode(
    samples: NDArray[np.int16], first: int, last: int, rate: int, sample_rate: int, form: Form, wav: str
) -> bytes | Failure:
    if last > len(samples):
        return Failure("truncated_audio", f"{wav}: decoding ended after {len(samples) / rate:.2f} s")
    cut = samples[first:last]
    if rate != sample_rate:
        cut = _resampled(cut, rate, sample_rate)
    return encode(cut, sample_rate, form)


def encode(samples: NDArray[np.int16], sample_rate: int, form: Form) -> bytes:
    """A mono wav or flac file, 16 bits."""
    buffer = io.BytesIO()
    if form == "flac":
        soundfile.write(buffer, samples, sample_rate, format="FLAC", subtype="PCM_16")
        return buffer.getvalue()
    with wave.open(buffer, "wb") as file:
        file.setparams((1, 2, sample_rate, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2", copy=False).tobytes())
    return buffer.getvalue()


def _resampled(samples: NDArray[np.int16], rate: int, sample_rate: int) -> NDArray[np.int16]:
    import torch  # only here, for recordings of another rate

    from uio_pipes.dsp.resample import resample

    waveform = torch.from_numpy(samples.astype(np.float32) / np.float32(32768))[None]
    return to_int16(resample(waveform, rate, sample_rate)[0].numpy())
