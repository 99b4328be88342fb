"""Clipping, hard and soft."""

from __future__ import annotations

import torch


def clip(waveform: torch.Tensor, gain_db: float, hard: bool) -> torch.Tensor:
    """Clip (C, S) as if its peak were ``gain_db`` above full scale, and give the result the input's level.

    Hard: what is above is cut off. Soft: it saturates, full scale · tanh(sample / full scale).
    """
    limit = float(waveform.abs().max()) * 10 ** (-gain_db / 20)
    if not limit:
        return waveform
    return waveform.clamp(-limit, limit) if hard else torch.tanh(waveform / limit) * limit
