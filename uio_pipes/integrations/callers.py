"""Mistakes that can be detected only from the caller of a loader: Accelerate, or Hugging Face's ``Trainer``.

Without these checks data would be lost, or trained on again, in silence. They read variables of the callers: names
that no documentation promises. Neither package is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from math import ceil
from types import FrameType
from typing import Any

from uio_pipes.base.errors import PipelineError
from uio_pipes.run.loader import ON_SET_EPOCH, Loader


def check_dealt_once(world_size: int) -> None:
    """Raises: PipelineError if what asks for the data deals it to processes, though it is the share of a rank."""
    if world_size > 1 and (processes := _dealt_to()) > 1:
        raise PipelineError(
            f"as_dataset: the dataset gives each of {world_size} ranks its share, and Accelerate (accelerator.prepare, "
            f"the Trainer) deals that share to {processes} processes again, so most of the data would be lost. "
            "Use as_dataset(partition=False), so that only Accelerate distributes it (if the pipeline makes batches, "
            "with dispatch_batches=False), or use a uio.Loader and do not prepare it"
        )


def _dealt_to() -> int:
    """Return to how many processes a caller deals what it gets, whatever stands between it and us; 1 if none does."""
    for names in _callers("accelerate.data_loader", "transformers.trainer_pt_utils"):
        dealer: Any = names.get("self")
        if type(dealer).__name__ == "IterableDatasetShard":
            return int(dealer.num_processes)
        if type(dealer).__name__ == "DataLoaderDispatcher":
            return int(dealer.state.num_processes)
    return 1


def _callers(*modules: str) -> Iterator[Mapping[str, Any]]:
    """Give the variables of each caller in these modules. To look at others would keep what their variables hold."""
    frame: FrameType | None = sys._getframe()
    while (frame := frame.f_back if frame is not None else None) is not None:
        if frame.f_globals.get("__name__") in modules:
            yield frame.f_locals


def check_resumed(loader: Loader, epoch: int) -> None:
    """Raises: PipelineError if it is a Trainer on this ``loader`` that resumes in ``epoch``, and the loader would give
    what it had before."""
    at, received = loader.epoch, loader._progress.received
    for names in _callers("transformers.trainer"):
        trainer: Any = names.get("self")
        steps = names.get("num_update_steps_per_epoch")
        resumed = names.get("resume_from_checkpoint") and names.get("train_dataloader") is loader
        if not (steps and resumed and names.get("epochs_trained") == epoch):
            continue
        step: int = trainer.state.global_step
        begun = loader._options.in_steps and epoch > at and not received  # the next stretch of the stream
        if (epoch != at or not received) if step % steps else begun:
            raise PipelineError(
                f"the Trainer resumes at step {step}, in epoch {epoch}, but the loader is at batch {received} of "
                f"epoch {at}, so batches would be repeated. uio.HFTrainerMixin saves and loads the loader's state with "
                "each checkpoint (docs/trainers.md); without it, load what loader.state_dict() returned at that step, "
                "and let steps_per_epoch= tell the Trainer the length of an epoch"
            )


ON_SET_EPOCH.append(check_resumed)


def check_continued(epoch: int) -> None:
    """Raises: PipelineError if it is a Trainer that resumes in a later epoch and begins with ``epoch`` instead.

    Of a dataset without a length it expects that one epoch has all its steps. Then it passes over too much of the
    first one, and trains again on what came after that.
    """
    for names in _callers("transformers.trainer"):
        if names.get("resume_from_checkpoint") and names.get("epochs_trained") == epoch:
            was = ceil(names["self"].state.epoch or 0) - 1  # epoch and share of its steps
            if was > epoch:
                raise PipelineError(
                    f"the Trainer resumes in epoch {was} of a dataset without a length. It counts epochs from 0, so it "
                    "would train on the same batches again. Make the pipeline endless with .repeat(), "
                    "or train on a uio.Loader with uio.HFTrainerMixin (docs/trainers.md)"
                )
