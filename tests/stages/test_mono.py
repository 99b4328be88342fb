"""One channel of several: the average, or the one that is wanted."""

from pathlib import Path

import pytest
import torch
from helpers_bad import audio, run, shard

import uio_pipes as uio


def pipeline(root: Path, channels: int) -> uio.Pipeline:
    parts = [("K0.txt", b"t"), ("K0.wav", audio(900, channels=channels))]
    return uio.from_shard_list(shard(root / "x.tar", parts)).decode_audio(channel=None)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_average_is_the_mean_over_channels(tmp_path: Path, channels: int) -> None:
    (whole,), _ = run(pipeline(tmp_path, channels))
    (mono,), _ = run(pipeline(tmp_path, channels).mono())
    assert whole["wav"].shape == (channels, 900)
    assert mono["wav"].shape == (1, 900)
    assert torch.allclose(mono["wav"][0], whole["wav"].double().mean(0).float(), atol=1e-7)


@pytest.mark.parametrize("channel", [0, 1, 2])
def test_channel_by_number_is_what_decode_audio_keeps(tmp_path: Path, channel: int) -> None:
    (mono,), _ = run(pipeline(tmp_path, 3).mono(channel))
    (kept,), _ = run(uio.Pipeline(pipeline(tmp_path, 3).stages[:-1]).decode_audio(channel))
    assert torch.equal(mono["wav"], kept["wav"])


def test_features_and_batches_follow(tmp_path: Path) -> None:
    (batch,), _ = run(pipeline(tmp_path, 2).mono().resample(16_000).fbank(8).batch(1).pad(), failures="raise")
    assert batch["feats"].shape[0] == 1


def test_waveform_without_channels_gets_one(tmp_path: Path) -> None:
    def flat(sample: uio.Sample) -> uio.Sample:
        sample["wav"] = sample["wav"][0]
        return sample

    (batch,), _ = run(pipeline(tmp_path, 1).map(flat).mono())
    assert batch["wav"].shape == (1, 900)


def test_missing_channel_is_a_failure_that_says_so(tmp_path: Path) -> None:
    _, loader = run(pipeline(tmp_path, 2).mono(2))
    assert loader.stats().skipped == {"no_such_channel": 1}
    with pytest.raises(uio.PipelineError, match="channel must be 0 or more"):
        pipeline(tmp_path, 2).mono(-1)
