"""Noise as samples and as wav files in memory; tones as utterances."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import soundfile

RATE = 16_000


def wav_bytes(samples: Any, rate: int = RATE) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format="WAV", subtype="PCM_16")
    return out.getvalue()


def tone(samples: int, seed: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(samples) * 3000).astype(np.int16)


class Tones:
    """Thirty short tones of increasing length, as utterances for the contract tests."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i in range(30):
            wav = np.sin(np.arange(800 + 20 * i, dtype=np.float32) * (0.1 + 0.05 * i))
            yield {"key": f"tone{i}", "wav": wav[None], "sample_rate": 8000, "txt": f"{i}"}


def check_near(got: Any, want: Any) -> None:
    """Check features against torchaudio's. In bands far below a tone's, both are rounding: tests/dsp/test_fbank.py
    compares with float64."""
    difference = (got - want).abs()
    assert difference.median() < 3e-4
    assert difference.mean() < 5e-3


def decay_time(wav: Any, rate: int) -> float:
    """Seconds for 60 dB, from the slope of Schroeder's backward integral between -5 and -25 dB."""
    energy = np.cumsum(wav.astype(np.float64)[::-1] ** 2)[::-1]
    level = 10 * np.log10(energy / energy[0] + 1e-30)
    first, last = int(np.argmax(level <= -5)), int(np.argmax(level <= -25))
    return -60 / float(np.polyfit(np.arange(first, last) / rate, level[first:last], 1)[0])
