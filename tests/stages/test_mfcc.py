"""Cepstral coefficients through a graph."""

from pathlib import Path

import pytest
import soundfile
import torch
import torchaudio.compliance.kaldi as kaldi
from helpers_bad import planned, raw_items, run
from tones import check_near

import uio_pipes as uio

REAL = Path(__file__).parents[3] / "shared/data/wenet/test/resources"


@pytest.mark.parametrize("options", [{"num_mel_bins": 80}, {"num_ceps": 13}, {"num_ceps": 20, "high_freq": -200.0}])
def test_equal_to_torchaudio(tmp_path: Path, options: dict[str, float]) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 5)).decode_audio().resample(16_000).mfcc(**options)  # type: ignore[arg-type]
    full = {"num_mel_bins": 23, "num_ceps": 40, **options}
    for batch in run(graph, failures="raise")[0]:
        want = kaldi.mfcc(batch["wav"] * 32768, dither=0.0, energy_floor=0.0, **full)
        assert batch["feat"].shape == want.shape
        check_near(batch["feat"], want)


@pytest.mark.skipif(not REAL.exists(), reason="WeNet's files are not at hand")
@pytest.mark.parametrize("path", sorted(REAL.glob("*.wav")), ids=lambda p: p.stem)
def test_equal_to_torchaudio_on_speech(path: Path) -> None:
    item = {"key": "a", "wav": str(path), "txt": "t"}
    (batch,), _ = run(uio.from_raw_list([item]).decode_audio().mfcc(num_mel_bins=80), failures="raise")
    samples, rate = soundfile.read(path, dtype="float32")
    want = kaldi.mfcc(
        torch.from_numpy(samples)[None] * 32768,
        num_mel_bins=80, num_ceps=40, sample_frequency=rate, dither=0.0, energy_floor=0.0,
    )  # fmt: skip
    check_near(batch["feat"], want)


def test_planned_frames_are_the_real_ones(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 20, samples=190)).decode_audio().mfcc(num_ceps=13)
    plans, samples = planned(graph, failures="skip")
    assert {s["key"]: len(s["feat"]) for s in samples} == {key: p.frames for key, p in plans.items() if p.frames}
    assert run(graph)[1].stats().skipped == {"too_short": len(plans) - len(samples)}
