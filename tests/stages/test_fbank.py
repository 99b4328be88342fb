"""Features through a graph: torchaudio's and FunASR's numbers, planned frames, dither."""

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import torchaudio.compliance.kaldi as kaldi
import torchaudio.functional
from helpers_bad import audio, keys, noise, planned, raw_items, run, shard
from hypothesis import given
from hypothesis import strategies as st
from tones import check_near

import uio_pipes as uio
from uio_pipes.dsp.fbank import _tables
from uio_pipes.dsp.features import append_deltas


def spoken() -> list[tuple[str, bytes]]:
    """Tones with silence, full scale, a chirp."""
    made = []
    time = np.arange(24_000) / 16_000
    shapes = {
        "tone": 0.3 * np.sin(2 * np.pi * 440 * time) * (time > 0.5),
        "loud": np.sign(np.sin(2 * np.pi * 100 * time)) * 0.999,
        "silent": np.zeros(24_000),
        "chirp": 0.1 * np.sin(2 * np.pi * (100 + 2000 * time) * time),
    }
    for name, wave in shapes.items():
        buffer = io.BytesIO()
        soundfile.write(buffer, wave, 16_000, format="WAV", subtype="PCM_16")
        made.append((name, buffer.getvalue()))
    return made


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    parts = [(f"{key}.{s}", d) for key, wav in spoken() for s, d in (("txt", b"t"), ("wav", wav))]
    return shard(tmp_path_factory.mktemp("fbank") / "x.tar", parts)


@pytest.mark.parametrize("bins", [23, 40, 80])
@pytest.mark.parametrize("window", ["povey", "hamming"])
def test_equal_to_torchaudio(corpus: str, bins: int, window: str) -> None:
    graph = uio.from_shard_list(corpus).decode_audio().fbank(num_mel_bins=bins, window_type=window)
    batches, _ = run(graph, failures="raise")
    assert len(batches) == len(spoken())
    for batch in batches:
        want = kaldi.fbank(batch["wav"] * 32768, num_mel_bins=bins, window_type=window, dither=0.0, energy_floor=0.0)
        assert batch["feat"].shape == want.shape
        check_near(batch["feat"], want)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16], ids=str)
def test_the_type_that_torch_makes_tensors_of_changes_nothing(corpus: str, kind: torch.dtype) -> None:
    """Dither's tables, the room for padding and what is resampled are float32: the kernel reads them by address."""
    audio = uio.from_shard_list(corpus).decode_audio()
    graphs = [
        audio.resample(8_000).fbank(40, dither=0.5),
        audio.log_mel_spectrogram(80),
        audio.pitch_shift().mfcc(20, num_ceps=13),
    ]
    expected = [[b["feat"] for b in run(graph)[0]] for graph in graphs]
    _tables.cache_clear()
    torch.set_default_dtype(kind)
    try:
        found = [[b["feat"] for b in run(graph)[0]] for graph in graphs]
    finally:
        torch.set_default_dtype(torch.float32)
        _tables.cache_clear()
    for ours, others in zip(found, expected, strict=True):
        assert all(map(torch.equal, ours, others))


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000])
def test_planned_frames_are_the_real_ones_at_every_length(tmp_path: Path, rate: int) -> None:
    window = int(rate * 0.025)
    lengths = [window, window + 1, window + int(rate * 0.01) - 1, window + int(rate * 0.01), rate + 7]
    parts = [(f"{n}.{s}", d) for n in lengths for s, d in (("txt", b"t"), ("wav", audio(n, rate=rate)))]
    graph = uio.from_shard_list(shard(tmp_path / "x.tar", parts)).decode_audio().fbank(20)
    plans, samples = planned(graph)
    assert [plans[s["key"]].frames for s in samples] == [len(s["feat"]) for s in samples]
    assert [plans[str(n)].frames for n in lengths[:4]] == [1, 1, 1, 2]


def test_shorter_than_a_window_is_a_failure(tmp_path: Path) -> None:
    parts = [(f"{n}.{s}", d) for n in (199, 200) for s, d in (("txt", b"t"), ("wav", audio(n)))]
    graph = uio.from_shard_list(shard(tmp_path / "x.tar", parts)).decode_audio().fbank(20)
    for each in (graph.batch(2).pad(), graph.sort(2).batch(2).pad(), graph.dynamic_batch(100).pad()):
        batches, loader = run(each)
        assert keys(batches) == ["200"]
        assert loader.stats().skipped == {"too_short": 1}


