"""Whisper's features through a graph: numbers, planned frames, rates, wrong arguments. The kernel: tests/dsp."""

from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
import torchaudio.functional
from helpers_bad import keys, noise, planned, raw_items, run

import uio_pipes as uio

REAL = Path(__file__).parents[3] / "shared/data/wenet/test/resources"


def items(root: Path, lengths: list[int], rate: int = 16_000, **fields: Any) -> list[dict[str, Any]]:
    """Recordings of these numbers of samples."""
    out = []
    for n in lengths:
        soundfile.write(root / f"{n}.wav", noise(n, n), rate, subtype="PCM_16")
        out.append({"key": str(n), "wav": str(root / f"{n}.wav"), "txt": "t", **fields})
    return out


def whisper(wav: torch.Tensor) -> torch.Tensor:
    """openai/whisper's audio.py, (1, S) → (T, 80)."""
    power = torch.stft(wav[0], 400, 160, window=torch.hann_window(400), return_complex=True)[:, :-1].abs() ** 2
    bank = torchaudio.functional.melscale_fbanks(201, 0.0, 8000.0, 80, 16000, norm="slaney", mel_scale="slaney")
    log = (bank.T @ power).clamp(min=1e-10).log10()
    return ((torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0).T


@pytest.mark.skipif(not REAL.exists(), reason="WeNet's files are not at hand")
@pytest.mark.parametrize("path", sorted(REAL.glob("*.wav")), ids=lambda p: p.stem)
def test_equal_to_whisper_on_speech(path: Path) -> None:
    graph = uio.from_raw_list([{"key": "a", "wav": str(path), "txt": "t"}]).decode_audio().resample(16_000)
    (batch,), _ = run(graph.log_mel_spectrogram(), failures="raise")
    assert (batch["feat"] - whisper(batch["wav"])).abs().max() < 1e-4


LENGTHS = [201, 319, 320, 1000, 1600, 4801, 20_000]


@pytest.mark.parametrize("options", [{}, {"padding": 500}, {"pad_or_trim": True, "max_duration": 0.5}], ids=str)
@pytest.mark.parametrize("rate", [16_000, 8_000])
def test_planned_frames_are_the_real_ones(tmp_path: Path, rate: int, options: dict[str, Any]) -> None:
    graph = uio.from_raw_list(items(tmp_path, LENGTHS, rate)).decode_audio().resample(16_000)
    plans, samples = planned(graph.log_mel_spectrogram(**options))
    assert [plans[s["key"]].frames for s in samples] == [len(s["feat"]) for s in samples]
    if not options:
        assert [plan.frames for plan in plans.values()] == [n * 16_000 // rate // 160 for n in LENGTHS]


@pytest.mark.parametrize("resampled", [False, True])
def test_a_plan_by_duration_is_no_shorter_than_what_comes(tmp_path: Path, resampled: bool) -> None:
    data = items(tmp_path, LENGTHS)
    for item, n in zip(data, LENGTHS, strict=True):
        item["duration"] = int(n / 160) / 100  # cut off after two digits, as people write it
    graph = uio.from_raw_list(data).decode_audio()
    graph = graph.resample(16_000) if resampled else graph
    batches, loader = run(graph.log_mel_spectrogram().sort(10), failures="raise")
    assert len(batches) == len(LENGTHS)
    assert loader.stats().skipped == {}


def test_another_rate_is_a_failure_that_names_the_remedy(tmp_path: Path) -> None:
    data = items(tmp_path, [3000], rate=8_000)
    for fields in ({}, {"duration": 0.4}):  # known from the header, or only when decoded
        graph = uio.from_raw_list([{**data[0], **fields}]).decode_audio()
        with pytest.raises(uio.DataError, match=r"needs 16000 Hz, not 8000; put \.resample\(16_000\) before") as info:
            run(graph.log_mel_spectrogram(), failures="raise")
        assert info.value.reason == "wrong_rate"


def test_too_short_to_be_reflected_is_a_failure(tmp_path: Path) -> None:
    graph = uio.from_raw_list(items(tmp_path, [100, 200, 201])).decode_audio().log_mel_spectrogram()
    for each in (graph.batch(3).pad(), graph.sort(3).batch(3).pad()):
        batches, loader = run(each)
        assert keys(batches) == ["201"]
        assert loader.stats().skipped == {"too_short": 2}
    padded = uio.from_raw_list(items(tmp_path, [100])).decode_audio().log_mel_spectrogram(padding=400)
    assert len(run(padded, failures="raise")[0]) == 1


def test_batches_of_equal_length_for_whisper_s_encoder(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 4)).decode_audio().resample(16_000)
    (batch,), _ = run(graph.log_mel_spectrogram(pad_or_trim=True).batch(4).pad(), failures="raise")
    assert batch["feats"].shape == (4, 3000, 80)
