"""Plain torchdata: its nodes over Python's tarfile, with the stages as functions; nothing of WeNet's."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.peers import SHUFFLE, Batch, Work
from benchmarks.peers.stages import Divided, Utterance, by_budget, by_soundfile, in_workers, padded, prepared, sort
from benchmarks.peers.wenet import tar_utterances

__all__ = ["batches"]


def _shuffled(utterances: Iterable[Utterance], seed: int) -> Iterator[Utterance]:
    held: list[Utterance] = []
    rng = random.Random(seed)
    for utterance in utterances:
        if len(held) < SHUFFLE:
            held.append(utterance)
            continue
        at = rng.randrange(SHUFFLE)
        held[at], utterance = utterance, held[at]
        yield utterance
    rng.shuffle(held)
    yield from held


def batches(work: Work) -> Iterator[Batch]:
    """Run ``IterableWrapper`` → ``Mapper`` nodes; each worker runs them on its share of the shards."""
    from torchdata.nodes import IterableWrapper, Loader, Mapper

    def graph(paths: list[str]) -> Iterable[Batch]:
        decoded = Mapper(IterableWrapper(tar_utterances(paths)), by_soundfile)
        features = Loader(Mapper(decoded, lambda utterance: prepared(utterance, work)))
        return map(padded, by_budget(sort(_shuffled(features, work.seed))))

    paths = Path(work.corpus.list(work.kind)).read_text().split()
    random.Random(work.seed).shuffle(paths)
    yield from in_workers(Divided(paths, graph), work.workers)
