"""LitData: the same utterances in its own chunks, written once, all shuffled; its loader starts the workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers import EACH, Batch, Resumable, Work
from benchmarks.peers.stages import Utterance, by_budget, by_soundfile, padded, prepared, sort

__all__ = ["batches", "utterances"]

CHUNK = "64MB"


def utterances(shard: str) -> Iterator[dict[str, Any]]:
    """Yield what is written of a shard."""
    import uio_pipes as uio

    for sample in uio.Loader(uio.from_shard_list(shard)):
        yield {"key": sample["key"], "txt": sample["txt"], "wav": bytes(sample["wav"])}


def _written(work: Work) -> str:
    """Write the chunks, as ``litdata.optimize`` does, if they are not there."""
    from litdata import optimize

    folder = Path(work.corpus.folder) / f"litdata.{work.kind}"
    if not (folder / "index.json").exists():
        optimize(utterances, work.corpus.shards(work.kind), str(folder), chunk_bytes=CHUNK, num_workers=1)
    return str(folder)


class _Decoded:
    """Decodes what is read, in the worker that read it."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, items: list[dict[str, Any]]) -> list[Utterance]:
        return [prepared(by_soundfile(dict(item)), self.work) for item in items]


def batches(work: Work) -> Resumable:
    """Run one epoch. Its loader only makes batches of a fixed size, so the main process sorts, fills the budget and
    pads."""
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(_written(work), shuffle=True, seed=work.seed)
    size = 1 if work.buffers else EACH
    loader = StreamingDataLoader(dataset, batch_size=size, num_workers=work.workers, collate_fn=_Decoded(work))
    if work.state is not None:
        loader.load_state_dict(work.state)

    def loaded() -> Iterator[Batch]:
        if work.buffers:
            yield from map(padded, by_budget(sort(one for some in loader for one in some)))
        else:
            yield from map(padded, loader)

    return Resumable(loaded(), loader.state_dict)
