"""The filter bank against torchaudio's, its dither, and what must not change."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torchaudio.compliance.kaldi as kaldi
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.base.errors import PipelineError
from uio_pipes.dsp.fbank import Fbank, num_frames
from uio_pipes.dsp.frames import Float32s

pytestmark = pytest.mark.usefixtures("one_thread")
WINDOWS = ["povey", "hanning", "hamming", "blackman", "rectangular"]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """As in a worker."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def signals(rate: int) -> dict[str, torch.Tensor]:
    """Hard cases of 5.5 s (two blocks of frames)."""
    time = torch.arange(int(rate * 5.5)) / rate
    noise = torch.randn(len(time), generator=torch.Generator().manual_seed(1))
    click = torch.zeros(len(time))
    click[5000] = 1.0
    return {
        "noise": noise * 0.1,
        "tone": 0.9 * torch.sin(2 * torch.pi * 440 * time),
        "quarter_rate_tone": 0.5 * torch.sin(2 * torch.pi * rate / 4 * time),
        "near_silence": (noise * 0.7).round() / 32768,
        "below_one_bit": noise * 1e-6,
        "offset": torch.full_like(time, 0.3),
        "offset_and_noise": 0.5 + noise * 1e-4,
        "zeros": torch.zeros(len(time)),
        "click": click,
    }


# Signals with bins so far below their frame's peak that float32 hides them, in any order of operations.
FAR_BELOW = {"tone", "quarter_rate_tone", "offset", "offset_and_noise"}


@pytest.mark.parametrize("window_type", WINDOWS)
@pytest.mark.parametrize("bins", [23, 40, 80])
@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_equals_torchaudio(rate: int, bins: int, window_type: str) -> None:
    fbank = Fbank(bins, window_type=window_type)
    for name, signal in signals(rate).items():
        for waveform in (signal, signal[: rate + 17]):
            expected = kaldi.fbank(
                waveform[None] * 32768,
                num_mel_bins=bins,
                energy_floor=0.0,
                sample_frequency=rate,
                window_type=window_type,
            )
            got = fbank(waveform, rate, None)
            assert got.dtype == torch.float32
            assert got.shape == expected.shape
            exact = in_float64(waveform, fbank.bank(rate), rate, window_type)
            ours, theirs = (got - exact).abs(), (expected - exact).abs()
            assert ours.mean() < 1.25 * theirs.mean() + 1e-6, name  # as near to the formulas as torchaudio is
            assert ours.max() < 4 * theirs.max() + 1e-3, name
            if name not in FAR_BELOW:
                assert (got - expected).abs().mean() < 1e-5, name
                assert (got - expected).abs().max() < 5e-3, name


@pytest.mark.parametrize(("length", "shift"), [(20.0, 12.5), (32.0, 8.0), (25.0, 10.0)])
def test_other_frames(length: float, shift: float) -> None:
    waveform = signals(16000)["noise"][None]
    expected = kaldi.fbank(waveform * 32768, frame_length=length, frame_shift=shift, energy_floor=0.0)
    assert (Fbank(23, length, shift)(waveform, 16000, None) - expected).abs().max() < 3e-4


@settings(deadline=None, max_examples=60)
@given(
    samples=st.integers(0, 20000),
    rate=st.sampled_from([8000, 11025, 16000, 22050, 44100]),
    length=st.sampled_from([20.0, 25.0, 32.0]),
    shift=st.sampled_from([5.0, 10.0, 12.5]),
)
def test_num_frames_is_the_number_of_frames(samples: int, rate: int, length: float, shift: float) -> None:
    features = Fbank(23, length, shift)(torch.zeros(1, samples), rate)
    assert features.shape == (num_frames(samples, rate, length, shift), 23)


def normals(count: int, seed: int) -> list[Float32s]:
    return [torch.randn(count, generator=torch.Generator().manual_seed(seed)).numpy()]


def test_num_frames_around_a_window() -> None:
    assert [num_frames(n, 16000) for n in (0, 399, 400, 559, 560)] == [0, 0, 1, 1, 2]


