"""Samples in memory as the waveforms that stages work on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uio_pipes.audio.containers import check_channel, check_finite
from uio_pipes.base.errors import DataError


def as_waveform(wav: torch.Tensor | npt.NDArray[Any], channel: int | None) -> torch.Tensor:
    """Samples in memory as float32 (C, S), or (1, S) of one ``channel``.

    Raises: DataError ``empty_audio``, ``bad_audio``, ``no_such_channel`` or ``nan_audio``.
    """
    if isinstance(wav, np.ndarray):
        wav = np.require(wav, requirements="W")  # a copy of what is read-only, which a tensor must not be
    waveform = torch.as_tensor(wav)
    waveform = waveform if waveform.ndim == 2 else waveform.reshape(1, -1)
    if not waveform.numel():
        raise DataError("empty_audio", "the audio has 0 samples; leave it out")
    if len(waveform) > waveform.shape[1]:
        raise DataError("bad_audio", f"samples must be (S,) or (C, S), not {tuple(waveform.shape)}: transpose them")
    if channel is not None:
        check_channel(channel, len(waveform))
        waveform = waveform[channel : channel + 1]
    if not waveform.is_floating_point():
        return waveform.float() / (torch.iinfo(waveform.dtype).max + 1)
    waveform = waveform.float()
    check_finite(waveform.detach().cpu().numpy())
    return waveform


def in_floats(wav: torch.Tensor | npt.NDArray[Any]) -> torch.Tensor:
    """All channels as float32 (C, S). What is that already stays as it is."""
    waveform = torch.as_tensor(wav)
    ready = waveform.ndim == 2 and waveform.dtype == torch.float32
    return waveform if ready else as_waveform(wav, None)
