"""A trainer in one process, on a GPU if there is one, that goes on after a kill with the same bits.

A recipe gives its graphs and its model. The model's ``losses(batch)`` returns the sum of the losses of all labels, and
how many labels there are; the loss of a step is their mean. EXP gets ``checkpoints/`` (see ``checkpoint``), and
``tensorboard/`` and ``watch/`` (for ``uio watch EXP``). For several ranks see ``train``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

import uio_pipes as uio

from . import checkpoint
from .config import OptimConfig, set_key
from .ranks import Busy
from .steps import Groups, learning_rate
from .strict import ConfigError, check, read

__all__ = ["PROBLEMS", "Batch", "Blocks", "DataOptions", "Trainer", "TrainingOptions", "with_overrides"]

PROBLEMS = (ConfigError, uio.UioError, Busy, checkpoint.Damaged, OSError)
Batch = dict[str, Any]
Settings = TypeVar("Settings")


@dataclass(frozen=True)
class DataOptions:
    """Batches are the same with any ``num_workers``, of which there are at most ``lanes``."""

    lanes: int = 4
    num_workers: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = int(name != "num_workers")
            check(value >= least, f"data.{name}", f"{least} or more", value)


@dataclass(frozen=True)
class TrainingOptions:
    """``save_every`` and ``log_every``: steps."""

    seed: int = 1
    epochs: int = 10
    save_every: int = 50
    keep: int = 2  # checkpoints
    log_every: int = 20

    def __post_init__(self) -> None:
        for name in ("epochs", "save_every", "keep", "log_every"):
            check(getattr(self, name) >= 1, f"train.{name}", "1 or more", getattr(self, name))


def with_overrides(kind: type[Settings], overrides: Sequence[str]) -> Settings:
    """Return the defaults of the settings with overrides like ``train.epochs=3``. Raises: ConfigError."""
    values: dict[str, Any] = {name: dict(vars(getattr(kind(), name))) for name in ("optim", "train")}
    for text in overrides:
        set_key(values, text)
    return read(kind, values)


class Blocks(Protocol):
    """The settings of a recipe: blocks, which are dataclasses. ``data`` has ``lanes`` and ``num_workers``."""

    @property
    def model(self) -> Any: ...
    @property
    def data(self) -> Any: ...
    @property
    def optim(self) -> OptimConfig: ...
    @property
    def train(self) -> TrainingOptions: ...


class Trainer:
    """Model, optimizer and loaders, at the newest intact checkpoint in ``exp``. Raises: ConfigError, Damaged.

    ``build`` makes the model, after torch's seed has been set.
    """

    def __init__(
        self, exp: Path, settings: Blocks, train: uio.Pipeline, valid: uio.Pipeline, build: Callable[[], nn.Module]
    ) -> None:
        self.exp, self.settings = exp, settings
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.step = self.epoch = 0
        config, seed = settings.data, settings.train.seed
        common: dict[str, Any] = {"lanes": config.lanes, "num_workers": config.num_workers, "seed": seed}
        self.loader = uio.to_device(uio.Loader(train, **common), self.device)
        self.valid_loader = uio.to_device(uio.Loader(valid, **common), self.device)
        torch.manual_seed(seed)
        self.model = build().to(self.device)
        optim = settings.optim
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), optim.learning_rate, (0.9, 0.98), weight_decay=optim.weight_decay
        )
        newest = checkpoint.to_resume(exp)
        if newest is not None:
            self._load(newest)
        checkpoint.clear(exp, newest)

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses of all labels, and how many labels there are."""
        summed: tuple[Tensor, Tensor] = self.model.losses(batch)  # type: ignore[operator]
        return summed

    def epoch_ended(self, loader: uio.Loader, valid: bool) -> None:
        """Look at a loader after its epoch."""

    def _load(self, folder: Path) -> None:
        saved = checkpoint.load_model(folder, self.device)
        before, now = saved["settings"]["model"], asdict(self.settings.model)
        check(before == now, "the block model", f"{before}, as in {self.exp} so far", now)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.epoch = saved["step"], saved["epoch"]
        try:
            self.loader.load_state_dict(checkpoint.load_loader(folder))
        except uio.StateError as error:
            remedy = "give another folder (--out of run.sh, EXP), or the old values"
            raise ConfigError(f"{self.exp} has begun with other settings or data; {remedy}: {error}") from error

    def _save(self, position: dict[str, str], moment: checkpoint.Moment = "") -> None:
        model = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "settings": asdict(self.settings),  # type: ignore[call-overload]
            "step": self.step,
            "epoch": self.epoch,
            "world_size": 1,
        }
        parts = {"model.pt": model, "rank_0.pt": {"loader": position}}
        name = checkpoint.name_of(self.step, moment)
        checkpoint.save(self.exp, name, parts, self.settings.train.keep, first=True, barrier=lambda: None)

    def train(self) -> None:
        """Train to the last epoch, or through."""
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(self.exp / "tensorboard"), purge_step=self.step + 1) as writer:
            began = time.monotonic()
            while self.epoch < self.settings.train.epochs:
                self._train_epoch(writer)
                loss, seconds = self.validate(), time.monotonic() - began
                writer.add_scalar("valid/loss", loss, self.step)
                said = f"epoch {self.epoch} ends at step {self.step}: validation loss {loss:.4f}, {seconds:.0f} s"
                print(said, flush=True)
                self.epoch += 1
                self._save(self.loader.state_dict(), "_end")

    def _train_epoch(self, writer: Any) -> None:
        config = self.settings.train
        self.loader.set_epoch(self.epoch)
        groups = Groups(uio.watch(self.loader, to=self.exp / "watch"), 1)
        while groups.more:
            loss = self.take_step(groups.take()[0])
            writer.add_scalar("train/loss", loss, self.step)
            if self.step % config.log_every == 0:
                print(f"epoch {self.epoch}  step {self.step}  loss {loss:.4f}", flush=True)
            if groups.more and self.step % config.save_every == 0:
                self._save(groups.position)
        self.epoch_ended(self.loader, False)

    def take_step(self, batch: Batch) -> float:
        """Take one optimizer step; return the loss of a label."""
        self.step += 1
        torch.manual_seed(self.settings.train.seed << 32 | self.step)  # dropout draws the same after a resume
        optim = self.settings.optim
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(optim, self.step, self.epoch, self.settings.train.epochs)
        loss, labels = self.losses(batch)
        mean = loss / labels.clamp(min=1)
        torch.autograd.backward(mean)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), optim.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(mean.detach())

    @torch.no_grad()
    def validate(self) -> float:
        """Return the mean loss of all labels of the part for validation."""
        self.valid_loader.set_epoch(self.epoch)
        sums = [self.losses(batch) for batch in self.valid_loader]
        self.epoch_ended(self.valid_loader, True)
        return float(sum(loss for loss, _ in sums) / sum(labels for _, labels in sums))
