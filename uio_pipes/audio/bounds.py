"""Bounds for the claims of a header, and for samples. Beyond them a header is damaged, and buffers made for it would
fill the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz
MOST_CHANNELS = 1_024  # libsndfile's own bound


def check_claims(sample_rate: int, channels: int = 1) -> None:
    """Raise DataError ``bad_audio`` if no audio has this sample rate in Hz, or so many channels."""
    if not LOWEST_RATE <= sample_rate <= HIGHEST_RATE:
        raise DataError(
            "bad_audio",
            f"it claims a sample rate of {sample_rate:,} Hz, which must be {LOWEST_RATE:,} to {HIGHEST_RATE:,}: "
            "its header or entry is damaged; make it again",
        )
    if not 1 <= channels <= MOST_CHANNELS:
        raise DataError(
            "bad_audio",
            f"it claims {channels:,} channels, which must be 1 to {MOST_CHANNELS:,}: its header is damaged; "
            "make it again",
        )


def check_finite(samples: npt.NDArray[Any]) -> None:
    """Raise DataError ``nan_audio`` if some samples are NaN or infinite, as only floats can be."""
    if not np.isfinite(samples).all():
        raise DataError("nan_audio", "some samples are not numbers (NaN or infinite): make the audio again")
