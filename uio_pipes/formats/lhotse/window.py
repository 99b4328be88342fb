"""The part of a recording that a cut has, in samples, and how audio is fitted to what its manifest says."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from uio_pipes.base.errors import DataError
from uio_pipes.formats.lhotse.times import samples_in
from uio_pipes.formats.lhotse.transforms import Span

if TYPE_CHECKING:
    import torch

_TOLERANCE = 0.025  # seconds that a file may be longer or shorter than its manifest says, as in Lhotse
_WHOLE = 0.001  # seconds: by less than that, a cut is all of its recording


class Window(NamedTuple):
    """A part of a recording, in samples."""

    first: int
    samples: int


def is_whole(samples: int, total: int, rate: int) -> bool:
    """Return whether so many samples of a recording are all of it."""
    return abs(samples - total) < _WHOLE * rate


def window_of(manifest: Mapping[str, Any], start: float, duration: float | None) -> Window | None:
    """Return the part of a recording that a cut has; None if that is all of it."""
    rate, samples = manifest["sampling_rate"], manifest["num_samples"]
    first = samples_in(start, rate)
    count = samples - first if duration is None else samples_in(duration, rate)
    if first == 0 and is_whole(count, samples, rate):
        return None
    if count <= 0:
        raise DataError("bad_segment", f"the cut, {duration} s from {start} s on, is empty")
    return Window(first, count)


def times(window: Window | None, rate: int) -> dict[str, float]:
    """Return ``start`` and ``end`` of a window in seconds; none of a whole recording."""
    return {} if window is None else {"start": window.first / rate, "end": (window.first + window.samples) / rate}


def bounds(span: Span, rate: int) -> tuple[float | None, float | None]:
    """Return begin and end of a span in seconds, those of whole samples; None: not cut there."""
    begin, duration = span
    first = samples_in(begin, rate)
    if duration is None:
        return (first / rate if first else None), None
    return first / rate, (first + samples_in(duration, rate)) / rate


def fitted(waveform: torch.Tensor, count: int, rate: int) -> torch.Tensor:
    """Return ``count`` samples: what is too much is cut off, what is missing is mirrored. Raises: DataError."""
    more = count - waveform.shape[1]
    if more == 0:
        return waveform
    fits(waveform.shape[1], count, rate)
    if more < 0:
        return waveform[:, :count]
    import torch

    return torch.nn.functional.pad(waveform[None], (0, more), mode="reflect")[0]


def fits(samples: int, told: int, rate: int) -> None:
    """Raises: DataError ``length_mismatch`` if audio differs by more than 25 ms from the length in its manifest."""
    if abs(samples - told) > ceil(_TOLERANCE * rate) or 2 * samples <= told:
        message = f"the audio has {samples} samples, the manifest says {told}: make the manifest anew"
        raise DataError("length_mismatch", message)
