"""A DDP trainer around a uio_pipes loader. The same command starts a training and continues one::

    torchrun --nproc_per_node 2 -m recipes.common.train DATA EXP --config recipes/aishell/conf/mini.yaml
    torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint HOST:29400 -m recipes.common.train …

Kill it anywhere and start it again, on other numbers of ranks and workers too: it resumes from the newest intact
checkpoint, in the middle of an epoch. On the same number of ranks the weights are the same, bit by bit. On SIGTERM, or
when torchrun is killed, it saves first and exits with 143. Two trainings cannot run in one folder. It uses NCCL if
there is a GPU for each local rank, otherwise gloo and CPUs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import uio_pipes as uio
from uio_pipes.base.hashing import stable_hash
from uio_pipes.base.urls import plural
from uio_pipes.run.state import Meta, read_meta

from . import checkpoint, experiment
from .config import Config, ConfigError
from .data_types import list_of
from .keylog import KeyLog, Run, last_run
from .pipelines import train_pipeline, valid_pipeline
from .ranks import SIGTERM_STATUS, Busy, Ranks, hold, let_first_speak, process_group
from .report import Report
from .steps import Batch, Groups, Stepper, learning_rate

__all__ = ["Trainer", "main"]

VALID_BATCHES = 4  # of each rank, between two looks for a signal
_KNOWN = (ConfigError, uio.UioError, Busy, checkpoint.Damaged, OSError, MemoryError)


class Trainer:
    """One rank. All ranks are always at the same step."""

    def __init__(self, config: Config, exp: Path, ranks: Ranks, train: uio.Pipeline, valid: uio.Pipeline) -> None:
        self.config, self.exp, self.ranks = config, exp, ranks
        self.step = self.epoch = 0
        self.trained = False  # the epoch's steps are done, its validation is not
        self.history: list[dict[str, Any]] = []
        data, seed = config.data, config.train.seed
        common: dict[str, Any] = {
            "seed": seed,
            "num_workers": data.num_workers,
            "prefetch_factor": data.prefetch,
            "pin_memory": ranks.device.type == "cuda",
        }
        self.loader = uio.Loader(train, uneven=config.train.uneven, lanes=data.lanes, **common)
        self.valid_loader = uio.Loader(valid, uneven="join", **common)  # every utterance once, whichever rank has it
        torch.manual_seed(seed)  # the same first weights on every rank
        self.stepper = Stepper(experiment.build_model(exp, config), config, ranks.device)
        self._resume()
        self.report = Report(exp, ranks, self.loader, self.step)
        self.keys: KeyLog | None = None

    def _resume(self) -> None:
        newest = self.ranks.from_first(lambda: checkpoint.to_resume(self.exp))
        torch.manual_seed(stable_hash(self.config.train.seed, "dropout", self.ranks.rank) >> 1)
        if newest:
            self._load(newest)
        self.ranks.barrier()  # all have read, now it may change
        if self.ranks.first:
            checkpoint.clear(self.exp, newest)
            where = f"resumes from {newest}: step {self.step}, epoch {self.epoch}" if newest else "begins"
            print(f"{self.exp} {where}; {self.ranks.world_size} ranks on {self.ranks.device.type}", flush=True)

    def _load(self, folder: Path) -> None:
        saved = checkpoint.load_model(folder, torch.device("cpu"))
        self.stepper.load_state_dict(saved)
        schedule, self.history = saved["schedule"], saved["history"]
        self.step, self.epoch, self.trained = schedule["step"], schedule["epoch"], schedule.get("trained", False)
        state = checkpoint.load_loader(folder)
        self._check_lanes(read_meta(state))
        self.loader.load_state_dict(state)
        if saved["world_size"] == self.ranks.world_size:
            _set_random_states(checkpoint.load_rank(folder, self.ranks.rank)["random"], self.ranks.device)
        else:
            torch.manual_seed(stable_hash(self.config.train.seed, "dropout", self.ranks.rank, self.step) >> 1)

    def _check_lanes(self, meta: Meta) -> None:
        under_way = meta.epoch == self.epoch and not self.trained
        if under_way and self.ranks.world_size > meta.lanes:
            raise ConfigError(
                f"the checkpoint's epoch was dealt to {plural(meta.lanes, 'lane')}; go on with at most "
                f"{plural(meta.lanes, 'rank')} "
                f"until that epoch ends, not {self.ranks.world_size}, or set data.lanes for new experiments"
            )

    def log_keys(self) -> None:
        """Note the keys of each step (see ``keylog``)."""
        run = self.ranks.from_first(lambda: last_run(self.exp) + 1)
        workers = self.config.data.num_workers
        about = Run(run, self.ranks.rank, os.getpid(), self.ranks.world_size, workers, self.step)
        self.keys = KeyLog(self.exp, about)

    def train(self) -> bool:
        """Train up to the last epoch. Returns False if a signal came before."""
        finished = True
        while finished and self.epoch < self.config.train.epochs:
            finished = (self.trained or self._train_epoch()) and self._end_epoch()
        if finished:
            self.report.summary(self.history, self.step)
        else:
            moment = ", before its validation" if self.trained else ""
            self.report.say(f"SIGTERM: saved at step {self.step}, epoch {self.epoch}{moment}; the same command goes on")
        self.report.close()
        return finished

    def _train_epoch(self) -> bool:
        """Take all steps of the epoch. Returns False if a signal came before."""
        self.loader.set_epoch(self.epoch)
        groups = Groups(uio.watch(self.loader, to=self.exp / "watch"), self.config.train.accumulate)
        goes_on, stop = self.ranks.agree(groups.more).wait()
        self.report.begin()
        while goes_on and not stop:
            group = groups.take()
            agreement = self.ranks.agree(groups.more)
            self._step(group)
            goes_on, stop = agreement.wait()
            if goes_on and (stop or self.step % self.config.train.save_every == 0):
                self._save(groups.position)
        if not goes_on:
            self.trained = True
            self._save(self.loader.state_dict(), "_dev")
        return not goes_on

    def _step(self, group: list[Batch]) -> None:
        self.step += 1
        config = self.config
        rate = learning_rate(config.optim, self.step, self.epoch, config.train.epochs)
        losses, norm = self.stepper.step(group, rate)
        self.report.add(losses, sum(len(batch["keys"]) for batch in group))
        if self.step % config.train.log_every == 0:
            self.report.line(self.step, self.epoch, rate, norm)
        if self.keys is not None:
            self.keys.write(self.epoch, self.step, [key for batch in group for key in batch["keys"]])

    def _end_epoch(self) -> bool:
        """Validate, and write the epoch's model. Returns False if a signal came before."""
        began = time.monotonic()
        losses = self._validate()
        if losses is None:
            return False
        self.report.valid(self.epoch, self.step, losses, time.monotonic() - began)
        about = {"epoch": self.epoch, "step": self.step, "valid_loss": losses["loss"]}
        if self.ranks.first:
            path = self.exp / "epochs" / f"epoch_{self.epoch:03d}.pt"
            checkpoint.write(path, {"model": self.stepper.plain.state_dict(), **about})
        self.history = [*self.history, about]
        self.epoch, self.trained = self.epoch + 1, False
        self._save(self.loader.state_dict(), "_end")
        return True

    def _validate(self) -> dict[str, float] | None:
        """Return mean losses over all utterances, the same on every rank; None if a signal came before."""
        self.stepper.plain.eval()
        self.valid_loader.set_epoch(self.epoch)
        sums, count = {name: torch.zeros((), dtype=torch.float64) for name in ("loss", "ctc", "attention")}, 0
        batches, goes_on, stop = iter(self.valid_loader), True, False
        while goes_on and not stop:
            left = VALID_BATCHES
            for batch in islice(batches, VALID_BATCHES):
                for name, loss in self.stepper.losses(batch).items():
                    sums[name] = sums[name] + loss.to(sums[name].device)
                count += len(batch["keys"])
                left -= 1
            goes_on, stop = self.ranks.agree(not left).wait()
        self.stepper.plain.train()
        if goes_on:
            return None
        *totals, utterances = self.ranks.sum([*map(float, sums.values()), count])
        return {name: total / max(utterances, 1) for name, total in zip(sums, totals, strict=True)}

    def _save(self, position: dict[str, str], moment: checkpoint.Moment = "") -> None:
        """Write a checkpoint; all ranks do it together."""
        random = _random_states(self.ranks.device)
        parts: dict[str, Any] = {f"rank_{self.ranks.rank}.pt": {"loader": position, "random": random}}
        if self.ranks.first:
            parts["model.pt"] = {
                **self.stepper.state_dict(),
                "schedule": {"step": self.step, "epoch": self.epoch, "trained": self.trained},
                "history": self.history,
                "world_size": self.ranks.world_size,
            }
        name = checkpoint.name_of(self.step, moment)
        checkpoint.save(self.exp, name, parts, self.config.train.keep, self.ranks.first, self.ranks.barrier)


