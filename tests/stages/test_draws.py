"""Whatever a stage draws belongs to seed, epoch and utterance, and features that a user keeps are not written to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers_bad import audio, raw_items, run, shard

import uio_pipes as uio

SAMPLES = 16_000  # of recordings of 8 kHz: 198 frames
DRAWING: dict[str, Callable[[uio.Pipeline, str], uio.Pipeline]] = {
    "add_noise": lambda audio, clips: audio.add_noise(clips),
    "add_noise, read again": lambda audio, clips: audio.add_noise(clips, cache_mb=0),
    "add_noise to parts": lambda audio, clips: audio.add_noise(clips, clips=(1, 3), part=(0.2, 0.9)),
    "clip": lambda audio, clips: audio.clip((3, 20)),
    "codec": lambda audio, clips: audio.codec(["mp3", "gsm", "mulaw"]),
    "fbank": lambda audio, clips: audio.fbank(80, dither=0.1),
    "loudness": lambda audio, clips: audio.loudness(),
    "lowpass": lambda audio, clips: audio.lowpass((500, 3000)),
    "mfcc": lambda audio, clips: audio.mfcc(num_ceps=13, dither=0.1),
    "pitch_shift": lambda audio, clips: audio.pitch_shift((1, 4)),
    "random_crop": lambda audio, clips: audio.random_crop(max_seconds=0.5),
    "recorded rooms": lambda audio, clips: audio.reverberate(clips),
    "reverberate": lambda audio, clips: audio.reverberate(rt60=(0.1, 0.4)),
    "sometimes": lambda audio, clips: audio.clip((3, 20), probability=0.7).reverberate(clips, probability=0.7),
    "spec_aug": lambda audio, clips: audio.fbank(40).spec_aug(),
    "spec_sub": lambda audio, clips: audio.fbank(40).spec_sub(),
    "spec_trim": lambda audio, clips: audio.fbank(40).spec_trim(60),
    "speed_perturb": lambda audio, clips: audio.speed_perturb([0.9, 1.0, 1.1]),
    "volume_perturb": lambda audio, clips: audio.volume_perturb(),
}
CHOOSING = ("codec", "recorded rooms", "sometimes", "spec_trim", "speed_perturb", "random_crop")  # of a few


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> str:
    parts = [(f"{i}.wav", audio(700 + 900 * i, 100 + i)) for i in range(5)]
    return shard(tmp_path_factory.mktemp("clips") / "clips.tar", parts)


@pytest.mark.parametrize("name", DRAWING)
def test_draws_belong_to_seed_epoch_and_utterance(name: str, clips: str, tmp_path: Path) -> None:
    items = raw_items(tmp_path, 12, samples=SAMPLES)

    def bits(items: list[dict[str, Any]], epoch: int = 0, **options: Any) -> dict[str, bytes]:
        graph = DRAWING[name](uio.from_raw_list(items).decode_audio(), clips)
        loader = uio.Loader(graph, failures="raise", **options)
        loader.set_epoch(epoch)
        return {sample["key"]: sample["feat" if "feat" in sample else "wav"].numpy().tobytes() for sample in loader}

    first = bits(items)
    assert len(first) == 12
    assert bits(items) == first
    assert bits(items, num_workers=2, lanes=3) == first
    assert bits(items[:5]) == {item["key"]: first[item["key"]] for item in items[:5]}
    for other in (bits(items, seed=1), bits(items, epoch=1)):
        same = sum(first[key] == other[key] for key in first)
        assert same < 12 if name in CHOOSING else same == 0
    copies = set(bits([{**items[0], "key": f"{i}"} for i in range(12)]).values())
    assert len(copies) > 1 if name in CHOOSING else len(copies) == 12


@pytest.mark.parametrize("give", [torch.Tensor.clone, torch.Tensor.numpy], ids=["torch", "numpy"])
@pytest.mark.parametrize(
    "stage",
    [
        lambda graph: graph.deltas(),
        lambda graph: graph.global_cmvn({"mean_stat": [8.0] * 4, "var_stat": [48.0] * 4, "frame_num": 2}),
        lambda graph: graph.random_crop(max_frames=20),
        lambda graph: graph.spec_aug(max_t=5, max_f=2),
        lambda graph: graph.spec_sub(),
        lambda graph: graph.spec_trim(),
        lambda graph: graph.stack(3, 2),
    ],
)
def test_features_that_a_function_hands_out_again_are_not_written_to(stage: Any, give: Any) -> None:
    """A user may keep features in memory: no stage may eat them up."""
    before = torch.ones(50, 4)
    before[:25] = 2
    kept = give(before.clone())

    def look_up(sample: uio.Sample) -> uio.Sample:
        sample["feat"] = kept
        return sample

    items = [{"key": str(i), "wav": "none.wav", "txt": "t"} for i in range(5)]
    assert len(run(stage(uio.from_raw_list(items).map(look_up)), failures="raise")[0]) == 5
    assert torch.equal(torch.as_tensor(kept), before)


@pytest.mark.parametrize("frames", [1, 2, 5])
@pytest.mark.parametrize("stage", [uio.Pipeline.spec_aug, uio.Pipeline.spec_sub, uio.Pipeline.spec_trim])
def test_short_features(stage: Any, frames: int) -> None:
    rows = [{"key": f"{i}", "feat": torch.ones(frames, 40), "txt": ""} for i in range(50)]
    out, _ = run(stage(uio.from_iterable(rows)), failures="raise")
    assert all(0 < len(sample["feat"]) <= frames for sample in out)
    if stage is not uio.Pipeline.spec_trim:
        assert {sample["feat"].shape for sample in out} == {(frames, 40)}
