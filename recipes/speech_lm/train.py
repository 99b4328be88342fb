"""Train on packed rows, in one process; the same command starts a training and continues one, bit by bit::

    python -m recipes.speech_lm.train DATA EXP --set train.epochs=10

DATA is what stages 0 to 3 of an ASR recipe wrote. EXP gets ``checkpoints/`` (see ``recipes.common.checkpoint``) and
``tensorboard/`` and ``watch/`` (for ``uio watch EXP``). The loss of a step is the mean over all labels of its batch.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import uio_pipes as uio

from ..common import checkpoint
from ..common.experiment import read_tokenizer
from ..common.problems import told
from ..common.ranks import Busy, hold
from ..common.steps import Groups, learning_rate
from ..common.strict import ConfigError, check
from .config import Settings, settings_of
from .data import one_a_row, pipeline
from .model import SpeechLM

__all__ = ["PROBLEMS", "Trainer", "main", "train"]

PROBLEMS = (ConfigError, uio.UioError, Busy, checkpoint.Damaged, OSError)


class Trainer:
    """Model, optimizer and loaders, at the newest intact checkpoint in ``exp``. Raises: ConfigError, Damaged."""

    def __init__(self, data: Path, exp: Path, settings: Settings) -> None:
        self.exp, self.settings = exp, settings
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.step = self.epoch = 0
        config, seed = settings.data, settings.train.seed
        common: dict[str, Any] = {"lanes": config.lanes, "num_workers": config.num_workers, "seed": seed}
        self.loader = uio.to_device(uio.Loader(pipeline(data, "train", settings, shuffle=True), **common), self.device)
        self.valid_loader = uio.to_device(uio.Loader(pipeline(data, "dev", settings), **common), self.device)
        torch.manual_seed(seed)
        self.model = SpeechLM(settings.model, read_tokenizer(data / "dict").vocab_size).to(self.device)
        optim = settings.optim
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), optim.learning_rate, (0.9, 0.98), weight_decay=optim.weight_decay
        )
        newest = checkpoint.to_resume(exp)
        if newest is not None:
            self._load(newest)
        checkpoint.clear(exp, newest)

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
            "settings": asdict(self.settings),
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
        self._check_rows(self.loader, "train")

    def take_step(self, batch: dict[str, Any]) -> float:
        """Take one optimizer step; return the loss of a label."""
        self.step += 1
        optim = self.settings.optim
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(optim, self.step, self.epoch, self.settings.train.epochs)
        loss, labels = self.model.losses(self._prepared(batch))
        mean = loss / labels.clamp(min=1)
        torch.autograd.backward(mean)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), optim.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(mean.detach())

    @torch.no_grad()
    def validate(self) -> float:
        """Return the mean loss of all labels of dev."""
        self.valid_loader.set_epoch(self.epoch)
        sums = [self.model.losses(self._prepared(batch)) for batch in self.valid_loader]
        self._check_rows(self.valid_loader, "dev")
        return float(sum(loss for loss, _ in sums) / sum(labels for _, labels in sums))

    def _check_rows(self, loader: uio.Loader, part: str) -> None:
        """Tell how many utterances of the epoch were longer than a row."""
        stats, rows = loader.stats(), f"a row of data.max_tokens={self.settings.data.max_tokens}"
        dropped = stats.skipped.get("overflow", 0)
        if dropped:
            print(f"epoch {self.epoch}: {dropped} utterances of {part} are longer than {rows}: left out", flush=True)

    def _prepared(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch if self.settings.train.packed else one_a_row(batch)


def train(data: Path, exp: Path, settings: Settings) -> None:
    """Train, or continue, in the folder ``exp``. Raises: any of ``PROBLEMS``."""
    with hold(exp):
        Trainer(data, exp, settings).train()


def main(
    data: Annotated[Path, typer.Argument(help="Folder that stages 0 to 3 of an ASR recipe wrote.")],
    exp: Annotated[Path, typer.Argument(help="Folder for the experiment.")],
    override: Annotated[list[str] | None, typer.Option("--set", help="Like train.epochs=3; repeat for more.")] = None,
) -> None:
    """Train a speech language model to transcribe; continue from the newest intact checkpoint in EXP."""
    with told(*PROBLEMS):
        train(data, exp, settings_of(override or ()))


if __name__ == "__main__":
    typer.run(main)
