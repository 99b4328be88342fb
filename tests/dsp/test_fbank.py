"""The filter bank and cepstral coefficients against torchaudio's and Kaldi's own code; dither; what must not change."""

import math
import pickle
from collections.abc import Iterator
from typing import Any

import kaldi_native_fbank
import numpy as np
import numpy.typing as npt
import pytest
import torch
import torchaudio.compliance.kaldi as kaldi
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws, mix64
from uio_pipes.dsp.fbank import LENGTHS, Fbank, noise, num_frames
from uio_pipes.dsp.frames import Float32s
from uio_pipes.dsp.spectra import Mfcc

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


# Cepstral coefficients, and the ends of the mel bank


def short(rate: int) -> dict[str, torch.Tensor]:
    """(1, S) of 1.2 s each."""
    found = signals(rate)
    return {name: found[name][None, : int(rate * 1.2)] for name in ("noise", "tone", "near_silence", "zeros")}


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
@pytest.mark.parametrize(("bins", "ceps"), [(23, 13), (23, 23), (40, 40), (80, 40), (80, 1)])
def test_coefficients_equal_torchaudios(rate: int, bins: int, ceps: int) -> None:
    kernel = Mfcc(bins, num_ceps=ceps)
    for name, waveform in short(rate).items():
        expected = kaldi.mfcc(
            waveform * 32768, num_mel_bins=bins, num_ceps=ceps, sample_frequency=rate, energy_floor=0.0
        )
        got = kernel(waveform, rate)
        assert got.shape == expected.shape
        check(got, expected, name)


def check(got: torch.Tensor, expected: torch.Tensor, name: str) -> None:
    """Bands far below the peak of a tone hold nothing but rounding (tests/dsp/test_fbank.py compares with float64)."""
    difference = (got - expected).abs()
    assert difference.max() < (0.5 if name == "tone" else 5e-3), name
    assert difference.mean() < (1e-2 if name == "tone" else 2e-4), name


@pytest.mark.parametrize(("low", "high"), [(20.0, 0.0), (0.0, 0.0), (64.0, -400.0), (100.0, 3800.0), (300.0, 8000.0)])
def test_ends_of_the_bank_are_torchaudio_s(low: float, high: float) -> None:
    options = {"num_mel_bins": 30, "low_freq": low, "high_freq": high}
    for name, waveform in short(16000).items():
        expected = kaldi.fbank(waveform * 32768, energy_floor=0.0, **options)
        check(Fbank(**options)(waveform, 16000), expected, name)  # type: ignore[arg-type]
        expected = kaldi.mfcc(waveform * 32768, num_ceps=20, energy_floor=0.0, **options)
        got = Mfcc(num_ceps=20, **options)(waveform, 16000)  # type: ignore[arg-type]
        check(got, expected, name)


def test_an_end_above_half_the_rate_is_told() -> None:
    kernel = Mfcc(num_ceps=13, high_freq=7600.0)
    assert kernel(torch.zeros(1, 16000), 16000).shape == (98, 13)
    with pytest.raises(PipelineError, match=r"mfcc: at 8000 Hz .* from 20 to 7600 Hz.*at most 4000 Hz"):
        kernel(torch.zeros(1, 8000), 8000)
    with pytest.raises(PipelineError, match=r"from 20 to 0 Hz"):
        Mfcc(num_ceps=13, high_freq=-4000.0)(torch.zeros(1, 8000), 8000)


def test_travels_to_a_worker_as_its_parameters() -> None:
    waveform = short(16000)["noise"]
    kernel = Mfcc(30, 32.0, 8.0, 0.0, "hamming", 50.0, 7000.0, 12)
    first = kernel(waveform, 16000)
    assert len(pickle.dumps(kernel)) < 300
    assert torch.equal(pickle.loads(pickle.dumps(kernel))(waveform, 16000), first)
    assert torch.equal(kernel(torch.cat([torch.zeros(3), waveform[0]])[3:], 16000), first)


# Kaldi's own code, as the package kaldi-native-fbank has it


def computed(made: Any, signal: torch.Tensor, rate: int) -> npt.NDArray[np.float32]:
    made.accept_waveform(rate, (signal * 32768).tolist())
    made.input_finished()
    return np.stack([made.get_frame(number) for number in range(made.num_frames_ready)])


def as_ours(options: Any, rate: int, bins: int, window_type: str) -> Any:
    """Set what Kaldi's programs get as arguments: no dither, energies of 0, and a floor as the bands have one."""
    options.frame_opts.samp_freq, options.frame_opts.window_type, options.frame_opts.dither = rate, window_type, 0.0
    options.mel_opts.num_bins, options.use_energy, options.energy_floor = bins, False, 0.0
    return options


