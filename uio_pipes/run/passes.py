"""Counts the passes over a dataset that other loaders run, and so tells each of their workers its epoch.

Only workers learn that a pass begins, each by itself. They may be new in every pass or live on, begin late, belong to a
pass that was left or to a second loader, and be more than before. So each notes which passes it began, in memory that
all share. The first worker of a pass decides on the epoch, and the others find it in its notes; those that look at the
same time come to the same. A worker writes only its own notes, so there is no lock to copy or pickle.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import get_worker_info

from uio_pipes.base.checks import require_whole
from uio_pipes.base.errors import PipelineError
from uio_pipes.run.lost_workers import explained

UNSET = -1
MOST_WORKERS = 1024
REMEMBERED = 4  # passes
EPOCHS, MARKS = 1 << 22, 1 << 19  # a note is (turn × EPOCHS + epoch) × MARKS + mark; 22 bits are left for turns
NOTHING, DELIVERED, FAILED = range(3)  # how a worker's epoch ended


class Passes:
    """The passes over a dataset: each is the epoch after the one before, unless ``ask`` or a loaded state says another.

    A turn begins whenever one of these does, so that of two notes the greater one is the later.
    """

    def __init__(self) -> None:
        """Raises: RuntimeError if there is no room in the memory that processes share."""
        self.__setstate__((torch.full((1 + MOST_WORKERS * (REMEMBERED + 1),), UNSET), 0))

    def __getstate__(self) -> tuple[torch.Tensor, int]:
        return self._memory, self._count

    def __setstate__(self, state: tuple[torch.Tensor, int]) -> None:
        """Share the memory, which is shared already in a spawned worker. A copy has memory of its own."""
        memory: Any
        memory, self._count = state  # the count: of passes that this process began
        try:
            self._memory = memory.share_memory_()
        except RuntimeError as error:
            raise explained(error) from error
        # turn × EPOCHS + epoch; notes; 3 × the epoch that each worker ended last, plus how it ended
        self._asked, notes, self._ends = memory.split([1, MOST_WORKERS * REMEMBERED, MOST_WORKERS])
        self._notes = notes.view(MOST_WORKERS, REMEMBERED)

    def ask(self, epoch: int) -> None:
        """Let the next pass be ``epoch``. Raises: PipelineError if it is not a whole number from 0 to 4 million."""
        require_whole("epoch", epoch, 0)
        if epoch >= EPOCHS:
            raise PipelineError(f"epoch must be below {EPOCHS}, not {epoch}: it counts rounds of the data, not steps")
        turn = max(int(self._asked) // EPOCHS, int(self._notes.max()) // (EPOCHS * MARKS)) + 1
        self._asked[0] = turn * EPOCHS + epoch

    def begin(self, loaded: int | None) -> tuple[int, int | None]:
        """Return the epoch of the pass that begins now, and the epoch before if it was left and is not gone on with.

        ``loaded``: the epoch of a state that was loaded for this pass.
        """
        worker, mark = self._place()
        notes, left = self._notes.tolist(), None  # one look at them: another worker may write now
        own, all_notes = notes[worker], [note for row in notes for note in row]
        same = [note for note in all_notes if note % MARKS == mark and note != UNSET and note not in own]
        if same:
            when = max(same) // MARKS
        else:
            last, asked = max(all_notes) // MARKS, int(self._asked)  # UNSET // MARKS is UNSET
            if asked // EPOCHS > last // EPOCHS:
                when = asked
            elif loaded is not None:
                when = (last // EPOCHS + 1) * EPOCHS + loaded
            else:
                when, left = last + 1, last % EPOCHS if last != UNSET and self._was_left(last) else None
        self._notes[worker, own.index(min(own))] = when * MARKS + mark
        return when % EPOCHS, left

    def _place(self) -> tuple[int, int]:
        """Return the number of this worker and a mark of the pass, equal in all of its workers."""
        self._count += 1
        if (info := get_worker_info()) is None:
            return 0, 0
        of_loader = info.seed - info.id, info.num_workers
        return info.id % MOST_WORKERS, hash((*of_loader, self._count)) % (MARKS - 1) + 1

    def _was_left(self, when: int) -> bool:
        began = (self._notes // MARKS == when).any(1)
        return bool((self._ends[began] // 3 != when % EPOCHS).any())

    def end(self, worker: int, workers: int, epoch: int, how: int) -> list[int]:
        """Note how a worker's epoch ended. Returns how it ended for the others, as far as it has."""
        ends = self._ends[:workers]
        if worker < len(ends):
            ends[worker] = 3 * epoch + how
        return [int(end) - 3 * epoch for i, end in enumerate(ends) if i != worker]
