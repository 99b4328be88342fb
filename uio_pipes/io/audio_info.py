"""The length of audio, as its header or an index gives it. References to bytes carry it, hence it stands this low."""

from __future__ import annotations

from typing import NamedTuple


class AudioInfo(NamedTuple):
    """Length, rate and channels of a recording; ``samples`` are counted per channel."""

    samples: int
    sample_rate: int
    channels: int
