"""Optimizer steps: groups of batches, and the step on one group."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import uio_pipes as uio
from uio_pipes.inspect.watch import Watched

from .config import Config, OptimConfig
from .model import AsrModel

__all__ = ["Batch", "Groups", "Losses", "Stepper", "learning_rate"]

Batch = dict[str, Any]
Losses = dict[str, Tensor]
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_INPUTS = ("feats", "feats_lengths", "target", "target_lengths")


class Groups:
    """The batches of an epoch in groups of ``size``; the last group may be smaller.

    It is always one batch ahead, to know which group is the last. ``position`` is the loader's state after the last
    group that was taken, without the batch ahead.
    """

    def __init__(self, loader: uio.Loader | Watched, size: int) -> None:
        self._loader, self._size = loader, size
        self.position = loader.state_dict()
        self._batches = iter(loader)
        self._ahead: Batch | None = next(self._batches, None)

    @property
    def more(self) -> bool:
        """True if there is another group."""
        return self._ahead is not None

    def take(self) -> list[Batch]:
        """Return the next group; an empty one after the last."""
        group: list[Batch] = []
        while self._ahead is not None and len(group) < self._size:
            group.append(self._ahead)
            self.position = self._loader.state_dict()
            self._ahead = next(self._batches, None)
        return group


def learning_rate(config: OptimConfig, step: int, epoch: int, epochs: int) -> float:
    """Return the rate at a step: up for ``warm_up`` steps, then down with 1/√step, or as a cosine over the epochs."""
    if config.schedule == "cosine":
        return config.learning_rate * min(step / config.warm_up, 1) * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
    return config.learning_rate * min(step / config.warm_up, math.sqrt(config.warm_up / step))


class Stepper:
    """Model, optimizer and scaler of one rank."""

    def __init__(self, model: AsrModel, config: Config, device: torch.device) -> None:
        self.config, self.device, self.plain = config, device, model.to(device)
        self.dtype = _DTYPES[config.train.precision]
        # The model's buffers never change, so they need not be sent around before each step.
        constant = [name for name, _ in self.plain.named_buffers()]
        ignore: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
        ignore(self.plain, constant)
        self.model = DistributedDataParallel(self.plain, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(
            self.plain.parameters(),
            lr=config.optim.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=config.optim.weight_decay,
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=config.train.precision == "fp16")
        self._settle()

    def _settle(self) -> None:
        """Run one backward pass for nothing. After its first pass DDP puts gradients into other buckets, and sums over
        more than two ranks then come in another order: a resumed run must not start with the first buckets."""
        self._backward(self.nothing(), 0.0)
        self.optimizer.zero_grad()

    def nothing(self) -> Batch:
        """Return a tiny batch, for ranks that have no more."""
        return {
            "feats": torch.zeros(1, 16, self.config.model.num_mel_bins),
            "feats_lengths": torch.tensor([16], dtype=torch.int32),
            "target": torch.ones(1, 1, dtype=torch.int64),
            "target_lengths": torch.tensor([1], dtype=torch.int32),
        }

    def step(self, group: list[Batch], rate: float) -> tuple[Losses, Tensor]:
        """Take one optimizer step; return sums of the losses over the utterances, and the norm of the gradients.

        A rank without batches steps with zero gradients until the last rank has no more, like ``model.join()``, but
        with the same optimizer on every rank.
        """
        for settings in self.optimizer.param_groups:
            settings["lr"] = rate
        sums: Losses = {}
        for batch in group[:-1]:
            with self.model.no_sync():
                _add(sums, self._backward(batch, 1 / len(group)), batch)
        if group:
            _add(sums, self._backward(group[-1], 1 / len(group)), group[-1])
        else:
            self._backward(self.nothing(), 0.0)
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.plain.parameters(), self.config.optim.clip)
        if self.scaler.is_enabled() or norm.isfinite():  # one infinite gradient would end everything
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()
        return sums, norm.detach()

    def _backward(self, batch: Batch, weight: float) -> Losses:
        with self._precision():
            losses: Losses = self.model(*self._inputs(batch))
        torch.autograd.backward(self.scaler.scale(losses["loss"] * weight))
        return {name: loss.detach() for name, loss in losses.items()}

    @torch.no_grad()
    def losses(self, batch: Batch) -> Losses:
        """Return the sums of the losses over the utterances of ``batch``; take no optimizer step."""
        sums: Losses = {}
        with self._precision():
            _add(sums, self.plain(*self._inputs(batch)), batch)
        return sums

    def _inputs(self, batch: Batch) -> Iterator[Tensor]:
        return (batch[name].to(self.device, non_blocking=True) for name in _INPUTS)

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of model, optimizer and scaler."""
        return {
            "model": self.plain.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
        self.plain.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:  # empty: the run had no scaler
            self.scaler.load_state_dict(state["scaler"])


def _add(sums: Losses, losses: Losses, batch: Batch) -> None:
    count = len(batch["keys"])
    for name, loss in losses.items():
        sums[name] = sums.get(name, torch.zeros_like(loss, dtype=torch.float64)) + loss.double() * count
