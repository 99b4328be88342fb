"""All that we use of the inside of torch, and of Hugging Face's packages, in one place: names that no documentation
promises.

``tests/run/test_torch_private.py`` pins each of them, and says what depends on it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from math import ceil
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch._C import _remove_worker_pids
from torch.utils.data._utils.collate import default_collate_fn_map

from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import stable_hash

GONE = 5.0  # seconds until the system has taken down a process whose pipe it has closed

# ``batches``: the iterator of a DataLoader with workers.


def close_our_writer(batches: Any) -> None:
    """Leave the workers alone in holding the writing end of the queue of results.

    Whoever waits for a result, in a thread perhaps, then learns at once that the last worker has ended.
    """
    batches._worker_result_queue._writer.close()


def worker_pids(batches: Any) -> list[int]:
    return [worker.pid for worker in batches._workers]


def are_alive(batches: Any) -> bool:
    return any(worker.is_alive() for worker in batches._workers)


def exit_code(batches: Any) -> int | None:
    """Return the exit status of the worker when it has ended; that of a signal is negative."""
    (worker,) = batches._workers
    worker.join(GONE)
    code: int | None = worker.exitcode
    return code


def watch_alone(batches: Any) -> None:
    """Keep torch from raising an error of its own, anywhere in the trainer, when a worker of this iterator dies."""
    if batches._worker_pids_set:
        _remove_worker_pids(id(batches))
        batches._worker_pids_set = False


def shut_down(batches: Any) -> None:
    """End the worker processes now, not when the iterator is collected. One that goes on working for 5 s is killed."""
    for worker in batches._workers:
        worker.terminate = worker.kill  # ours live on for half a minute after SIGTERM
    batches._shutdown_workers()
    for worker in batches._workers:
        worker.join(5)  # older versions of torch do not wait for those that they kill


@contextlib.contextmanager
def group_named_by_its_members() -> Iterator[None]:
    """Name a new process group by its members alone.

    torch adds a number: of the groups that this process has made, or up to 2.13 of those that it is in. Among the
    members these may differ, and they would wait for each other in vain, each under another name.
    """
    inside: Any = dist.distributed_c10d
    named, count = inside._hash_ranks_to_str, inside._world.group_count
    inside._hash_ranks_to_str = _name
    try:
        yield
    finally:
        inside._hash_ranks_to_str, inside._world.group_count = named, count


def _name(ranks: Sequence[int]) -> str:
    return f"uio_pipes {stable_hash(*ranks):x}"


def timeout_of(group: Any) -> timedelta:
    """Return how long an operation of the group may take; 0 if its backend does not say."""
    options = (getattr(group._get_backend(device), "options", None) for device in group._device_types)
    return max((getattr(one, "_timeout", timedelta()) for one in options), default=timedelta())


def collate_by(kind: type, function: Callable[..., Any]) -> None:
    """Have torch's ``default_collate`` call ``function`` for batches of ``kind``."""
    default_collate_fn_map[kind] = function


def check_dealt_once(world_size: int) -> None:
    """Raises: PipelineError if what asks for the data deals it to processes, though it is the share of a rank."""
    if world_size > 1 and (processes := _dealt_to()) > 1:
        raise PipelineError(
            f"as_dataset: the dataset gives each of {world_size} ranks its share, and Accelerate (accelerator.prepare, "
            f"the Trainer) deals that share to {processes} processes again, so that most of the data would be lost. "
            "Make it by as_dataset(partition=False), and Accelerate alone deals it out (if the pipeline makes batches, "
            "with dispatch_batches=False); or keep it out of prepare, as a uio.Loader"
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


WITHOUT_DATASET = (
    "a uio.Loader has no 'dataset' that could be begun again to pass over batches, as skip_first_batches of Accelerate "
    "wants, which the Trainer calls when it resumes. Load what loader.state_dict() returned instead of passing over; "
    "with Hugging Face's Trainer, uio.HFTrainerMixin saves and loads it (docs/trainers.md)"
)


def check_resumed(loader: object, epoch: int, at: int, received: int, in_steps: bool) -> None:
    """Raises: PipelineError if it is a Trainer on this ``loader`` that resumes in ``epoch``, and the loader, which has
    given ``received`` batches of epoch ``at``, would give what it had before.

    ``in_steps``: epochs are stretches of one stream, so that the next one begins where the state says, too.
    """
    for names in _callers("transformers.trainer"):
        trainer: Any = names.get("self")
        steps = names.get("num_update_steps_per_epoch")
        resumed = names.get("resume_from_checkpoint") and names.get("train_dataloader") is loader
        if not (steps and resumed and names.get("epochs_trained") == epoch):
            continue
        step: int = trainer.state.global_step
        if (epoch != at or not received) if step % steps else (in_steps and epoch > at and not received):
            raise PipelineError(
                f"the Trainer resumes at step {step}, in epoch {epoch}, and the loader stands at batch {received} of "
                f"epoch {at}: it would give batches again. uio.HFTrainerMixin saves and loads the loader's state with "
                "each checkpoint (docs/trainers.md); without it, load what loader.state_dict() returned at that step, "
                "and let steps_per_epoch= tell the Trainer the length of an epoch"
            )


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
                    f"the Trainer resumes in epoch {was} of a dataset without a length, counts epochs anew, and would "
                    "train again on batches that it had. Let the pipeline have one epoch without an end, by .repeat(), "
                    "or train on a uio.Loader with uio.HFTrainerMixin (docs/trainers.md)"
                )
