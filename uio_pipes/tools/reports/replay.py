"""A batch of a run made again from saved states, and what is in it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import torch

from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.base.urls import plural
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.inspect.record import keys_in
from uio_pipes.run.epoch_run import MAY_SHARE, batch_at
from uio_pipes.run.loader import Loader
from uio_pipes.run.state import Meta, lanes_in, read_meta

logger = logging.getLogger("uio_pipes")
LONG = 2**31  # steps of an epoch, which none has


class Replay:
    """The batch of a step of a rank, made again from the last of several states that were saved before it. From a later
    state it is made from the beginning of its epoch, if there were as many ranks and lanes then.

    ``epoch``: that of the step; None, the last one that the states know. ``world_size``: the ranks that made the step;
    None, those that saved the states around it.

    Raises: StateError if a state is of another run, as ``load_state_dict``, or none leads to the step.
    """

    def __init__(
        self,
        graph: Graph,
        states: Sequence[Mapping[str, Any]],
        step: int,
        rank: int,
        world_size: int | None,
        epoch: int | None,
    ) -> None:
        given = [(read_meta(state), state) for state in states]
        for name in ("seed", "graph", "listed"):
            if len({str(getattr(meta, name)) for meta, _ in given}) > 1:
                raise StateError(f"{name}: it is not the same in all states: name only those that one run saved")
        wanted = max(meta.epoch for meta, _ in given) if epoch is None else epoch
        given = [one for one in given if one[0].stream is None or one[0].epoch == wanted]
        before = [one for one in given if one[0].place <= [wanted, step]]
        after = [one for one in given if one[0].place > [wanted, step]]
        if not given:
            raise StateError(f"no state was saved in epoch {wanted}")
        if before and after and _last(before)[0].place < _first(after)[0].since <= [wanted, 0]:
            before = []  # the epoch began on as many ranks as the state after the step knows
        self.world_size = world_size = world_size or _ranks(before, after, wanted, step)
        usable = before or after
        mine = lanes_of(usable[0][0].lanes, rank, world_size)  # which a state that another rank saved for itself lacks
        usable = [one for one in usable if lanes_in(one[1], one[0].lanes).issuperset(mine)] or usable
        last, state = _last(usable) if before else _first(usable)
        for change in max((meta.changes for meta, _ in given), key=len):
            there = [change["epoch"], change["step"]]
            later = there[0] == wanted < last.epoch  # only states of the epoch know with which batches it came
            if later or (there <= [wanted, step] and change not in last.changes):
                when = f"at step {change['step']} of epoch {change['epoch']}"
                raise StateError(f"a mix, or what is left out, changed {when}: name a state that was saved after it")
        _check_not_shared(given, last, wanted, step, world_size)
        steps = None if last.stream is None else LONG
        place: dict[str, Any] = {"rank": rank, "world_size": world_size, "lanes": max(last.lanes, world_size)}
        self.loader = loader = Loader(graph, seed=last.seed, uneven="join", steps_per_epoch=steps, **place)
        if last.lanes < world_size or any(meta.deal for meta, _ in given):
            loader._options = replace(loader._options, uneven="share", lanes=last.lanes)
        loader.load_state_dict(state)
        if wanted < last.epoch and loader._progress.since > [wanted, 0]:
            since = "step {1} of epoch {0}".format(*loader._progress.since)
            raise StateError(
                f"epoch {wanted} had other ranks or lanes than there are since {since}: name a state of it"
            )
        loader.set_epoch(wanted)
        self._step = step

    def batch(self, path: str | None = None) -> Any:
        """Return the batch, and write it to ``path`` by ``torch.save``. Raises: PipelineError as ``batch_at``."""
        batch = self._made()
        if path is not None:
            torch.save(batch, path)
        return batch

    def utterances(self, rows: Collection[int]) -> list[dict[str, Any]]:
        """Return these utterances of the batch with all that they had when it was made, in its order.

        Raises: PipelineError if there are not so many, or only the batch is known of them.
        """
        keys = keys_in(self.batch())
        made = self._made(utterances=True)
        found = {one["key"]: one for one in (made if isinstance(made, list) else [made]) if "key" in one}
        for row in rows:
            if row >= len(keys) or keys[row] not in found:
                rule = f"there are rows 0 to {len(keys) - 1}" if row >= len(keys) else "a node of yours makes the batch"
                raise PipelineError(f"row {row} cannot be played or drawn: {rule}")
        return [found[keys[row]] for row in rows]

    def _made(self, utterances: bool = False) -> Any:
        loader = self.loader
        return batch_at(loader._options, loader._progress, loader._items, self._step, utterances)


Given = tuple[Meta, Mapping[str, Any]]


def _first(states: Sequence[Given]) -> Given:
    return min(states, key=lambda one: one[0].place)


def _last(states: Sequence[Given]) -> Given:
    return max(states, key=lambda one: (one[0].place, len(one[0].changes)))


def _check_not_shared(given: Sequence[Given], last: Meta, epoch: int, step: int, ranks: int) -> None:
    """Raises: StateError if ranks shared what was left between a state and a step, as none of them knows it alone."""
    here = [meta for meta, _ in given if meta.epoch == epoch]
    begin = last.step if last.place <= [epoch, step] and last.epoch == epoch else 0
    shared = {at for meta in here for at in (meta.deal or {}).get("steps", ()) if begin <= at <= step}
    if shared:
        at, which = max(shared), "this step cannot be made again, only those around it"
        if at < step:
            which = f"name a state that was saved from step {at + 1} on, and not after step {step}"
        when = f"at step {at} of epoch {epoch}"
        raise StateError(f'{when} the ranks shared what was left (uneven="share"), which no rank knows alone: {which}')
    if ranks > 1 and last.stream is None and all(meta.step <= step for meta in here):
        logger.warning(MAY_SHARE, step, epoch)


def _ranks(before: Sequence[Given], after: Sequence[Given], epoch: int, step: int) -> int:
    """Return how many ranks made a step, by the states around it. Raises: StateError if these do not know."""
    if not before or not after:
        return (_last(before) if before else _first(after))[0].world_size
    (last, _), (following, _) = _last(before), _first(after)
    if (since := following.since) <= last.place:
        return following.world_size
    raise StateError(
        f"the number of ranks changed at step {since[1]} of epoch {since[0]}, between the states around step {step} of "
        f"epoch {epoch}: name a state that was saved there, or say --world-size if the step came before"
    )


def seen_in(batch: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the keys in a batch, and for each of its other values the name, what it is, and a digest of a tensor."""
    if not isinstance(batch, Mapping):
        return keys_in(batch), []
    return keys_in(batch), [(name, *_value(value)) for name, value in batch.items() if name not in ("keys", "key")]


def _value(value: Any) -> tuple[str, str]:
    if isinstance(value, str):
        return repr(value), ""
    if not isinstance(value, torch.Tensor) or value.is_nested:
        return (plural(len(value), "value") if hasattr(value, "__len__") else str(value)), ""
    data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    kind = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return kind, blake2b(data, digest_size=8).hexdigest()
