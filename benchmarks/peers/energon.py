"""NVIDIA's Energon: the same webdataset shards, prepared (indexed) once; its packing makes the sorted batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import EACH, SHUFFLE, SORT, Resumable, Work
from benchmarks.peers.stages import by_budget, by_soundfile, padded, prepared, sort

__all__ = ["batches"]

DATASET = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"


def _prepared(work: Work) -> Path:
    """Write what ``energon prepare`` writes (an index, a split, the kind), in a folder with links to the shards."""
    folder = work.corpus.folder / f"energon.{work.kind}"
    if (folder / ".nv-meta" / "dataset.yaml").exists():
        return folder
    from megatron.energon.flavors.webdataset import BaseWebdatasetFactory

    folder.mkdir(exist_ok=True)
    shards = [Path(shard).resolve() for shard in work.corpus.shards(work.kind)]
    for shard in shards:
        (folder / shard.name).symlink_to(shard)
    names = [shard.name for shard in shards]
    BaseWebdatasetFactory.prepare_dataset(folder, names, split_parts_ratio=[("train", 1.0)], workers=1)
    (folder / ".nv-meta" / "dataset.yaml").write_text(DATASET)
    return folder


def batches(work: Work) -> Resumable:
    """Run one epoch, or go on with the next, which is the default of ``repeat`` and what its page on saving shows. The
    state of an epoch whose shards are all read begins it anew. The shuffle comes before decoding, as Energon builds
    it."""
    from megatron import energon

    @dataclass
    class Spoken(energon.Sample):  # type: ignore[misc]
        audio: bytes

    @energon.stateless
    def cook(sample: dict[str, Any]) -> Spoken:
        audio = sample["flac"] if "flac" in sample else sample["wav"]
        return Spoken(**energon.basic_sample_keys(sample), audio=bytes(audio))

    class Encoder(energon.TaskEncoder):  # type: ignore[misc]
        cookers = (energon.Cooker(cook),)
        decoder = None

        @energon.stateless
        def encode_sample(self, sample: Spoken) -> dict[str, Any]:
            key = sample.__key__.rpartition("/")[2]
            utterance = prepared(by_soundfile({"key": key, "wav": sample.audio}), work)
            return {**utterance, "__key__": sample.__key__, "__restore_key__": sample.__restore_key__}

        def batch(self, samples: list[Any]) -> Any:
            return padded(samples)

    class Packing(Encoder):
        """Batches of similar length, within the budget."""

        batch = energon.TaskEncoder.batch

        def select_samples_to_pack(self, samples: list[Any]) -> list[list[Any]]:
            return list(by_budget(sort(samples)))

        @energon.stateless
        def pack_selected_samples(self, samples: list[Any]) -> Any:
            return padded(samples)

    torch.manual_seed(work.seed)
    config = energon.WorkerConfig(rank=0, world_size=1, num_workers=work.workers)
    dataset = energon.get_train_dataset(
        _prepared(work),
        worker_config=config,
        batch_size=None if work.buffers else EACH,
        packing_buffer_size=SORT if work.buffers else None,
        shuffle_buffer_size=SHUFFLE if work.buffers else None,
        max_samples_per_sequence=None,
        task_encoder=Packing() if work.buffers else Encoder(),
        repeat=work.endless,
    )
    loader = energon.get_savable_loader(dataset)
    if work.state is not None:
        loader.restore_state_rank(work.state)
    return Resumable(loader, loader.save_state_rank, work.endless)
