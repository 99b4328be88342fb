"""``uio.evaluate``: what is measured on several validation sets, each utterance once on any number of ranks."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from uio_pipes.core.graph import Graph
from uio_pipes.integrations.accelerate import EvaluationLoader
from uio_pipes.run.merge import utterances_in
from uio_pipes.run.ranks import all_gathered


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
            ``{"loss": losses}``.
        **options: those of :class:`EvaluationLoader`, for the pipelines.
    """
    found: dict[str, dict[str, float]] = {}
    for name, data in sets.items():
        sums, count = dict[str, float](), 0
        evaluation = data if isinstance(data, EvaluationLoader) else EvaluationLoader(data, **options)
        loader = evaluation.loader
        for batch in evaluation:
            own = evaluation.rows[loader.rank]  # 0 if it comes again, so that all ranks step together
            count += own
            with torch.no_grad():
                told = {what: torch.as_tensor(value).cpu().double() for what, value in measure(batch).items()}
            for what, value in told.items():
                whole = value.ndim == 0 or len(value) != utterances_in(batch)
                here = value.mean() * own if whole else value[:own].sum()
                sums[what] = sums.get(what, 0.0) + (float(here) if own else 0.0)
        parts = [(count, sums)]
        if loader.world_size > 1:
            parts = all_gathered(parts[0], loader._options.ranks.members or (), f"to evaluate {name}")
        total = sum(count for count, _ in parts)
        found[name] = {what: sum(each[what] for _, each in parts) / total for what in sums} | {"utterances": total}
    return found
