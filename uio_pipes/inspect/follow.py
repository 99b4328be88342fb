"""``follow``: the weights of a mix follow what a recorder logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uio_pipes.base.checks import is_number, require
from uio_pipes.base.errors import PipelineError
from uio_pipes.inspect.record import Logged, Recorder, files_of, table_of
from uio_pipes.run.loader import ON_STATE, Loader
from uio_pipes.run.ranks import all_reduced

Means = Mapping[str, float]
Rule = Callable[[Means], Means]


def follow(
    record: Recorder,
    *,
    every: int,
    rule: Rule | None = None,
    of: str = "loss",
    power: float = 1.0,
    floor: float = 0.2,
    ceiling: float = 5.0,
) -> None:
    """Let the weights of mixes follow a number that is logged, such as the loss: sources with a higher mean come more.

    After each so many steps of an epoch, the means of its sources in these steps give a mix new weights, as
    ``loader.reweight`` does: states hold them, and ``uio state`` shows when they changed. All ranks add up what they
    logged, so each of them logs every batch, before a state is saved. Of numbers that are not finite, and of sources
    with weight 0, nothing counts. After a resume, what was logged since the last change is read from the record.

    Args:
        record: the recorder, made with its loader. Its folder is one that all ranks share.
        every: steps between two changes, at least 1. A step is one batch of each rank, also where several make one
            update of the model. In the middle of an epoch, a change starts the workers again.
        rule: a function of the means by source that returns weights by source, the same on all ranks. Default: None,
            (mean / mean of all sources) ** ``power``, not below ``floor`` or above ``ceiling``. A mean below 0 counts
            as 0, and sources of which nothing counts keep their share.
        of: the name under which the number is logged. Default: "loss".
        power: 0 weighs all sources alike; above 1, differences grow. Default: 1.0.
        floor: lowest weight. Default: 0.2.
        ceiling: highest weight. Default: 5.0.

    Raises:
        PipelineError: an argument breaks a rule, the recorder has no loader, its ranks do not step together, or it has
            no mix whose weights can change.
    """
    loader = record.loader
    if loader is None or (loader.world_size > 1 and not loader.together):
        why = "its ranks do not step together" if loader else "it does not know the loader: make it with one"
        raise PipelineError(f"follow: the recorder cannot tell all ranks when weights change, as {why}")
    require(
        isinstance(every, int) and every >= 1, "follow", "every must be 1 or more steps", every, "as in every=1_000"
    )
    ok = all(map(is_number, (power, floor, ceiling))) and power >= 0 and 0 < floor <= ceiling
    require(ok, "follow", "power must be 0 or more, and floor above 0", (power, floor, ceiling), "1, 0.2, 5 are usual")
    mixes = loader._options.mixes
    if not mixes.weights:
        raise PipelineError("follow: the pipeline has no mix with weights of its own: begin with uio.mix")
    mixes.check_dealt(loader.pipeline, mixes.weights)
    usual = partial(_by_power, power=power, floor=floor, ceiling=ceiling)
    record.followers.append(_Follower(every, usual if rule is None else lambda means, _: rule(means), of).hear)
    ON_STATE[loader] = record.flush


def _by_power(means: Means, now: Means, *, power: float, floor: float, ceiling: float) -> Means:
    """Weigh sources by their means; those without one keep their share, in whatever unit weights are ``now``."""
    middle = sum(max(0.0, mean) for mean in means.values()) / len(means) or 1.0
    found = {name: min(ceiling, max(floor, max(0.0, mean / middle) ** power)) for name, mean in means.items()}
    scale = 1.0 if len(means) == len(now) else sum(now[name] for name in means) / sum(found.values())
    return {name: float(f"{scale * weight:.4g}") for name, weight in found.items()}


class _Follower:
    """Adds up what is logged in a window of ``every`` steps. ``at``: epoch, window and step of the last batch."""

    def __init__(self, every: int, rule: Callable[[Means, Means], Means], of: str) -> None:
        self.every, self.rule, self.of = every, rule, of
        self.at, self.window, self.before = (-1, -1, -1), list[Logged](), list[Any]()  # tables from before a resume

    def hear(self, logged: Logged, record: Recorder) -> None:
        """Take note of a batch, and give new weights after the last one of a window."""
        made, loader = logged.delivered, record.loader
        if self.of not in logged.numbers or made is None or loader is None:
            return
        begin = made.step - made.step % self.every
        if (made.epoch, begin) != self.at[:2] or made.step < self.at[2]:  # a window begins, or a state was loaded
            self.window, self.before = [], []
            if begin < (loaded := loader._progress.began[0]) and not loader.rank and (files := files_of(record.folder)):
                self.before = _logged(files, self.of, made.epoch, range(begin, loaded))
        self.at = made.epoch, begin, made.step
        self.window.append(logged)
        if (made.step + 1) % self.every == 0:
            tables, self.window, self.before = [table_of(self.window, 0), *self.before], [], []
            self._reweight(loader, tables)

    def _reweight(self, loader: Loader, tables: list[Any]) -> None:
        mixes, ranks = loader._options.mixes, loader._options.ranks
        # Without those that rest: what a buffer still had of them does not wake them up.
        live = [{f"{p}/{name}" if p else name: w for name, w in mixes.now(p).items() if w} for p in mixes.weights]
        sums = {name: np.zeros(2) for names in live for name in names}
        for table in tables:
            sources, numbers = table["source"].to_numpy(), table[self.of].to_numpy()
            for source in {*sources}:
                counted = numbers[(sources == source) & np.isfinite(numbers)]
                for name in sums:
                    if f"{source}/".startswith(f"{name}/"):
                        sums[name] += np.array([counted.sum(dtype=np.float64), len(counted)])
        word = torch.tensor(np.array([*sums.values()]))
        if loader.world_size > 1:
            word = all_reduced(word, ranks.members or (), "to follow what was logged")
        # To nine digits, so that no order of adding up shows.
        means = {name: float(f"{total / n:.9g}") for name, (total, n) in zip(sums, word.tolist(), strict=True) if n}
        for now in live:
            if known := {name: means[name] for name in now if name in means}:
                loader.reweight(self.rule(known, now))


def _logged(files: list[Path], of: str, epoch: int, steps: range) -> list[Any]:
    """Read what was logged in these steps: of each batch of a rank the newest, and of as many ranks as there were then.
    The rest is what a run had logged when it was killed, before it went on from an earlier state."""
    import pyarrow as pa
    from pyarrow import dataset

    at, kinds = dataset.field("batch"), {"batch": pa.int64(), "source": pa.string(), of: pa.float32()}
    schema = pa.schema(dict.fromkeys(("epoch", "rank", "ranks", "row"), pa.int32()) | kinds)
    there = (dataset.field("epoch") == epoch) & (at >= steps.start) & (at < steps.stop) & dataset.field(of).is_valid()
    rows = dataset.dataset([*map(str, files)], schema=schema).to_table(filter=there)
    batch, rank, ranks, row = (rows[name].to_numpy() for name in ("batch", "rank", "ranks", "row"))
    begins = np.flatnonzero(row == 0)
    newest = {(batch[i], rank[i]): slice(i, end) for i, end in zip(begins, [*begins[1:], len(row)], strict=False)}
    world = {step: ranks[where.start] for (step, of_rank), where in newest.items() if of_rank == 0}
    return [rows[where] for (step, of_rank), where in newest.items() if of_rank < world.get(step, 0)]
