"""The reports of a training: a line every N steps, TensorBoard, and a summary at the end. Sums are over all ranks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import uio_pipes as uio

from .ranks import Ranks
from .steps import Losses

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["Report"]


class Report:
    """A collector of figures. Every rank has one, and calls the same methods at the same steps."""

    def __init__(self, exp: Path, ranks: Ranks, loader: uio.Loader, step: int) -> None:
        self.exp, self.ranks, self.loader = exp, ranks, loader
        self.began, self.first_step = time.monotonic(), step
        self.waited = self.trained = 0.0  # seconds, of this run
        self._writer: SummaryWriter | None = None
        if ranks.first:
            from torch.utils.tensorboard import SummaryWriter

            # Steps that a killed run had done after its last checkpoint are done again.
            self._writer = SummaryWriter(str(exp / "tensorboard"), purge_step=step + 1)
        self.begin()

    def begin(self) -> None:
        """Measure from now on: an epoch begins, or a line was written."""
        self._sums: Losses = {}
        self._utterances = 0
        self._stats, self._time = self.loader.stats(), time.monotonic()

    def add(self, sums: Losses, utterances: int) -> None:
        """Add the losses of one step."""
        for name, loss in sums.items():
            self._sums[name] = self._sums.get(name, torch.zeros_like(loss)) + loss
        self._utterances += utterances

    def line(self, step: int, epoch: int, rate: float, norm: Tensor) -> None:
        """Print and write the figures since the last line. All ranks must call it."""
        stats, before = self.loader.stats(), self._stats
        losses = [float(self._sums.get(name, 0.0)) for name in ("loss", "ctc", "attention")]
        seconds = max(time.monotonic() - self._time, 1e-9)  # after the line above, which waits for a GPU
        counts = [stats.frames - before.frames, stats.padded - before.padded, stats.waited - before.waited]
        *totals, utterances, frames, padded, waited = self.ranks.sum([*losses, self._utterances, *counts])
        loss, ctc, attention = (total / max(utterances, 1) for total in totals)
        waiting, padding, speed = (
            waited / self.ranks.world_size / seconds,
            1 - frames / max(padded, 1),
            frames / seconds,
        )
        self.waited += waited / self.ranks.world_size
        self.trained += seconds
        if self._writer is not None:
            print(
                f"epoch {epoch}  step {step}  loss {loss:.2f} (ctc {ctc:.2f}, attention {attention:.2f})  "
                f"lr {rate:.2e}  norm {float(norm):.2f}  frames/s {speed:,.0f}  padding {padding:.1%}  "
                f"waiting {waiting:.1%}",
                flush=True,
            )
            scalars = {
                "train/loss": loss,
                "train/ctc": ctc,
                "train/attention": attention,
                "train/learning_rate": rate,
                "train/gradient_norm": float(norm),
                "speed/frames_per_second": speed,
                "speed/padding_ratio": padding,
                "speed/waiting_share": waiting,
            }
            self._write(scalars | stats.as_dict(), step)
        self.begin()

    def valid(self, epoch: int, step: int, losses: dict[str, float], seconds: float) -> None:
        """Report the validation of an epoch."""
        self._write({f"valid/{name}": loss for name, loss in losses.items()}, step)
        parts = ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items() if name != "loss")
        self.say(f"epoch {epoch} ends at step {step}: validation loss {losses['loss']:.3f} ({parts}), {seconds:.0f} s")
        stats = self.loader.stats()
        if any(stats.left_out):
            self.say(f"epoch {epoch} delivered {stats.delivered_share:.0%} of its utterances at most: see the log")
        self._write(stats.as_dict(), step)

    def _write(self, scalars: dict[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, step)

    def say(self, text: str) -> None:
        """Print a line, on rank 0 only."""
        if self.ranks.first:
            print(text, flush=True)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._writer is not None:
            self._writer.close()

    def summary(self, history: list[dict[str, Any]], step: int) -> None:
        """Print how the training went, and where things are."""
        steps, seconds = step - self.first_step, time.monotonic() - self.began
        waiting = f", waiting for data {self.waited / self.trained:.1%} of the time" if self.trained else ""
        self.say(f"trained {steps} steps in {seconds:.0f} s{waiting}; {len(history)} epochs, {step} steps in all")
        for entry in sorted(history, key=lambda entry: float(entry["valid_loss"]))[:1]:
            self.say(f"best epoch: {entry['epoch']}, validation loss {entry['valid_loss']:.3f}")
        self.say(f"models: {self.exp / 'epochs'}   to go on from: {self.exp / 'checkpoints'}")
        self.say(f"curves: tensorboard --logdir {self.exp / 'tensorboard'}   loaders: uio watch {self.exp}")
