"""What a training depends on: blocks of settings with defaults, changed by ``--set KEY=VALUE``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ..common.alone import DataOptions, TrainingOptions, with_overrides
from ..common.config import OptimConfig
from .model import Sizes

__all__ = ["Data", "Settings", "settings_of"]


@dataclass(frozen=True)
class Data(DataOptions):
    """From the list to batches of ``batch`` dialogues, or crops of ``seconds`` of those that are longer."""

    seconds: float = 20.0
    batch: int = 16
    window: int = 200  # dialogues of a lane to choose from


@dataclass(frozen=True)
class Settings:
    """All blocks."""

    model: Sizes = field(default_factory=Sizes)
    data: Data = field(default_factory=Data)
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(0.005, 50, "cosine", 0.01, 1.0))
    train: TrainingOptions = field(default_factory=lambda: TrainingOptions(epochs=50))


settings_of = partial(with_overrides, Settings)
