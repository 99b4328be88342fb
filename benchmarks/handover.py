"""Claim: batches get from a worker to the trainer at the speed of a memory copy, faster than through torch's
DataLoader.

The worker only writes the tensor of the batch, as ``pad`` does; the trainer copies each batch to a fixed place, on a
GPU if there is one. Batches are 0.25 to 32 MiB of float32. They are compared with the same worker in torch's
``DataLoader``, with the same copies in one process (write, copy out, copy to the place), and with what this package
would do without leases of a worker's memory: a copy of each batch to memory of the main process, which with a GPU is
pinned memory. ``python -m benchmarks.handover``.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread

MODULE = "benchmarks.handover"
SIZES = sized((0.25, 1, 4, 32), (1,))  # MiB
TOTAL = sized(3000, 40)  # MiB handed over
WARM = 10  # batches
GPU = torch.cuda.is_available()
LEASED, COPIED, ONE = "uio_pipes", "uio_pipes without leases", "one process"


def measure(way: str, mib: float) -> dict[str, Any]:
    """Measure MiB per second, and the CPU time of all processes per MiB."""
    ways: dict[str, Callable[[int, int], Iterator[Any]]]
    ways = {LEASED: _ours, COPIED: _copied, "torch": _torch, ONE: _copies}
    frames = int(mib * 2**20 / 4 / 80 / 16)
    count = int(min(4000, TOTAL / mib))
    kept = torch.zeros(16, frames, 80, device="cuda" if GPU else "cpu")
    began = cpu = 0.0
    batches = ways[way](frames, count + WARM)
    for number, batch in enumerate(batches):
        if number == WARM:
            if GPU:
                torch.cuda.synchronize()
            began, cpu = time.perf_counter(), _cpu()
        kept.copy_(batch, non_blocking=True)
    if GPU:
        torch.cuda.synchronize()
    wall = time.perf_counter() - began
    del batches
    moved = count * kept.nbytes / 2**20
    return {"speed": moved / wall, "cpu": (_cpu() - cpu) / moved * 1e6, "each": wall / count * 1e6}


def _cpu() -> float:
    """Return the CPU time of this process, and of its workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _ours(frames: int, count: int, **options: Any) -> Iterator[Any]:
    import uio_pipes as uio
    from uio_pipes.core import realize as batch_memory

    class Make(uio.Node):
        """A source of batches that costs nothing."""

        def next(self) -> dict[str, Any]:
            self.source.next()
            return {"feats": batch_memory.empty((16, frames, 80), torch.float32).fill_(1.0)}

    graph = uio.from_iterable([{"key": str(i), "label": [1]} for i in range(count)]).batch(1).through(Make)
    for batch in uio.Loader(graph, num_workers=1, **options):
        yield batch["feats"]


def _copied(frames: int, count: int) -> Iterator[Any]:
    from uio_pipes.run import shared_memory

    shared_memory.LENT = 0
    yield from _ours(frames, count, pin_memory=GPU)


class _Batches(IterableDataset[Any]):
    def __init__(self, frames: int, count: int) -> None:
        self.frames, self.count = frames, count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.count):
            yield {"feats": torch.empty((16, self.frames, 80)).fill_(1.0)}


def _torch(frames: int, count: int) -> Iterator[Any]:
    for batch in DataLoader(_Batches(frames, count), batch_size=None, num_workers=1, pin_memory=GPU):
        yield batch["feats"]


def _copies(frames: int, count: int) -> Iterator[Any]:
    """Yield what the memory allows: each batch is written and copied once, with no process in between."""
    for batch in _Batches(frames, count):
        yield batch["feats"].clone()


def main() -> None:
    """Measure all and write results/handover.md."""
    arguments = begin(measure, parser(__doc__, repeats=5))
    report = Report("handover", "Batches from a worker to the trainer")
    rows, ratios = [], []
    for mib in SIZES:
        jobs = {way: {"way": way, "mib": mib} for way in (LEASED, COPIED, "torch", ONE)}
        results = rounds(MODULE, jobs, arguments.repeats)
        report.ran(results, f"{mib} MiB, ")
        ours, _, torchs, limit = (median(runs, "speed") for runs in results.values())
        ratios.append((ours / torchs, median(results["torch"], "cpu") / median(results[LEASED], "cpu")))
        for name, runs in results.items():
            speeds = [spread(runs, field, ".0f") for field in ("speed", "each", "cpu")]
            rows.append([f"{mib} MiB, {name}", *speeds, ratio(median(runs, "speed"), limit)])
    columns = ["batches", "MiB/s", "µs a batch", "CPU, µs per MiB", "against one process"]
    report.table("One worker", columns, rows, plot=[1])
    wall, cpu = (min(pair[i] for pair in ratios) for i in (0, 1))
    report.target(
        "faster than torch's DataLoader at every size",
        wall >= 1,
        f"at least {wall:.2f} × its speed, CPU at least {cpu:.2f} × less",
    )
    report.text(
        '"One process" does the same writing and copying in turn, without a worker: with a worker two cores share '
        "it, so that more than 1 × is possible."
    )
    report.write()


if __name__ == "__main__":
    main()