# Dither


def test_dither_is_the_utterances_own_in_every_thread(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 6) * 4).decode_audio().fbank(8, dither=1.0).batch(3).pad()

    def bits() -> list[torch.Tensor]:
        return [batch["feats"] for batch in uio.Loader(graph)]

    expected = bits()
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: bits(), range(12)):
            assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


# mfcc


@pytest.mark.parametrize("options", [{"num_mel_bins": 80}, {"num_ceps": 13}, {"num_ceps": 20, "high_freq": -200.0}])
def test_cepstral_coefficients_equal_torchaudios(tmp_path: Path, options: dict[str, float]) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 5)).decode_audio().resample(16_000).mfcc(**options)  # type: ignore[arg-type]
    full = {"num_mel_bins": 23, "num_ceps": 40, **options}
    for batch in run(graph, failures="raise")[0]:
        want = kaldi.mfcc(batch["wav"] * 32768, dither=0.0, energy_floor=0.0, **full)
        assert batch["feat"].shape == want.shape
        check_near(batch["feat"], want)


# log_mel_spectrogram. The kernel: tests/dsp


def items(root: Path, lengths: list[int], rate: int = 16_000, **fields: Any) -> list[dict[str, Any]]:
    """Recordings of these numbers of samples."""
    out = []
    for n in lengths:
        soundfile.write(root / f"{n}.wav", noise(n, n), rate, subtype="PCM_16")
        out.append({"key": str(n), "wav": str(root / f"{n}.wav"), "txt": "t", **fields})
    return out


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


# deltas


def expected(feat: torch.Tensor, order: int, win_length: int) -> torch.Tensor:
    parts = [feat.T]
    for _ in range(order):
        parts.append(torchaudio.functional.compute_deltas(parts[-1], win_length))
    return torch.cat(parts).T


@pytest.mark.parametrize("frames", [1, 2, 3, 7, 300])
@pytest.mark.parametrize("win_length", [3, 5, 9])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_deltas_equal_torchaudios(frames: int, win_length: int, order: int) -> None:
    feat = 10 * torch.randn(frames, 7, generator=torch.Generator().manual_seed(frames))
    got = append_deltas(feat, order, win_length)
    assert got.shape == (frames, 7 * (order + 1))
    assert torch.equal(got[:, :7], feat)
    assert (got - expected(feat, order, win_length)).abs().max() < 1e-4


def test_of_a_ramp_is_its_slope_inside_and_less_at_the_edges() -> None:
    """By hand, win_length 5: (1 · 1 + 2 · 2) · 2 / 10 = 1; at frame 0: (1 · (1 - 0) + 2 · (2 - 0)) / 10."""
    got = append_deltas(torch.arange(8.0)[:, None], 1, 5)[:, 1]
    assert got.tolist() == pytest.approx([0.5, 0.8, 1, 1, 1, 1, 0.8, 0.5])
    assert not append_deltas(torch.ones(5, 3), 2, 5)[:, 3:].any()


def test_kaldi_s_39_dimensions(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().mfcc(num_ceps=13)
    plain, _ = run(graph, failures="raise")
    for a, b in zip(plain, run(graph.deltas(), failures="raise")[0], strict=True):
        assert b["feat"].shape[1] == 39
        assert (b["feat"] - expected(a["feat"], 2, 5)).abs().max() < 1e-4


# stack


def low_frame_rate(feat: torch.Tensor, m: int, n: int) -> torch.Tensor:
    """What FunASR documents for ``lfr_m`` and ``lfr_n``: m frames around each n-th, the ends repeated."""
    rows = []
    for i in range(-(-len(feat) // n)):
        numbers = [i * n + j - (m - 1) // 2 for j in range(m)]
        rows.append(torch.cat([feat[min(max(number, 0), len(feat) - 1)] for number in numbers]))
    return torch.stack(rows)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 9))
def test_each_frame_is_those_around_it(length: int, m: int, n: int) -> None:
    feat = torch.arange(length * 3, dtype=torch.float32).reshape(length, 3)
    (sample,) = uio.Loader(uio.from_iterable([{"key": "a", "feat": feat}]).stack(m, n))
    assert torch.equal(sample["feat"], low_frame_rate(feat, m, n))
