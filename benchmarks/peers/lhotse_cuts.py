"""Lhotse's map-style way: cuts of files, and a sampler in the main process, whose state is kept and loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.peers import Batch, Resumable, Work

__all__ = ["batches"]


def batches(work: Work) -> Resumable:
    """Give the recorded batches as lists of cuts, and go on by the sampler's ``load_state_dict``."""
    from lhotse import CutSet, MonoCut, Recording
    from lhotse.dataset import AudioSamples, K2SpeechRecognitionDataset
    from lhotse.dataset.sampling.base import CutSampler
    from lhotse.supervision import SupervisionSegment
    from torch.utils.data import DataLoader

    class Recorded(CutSampler):  # type: ignore[misc]
        """Yields batches that were chosen before; all else of a sampler is Lhotse's."""

        def __init__(self, batches: list[Any]) -> None:
            super().__init__(world_size=1, rank=0, seed=work.seed)
            self.batches, self.rest = batches, iter(batches)

        def __iter__(self) -> Recorded:
            if not self._just_restored_state:
                self.diagnostics.reset_current_epoch()
                self.rest = iter(self.batches)
            return self

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            super().load_state_dict(state_dict)
            self.rest = iter(self.batches[self.diagnostics.current_epoch_stats.total_batches :])

        def _next_batch(self) -> Any:
            return next(self.rest)

    def cut(line: str) -> MonoCut:
        known = json.loads(line)
        recording = Recording.from_file(known["wav"], recording_id=known["key"])
        said = SupervisionSegment(known["key"], known["key"], 0.0, recording.duration, 0, text=known["txt"])
        return MonoCut(known["key"], 0.0, recording.duration, 0, supervisions=[said], recording=recording)

    manifest = work.corpus.folder / "cuts.jsonl.gz"
    if not manifest.exists():
        CutSet.from_cuts(map(cut, work.corpus.wavs().read_text().splitlines())).to_file(manifest)
    cuts = {cut.id: cut for cut in CutSet.from_file(manifest)}
    sampler = Recorded([CutSet.from_cuts(cuts[key] for key in keys) for keys in work.order or []])
    if work.state is not None:
        sampler.load_state_dict(dict(work.state))
    dataset = K2SpeechRecognitionDataset(return_cuts=True, input_strategy=AudioSamples())

    def loaded() -> Iterator[Batch]:
        for batch in DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=work.workers):
            said = batch["supervisions"]
            yield Batch([cut.id for cut in said["cut"]], batch["inputs"], said["num_samples"])

    return Resumable(loaded(), sampler.state_dict)
