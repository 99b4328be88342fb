"""Tones in place of recordings: for the example folder where nothing can be spoken, and for the contract tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tones", "tone", "toned"]

SECONDS = 0.25  # of a character
FADE = 0.02  # seconds in which a tone rises, and falls
LOWEST, STEPS, STEP = 180.0, 97, 1.03  # Hz; how many heights, and the ratio of neighbours


def tone(samples: int, step: float) -> NDArray[np.float32]:
    """A sine that goes ``step`` radians a sample; in [-1, 1]."""
    wave: NDArray[np.float32] = np.sin(np.arange(samples, dtype=np.float32) * step)
    return wave


def toned(text: str, rate: int, pitch: float = 1.0) -> NDArray[np.float32]:
    """A text as tones, one for each character and always the same for the same character; ``pitch`` raises all."""
    samples, fade = round(SECONDS * rate), round(FADE * rate)
    envelope = np.clip(np.minimum(np.arange(samples), np.arange(samples)[::-1]) / fade, 0, 1).astype(np.float32)
    steps = (2 * np.pi * pitch * LOWEST * STEP ** (ord(character) % STEPS) / rate for character in text)
    return np.concatenate([np.zeros(0, np.float32), *(tone(samples, step) * envelope for step in steps)])


class Tones:
    """Thirty short tones of rising length: the contract tests' utterances."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for i in range(30):
            wav = tone(800 + 20 * i, 0.1 + 0.05 * i)
            yield {"key": f"tone{i}", "wav": wav[None], "sample_rate": 8000, "txt": f"{i}"}
