"""Hugging Face's ``Trainer`` on our loaders. Its package is not imported until a training begins.

When it resumes, the ``Trainer`` goes through the first batches of the epoch again and throws them away, to know its
step and to give random generators their state. So an epoch that goes on in the middle begins with as many empty ones,
which cost nothing; the batches after them are those that the loader's own state says.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from uio_pipes.base.errors import PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.integrations.accelerate import EvaluationLoader, Gathered
from uio_pipes.run.loader import Loader
from uio_pipes.run.partial import write_json

FILE = "uio_loader.json"
_Trainer: Any = object


class HFTrainerMixin(_Trainer):  # type: ignore[misc]
    """Hugging Face's ``Trainer`` or ``Seq2SeqTrainer`` on loaders: ``class Mine(uio.HFTrainerMixin, Trainer): pass``.

    Of the arguments of the ``Trainer``, ``train_dataset`` is a :class:`Loader`, and ``eval_dataset`` a pipeline, an
    :class:`EvaluationLoader`, or a dict of these; make them after the ``TrainingArguments``, which start the process
    group. Each checkpoint gets the loader's state, and ``train(resume_from_checkpoint=…)`` goes on with the next batch,
    on any number of processes. Of the outputs of a batch the model gets those that its ``forward`` takes
    (``remove_unused_columns=False`` gives it all). Other datasets are left to the ``Trainer``.

    Args:
        *args: as for the ``Trainer``.
        **options: as for the ``Trainer``.

    Raises:
        PipelineError: epochs are to be counted (``num_train_epochs``), and how long one is, is not known.
    """

    _saver: Any = None
    _passed = 0  # batches that the Trainer goes through before the first one to train on
    _epoch_length = 0  # batches of an epoch, as the Trainer was told; 0 if that is not known
    _counts: bool | None = None  # whether the loss heeds the number of labels that it is given

    def __init__(self, *args: Any, **options: Any) -> None:
        try:
            super().__init__(*args, **options)
        except ValueError as error:
            if "max_steps" in str(error):
                for loader in (one for one in (*args, *options.values()) if isinstance(one, Loader)):
                    try:
                        len(loader)
                    except TypeError as error:
                        remedy = "give uio.Loader(…, steps_per_epoch=…), or TrainingArguments(…, max_steps=…)"
                        raise PipelineError(
                            f"num_train_epochs needs to know how long an epoch is: {remedy}; {error}"
                        ) from error
            raise

    def get_train_dataloader(self) -> Any:
        """Return the loader of the training batches for the ``Trainer``."""
        if isinstance(self.train_dataset, Graph):
            raise PipelineError("train_dataset is a pipeline: give a loader of it, uio.Loader(pipeline, seed=…)")
        if not isinstance(self.train_dataset, Loader):
            return super().get_train_dataloader()
        passed, self._passed = self._passed, 0
        return DataLoader(_Epochs(self.train_dataset, passed, self), batch_size=None)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the batches of the evaluation.

        Args:
            eval_dataset: what to evaluate, or its name in the dict. Default: None, ``self.eval_dataset``.
        """
        return self._evaluation(eval_dataset) or super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the batches of ``predict``.

        Args:
            test_dataset: a pipeline, or what the ``Trainer`` takes.
        """
        return self._evaluation(test_dataset) or super().get_test_dataloader(test_dataset)

    def _evaluation(self, given: Any) -> Any:
        data = self.eval_dataset if given is None else self.eval_dataset[given] if isinstance(given, str) else given
        if isinstance(data, Loader):
            raise PipelineError("eval_dataset is a Loader: give its pipeline, or uio.EvaluationLoader(pipeline, …)")
        if isinstance(data, Graph):
            data = EvaluationLoader(data, num_workers=self.args.dataloader_num_workers)
        return _Taken(data, self) if isinstance(data, EvaluationLoader) else None

    def evaluation_loop(self, dataloader: Any, *args: Any, **options: Any) -> Any:
        """Like that of the ``Trainer``, but each utterance counts once in the results of all processes.

        Args:
            dataloader: what ``get_eval_dataloader`` returned.
            *args: as for the ``Trainer``.
            **options: as for the ``Trainer``.
        """
        if isinstance(dataloader, _Taken):
            self.gather_function = dataloader.gather
        return super().evaluation_loop(dataloader, *args, **options)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None, **options: Any
    ) -> Any:
        """Like that of the ``Trainer``, but also for models whose loss ignores ``num_items_in_batch``.

        The ``Trainer`` takes a ``forward`` with ``**kwargs`` for one that divides by the number of labels of all
        processes, and multiplies its loss by the number of processes. That of Whisper, and of many others, does not.

        Args:
            model: the model, as the ``Trainer`` wrapped it.
            inputs: the batch.
            return_outputs: return the outputs of the model, too. Default: False.
            num_items_in_batch: labels of an update on all processes. Default: None, the loss is the mean of the batch.
            **options: as for the ``Trainer``.
        """
        if not model.training:
            num_items_in_batch = None  # an evaluation weighs the mean of each batch by its utterances
        elif num_items_in_batch is not None and self.compute_loss_func is None:
            if self._counts is None:
                self._counts = self._counting(model, inputs, num_items_in_batch)
                self.model_accepts_loss_kwargs = self._counts
            num_items_in_batch = num_items_in_batch if self._counts else None
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch=num_items_in_batch, **options)

    def _counting(self, model: Any, inputs: Any, count: Any) -> bool:
        """Return whether twice as many labels halve the loss; where the count changes nothing, nothing is computed."""
        if self.args.world_size * self.args.gradient_accumulation_steps * self.args.n_gpu == 1:
            return True
        model.eval()  # without dropout, so that both can be compared, and no random number is drawn
        compute = super().compute_loss
        with torch.no_grad():
            losses = [
                compute(model, {**inputs}, num_items_in_batch=number).mean().abs() for number in (count, 2 * count)
            ]
        model.train()
        halved = losses[1] < 0.75 * losses[0]  # not so where a rank's batch has no labels: so all ranks are asked
        return bool(self.accelerator.gather(halved.reshape(1)).any())

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any) -> Any:
        """Like that of the ``Trainer``, but resume with exactly the next batch.

        Args:
            resume_from_checkpoint: folder of a checkpoint; True for the newest complete one in ``output_dir``. Default:
                None, begin.
            *args: as for the ``Trainer``.
            **options: as for the ``Trainer``.

        Raises:
            PipelineError: the checkpoint has no state of the loader.
            StateError: the state does not fit the loader.
        """
        loader = self.train_dataset
        if isinstance(loader, Loader):
            if self._saver is None:
                self._saver = _saver(loader, self)
                self.add_callback(self._saver)
            if resume_from_checkpoint is True:
                folder = Path(self.args.output_dir)
                found = [path.parent for path in folder.glob(f"checkpoint-*/{FILE}")]
                resume_from_checkpoint = str(max(found, key=_step_of)) if found else True
            self._epoch_length = 0
            if resume_from_checkpoint and resume_from_checkpoint is not True:
                self._passed, self._epoch_length = _resumed(loader, Path(resume_from_checkpoint), self.args)
        return super().train(resume_from_checkpoint, *args, **options)

    def _takes(self, batch: Any) -> Any:
        """Return what of a batch the model takes. Raises: PipelineError if it is no dict, if a model of Hugging Face
        would take its padding for labels, or if it lacks what the model is given first."""
        if not isinstance(batch, Mapping):
            what = f"a dict of tensors, not a {type(batch).__name__}"
            raise PipelineError(f"the model takes {what}: end the pipeline with .pad()")
        model = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        main = getattr(model, "main_input_name", None)
        if main is not None and _padded_by_minus_one(batch.get("labels")):
            remedy = ".pad(value={'target': -100}, names={'target': 'labels'})"
            raise PipelineError(f"labels contain -1, but Hugging Face models ignore only -100 as padding: {remedy}")
        if not self.args.remove_unused_columns:
            return batch
        known = {*inspect.signature(model.forward).parameters, *self.label_names}
        taken = {name: value for name, value in batch.items() if name in known}
        if not taken or main not in {None, *taken}:
            raise PipelineError(
                f"the model takes {main or ', '.join(sorted(known))}, and the batch has {', '.join(batch)}: give its "
                f"outputs the model's names, as in .pad(names={{'feats': {main or 'input_features'!r}}})"
            )
        return taken


class _Epochs(IterableDataset[Any]):
    """The batches of a loader. With each iteration come as many as the ``Trainer`` was told that an epoch has, since it
    takes no fewer and does not ask for more: epochs of batches by frames are not of equal length, so that some begin or
    end a little earlier or later than its own. The first batches are as many empty ones as were ``passed``."""

    def __init__(self, loader: Loader, passed: int, trainer: HFTrainerMixin) -> None:
        self.loader, self.passed, self.trainer = loader, passed, trainer

    def __len__(self) -> int:
        self.trainer._epoch_length = self.trainer._epoch_length or len(self.loader)
        return self.trainer._epoch_length

    def __iter__(self) -> Iterator[Any]:
        given, self.passed = self.passed, 0
        yield from [None] * given
        while True:
            before = given
            if self.loader.finished or self.loader._all_received():
                self.loader.set_epoch(self.loader.epoch + 1)
            with suppress(TypeError):
                len(self.loader)  # by which the loader knows afterwards whether all was taken
            for batch in map(self.trainer._takes, self.loader):
                given += 1
                yield batch
            if given >= self.trainer._epoch_length or given == before:
                return


class _Taken:
    """An evaluation, of whose batches the model gets what it takes."""

    def __init__(self, evaluation: EvaluationLoader, trainer: HFTrainerMixin) -> None:
        self.evaluation, self.trainer, self.gather = evaluation, trainer, evaluation.gather

    @property
    def dataset(self) -> list[None]:
        return self.evaluation.dataset

    def __iter__(self) -> Iterator[Any]:
        return map(self.trainer._takes, self.evaluation)


def _padded_by_minus_one(labels: Any) -> bool:
    """Return whether labels are rows of whole numbers with -1 among them; on a GPU, that is not looked at."""
    rows = isinstance(labels, torch.Tensor) and labels.ndim == 2 and not labels.is_floating_point()
    return rows and labels.device.type == "cpu" and bool((labels == -1).any())


def _saver(loader: Loader, trainer: HFTrainerMixin) -> Any:
    """Return a callback that saves the loader's state in each checkpoint, last of all: so it is complete then."""
    from transformers import TrainerCallback

    class SavesLoader(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            saved = {
                "state": Gathered(loader).state_dict(),
                "ended": loader._all_received(),
                "length": trainer._epoch_length,
            }
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if args.should_save and folder.is_dir():
                write_json(folder / FILE, saved)

    return SavesLoader()


def _step_of(checkpoint: Path) -> int:
    return int(json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))["global_step"])


def _resumed(loader: Loader, checkpoint: Path, args: Any) -> tuple[int, int]:
    """Load the loader's state; return how many batches of the epoch the ``Trainer`` goes through without them, and how
    many an epoch has for it."""
    if not (checkpoint / FILE).is_file():
        raise PipelineError(
            f"{checkpoint} has no {FILE}, the loader's state: it was saved without uio.HFTrainerMixin, or its process "
            "was killed meanwhile. Go on from another one (resume_from_checkpoint=True takes the newest complete one)"
        )
    saved = json.loads((checkpoint / FILE).read_text(encoding="utf-8"))
    loader.load_state_dict(saved["state"])
    if saved["ended"]:
        loader.set_epoch(loader.epoch + 1)
    length = int(saved.get("length", 0))
    if args.ignore_data_skip:
        return 0, length
    accumulated = args.gradient_accumulation_steps
    updates = -(-length // accumulated) or args.max_steps  # if it is not known, the Trainer takes all for one epoch
    return int(_step_of(checkpoint) % updates * accumulated), length
