"""Mosaic streaming: the same utterances in MDS shards, written once; its dataset shuffles, its loader has the state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers import EACH, Batch, Resumable, Work
from benchmarks.peers.lit_data import utterances
from benchmarks.peers.stages import Utterance, by_budget, by_soundfile, padded, prepared, sort

__all__ = ["batches"]


def _written(work: Work) -> str:
    """Write the shards, as its documentation does, if they are not there."""
    from streaming import MDSWriter

    folder = Path(work.corpus.folder) / f"mosaic.{work.kind}"
    if not (folder / "index.json").exists():
        columns = {"key": "str", "txt": "str", "wav": "bytes"}
        with MDSWriter(out=str(folder), columns=columns, exist_ok=True) as writer:
            for shard in work.corpus.shards(work.kind):
                for utterance in utterances(shard):
                    writer.write(utterance)
    return str(folder)


class _Decoded:
    """Decodes what is read, in the worker that read it; the loader counts what is in the first field."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, items: list[dict[str, Any]]) -> dict[str, list[Utterance]]:
        return {"utterances": [prepared(by_soundfile(item), self.work) for item in items]}


def batches(work: Work) -> Resumable:
    """Run one epoch. Its loader only makes batches of a fixed size, so the main process sorts, fills the budget and
    pads."""
    from streaming import StreamingDataLoader, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()  # what a killed run has left
    size = 1 if work.buffers else EACH
    dataset = StreamingDataset(local=_written(work), shuffle=True, shuffle_seed=work.seed, batch_size=size)
    loader = StreamingDataLoader(dataset, batch_size=size, num_workers=work.workers, collate_fn=_Decoded(work))
    if work.state is not None:
        loader.load_state_dict(work.state)

    def loaded() -> Iterator[Batch]:
        if work.buffers:
            yield from map(padded, by_budget(sort(one for some in loader for one in some["utterances"])))
        else:
            yield from (padded(some["utterances"]) for some in loader)

    return Resumable(loaded(), loader.state_dict)
