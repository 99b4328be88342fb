"""Statistics as scalars, with the real TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import Corpus

import uio_pipes as uio

pytest.importorskip("tensorboard", reason="could not import tensorboard: pip install tensorboard")


def test_a_summary_writer_gets_every_count(many_shards: Corpus, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    pipeline = uio.from_shard_list(many_shards.list).decode_audio().filter(min_frames=40).fbank().batch(4).pad()
    loader = uio.Loader(pipeline, seed=3)
    frames = []
    with SummaryWriter(str(tmp_path)) as writer:
        for step, batch in enumerate(loader):
            frames.append(int(batch["feats_lengths"].sum()))
            stats = loader.stats()
            stats.log_to(writer, step)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    last = {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}
    assert last == pytest.approx(
        {
            "data/batches": len(frames),
            "data/utterances": stats.utterances,
            "data/hours": sum(frames) / 360_000,
            "data/padding_ratio": stats.padding_ratio,
            "data/failures": 0,
            "data/waited_seconds": stats.waited,
            "data/skipped/too_short": stats.skipped["too_short"],
        }
    )
    hours = [event.value for event in events.Scalars("data/hours")]
    assert hours == pytest.approx([sum(frames[: i + 1]) / 360_000 for i in range(len(frames))])
    assert [event.step for event in events.Scalars("data/hours")] == list(range(len(frames)))


def test_any_writer_with_add_scalar_will_do() -> None:
    class Writer:
        def __init__(self) -> None:
            self.got: dict[str, tuple[float, int | None]] = {}

        def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
            self.got[tag] = (scalar_value, global_step)

    writer = Writer()
    uio.Stats(utterances=3, frames=36_000, padded=40_000).log_to(writer, 7, prefix="dev")
    assert writer.got["dev/utterances"] == (3, 7)
    assert writer.got["dev/hours"] == (0.1, 7)
    assert writer.got["dev/padding_ratio"][0] == pytest.approx(0.1)
