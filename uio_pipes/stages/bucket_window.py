"""``bucket_batch(window=…)``: batches of neighbours from a window sorted by length."""

from __future__ import annotations

from bisect import bisect_left, insort

from uio_pipes.base.hashing import pick
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.node import Node
from uio_pipes.core.sample import Sample
from uio_pipes.core.state_kinds import Kind, whole
from uio_pipes.stages.budget import Budget, BudgetBuffer, BudgetStage


class WindowNode(BudgetBuffer):
    """Holds ``window`` utterances sorted by cost. They divide into batches as full as the budget allows, the costliest
    first. A random one of these batches goes out, and as many utterances come in.

    With ``sync`` the n-th draw is the same in all lanes. Their windows are samples of one distribution, so the batches
    drawn are of similar length in all lanes, and ranks need not communicate.
    """

    state_fields = ("given",)

    def __init__(
        self,
        source: Node,
        lane: Lane,
        site: Site,
        stage: BudgetStage,
        budget: Budget,
        window: int,
        max_wait: int,
        sync: bool,
    ) -> None:
        super().__init__(source, lane, site, stage, budget)
        self.room, self.window, self.max_wait = budget.room, window, max_wait
        self.key = lane.order_key(site) if sync else lane.key(site)

    def start(self) -> None:
        self.given = 0  # batches that went out

    def state_kinds(self) -> dict[str, Kind]:
        return {"given": whole()}

    def bounds(self) -> tuple[int, int]:
        return self.window, self.max_wait + self.window**2  # each batch may let as many in as the window holds

    def order(self) -> list[int]:
        return [number for _, number in self.sorted]

    def rebuild(self, order: list[int]) -> None:
        self.sorted = [(self.cost(number), number) for number in order]
        if self.sorted != sorted(self.sorted):
            raise self.damaged("held is not sorted by length")

    def next(self) -> list[Sample]:
        while len(self.sorted) < self.window and (arrived := self.arrival()) is not None:
            number, cost = arrived
            insort(self.sorted, (cost, number))
        if not self.sorted:
            raise StopIteration
        slots = self._slots()
        at = self._slot_of_oldest(slots) if self.age() > self.max_wait else pick(self.key, self.given, len(slots))
        first, last = slots[at]
        self.given += 1
        taken, self.sorted[first:last] = self.sorted[first:last], []
        return self.give([number for _, number in taken])

    def _slots(self) -> list[tuple[int, int]]:
        """Return the ranges of the batches that the window divides into, the costliest first."""
        slots, first = [], len(self.sorted)
        while first > 0:
            last, first = first, max(0, first - self.room(self.sorted[first - 1][0]))
            slots.append((first, last))
        while last < len(self.sorted) and self.room(self.sorted[last][0]) > last:
            last += 1  # the cheapest ones make a full batch, too, which overlaps with the one before
        slots[-1] = (0, last)
        return slots

    def _slot_of_oldest(self, slots: list[tuple[int, int]]) -> int:
        place = bisect_left(self.sorted, (self.cost(self.oldest), self.oldest))
        return next(at for at, (first, last) in enumerate(slots) if first <= place < last)