def _random_states(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_states(states: dict[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def main(
    data: Annotated[Path, typer.Argument(help="Folder that stages 0 to 3 wrote.")],
    exp: Annotated[Path, typer.Argument(help="Folder for the experiment.")],
    config: Annotated[Path, typer.Option(help="YAML: see recipes/common/config.py.")],
    data_type: Annotated[str, typer.Option(help="raw, shard or indexed.")] = "shard",
    train_data: Annotated[str, typer.Option(help="List, glob or URL instead of DATA/train's list.")] = "",
    cv_data: Annotated[str, typer.Option(help="List, glob or URL instead of DATA/dev's list.")] = "",
    override: Annotated[list[str] | None, typer.Option("--set", help="Like train.epochs=3; repeat for more.")] = None,
    log_keys: Annotated[bool, typer.Option(help="Log the utterances of each step.")] = False,
) -> None:
    """Train a hybrid CTC/attention model; continue from the newest intact checkpoint in EXP."""
    first = os.environ.get("RANK", "0") == "0"
    with _errors_told_once():
        settings = Config.load(config, override or ())
        lists = [train_data or list_of(data, "train", data_type), cv_data or list_of(data, "dev", data_type)]
        with hold(exp) if first else contextlib.nullcontext():
            if first:
                experiment.set_up(exp, data, settings)
            with process_group() as ranks, _errors_told_once():
                finished = _train(settings, exp, ranks, lists, data_type, log_keys)
    raise typer.Exit(0 if finished else SIGTERM_STATUS)


def _train(config: Config, exp: Path, ranks: Ranks, lists: list[str], data_type: str, log_keys: bool) -> bool:
    ranks.barrier()
    tokenizer = experiment.read_tokenizer(exp)
    train, valid = (
        graph(config, tokenizer, path, data_type)
        for graph, path in zip((train_pipeline, valid_pipeline), lists, strict=True)
    )
    trainer = Trainer(config, exp, ranks, train, valid)
    if log_keys:
        trainer.log_keys()
    return trainer.train()


@contextlib.contextmanager
def _errors_told_once() -> Iterator[None]:
    """Report a known problem in one line; if all ranks have it, on rank 0 only. This happens while connections stand,
    so that a problem of one rank does not look like a broken connection on the others."""
    try:
        yield
    except _KNOWN as error:
        let_first_speak()
        typer.echo(f"rank {os.environ.get('RANK', '0')}: {str(error) or type(error).__name__}", err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
