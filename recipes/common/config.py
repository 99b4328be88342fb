"""The configuration of an experiment: one YAML file with the blocks ``model``, ``data``, ``optim`` and ``train``.

Every key has a default; ``recipes/aishell/conf/full.yaml`` spells most of them out. An unknown key, or a value of the
wrong kind, is an error that says what is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import yaml

from uio_pipes.io.files import write_lines

from .strict import ConfigError, check, read

__all__ = ["BatchConfig", "Config", "ConfigError", "DataConfig", "ModelConfig", "OptimConfig", "TrainConfig", "set_key"]


def _positive(block: str, config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        check(value > 0, f"{block}.{name}", "above 0", value)


def _share(block: str, config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        check(0 <= value <= 1, f"{block}.{name}", "from 0 to 1", value)


@dataclass(frozen=True)
class ModelConfig:
    """The hybrid CTC/attention model. ``ctc_weight: 1`` means CTC alone, and needs ``decoder_layers: 0``."""

    encoder: Literal["conformer", "transformer"] = "conformer"
    num_mel_bins: int = 80
    cmvn: bool = True  # normalize by DATA/global_cmvn
    channels: int = 256  # of the two convolutions that keep every fourth frame
    dim: int = 256
    heads: int = 4
    feed_forward: int = 2048
    layers: int = 12
    kernel: int = 15  # of the Conformer's convolutions
    decoder_layers: int = 6
    decoder_feed_forward: int = 2048
    dropout: float = 0.1
    ctc_weight: float = 0.3
    label_smoothing: float = 0.1

    def __post_init__(self) -> None:
        names = ("num_mel_bins", "channels", "dim", "heads", "feed_forward", "layers", "kernel", "decoder_feed_forward")
        _positive("model", self, *names)
        _share("model", self, "dropout", "ctc_weight", "label_smoothing")
        check(self.dim % (2 * self.heads) == 0, "model.dim", f"a multiple of 2 × heads ({2 * self.heads})", self.dim)
        check(self.kernel % 2 == 1, "model.kernel", "odd", self.kernel)
        rule = "0 exactly where ctc_weight is 1 (the attention decoder is what the rest of the weight goes to)"
        fits = self.decoder_layers >= 0 and (self.decoder_layers == 0) == (self.ctc_weight == 1)
        check(fits, "model.decoder_layers", rule, self.decoder_layers)


@dataclass(frozen=True)
class BatchConfig:
    """``bucket``: neighbours by length of the ``window`` utterances that are held, in random order, as many as fit into
    ``max_frames``, padding included; at each step alike on all ranks. ``dynamic``: the same budget for utterances as
    they come. ``static``: ``size`` utterances as they come."""

    type: Literal["static", "dynamic", "bucket"] = "bucket"
    size: int = 16
    max_frames: int = 12_000
    window: int = 1_500

    def __post_init__(self) -> None:
        _positive("data.batch", self, "size", "max_frames", "window")


@dataclass(frozen=True)
class SpecAugConfig:
    """Masks of 1 to ``max_t`` frames and 1 to ``max_f`` bins; none if ``num_t_mask`` and ``num_f_mask`` are 0."""

    num_t_mask: int = 2
    num_f_mask: int = 2
    max_t: int = 50
    max_f: int = 10


@dataclass(frozen=True)
class DataConfig:
    """From lists to batches. ``speeds: []`` turns speed perturbation off. ``shuffle`` and ``sort`` are for batches that
    take utterances as they come; 0 keeps the order."""

    sample_rate: int = 16_000
    min_frames: float = 10
    max_frames: float = 4_000
    token_min_length: int = 1
    token_max_length: int = 200
    speeds: tuple[float, ...] = (0.9, 1.0, 1.1)
    dither: float = 0.1
    spec_aug: SpecAugConfig | None = field(default_factory=SpecAugConfig)
    shuffle: int = 0
    sort: int = 0
    batch: BatchConfig = field(default_factory=BatchConfig)
    num_workers: int = 4
    prefetch: int = 4
    lanes: int | None = None  # ranks × workers

    def __post_init__(self) -> None:
        _positive("data", self, "sample_rate", "max_frames", "prefetch")
        for name in ("shuffle", "sort", "num_workers"):
            check(getattr(self, name) >= 0, f"data.{name}", "0 or more", getattr(self, name))
        fits = self.batch.type == "static" or self.batch.max_frames >= self.max_frames
        rule = f"at least data.max_frames ({self.max_frames}), or the longest utterances fit into no batch"
        check(fits, "data.batch.max_frames", rule, self.batch.max_frames)


@dataclass(frozen=True)
class OptimConfig:
    """AdamW. The rate rises to ``learning_rate`` in ``warm_up`` steps, then falls with 1/√step or as a cosine."""

    learning_rate: float = 0.001
    warm_up: int = 25_000
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    weight_decay: float = 0.0001
    clip: float = 5.0  # gradients are clipped to this norm

    def __post_init__(self) -> None:
        _positive("optim", self, "learning_rate", "warm_up", "clip")


@dataclass(frozen=True)
class TrainConfig:
    """The number of epochs, the precision, how often to save, and what to do at uneven ends (see ``uio.Loader``)."""

    seed: int = 777
    epochs: int = 50
    accumulate: int = 1  # batches in an optimizer step
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    uneven: Literal["share", "stop", "join"] = "share"
    save_every: int = 1000  # optimizer steps
    keep: int = 3  # checkpoints
    log_every: int = 100  # optimizer steps

    def __post_init__(self) -> None:
        _positive("train", self, "epochs", "accumulate", "save_every", "keep", "log_every")


@dataclass(frozen=True)
class Config:
    """The whole configuration."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    @classmethod
    def load(cls, path: Path, override: Sequence[str] = ()) -> Config:
        """Read a file; ``override`` holds entries like ``train.epochs=3``. Raises: ConfigError."""
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot read the configuration {path}: {' '.join(str(error).split())}") from error
        try:
            return cls.of(values, override)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def of(cls, values: Any, override: Sequence[str] = ()) -> Config:
        """Make a configuration of a mapping that was read from YAML. Raises: ConfigError."""
        check(
            isinstance(values, dict), "the configuration", f"blocks ({', '.join(f.name for f in fields(cls))})", values
        )
        for text in override:
            set_key(values, text)
        return read(cls, values)

    def save(self, path: Path) -> None:
        """Write all keys, with defaults."""
        plain = yaml.safe_dump(_plain(asdict(self)), sort_keys=False, allow_unicode=True)
        write_lines(path, plain.splitlines())


def set_key(values: dict[str, Any], text: str) -> None:
    """Change ``values`` as a text like ``train.epochs=3`` says. Raises: ConfigError."""
    key, equals, value = text.partition("=")
    *blocks, name = key.strip().split(".")
    check(bool(equals and name and blocks), "an override", "like train.epochs=3", text)
    for block in blocks:
        inner = values.get(block)
        values[block] = values = dict(inner) if isinstance(inner, dict) else {}
    values[name] = yaml.safe_load(value)


def _plain(value: Any) -> Any:
    """Turn tuples into lists: YAML has no tuples."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
