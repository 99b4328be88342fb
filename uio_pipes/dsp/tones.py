"""Tones instead of recordings, for the example folder where no speech can be made, and for the contract tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

SECONDS = 0.25  # for each character
FADE = 0.02  # seconds in which a tone rises, and falls
LOWEST, STEPS, STEP = 180.0, 97, 1.03  # Hz of the lowest tone; number of tones; ratio of neighbours


def tone(samples: int, step: float) -> NDArray[np.float32]:
    """Make a sine of ``step`` radians per sample, in [-1, 1]."""
    wave: NDArray[np.float32] = np.sin(np.arange(samples, dtype=np.float32) * step)
    return wave


def toned(text: str, rate: int, pitch: float = 1.0) -> NDArray[np.float32]:
    """Make tones of a text, one for each character, always the same for the same one; ``pitch`` raises them all."""
    samples, fade = round(SECONDS * rate), round(FADE * rate)
    envelope = np.clip(np.minimum(np.arange(samples), np.arange(samples)[::-1]) / fade, 0, 1).astype(np.float32)
    steps = (2 * np.pi * pitch * LOWEST * STEP ** (ord(character) % STEPS) / rate for character in text)
    return np.concatenate([np.zeros(0, np.float32), *(tone(samples, step) * envelope for step in steps)])


class Tones:
    """Thirty short tones of increasing length, as utterances for the contract tests."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i in range(30):
            wav = tone(800 + 20 * i, 0.1 + 0.05 * i)
            yield {"key": f"tone{i}", "wav": wav[None], "sample_rate": 8000, "txt": f"{i}"}
