"""A batch of a run made again from saved states, and what is told of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import torch

from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.base.printable import counted
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.run.loader import Loader
from uio_pipes.run.mixes import Mixes
from uio_pipes.run.progress import EpochProgress
from uio_pipes.run.state import Meta, lanes_in, read_meta
from uio_pipes.run.stretches import stretch_at

LONG = 2**31  # steps of an epoch, which none has


class Replay:
    """The batch of a step of a rank, made again from the nearest of several states of a run.

    ``epoch``: that of the step; None, the last one that the states know. ``world_size``: the ranks that go on from the
    last state; None, those that saved it. How many made a step before a state, that state says.

    Raises: StateError if a state is of another run, as ``load_state_dict``.
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
        metas = [read_meta(state) for state in states]
        for name in ("seed", "graph", "listed"):
            if len({str(getattr(meta, name)) for meta in metas}) > 1:
                raise StateError(f"{name}: it is not the same in all states: name only those that one run saved")
        wanted = max(meta.epoch for meta in metas) if epoch is None else epoch
        self.world_size = world_size = _ranks(metas, step, wanted, world_size)
        given = [
            (meta, state) for meta, state in zip(metas, states, strict=True) if _has(meta, state, rank, world_size)
        ]
        metas, states = [meta for meta, _ in given] or metas, [state for _, state in given] or states
        known = [
            EpochProgress.loaded_from(meta, state, rank, world_size) for meta, state in zip(metas, states, strict=True)
        ]
        if metas[0].stream is not None and wanted not in {one.epoch for one in known}:
            raise StateError(f"the steps of a stream's epoch {wanted} are known to a state of it: name one")
        at = {n: one.step for n, one in enumerate(known) if one.epoch == wanted}
        after = min((n for n in at if at[n] > step), key=at.__getitem__, default=None)
        before = max((n for n in at if at[n] <= step), key=at.__getitem__, default=None)
        if before is not None and after is not None:
            of = known[after].stretches
            if stretch_at(of, at[before]) != stretch_at(of, step):  # other ranks have gone on from there
                before = None
        before = next((n for n in (before, after) if n is not None), 0)
        after = before if after is None else after
        self.loader = loader = loader_of(graph, states[before], rank, world_size)
        loader.set_epoch(wanted)
        self._step, self._later = step, known[after]
        newest = max(metas, key=lambda meta: len(meta.changes)).changes
        unknown = [one for one in newest if one not in metas[after].changes and one["epoch"] == wanted]
        unknown = [one for one in unknown if one["step"] <= step]
        if unknown:
            when = f"at step {unknown[0]['step']} of epoch {unknown[0]['epoch']}"
            raise StateError(
                f"the weights of a mix changed {when}: name a state that was saved in epoch {wanted} after it"
            )
        loader._follow(replace(loader._options, mixes=Mixes.of(graph, metas[after].mixes)))

    def batch(self) -> Any:
        """Return the batch. Raises: PipelineError as ``batch_at``."""
        return self.loader._batch_at(self._step, self._later)

    def utterances(self, rows: Collection[int]) -> list[dict[str, Any]]:
        """Return these utterances of the batch with all that they had when it was made, in its order.

        Raises: PipelineError if there are not so many, or only the batch is known of them.
        """
        keys = seen(self.batch())[0]
        made = self.loader._batch_at(self._step, self._later, utterances=True)
        found = {one["key"]: one for one in (made if isinstance(made, list) else [made]) if "key" in one}
        for row in rows:
            if row >= len(keys) or keys[row] not in found:
                rule = f"there are rows 0 to {len(keys) - 1}" if row >= len(keys) else "a node of yours makes the batch"
                raise PipelineError(f"row {row} cannot be played or drawn: {rule}")
        return [found[keys[row]] for row in rows]


def _ranks(metas: Sequence[Meta], step: int, epoch: int, asked: int | None) -> int:
    """Return how many ranks made a step. ``asked``: those that go on from the last state, if others than saved it."""
    known = sorted((meta for meta in metas if meta.epoch == epoch and meta.stretches), key=lambda meta: meta.step or 0)
    after = next((meta for meta in known if (meta.step or 0) > step), None)
    if after is None and (asked is not None or not known):
        return asked or 1
    return next(ranks for first, ranks in reversed((after or known[-1]).stretches or [[0, 1]]) if first <= step)


def _has(meta: Meta, state: Mapping[str, Any], rank: int, world_size: int) -> bool:
    """Return whether a state has the lanes of a rank: one that another rank saved for itself has not."""
    return lanes_in(state, meta.lanes).issuperset(lanes_of(meta.lanes, rank, world_size))


def loader_of(graph: Graph, state: Mapping[str, Any], rank: int, world_size: int) -> Loader:
    """Return a loader where ``state`` was saved, as a rank alone. Raises: StateError as ``load_state_dict``."""
    meta = read_meta(state)
    steps = None if meta.stream is None else LONG
    place: dict[str, Any] = {"rank": rank, "world_size": world_size, "uneven": "join"}
    loader = Loader(graph, seed=meta.seed, lanes=meta.lanes, steps_per_epoch=steps, **place)
    loader.load_state_dict(state)
    return loader


def save(batch: Any, path: str) -> None:
    """Write a batch by ``torch.save``."""
    torch.save(batch, path)


def seen(batch: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the keys in a batch, and for each of its other values the name, what it is, and a digest of a tensor."""
    if not isinstance(batch, Mapping):
        return [sample["key"] for sample in batch], []
    keys = batch.get("keys", [batch["key"]] if "key" in batch else [])  # of a batch, or of an utterance
    return keys, [(name, *_value(value)) for name, value in batch.items() if name not in ("keys", "key")]


def _value(value: Any) -> tuple[str, str]:
    if isinstance(value, str):
        return repr(value), ""
    if not isinstance(value, torch.Tensor) or value.is_nested:
        return (counted(len(value), "value") if hasattr(value, "__len__") else str(value)), ""
    data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    kind = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return kind, blake2b(data, digest_size=8).hexdigest()
