"""Loaders in Accelerate's checkpoints, and evaluations in which every utterance counts once on any number of ranks:
``uio.evaluate`` measures several validation sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

import torch
import torch.distributed as dist

from uio_pipes.base.checks import refuse, require
from uio_pipes.base.errors import PipelineError
from uio_pipes.core.graph import Graph
from uio_pipes.run.loader import Loader
from uio_pipes.run.merge import utterances_in
from uio_pipes.run.ranks import all_gathered, private_group
from uio_pipes.run.trainers import gathered


class Gathered:
    """The state of all ranks' lanes, on every rank: ``accelerator.register_for_checkpointing(uio.Gathered(loader))``.

    Its ``state_dict`` is a collective: every rank calls it at the same step, as ``accelerator.save_state`` does.

    Args:
        loader: this rank's loader.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def state_dict(self) -> dict[str, str]:
        """Return the state of all lanes. Raises: StateError under ``uneven="join"``: ranks are not at the same step."""
        return gathered(self.loader, self.loader.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Like :meth:`Loader.load_state_dict`, on any number of ranks."""
        self.loader.load_state_dict(state_dict)


class EvaluationLoader:
    """The batches of an evaluation, whose results all ranks put together: ``loss = evaluation.gather(loss)``.

    Each rank gets its share, from the beginning whenever it is iterated over. Ranks step together until the last one
    has had its share; those that have had theirs get their last batch again, and ``gather`` leaves its results out.
    So every utterance counts once, on any number of ranks and with batches of any sizes. On one rank it is an ordinary
    loader, and ``gather`` gives back what it gets. Batches must come from ``pad`` or be dicts with tensors (B, …).

    Args:
        pipeline: the pipeline to run, without random stages if its results are to be compared.
        **options: options of :class:`Loader`, but for ``uneven`` and ``ranks``.

    Raises:
        PipelineError: an option breaks a rule.
    """

    def __init__(self, pipeline: Graph, **options: Any) -> None:
        own = {"uneven", "ranks", "steps_per_epoch"} & options.keys()
        never = f"{', '.join(sorted(own))} cannot be set for an evaluation, which visits all data once"
        refuse(own, "EvaluationLoader", never, "remove it")
        self.loader = Loader(pipeline, uneven="join", **options)
        self.rows: list[int] = []  # utterances of each rank in this step that count
        self.dataset: list[None] = []  # as many as have been evaluated: where trainers look for their number
        self._here = 0  # rows of this rank's batch

    def __iter__(self) -> Iterator[Any]:
        batches = iter(copy(self.loader))
        batch, begun, self.dataset = None, False, []
        alone, members = self.loader.world_size == 1, self.loader._options.ranks.members or ()
        while True:
            new = next(batches, None)
            rows = 0 if new is None else utterances_in(new)
            self.rows = [rows] if alone else all_gathered(rows, members, "to evaluate the next batch")
            if not any(self.rows):
                return
            batch = new or batch
            if not begun and 0 in self.rows:  # a rank without a share still has to step
                batch = self._lent(new)
            begun, self._here = True, utterances_in(batch)
            self.dataset += [None] * sum(self.rows)
            yield batch

    def _lent(self, batch: Any) -> Any:
        first = next(rank for rank, rows in enumerate(self.rows) if rows)
        lent = [batch]
        dist.broadcast_object_list(lent, group=private_group(self.loader._options.ranks.members or ()), group_src=first)
        return batch or lent[0]

    def gather(self, values: Any) -> Any:
        """Return the results of all ranks for this step, those of each utterance once: a collective.

        Args:
            values: a tensor (B, …) on the device of the default process group, or a list, tuple or mapping of such. A
                number, or a tensor (N,) of another length, is of the whole batch, as a loss, and comes once for each
                utterance. Shapes may differ among ranks in B alone: ``accelerator.pad_across_processes(values, dim=1)``
                makes the others equal.

        Raises:
            PipelineError: there is no step yet.
        """
        if isinstance(values, Mapping):
            return type(values)({name: self.gather(value) for name, value in values.items()})  # type: ignore[call-arg]
        if isinstance(values, (list, tuple)):
            return type(values)(map(self.gather, values))
        if not self.rows:
            raise PipelineError("EvaluationLoader: call gather only after this loader has given a batch")
        own, values = self.rows[self.loader.rank], values.reshape(-1) if values.ndim == 0 else values
        mine = values[:1].expand(own) if values.ndim == 1 and len(values) != self._here else values[:own]
        if len(self.rows) == 1:
            return mine
        sent = mine.new_zeros(max(self.rows), *mine.shape[1:])
        sent[:own] = mine
        found = [torch.empty_like(sent) for _ in self.rows]
        dist.all_gather(found, sent)
        return torch.cat([one[:rows] for one, rows in zip(found, self.rows, strict=True)])


WANTED = "return for every batch a dict of the same names, 'utterances' not among them, of tensors (B,) or one number"


def evaluate(
    sets: Mapping[str, Graph | EvaluationLoader], measure: Callable[[Any], Mapping[str, Any]], **options: Any
) -> dict[str, dict[str, float]]:
    """Return the means of what ``measure`` tells of each validation set, and its number of ``utterances``.

    Every rank calls it at the same step, and gets the means over the utterances of all ranks, each of which counts
    once. A rate of errors is ``result["errors"] / result["words"]``, if both are measured. Gradients are off; put the
    model into ``eval()`` before.

    Args:
        sets: the pipelines by name, without random stages, or an :class:`EvaluationLoader` where options differ.
        measure: gets a batch, and returns by name tensors (B,), on any device, or one number of the whole batch, as in
            ``{"loss": losses}``, the same names each time.
        **options: those of :class:`EvaluationLoader`, for the pipelines.

    Raises:
        PipelineError: an option breaks a rule, or ``measure`` returns something else.
    """
    found: dict[str, dict[str, float]] = {}
    require(isinstance(sets, Mapping), "evaluate", "give the sets by name", sets, 'as in {"dev": dev, "other": other}')
    for name, data in sets.items():
        sums, count = dict[str, float](), 0
        evaluation = data if isinstance(data, EvaluationLoader) else EvaluationLoader(data, **options)
        loader = evaluation.loader
        for batch in evaluation:
            own, rows = evaluation.rows[loader.rank], evaluation._here
            count += own  # 0 if the batch comes again, so that all ranks step together
            with torch.no_grad():
                given = measure(batch)
            refuse(not isinstance(given, Mapping), "evaluate", f"measure gives {given!r} for {name!r}", WANTED)
            told = {what: torch.as_tensor(value).detach().cpu().double() for what, value in given.items()}
            shapes = {what: tuple(value.shape) for what, value in told.items()}
            wrong = "utterances" in told or not {(), (1,), (rows,)}.issuperset(shapes.values())
            wrong |= bool(sums) and told.keys() != sums.keys()
            refuse(wrong, "evaluate", f"measure gives {shapes} for a batch of {rows} utterances of {name!r}", WANTED)
            for what, value in told.items():
                here = value[:own].sum() if value.shape == (rows,) else value.mean() * own
                sums[what] = sums.get(what, 0.0) + (float(here) if own else 0.0)
        parts = [(count, sums)]
        if loader.world_size > 1:
            parts = all_gathered(parts[0], loader._options.ranks.members or (), f"to evaluate {name}")
        differ = any(each.keys() != sums.keys() for _, each in parts)
        refuse(differ, "evaluate", "ranks measure different names", WANTED)
        total = sum(count for count, _ in parts)
        found[name] = {what: sum(each[what] for _, each in parts) / total for what in sums} | {"utterances": total}
    return found
