"""Noise as samples and as wav files in memory."""

import io
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


def check_near(got: Any, want: Any) -> None:
    """Check features against torchaudio's. In bands far below a tone's, both are rounding: tests/dsp/test_fbank.py
    compares with float64."""
    difference = (got - want).abs()
    assert difference.median() < 3e-4
    assert difference.mean() < 5e-3
