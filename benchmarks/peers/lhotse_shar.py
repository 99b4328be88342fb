"""Lhotse: Shar, dynamic bucketing, its own fbank on the fly (in whole batches), its own SpecAugment without warping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.peers import BUDGET, DITHER, EACH, MELS, SHUFFLE, SORT, Batch, Resumable, Work
from benchmarks.peers.stages import in_workers

__all__ = ["batches"]


def batches(work: Work) -> Iterable[Batch]:
    """Run one epoch. The budget in seconds equals that of the others in frames; the buffer holds as many as shuffle and
    sort together. The sampler has a state, which cannot be had where workers have copies of it."""
    from lhotse import CutSet
    from lhotse.dataset import DynamicBucketingSampler, DynamicCutSampler, IterableDatasetWrapper, make_worker_init_fn

    cuts = CutSet.from_shar(
        in_dir=work.corpus.shar(work.kind),
        shuffle_shards=True,
        seed=work.seed,
        split_for_dataloading=work.workers > 0,
    )
    if work.buffers:
        sampler = DynamicBucketingSampler(
            cuts,
            max_duration=BUDGET / 100,
            num_buckets=10,
            shuffle=True,
            buffer_size=SHUFFLE + SORT,
            num_cuts_for_bins_estimate=SHUFFLE,
            seed=work.seed,
            rank=0,
            world_size=1,
        )
    else:
        sampler = DynamicCutSampler(cuts, max_cuts=EACH, seed=work.seed, rank=0, world_size=1)
    if work.state is not None:
        sampler.load_state_dict(work.state)
    start = make_worker_init_fn(rank=0, world_size=1, seed=work.seed)
    options = {"worker_init_fn": start} if work.workers else {}
    loaded = in_workers(IterableDatasetWrapper(_dataset(work), sampler), work.workers, **options)
    return _batches(loaded) if work.workers else Resumable(_batches(loaded), sampler.state_dict)


def _batches(loaded: Iterable[Any]) -> Iterator[Batch]:
    for batch in loaded:
        supervisions = batch["supervisions"]
        yield Batch([cut.id for cut in supervisions["cut"]], batch["inputs"], _lengths(supervisions))


def _dataset(work: Work) -> Any:
    from lhotse import Fbank, FbankConfig
    from lhotse.dataset import AudioSamples, K2SpeechRecognitionDataset, OnTheFlyFeatures, SpecAugment

    if not work.features:
        return K2SpeechRecognitionDataset(return_cuts=True, input_strategy=AudioSamples())
    masks = SpecAugment(0, num_feature_masks=2, features_mask_size=10, num_frame_masks=2, frames_mask_size=50, p=1.0)
    config = FbankConfig(num_filters=MELS, high_freq=0.0, dither=0.0 if work.check else DITHER / 32768)
    return K2SpeechRecognitionDataset(
        return_cuts=True,
        input_strategy=OnTheFlyFeatures(Fbank(config)),
        input_transforms=[] if work.check else [masks],
    )


def _lengths(supervisions: dict[str, Any]) -> Any:
    return supervisions["num_frames"] if "num_frames" in supervisions else supervisions["num_samples"]
