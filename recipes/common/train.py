"""A small DDP trainer around a uio_pipes loader. The same command begins, and goes on after whatever ended it::

    torchrun --nproc_per_node 2 -m recipes.common.train DATA EXP --epochs 8 --num-workers 1

Kill it anywhere and start it again, on other numbers of ranks and workers: it resumes from the newest checkpoint, in
the middle of an epoch, without losing or repeating an utterance (EXP/keys.rank*.log tell, see ``keylog``). NCCL with a
GPU for each local rank, else gloo and CPUs.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
import torch.distributed as dist
import typer
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

import uio_pipes as uio

from . import checkpoint
from .keylog import KeyLog, Run, last_run
from .model import CtcConformer, ctc_loss
from .pipelines import dictionary, train_pipeline

Uneven = Literal["join", "stop", "repeat"]


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    data: Path
    exp: Path
    epochs: int
    num_workers: int
    max_frames: int
    learning_rate: float
    warm_up: int
    save_every: int
    seed: int
    uneven: Uneven
    augment: bool

    def rate(self, step: int, epoch: int) -> float:
        """The learning rate, from position alone: a linear warm-up, then a cosine over the epochs."""
        return self.learning_rate * min(step / self.warm_up, 1.0) * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))


class Trainer:
    """One rank."""

    def __init__(self, options: Options, device: torch.device) -> None:
        self.options, self.device = options, device
        torch.manual_seed(options.seed)  # the same first weights on every rank
        self.loader = uio.Loader(
            train_pipeline(options.data, options.max_frames, options.augment),
            seed=options.seed,
            num_workers=options.num_workers,
            uneven=options.uneven,
            pin_memory=device.type == "cuda",
        )
        network = CtcConformer(dictionary(options.data).vocab_size).to(device)
        self.model = DistributedDataParallel(network)  # in training mode from the start
        self.optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-4)
        self.step = self.epoch = 0
        self.log = self._resume()
        self._said = 0.0

    def _resume(self) -> KeyLog:
        newest, run = checkpoint.newest(self.options.exp), last_run(self.options.exp) + 1
        if newest:
            self._load(checkpoint.load_model(newest, self.device))
            self.loader.load_state_dict(checkpoint.load_loader(newest))
        dist.barrier()  # all have looked, now it may change
        rank = dist.get_rank()
        if rank == 0:
            checkpoint.discard_all_but(self.options.exp, newest)
            if newest:
                print(f"resumed from step {self.step} in epoch {self.epoch}", flush=True)
        dist.barrier()
        about = Run(run, rank, os.getpid(), dist.get_world_size(), self.options.num_workers, self.step)
        return KeyLog(self.options.exp, about)

    def _load(self, saved: dict[str, Any]) -> None:
        self.model.module.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.epoch = saved["step"], saved["epoch"]

    def train(self) -> None:
        """To the last epoch."""
        while self.epoch < self.options.epochs:
            self.loader.set_epoch(self.epoch)
            join = self.model.join() if self.options.uneven == "join" else contextlib.nullcontext()
            with join:
                for batch in self.loader:
                    loss = self._train_step(batch)
                    self.log.write(self.epoch, self.step, batch["keys"])
                    self._say(loss)
                    if self.step % self.options.save_every == 0:
                        self._save(writer=dist.get_rank() == 0)
            self._end_epoch()
        self.log.close()

    def _train_step(self, batch: dict[str, Any]) -> Tensor:
        self.step += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.rate(self.step, self.epoch)
        names = ("feats", "feats_lengths", "target", "target_lengths")
        feats, lengths, target, target_lengths = (batch[name].to(self.device, non_blocking=True) for name in names)
        log_probs, lengths = self.model(feats, lengths)
        loss = ctc_loss(log_probs, lengths, target, target_lengths)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        return loss.detach()

    def _save(self, writer: bool) -> None:
        """Save this rank's positions, and as ``writer`` the model. No rank waits for another (see ``checkpoint``)."""
        folder = checkpoint.folder_of(self.options.exp, self.step)
        checkpoint.save_loader(folder, self.loader)
        if writer:
            state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            checkpoint.save(folder / "model.pt", {**state, "step": self.step, "epoch": self.epoch})
            checkpoint.prune(self.options.exp)

    def _end_epoch(self) -> None:
        """All ranks meet. Under join, those that ended early have old optimizers: they take over the last one's."""
        counts = [torch.zeros(1, dtype=torch.long, device=self.device) for _ in range(dist.get_world_size())]
        dist.all_gather(counts, torch.tensor([self.step], device=self.device))
        steps = [int(count) for count in counts]
        behind, self.step = self.step < max(steps), max(steps)
        self.epoch += 1
        self._save(writer=dist.get_rank() == steps.index(self.step))
        dist.barrier()
        if behind:
            folder = checkpoint.folder_of(self.options.exp, self.step)
            self._load(checkpoint.load_model(folder, self.device))

    def _say(self, loss: Tensor) -> None:
        """A line every three seconds."""
        now = time.monotonic()
        if dist.get_rank() == 0 and now - self._said > 3:
            self._said = now
            print(f"epoch {self.epoch:2d}/{self.options.epochs}  step {self.step:5d}  loss {loss:7.2f}", flush=True)


def main(
    data: Annotated[Path, typer.Argument(help="Folder that `prepare` wrote.")],
    exp: Annotated[Path, typer.Argument(help="Folder for checkpoints and logs.")],
    epochs: int = 6,
    num_workers: Annotated[int, typer.Option(help="Worker processes for each rank.")] = 1,
    max_frames: Annotated[int, typer.Option(help="Padded frames in a batch of one rank.")] = 750,
    learning_rate: float = 1e-3,
    warm_up: Annotated[int, typer.Option(help="Steps to the full learning rate.")] = 100,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 10,
    seed: int = 777,
    uneven: Annotated[str, typer.Option(help="join, stop or repeat: what ranks do at uneven ends.")] = "join",
    augment: Annotated[bool, typer.Option(help="Perturb speeds, mask features: for real speech.")] = False,
) -> None:
    """Train a small CTC Conformer; goes on from the newest checkpoint in EXP."""
    gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    exp.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("nccl" if gpus else "gloo")
    policy = cast("Uneven", uneven)  # the loader checks it
    options = Options(
        data, exp, epochs, num_workers, max_frames, learning_rate, warm_up, save_every, seed, policy, augment
    )
    Trainer(options, device).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
