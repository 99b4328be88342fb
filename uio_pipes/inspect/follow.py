"""``follow``: the weights of a mix follow what a recorder logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite
from typing import Any

import torch
import torch.distributed as dist

from uio_pipes.base.checks import is_number, require
from uio_pipes.base.errors import PipelineError
from uio_pipes.inspect.record import Logged, Recorder, read_record, table_of
from uio_pipes.run.loader import ON_STATE, Loader
from uio_pipes.run.ranks import private_group, waiting

Rule = Callable[[Mapping[str, float]], Mapping[str, float]]


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
    logged, so each of them logs every batch, before a state is saved. A source of which nothing was logged keeps its
    weight. After a resume, what was logged since the last change is read from the record.

    Args:
        record: the recorder, made with its loader. Its folder is one that all ranks share.
        every: steps between two changes, at least 1. In the middle of an epoch, a change starts the workers again.
        rule: a function of the means by source that returns weights by source, the same on all ranks. Default: None,
            (mean / mean of all sources) ** ``power``, not below ``floor`` or above ``ceiling``.
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
    rule = rule or partial(_by_power, power=power, floor=floor, ceiling=ceiling)
    record.followers.append(_Follower(every, rule, of).hear)
    ON_STATE[loader] = record.flush


def _by_power(means: Mapping[str, float], power: float, floor: float, ceiling: float) -> dict[str, float]:
    middle = sum(means.values()) / len(means) or 1.0
    return {name: min(ceiling, max(floor, max(0.0, mean / middle) ** power)) for name, mean in means.items()}


class _Follower:
    """Adds up what is logged in a window of ``every`` steps. ``at``: epoch and step of the last batch."""

    def __init__(self, every: int, rule: Rule, of: str) -> None:
        self.every, self.rule, self.of = every, rule, of
        self.at, self.window, self.before = (-1, -1), list[Logged](), list[Any]()  # tables from before a resume

    def hear(self, logged: Logged, record: Recorder) -> None:
        """Take note of a batch, and give new weights after the last one of a window."""
        made, loader = logged.delivered, record.loader
        if self.of not in logged.numbers or made is None or loader is None:
            return
        if made.epoch != self.at[0] or made.step < self.at[1]:  # an epoch begins, or a state was loaded
            self.window, self.before = [], []
            if (gone := made.step % self.every) and not loader.rank and any(record.folder.glob("rank-*.parquet")):
                now = made.step if logged.step is None else logged.step  # as the trainer counts
                rows = read_record(record.folder)
                epochs, steps = rows["epoch"].to_numpy(), rows["step"].to_numpy()
                self.before = [rows.filter((epochs == made.epoch) & (steps >= now - gone) & (steps < now))]
        self.at = made.epoch, made.step
        self.window.append(logged)
        if (made.step + 1) % self.every == 0:
            tables, self.window, self.before = [table_of(self.window, 0), *self.before], [], []
            self._reweight(loader, [table for table in tables if self.of in table.column_names])

    def _reweight(self, loader: Loader, tables: list[Any]) -> None:
        mixes, ranks = loader._options.mixes, loader._options.ranks
        named = [[f"{path}/{name}" if path else name for name in weights] for path, weights in mixes.weights.items()]
        sums = {name: torch.zeros(2, dtype=torch.float64) for names in named for name in names}
        for table in tables:
            for source, number in zip(table["source"].to_pylist(), table[self.of].to_pylist(), strict=True):
                for name in sums if number is not None and isfinite(number) else ():
                    if f"{source}/".startswith(f"{name}/"):
                        sums[name] += torch.tensor([number, 1.0])
        word = torch.stack([*sums.values()])
        if loader.world_size > 1:
            with waiting(ranks.members or (), "to follow what was logged"):
                dist.all_reduce(word, group=private_group(ranks.members or ()))
        means = {name: total / count for name, (total, count) in zip(sums, word.tolist(), strict=True) if count}
        for names in named:
            known = {name: means[name] for name in names if name in means}
            if known:  # four digits, so that no order of adding up shows
                loader.reweight({name: float(f"{weight:.4g}") for name, weight in self.rule(known).items()})
