"""icefall's loader of waves (``--input-strategy AudioSamples``): Lhotse's dataset and sampler."""

from collections.abc import Iterator
from typing import Any

from lhotse import CutSet, Recording, SupervisionSegment
from lhotse.dataset import AudioSamples, K2SpeechRecognitionDataset, SimpleCutSampler
from own_batches import LIST, ROWS, check_same
from torch.utils.data import DataLoader

import uio_pipes as uio

cuts = []
for row in ROWS:
    cut = Recording.from_file(row["wav"], row["key"]).to_cut()
    cut.supervisions = [SupervisionSegment(row["key"], row["key"], 0, cut.duration, text=row["txt"])]
    cuts.append(cut)


def own(**limit: Any) -> Iterator[dict[str, Any]]:
    sampler = SimpleCutSampler(CutSet.from_cuts(cuts), **limit)
    dataset = K2SpeechRecognitionDataset(input_strategy=AudioSamples())
    for batch in DataLoader(dataset, sampler=sampler, batch_size=None):
        said = batch["supervisions"]
        yield {"pcm": batch["inputs"], "pcm_length": said["num_samples"], "txt": said["text"]}


corpus = uio.from_raw_list(LIST).decode_audio()
check_same(own(max_cuts=4), uio.Loader(corpus.batch(4).pad(keep=["txt"])))
sized = corpus.dynamic_batch(max_samples=8 * 16_000)
check_same(own(max_duration=8.0), uio.Loader(sized.pad(keep=["txt"])), count=13)
