"""Claim: memory is flat (± 1 %) over 100,000 batches, 20 epochs and 50 resumes in one process, and no handle is leaked.

Measured is the resident size, anonymous and shared, of the main process and of its largest worker. Mapped files, mostly
libraries, are left out, because the kernel drops and reloads them as it likes. A worker counts the memory that it
shares with the main process. Utterances are 0.3 s long; the graph is complete, with its buffers; without workers and
with two. Flat means: the mean of the last tenth against that of the second tenth (the first is the warm-up). Every
measurement is a process of its own: ``python -m benchmarks.memory``.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, begin, child, parser, sized
from benchmarks.corpus import tar_of, wav_of
from benchmarks.owned import children, owned, resident

MODULE = "benchmarks.memory"
SHARDS, EACH = sized((20, 250), (4, 50))
EVERY = sized(100, 1)  # batches between two looks
BUDGET = sized(3000, 90)
LIMIT = 0.01
LOOPS = sized({"batches": 100_000, "epochs": 20, "resumes": 50}, {"batches": 40, "epochs": 4, "resumes": 4})


def make(folder: Path) -> str:
    """Write shards of short noises; return the path of their list."""
    noise = np.random.default_rng(0)
    for shard in range(SHARDS):
        members = []
        for i in range(EACH):
            samples = noise.integers(-3000, 3000, int(noise.integers(3200, 6400)), np.int16)
            members += [(f"{shard:02}-{i:04}.txt", b"a short text"), (f"{shard:02}-{i:04}.wav", wav_of(samples))]
        (folder / f"{shard:02}.tar").write_bytes(tar_of(members))
    path = folder / "shards.list"
    path.write_text("\n".join(map(str, sorted(folder.glob("*.tar")))))
    return str(path)


def measure(path: str, what: str, workers: int, count: int) -> dict[str, Any]:
    """Measure resident sizes over one of the loops, and the handles that it left."""
    loops: dict[str, Callable[[str, int, int], Iterator[None]]] = {
        "batches": _batches,
        "epochs": _epochs,
        "resumes": _resumes,
    }
    list(loops[what](path, workers, SHARDS * EACH if what == "batches" else 2))  # opens files that stay open
    gc.collect()
    time.sleep(1)  # until ending threads have ended
    before, mine, theirs = owned(), [], []
    for _ in loops[what](path, workers, count):
        mine.append(resident(os.getpid()))
        theirs.append(max(map(resident, children(os.getpid())), default=0))
    gc.collect()
    after = _settled(before)
    return {"main": mine, "workers": theirs, "left": {k: max(0, after[k] - before[k]) for k in before}}


def _settled(before: dict[str, int]) -> dict[str, int]:
    """Return the handles once processes and threads that are ending have ended."""
    for _ in range(100):
        if all(found <= before[name] for name, found in owned().items()):
            break
        time.sleep(0.05)
    return owned()


def _graph(path: str) -> Any:
    import uio_pipes as uio

    graph = uio.from_shard_list(path, shuffle=True).decode_audio().speed_perturb([0.9, 1.0, 1.1])
    return graph.fbank(num_mel_bins=80, dither=0.1).spec_aug()


def _batches(path: str, workers: int, count: int) -> Iterator[None]:
    """Run one endless stream; batches of one utterance, of sizes for both ways from a worker."""
    import uio_pipes as uio

    graph = _graph(path).repeat().shuffle(300).sort(100).batch(1).pad()
    loader = uio.Loader(graph, num_workers=workers, steps_per_epoch=count)
    for number, _ in enumerate(loader, 1):
        if number % 10 == 0:
            loader.state_dict()
        if number % EVERY == 0:
            yield


def _epochs(path: str, workers: int, count: int) -> Iterator[None]:
    """Run whole epochs: workers start and end with each. Look near the end of each, when buffers have been full."""
    import uio_pipes as uio

    loader = uio.Loader(_graph(path).shuffle(1500).sort(500).dynamic_batch(BUDGET).pad(), num_workers=workers)
    for epoch in range(count):
        loader.set_epoch(epoch)
        for number, _ in enumerate(loader):
            if number == 40:
                yield


def _resumes(path: str, workers: int, count: int) -> Iterator[None]:
    """Return one loader to the same state again and again."""
    import uio_pipes as uio

    loader = uio.Loader(_graph(path).shuffle(1500).sort(500).dynamic_batch(BUDGET).pad(), num_workers=workers)
    batches = iter(loader)
    for _ in range(20):
        next(batches)
    state = loader.state_dict()
    for _ in range(count):
        loader.load_state_dict(state)
        for number, _ in enumerate(loader):
            if number == 10:
                yield
                break


def growth(sizes: list[int]) -> float:
    """Return the growth from the second tenth to the last, relative."""
    tenth = max(1, len(sizes) // 10)
    return float(np.mean(sizes[-tenth:]) / np.mean(sizes[tenth : 2 * tenth]) - 1)


def main() -> None:
    """Measure all and write results/memory.md."""
    begin(measure, parser(__doc__, repeats=1))
    report = Report("memory", "Memory and handles in long runs")
    rows, largest, left = [], 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder))
        for what, count in LOOPS.items():
            for workers in (0, 2):
                found = child(MODULE, path=path, what=what, workers=workers, count=count)
                if "error" in found:
                    report.text(f"- {what}, {workers} workers did not run: {found['error']}")
                    continue
                for process in ("main", "workers") if workers else ("main",):
                    sizes = found[process]
                    largest = max(largest, abs(growth(sizes)))
                    mib = [f"{size / 2**20:.1f}" for size in (sizes[len(sizes) // 10], sizes[-1], max(sizes))]
                    name = f"{count:,} {what}, {workers} workers: {process}"
                    rows.append([name, *mib, f"{100 * growth(sizes):+.2f} %"])
                left += sum(found["left"].values())
                if any(found["left"].values()):
                    report.text(f"- {what}, {workers} workers left behind: {found['left']}")
    columns = ["", "after a tenth", "at the end", "at most", "growth"]
    report.table("Resident size, MiB", columns, rows, plot=[1, 2, 3])
    report.target("resident size flat (± 1 %)", largest <= LIMIT, f"{100 * largest:.2f} % at most")
    report.target("no descriptor, thread, process or shared memory file is left", left == 0, f"{left} left")
    report.write()


if __name__ == "__main__":
    main()
