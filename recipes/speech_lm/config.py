"""What a training depends on: blocks of settings with defaults for the mini corpus, changed by ``--set KEY=VALUE``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ..common.alone import DataOptions, TrainingOptions, with_overrides
from ..common.config import OptimConfig
from .model import Sizes

__all__ = ["Data", "Settings", "Train", "settings_of"]


@dataclass(frozen=True)
class Data(DataOptions):
    """From the list to packed rows. A batch has ``rows`` rows of ``max_tokens`` places."""

    max_tokens: int = 256
    rows: int = 3
    window: int = 100  # utterances of a lane to choose from


@dataclass(frozen=True)
class Train(TrainingOptions):
    """``packed: false``: the same batches, but a row for each utterance."""

    packed: bool = True


@dataclass(frozen=True)
class Settings:
    """All blocks."""

    model: Sizes = field(default_factory=Sizes)
    data: Data = field(default_factory=Data)
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(0.002, 100, "cosine", 0.01, 1.0))
    train: Train = field(default_factory=Train)


settings_of = partial(with_overrides, Settings)
