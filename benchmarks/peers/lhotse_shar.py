"""Lhotse: Shar, dynamic bucketing, its own fbank on the fly (in whole batches), its own SpecAugment without warping."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.corpus import Corpus
from benchmarks.peers import BUDGET, DITHER, MELS, SHUFFLE, SORT, Batch

__all__ = ["batches"]


def batches(corpus: Corpus, seed: int, check: bool) -> Iterator[Batch]:
    """The budget in seconds is that of the others in frames; the buffer holds as many as shuffle and sort together."""
    from lhotse import CutSet, Fbank, FbankConfig
    from lhotse.dataset import (
        DynamicBucketingSampler,
        IterableDatasetWrapper,
        K2SpeechRecognitionDataset,
        OnTheFlyFeatures,
        SpecAugment,
    )

    cuts = CutSet.from_shar(in_dir=corpus.shar, shuffle_shards=True, seed=seed)
    sampler = DynamicBucketingSampler(
        cuts,
        max_duration=BUDGET / 100,
        num_buckets=10,
        shuffle=True,
        buffer_size=SHUFFLE + SORT,
        num_cuts_for_bins_estimate=SHUFFLE,
        seed=seed,
        rank=0,
        world_size=1,
    )
    masks = SpecAugment(0, num_feature_masks=2, features_mask_size=10, num_frame_masks=2, frames_mask_size=50, p=1.0)
    config = FbankConfig(num_filters=MELS, high_freq=0.0, dither=0.0 if check else DITHER / 32768)
    dataset = K2SpeechRecognitionDataset(
        return_cuts=True,
        input_strategy=OnTheFlyFeatures(Fbank(config)),
        input_transforms=[] if check else [masks],
    )
    for batch in IterableDatasetWrapper(dataset, sampler):
        supervisions = batch["supervisions"]
        yield Batch([cut.id for cut in supervisions["cut"]], batch["inputs"], supervisions["num_frames"])
