"""Plain torchdata: its nodes over Python's tarfile, with the stages as functions, in its ``StatefulDataLoader``, which
goes on in an epoch by making again all that came before; nothing of WeNet's."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.peers import SHUFFLE, Batch, Resumable, Work
from benchmarks.peers.stages import Divided, Utterance, batched, by_soundfile, padded, prepared
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


def batches(work: Work) -> Resumable:
    """Run ``IterableWrapper`` → ``Mapper`` nodes; each worker runs them on its share of the shards."""
    from torchdata.nodes import IterableWrapper, Loader, Mapper
    from torchdata.stateful_dataloader import StatefulDataLoader

    def graph(paths: list[str]) -> Iterable[Batch]:
        decoded = Mapper(IterableWrapper(tar_utterances(paths)), by_soundfile)
        utterances: Iterable[Utterance] = Loader(Mapper(decoded, lambda utterance: prepared(utterance, work)))
        if work.buffers:
            utterances = _shuffled(utterances, work.seed)
        return map(padded, batched(utterances, work))

    paths = Path(work.corpus.list(work.kind)).read_text().split()
    random.Random(work.seed).shuffle(paths)
    loader = StatefulDataLoader(Divided(paths, graph), batch_size=None, num_workers=work.workers)
    if work.state is not None:
        loader.load_state_dict(work.state)
    return Resumable(loader, loader.state_dict)
