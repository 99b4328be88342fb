"""What a training depends on: blocks of settings with defaults, changed by ``--set KEY=VALUE``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..common.alone import TrainingOptions
from ..common.config import OptimConfig, set_key
from ..common.strict import check, read
from .model import Sizes

__all__ = ["Data", "Settings", "settings_of"]


@dataclass(frozen=True)
class Data:
    """From the list to batches of ``batch`` dialogues, or crops of ``seconds`` of those that are longer."""

    seconds: float = 20.0
    batch: int = 16
    window: int = 200  # dialogues of a lane to choose from
    lanes: int = 4  # workers at most; the same batches with any number of them
    num_workers: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = int(name != "num_workers")
            check(value >= least, f"data.{name}", f"{least} or more", value)


@dataclass(frozen=True)
class Settings:
    """All blocks."""

    model: Sizes = field(default_factory=Sizes)
    data: Data = field(default_factory=Data)
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(0.005, 50, "cosine", 0.01, 1.0))
    train: TrainingOptions = field(default_factory=lambda: TrainingOptions(epochs=50))


def settings_of(overrides: Sequence[str]) -> Settings:
    """Return the defaults with overrides like ``train.epochs=3``. Raises: ConfigError."""
    values: dict[str, Any] = {name: dict(vars(getattr(Settings(), name))) for name in ("optim", "train")}
    for text in overrides:
        set_key(values, text)
    return read(Settings, values)