def test_input_stays_and_other_utterances_do_not_matter() -> None:
    fbank = Fbank(80, dither=1.0)
    waveform = signals(16000)["noise"]
    before = waveform.clone()
    first = fbank(waveform, 16000, normals(len(waveform), 3))
    fbank(tone := signals(8000)["tone"], 8000, normals(len(tone), 4))
    fbank(torch.full((200000,), 1.0), 16000, normals(200000, 5))
    unaligned = torch.cat([torch.zeros(3), waveform])[3:]
    for again in (waveform, waveform[None], unaligned):
        assert torch.equal(fbank(again, 16000, normals(again.shape[-1], 3)), first)
    assert torch.equal(pickle.loads(pickle.dumps(fbank))(waveform, 16000, normals(len(waveform), 3)), first)
    assert not torch.equal(fbank(waveform, 16000, normals(len(waveform), 9)), first)
    assert torch.equal(waveform, before)


def test_dither_has_kaldis_distribution_in_a_frame() -> None:
    """Mean energies and their deviations, against torchaudio's own dither."""
    fbank = Fbank(23, dither=2.5)
    torch.manual_seed(0)
    expected = kaldi.fbank(torch.zeros(1, 160000), dither=2.5, energy_floor=0.0)
    got = fbank(torch.zeros(1, 160000), 16000, normals(160000, 1))
    assert (got.mean(0) - expected.mean(0)).abs().max() < 0.15
    assert (got.std(0) - expected.std(0)).abs().max() < 0.1


def test_with_dither_rounding_is_as_good_as_torchaudios() -> None:
    """Compared with the same formulas in float64, of the same samples."""
    fbank, torchaudios = Fbank(80, dither=0.1), Fbank(80)
    for name, waveform in signals(16000).items():
        noise = normals(waveform.shape[-1], 2)
        samples = waveform + torch.from_numpy(noise[0]) * (fbank.dither / 32768)
        expected = in_float64(samples, fbank.bank(16000))
        ours = (fbank(waveform, 16000, noise) - expected).abs()
        theirs = (torchaudios(samples, 16000) - expected).abs()
        assert ours.mean() < 2 * theirs.mean() + 1e-6, name
        assert ours.max() < 2 * theirs.max() + 1e-3, name


WINDOWS_OF = {
    "povey": lambda size: torch.hann_window(size, periodic=False, dtype=torch.float64).pow(0.85),
    "hanning": lambda size: torch.hann_window(size, periodic=False, dtype=torch.float64),
    "hamming": lambda size: torch.hamming_window(size, False, 0.54, 0.46, dtype=torch.float64),
    "blackman": lambda size: torch.blackman_window(size, periodic=False, dtype=torch.float64),
    "rectangular": lambda size: torch.ones(size, dtype=torch.float64),
}


def in_float64(samples: torch.Tensor, bank: Any, rate: int = 16_000, window_type: str = "povey") -> torch.Tensor:
    """Log mel energies of 25 ms every 10 ms, with float32's 0.97."""
    size = int(rate * 0.025)
    frames = (32768 * samples.double()).unfold(0, size, int(rate * 0.01))
    frames = frames - frames.mean(1, keepdim=True)
    before = torch.cat((frames[:, :1], frames[:, :-1]), 1)
    emphasized = frames - float(torch.tensor(0.97)) * before
    power = torch.fft.rfft(emphasized * WINDOWS_OF[window_type](size), 2 * bank.shape[1]).abs().square()
    weights = torch.from_numpy(bank).double()
    return (power[:, : bank.shape[1]] @ weights.T).clamp_min(torch.finfo(torch.float32).eps).log()


@pytest.mark.parametrize(
    ("parameters", "words", "call"),
    [
        ({"num_mel_bins": 3}, "num_mel_bins", ()),
        ({"dither": -1.0}, "dither", ()),
        ({"dither": float("nan")}, "dither", ()),
        ({"frame_length": 0.0}, "frame_length", ()),
        ({"frame_shift": -10.0}, "frame_shift", ()),
        ({"window_type": "hann"}, "window_type.*povey, hanning, hamming, blackman, rectangular, not 'hann'", ()),
        ({"dither": 1.0}, "needs noise", (torch.zeros(1, 16000), 16000, None)),
        ({}, "one channel", (torch.zeros(2, 16000), 16000, None)),
        ({"frame_length": 1.0}, "longer frames", (torch.zeros(1, 1000), 1000, None)),
    ],
)
def test_wrong_parameters_and_calls(parameters: dict[str, Any], words: str, call: tuple[Any, ...]) -> None:
    with pytest.raises(PipelineError, match=words):
        Fbank(**parameters)(*call)
