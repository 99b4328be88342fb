"""A batch of a run made again from saved states, and what lanes give from there on by plan."""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from uio_pipes.base.errors import PipelineError, StateError
from uio_pipes.core.graph import Graph
from uio_pipes.core.lane import lanes_of
from uio_pipes.core.realize import Pair, wanted
from uio_pipes.core.sample import Sample
from uio_pipes.run.epoch_run import batch_at
from uio_pipes.run.lane_runner import LaneRunner, RunSpec
from uio_pipes.run.lanes import spec_of
from uio_pipes.run.loader import Loader
from uio_pipes.run.planning import LanePlan, check_skims, plan_lanes
from uio_pipes.run.progress import too_early
from uio_pipes.run.state import LaneState, Meta, lanes_in, read_meta

LONG = 2**31  # steps of an epoch, which none has


class Replay:
    """The batch of a step of a rank, made again from the last of several states of a run before it.

    ``epoch``: that of the step; None, the last one that the states know. ``world_size``: the ranks that made the step;
    None, those that saved the states around it.

    Raises: StateError if a state is of another run, as ``load_state_dict``, or none was saved before the step.
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
        before = [one for one in given if (one[0].epoch, one[0].step) <= (wanted, step)]
        before = [one for one in before if one[0].stream is None or one[0].epoch == wanted]
        after = [meta for meta, _ in given if meta.epoch == wanted and meta.step > step]
        if not before and after:
            raise StateError(too_early(step, wanted, min(meta.step for meta in after)))
        if not before:
            raise StateError(f"no state was saved in epoch {wanted}{' or earlier' * (given[0][0].stream is None)}")
        self.world_size = world_size = world_size or _ranks([meta for meta, _ in before], after, step)
        mine = lanes_of(before[0][0].lanes, rank, world_size)  # which a state that another rank saved for itself lacks
        before = [one for one in before if lanes_in(one[1], one[0].lanes).issuperset(mine)] or before
        last, state = max(before, key=lambda one: (one[0].epoch, one[0].step, len(one[0].changes)))
        for change in max((meta.changes for meta, _ in given), key=len):
            if change not in last.changes and (change["epoch"], change["step"]) <= (wanted, step):
                when = f"at step {change['step']} of epoch {change['epoch']}"
                raise StateError(f"a mix, or what is left out, changed {when}: name a state that was saved after it")
        self.loader = loader = loader_of(graph, state, rank, world_size)
        loader.set_epoch(wanted)
        self._step = step

    def batch(self) -> Any:
        """Return the batch. Raises: PipelineError as ``batch_at``."""
        return self._made()

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


def _ranks(before: Sequence[Meta], after: Sequence[Meta], step: int) -> int:
    """Return how many ranks made a step, by the states around it. Raises: StateError if that is not known."""
    last = max(before, key=lambda meta: (meta.epoch, meta.step))
    known = {last.world_size, *(meta.world_size for meta in sorted(after, key=lambda meta: meta.step)[:1])}
    if len(known) > 1:
        of = " or ".join(map(str, sorted(known)))
        raise StateError(f"step {step} was made by {of} ranks, which saved the states around it: say --world-size")
    return known.pop()


def loader_of(graph: Graph, state: Mapping[str, Any], rank: int, world_size: int) -> Loader:
    """Return a loader where ``state`` was saved, as a rank alone. Raises: StateError as ``load_state_dict``."""
    meta = read_meta(state)
    steps = None if meta.stream is None else LONG
    place: dict[str, Any] = {"rank": rank, "world_size": world_size, "uneven": "join"}
    loader = Loader(graph, seed=meta.seed, lanes=meta.lanes, steps_per_epoch=steps, **place)
    loader.load_state_dict(state)
    return loader


def spec_at(graph: Graph, state: Mapping[str, Any], world_size: int) -> RunSpec:
    """Return what all lanes of a state's epoch share. Raises: StateError if it is of another run."""
    loader = loader_of(graph, state, world_size - 1, world_size)
    return replace(spec_of(loader._options, loader._progress, {}), snapshot_every=sys.maxsize)


PlannedKeys = tuple[int, int, int, list[str] | None]  # pass, k, lane, keys of a batch


def plan_keys(spec: RunSpec, states: Mapping[int, LaneState]) -> list[Iterator[PlannedKeys]]:
    """Return for each of these lanes an iterator over its batches, from where it stands; keys that are None stand at
    the end of a pass without an utterance.

    Each plans only what is asked of it. What fails only when a batch is made is in it.

    Raises: PipelineError if a node of the user's stands after the batches.
    """
    check_skims(spec.pipeline)
    tables = dict[Hashable, Any]()
    return [_keys(spec, lane, state, tables) for lane, state in states.items()]


def _keys(spec: RunSpec, lane: int, state: LaneState, tables: dict[Hashable, Any]) -> Iterator[PlannedKeys]:
    runner, gave = LaneRunner(spec, lane, state, tables), state.k > 0 and not state.done
    while not runner.done or spec.repeat:
        if runner.done:
            runner.again()
        given = runner.context.pulse.given
        try:
            item = runner.pass_over(1)
        except StopIteration:
            if not gave:
                yield runner.pass_, runner.k, lane, None
            runner.done, gave = True, False
        else:
            samples = item if isinstance(item, list) else [item]
            if all(isinstance(sample, Sample) for sample in samples):
                samples = wanted(samples, runner.context)
            keys = [s.key if isinstance(s, Sample) else str(s["key"]) for s in samples]
            if not keys:
                runner.context.pulse.given = given
            gave |= bool(keys)
            yield runner.pass_, runner.k - 1, lane, keys


def keys_in(batch: Any) -> list[str]:
    """Return the keys of the utterances in a batch, or of the one that stands for it."""
    if not isinstance(batch, Mapping):
        return [sample["key"] for sample in batch]
    keys: list[str] = batch.get("keys", [batch["key"]] if "key" in batch else [])
    return keys


def plan_epoch(loader: Loader, by: Pair) -> Iterator[LanePlan]:
    """Plan the batches of this rank's lanes in the epoch that ``loader`` is in. ``by``: the lengths to tell."""
    progress, steps = loader._progress, loader.steps_per_epoch
    mine = lanes_of(progress.lanes, loader.rank, loader.world_size)
    most = None if steps is None else -(-steps // max(1, len(mine)))
    place = (loader.pipeline, progress.lanes, loader.seed, progress.stream, mine)
    return plan_lanes(*place, ranks=progress.ranks, most=most, by=by)
