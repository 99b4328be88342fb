"""Statistics as scalars: with the real TensorBoard, and as W&B and MLflow take them."""

import math
import re
from pathlib import Path, PurePosixPath

import pytest
from corpus import Corpus

import uio_pipes as uio


def test_a_summary_writer_gets_every_count(many_shards: Corpus, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="could not import tensorboard: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    pipeline = uio.from_shard_list(many_shards.list).decode_audio().filter(min_frames=40).fbank().batch(4).pad()
    loader = uio.Loader(pipeline, seed=3)
    frames = []
    with SummaryWriter(str(tmp_path)) as writer:
        for step, batch in enumerate(loader):
            frames.append(int(batch["feats_lengths"].sum()))
            stats = loader.stats()
            for name, value in stats.as_dict().items():
                writer.add_scalar(name, value, step)
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
            "data/bytes_read": stats.bytes_read,
            "data/retries": 0,
            "data/waited_seconds": stats.waited,
            "data/wait_p50_seconds": stats.waits.p50,
            "data/wait_p95_seconds": stats.waits.p95,
            "data/wait_p99_seconds": stats.waits.p99,
            "data/skipped/too_short": stats.skipped["too_short"],
        }
    )
    hours = [event.value for event in events.Scalars("data/hours")]
    assert hours == pytest.approx([sum(frames[: i + 1]) / 360_000 for i in range(len(frames))])
    assert [event.step for event in events.Scalars("data/hours")] == list(range(len(frames)))


def test_what_ranks_left_out_is_there_once_the_epoch_has_ended() -> None:
    scalars = uio.Stats(utterances=3, frames=36_000, padded=40_000).as_dict(prefix="dev")
    assert "dev/delivered_share" not in scalars
    assert (scalars["dev/utterances"], scalars["dev/hours"]) == (3, 0.1)
    assert scalars["dev/padding_ratio"] == pytest.approx(0.1)
    assert uio.Stats(utterances=3).as_dict("")["utterances"] == 3
    ended = uio.Stats(delivered=11, left_out=(3, 0)).as_dict()
    assert ended["data/delivered_share"] == pytest.approx(11 / 14)
    assert (ended["data/left_out_utterances"], ended["data/left_out_items"]) == (3, 0)


@pytest.mark.parametrize("logger", ["wandb", "mlflow"])
def test_loggers_of_experiments_take_the_dict_as_it_is(many_shards: Corpus, logger: str) -> None:
    """As they check it: ``wandb.log`` takes a mapping of texts, ``mlflow.log_metrics`` names of few characters."""
    pipeline = uio.from_shard_list(many_shards.list).decode_audio().filter(min_frames=40).fbank().batch(4).pad()
    loader = uio.Loader(pipeline, seed=3)
    logged: dict[str, float] = {}
    for _ in loader:
        scalars = loader.stats().as_dict()
        for name, value in scalars.items():
            assert isinstance(value, (int, float))
            assert not isinstance(value, bool)
            assert math.isfinite(value)
            assert logger != "mlflow" or (re.fullmatch(r"[/\w.\- :]*", name) and str(PurePosixPath(name)) == name), name
        assert scalars.keys() >= logged.keys(), "no name goes away"
        logged |= scalars
    assert logged["data/skipped/too_short"] == loader.stats().skipped["too_short"]
    assert {name.split("/", 1)[1] for name in loader.stats().as_dict("dev")} == {n.split("/", 1)[1] for n in logged}


def test_the_share_that_was_left_out_is_told_as_far_as_it_is_known() -> None:
    shards = uio.Stats(delivered=11, left_out=(3, 2))
    assert shards.delivered_share == pytest.approx(11 / 14)
    text = shards.told_left_out(4, shared=False)
    assert "epoch 4 ended with the first rank that ran out of data, and left out 3 of at least 14 utterances" in text
    assert "(21% at least, as 2 list items were not opened)" in text
    assert "21% of the epoch left out at its end" in str(shards)
    lines = uio.Stats(delivered=11, left_out=(3, 2), items_are_utterances=True)
    assert lines.delivered_share == pytest.approx(11 / 16)
    assert "left out 5 of at least 16 utterances (31%)" in lines.told_left_out(4, shared=False)
    assert uio.Stats().delivered_share == 1.0
