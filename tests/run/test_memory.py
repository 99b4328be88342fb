"""A long run in one process: many batches, epochs and resumes leave no handle, and no memory that grows."""

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus import Corpus
from processes import children

import uio_pipes as uio

MIB = 1 << 20
GROWTH = 24 * MIB  # allocators keep some; what leaks in each of so many rounds is more


def graph(corpus: Corpus) -> uio.Pipeline:
    return uio.from_shard_list(corpus.list, shuffle=True).decode_audio().fbank(num_mel_bins=80, dither=0.1).shuffle(8)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles() -> dict[str, int]:
    """Descriptors, threads, children (zombies, too) and files in shared memory."""
    gc.collect()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "processes": len(children(zombies=True)),
        "shared memory": sum(f"_{os.getpid()}_" in name for name in os.listdir("/dev/shm")),
        "rings": sum("memfd:uio_pipes" in line for line in Path("/proc/self/maps").read_text().splitlines()),
    }


def settled(wanted: dict[str, int]) -> dict[str, int]:
    """Handles, once what is ending has ended."""
    for _ in range(400):
        if all(found <= wanted[name] for name, found in handles().items()):
            break
        time.sleep(0.05)
    return handles()


def stays_flat(round_: Callable[[], None], rounds: int) -> None:
    """Raises: AssertionError if ``round_`` leaves something each time."""
    for _ in range(max(2, rounds // 5)):
        round_()
    before, size = handles(), resident()
    for _ in range(rounds):
        round_()
    after = settled(before)
    assert all(after[name] <= before[name] for name in before), (before, after)
    assert resident() - size < GROWTH


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs(plain_corpus: Corpus, workers: int) -> None:
    loader = uio.Loader(graph(plain_corpus).batch(2).pad(), num_workers=workers)

    def epoch() -> None:
        assert sum(1 for _ in loader) > 0

    stays_flat(epoch, 10)


@pytest.mark.parametrize("workers", [0, 2])
def test_resumes(plain_corpus: Corpus, workers: int) -> None:
    loader = uio.Loader(graph(plain_corpus).batch(2).pad(), num_workers=workers)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()

    def resume() -> None:
        loader.load_state_dict(state)
        next(iter(loader))

    stays_flat(resume, 30 if workers == 0 else 10)


def test_forgotten_loaders(plain_corpus: Corpus) -> None:
    def make() -> None:
        next(iter(uio.to_device(uio.Loader(graph(plain_corpus).batch(2).pad(), num_workers=1), "cpu")))

    stays_flat(make, 8)


@pytest.mark.parametrize("workers", [0, 1])
def test_many_batches(plain_corpus: Corpus, workers: int) -> None:
    tiny = uio.from_shard_list(plain_corpus.list).decode_audio().repeat().batch(1).pad()
    batches = iter(uio.Loader(tiny, num_workers=workers, steps_per_epoch=10**6))

    def some() -> None:
        for _ in range(250):
            next(batches)

    stays_flat(some, 10)
