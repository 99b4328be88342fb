"""Bounds for the claims of a header, and for samples. Beyond them a header is damaged, and buffers made for it would
fill the memory; so would the samples of a recording of many hours, of which half a megabyte of FLAC can hold three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from uio_pipes.base.errors import DataError

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz
MOST_CHANNELS = 1_024  # libsndfile's own bound
LONGEST = 3600.0  # seconds that are decoded for one utterance, unless its stage says otherwise
_longest = ContextVar("longest", default=LONGEST)


@contextmanager
def decoding_at_most(seconds: float | None) -> Iterator[None]:
    """Within it so many seconds may be decoded for one utterance; None: any number."""
    before = _longest.set(inf if seconds is None else seconds)
    try:
        yield
    finally:
        _longest.reset(before)


def check_longest(samples: int, sample_rate: int) -> None:
    """Raise DataError ``too_long_to_decode`` if so many samples are not to be decoded for one utterance."""
    if samples > _longest.get() * sample_rate:
        raise DataError(
            "too_long_to_decode",
            f"{samples / sample_rate:,.0f} s would be decoded for one utterance, and the bound is {_longest.get():,.0f}"
            " s: cut it into segments, leave it out by its length (.filter(max_frames=…)), or raise the bound with "
            ".decode_audio(longest=…)",
        )


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


def check_channel(channel: int | None, channels: int) -> None:
    """Raises: DataError ``no_such_channel``."""
    if channel is not None and not 0 <= channel < channels:
        there = "number 0" if channels == 1 else f"numbers 0 to {channels - 1}"
        raise DataError(
            "no_such_channel",
            f"channel {channel} is wanted, the audio has {channels}, {there}: correct the channel in the stage or the "
            "segment that names it, or leave it out there",
        )