@pytest.mark.parametrize("window_type", WINDOWS)
@pytest.mark.parametrize(("rate", "bins"), [(8_000, 23), (16_000, 80), (44_100, 40)])
def test_log_mel_energies_are_kaldis(rate: int, bins: int, window_type: str) -> None:
    for name, signal in signals(rate).items():
        theirs = computed(
            kaldi_native_fbank.OnlineFbank(as_ours(kaldi_native_fbank.FbankOptions(), rate, bins, window_type)),
            signal,
            rate,
        )
        ours = Fbank(bins, window_type=window_type)(signal, rate, None).numpy()
        assert ours.shape == theirs.shape
        if name not in FAR_BELOW:
            assert np.abs(ours - theirs).max() < 5e-3, name


@pytest.mark.parametrize(("rate", "bins", "ceps"), [(8_000, 23, 13), (16_000, 40, 40)])
def test_cepstral_coefficients_are_kaldis(rate: int, bins: int, ceps: int) -> None:
    for name, signal in signals(rate).items():
        options = as_ours(kaldi_native_fbank.MfccOptions(), rate, bins, "povey")
        options.num_ceps = ceps
        theirs = computed(kaldi_native_fbank.OnlineMfcc(options), signal, rate)
        ours = Mfcc(bins, num_ceps=ceps)(signal, rate, None).numpy()
        assert ours.shape == theirs.shape
        if name not in FAR_BELOW:
            assert np.abs(ours - theirs).max() < 2e-2, name


# Noise for dither: normal, the utterance's own, as good as drawn anew


def of_tables(samples: int, draws: Draws) -> torch.Tensor:
    one, other = map(torch.from_numpy, noise(samples, draws))
    return one + other


def utterances(count: int, samples: int) -> torch.Tensor:
    return torch.stack([of_tables(samples, Draws(mix64(i + 999))) for i in range(count)])


def distance_from_normal(sample: torch.Tensor) -> float:
    """Kolmogorov's statistic times the root of the count."""
    ordered = sample.double().sort().values
    below = torch.arange(1, len(ordered) + 1) / len(ordered)
    normal = 0.5 * (1 + torch.erf(ordered / math.sqrt(2)))
    return float((normal - below).abs().max() * math.sqrt(len(ordered)))


def test_each_utterance_s_noise_is_normal() -> None:
    drawn = utterances(200, 16_000)
    assert drawn.dtype == torch.float32
    distances = [distance_from_normal(row) for row in drawn]
    assert np.mean(distances) < 1.0  # 0.87 is expected
    assert max(distances) < 2.3  # p = 5e-5 each


def test_neighbouring_samples_are_uncorrelated() -> None:
    for row in utterances(20, 40_000):
        for lag in (1, 2, 160, 400):
            assert abs(float((row[lag:] * row[:-lag]).mean())) < 5 / math.sqrt(len(row))


def test_noises_of_two_utterances_are_uncorrelated() -> None:
    drawn = utterances(300, 8_000)
    products = drawn @ drawn.T / drawn.shape[1] * math.sqrt(drawn.shape[1])
    off = products[~torch.eye(len(drawn), dtype=torch.bool)]
    assert abs(float(off.std()) - 1) < 0.12  # stretches overlap, so pairs are not independent
    assert int((off.abs() > 6).sum()) <= 6, "in one pair of 260,000 a table is at the same place: half of their noise"
    assert off.abs().max() < 0.6 * math.sqrt(drawn.shape[1])


@pytest.mark.parametrize("samples", [0, 1, *LENGTHS, LENGTHS[0] + 1, 3 * LENGTHS[0] + 7])
def test_any_length_comes_from_the_tables(samples: int) -> None:
    for seed in range(20):
        drawn = of_tables(samples, Draws(mix64(seed)))
        assert drawn.shape == (samples,)
        assert samples < 1000 or abs(float(drawn.std()) - 1) < 0.01
        assert torch.equal(drawn[:1000], of_tables(min(samples, 1000), Draws(mix64(seed))))


def test_a_long_utterance_repeats_nothing() -> None:
    """Two minutes: at no distance is the noise what it was, or its negative."""
    drawn = of_tables(1_920_000, Draws(12)).double()
    spectrum = torch.fft.rfft(drawn, 2 * len(drawn))
    correlations = torch.fft.irfft(spectrum * spectrum.conj())[: len(drawn) // 2] / len(drawn)
    assert float(correlations[1:].abs().max()) < 0.55  # one table comes round, the other is elsewhere
    assert int((correlations[1:].abs() > 0.01).sum()) < 20


def test_features_of_silence_are_those_of_drawn_noise() -> None:
    """Mean and deviation of the log energies over many utterances."""
    silent = [{"key": str(i), "wav": torch.zeros(1, 16_000), "sample_rate": 16_000, "txt": ""} for i in range(300)]
    graph = uio.from_iterable(silent).fbank(40, dither=1.0).batch(50).pad()
    ours = torch.cat([batch["feats"].reshape(-1, 40) for batch in uio.Loader(graph)])
    kernel, generator = Fbank(40, dither=1.0), torch.Generator().manual_seed(5)
    drawn = torch.cat([kernel(s["wav"], 16_000, [torch.randn(16_000, generator=generator)]) for s in silent])
    assert (drawn.mean(0) - ours.mean(0)).abs().max() < 0.05
    assert (drawn.std(0) - ours.std(0)).abs().max() < 0.05
