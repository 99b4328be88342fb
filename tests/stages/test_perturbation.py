"""What stages that change some waveforms have in common (shape, draws, odd input), and each."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from math import log2, log10
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers_bad import audio, raw_items, run, shard
from tones import decay_time

import uio_pipes as uio
from uio_pipes.dsp.effects import transcode
from uio_pipes.dsp.filters import loudness
from uio_pipes.dsp.resample import speed_length

Stage = Callable[..., uio.Pipeline]
STAGES: dict[str, Stage] = {
    "lowpass": lambda clips, graph, **options: graph.lowpass((500, 3000), **options),
    "codec": lambda clips, graph, **options: graph.codec(["mp3", "gsm", "mulaw"], **options),
    "clip": lambda clips, graph, **options: graph.clip((3, 20), **options),
    "loudness": lambda clips, graph, **options: graph.loudness(**options),
    "pitch_shift": lambda clips, graph, **options: graph.pitch_shift((1, 4), **options),
    "reverberate": lambda clips, graph, **options: graph.reverberate(rt60=(0.1, 0.4), **options),
    "recorded rooms": lambda clips, graph, **options: graph.reverberate(clips, **options),
    "add_noise": lambda clips, graph, **options: graph.add_noise(clips, snr=(0, 9), **options),
    "add_noise, read again": lambda clips, graph, **options: graph.add_noise(clips, cache_mb=0, **options),
}
RECORDED = ("recorded rooms", "add_noise", "add_noise, read again")  # what is added to utterances comes from files


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A shard of noises, or of rooms, one of them of another rate."""
    parts = [(f"{i}.wav", audio(700 + 900 * i, 100 + i, rate=16_000 if i == 2 else 8000)) for i in range(5)]
    return shard(tmp_path_factory.mktemp("clips") / "clips.tar", parts)


@pytest.fixture(params=STAGES)
def stage(request: pytest.FixtureRequest, clips: str) -> Stage:
    return partial(STAGES[request.param], clips)


def given(wavs: list[Any], rate: int = 8000) -> uio.Pipeline:
    return uio.from_iterable([{"key": f"{i}", "wav": wav, "sample_rate": rate} for i, wav in enumerate(wavs)])


def noise(*shape: int) -> torch.Tensor:
    return 0.1 * torch.randn(shape, generator=torch.Generator().manual_seed(0))


def changed(stage: Stage, wavs: list[Any], rate: int = 8000, **options: Any) -> list[torch.Tensor]:
    return [s["wav"] for s in run(stage(given(wavs, rate), **options), failures="raise")[0]]


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100])
def test_shape_and_type_stay(stage: Stage, rate: int) -> None:
    """Half a second, 10 ms, as few samples as channels; one channel and two."""
    wavs = [noise(channels, samples) for channels in (1, 2) for samples in (rate // 2, rate // 100, channels)]
    out = changed(stage, wavs, rate)
    assert [(w.shape, w.dtype) for w in out] == [(w.shape, torch.float32) for w in wavs]
    assert all(w.isfinite().all() for w in out)
    assert not torch.equal(out[0], wavs[0])
    assert not torch.equal(out[3], wavs[3])


@pytest.mark.parametrize("name", STAGES)
def test_silence_stays_silent(name: str, clips: str) -> None:
    for wav in changed(partial(STAGES[name], clips), [torch.zeros(1, 8000), torch.zeros(2, 8000), torch.zeros(1, 1)]):
        assert float(wav.abs().max()) <= (0.001 if name == "codec" else 0)


def test_integers_are_pcm_and_one_dimension_is_one_channel_drawn_or_not(stage: Stage) -> None:
    pcm = (noise(8000) * 32768).to(torch.int16)
    floats = (pcm.float() / 32768)[None]
    forms = [floats, pcm, pcm[None], pcm.numpy(), floats.double(), floats[0].numpy()]

    def out(wav: Any, probability: float) -> torch.Tensor:
        """What comes of a waveform that a function of the user's has made."""
        rows = [{"key": "0", "wav": np.zeros(9), "sample_rate": 8000}]
        made = uio.from_iterable(rows).map(lambda sample: {"key": "0", "wav": wav, "sample_rate": 8000})
        (batch,), _ = run(stage(made, probability=probability), failures="raise")
        found: torch.Tensor = batch["wav"]
        return found

    for probability in (0.0, 1.0):
        assert all(torch.equal(out(form, probability), out(floats, probability)) for form in forms)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", STAGES)
def test_probability_is_the_share_that_is_changed(name: str, clips: str, probability: float) -> None:
    wav, total = noise(1, 4000), 600 if name in RECORDED else 200
    out = changed(partial(STAGES[name], clips), [wav] * total, probability=probability)
    count = sum(not torch.equal(one, wav) for one in out)
    assert abs(count - total * probability) <= 3.3 * (total * probability * (1 - probability)) ** 0.5


# What was drawn, measured again


class Drawn(NamedTuple):
    """A stage, what it is given, how its draw is read off, and where the least and the largest of ``count`` lie."""

    stage: Stage
    wav: torch.Tensor
    measured: Callable[[np.ndarray], float]
    bounds: tuple[float, float]
    least: tuple[float, float]
    largest: tuple[float, float]
    count: int


def click(samples: int) -> torch.Tensor:
    wav = torch.zeros(1, samples)
    wav[0, 100] = 1.0
    return wav


def cutoff(wav: np.ndarray) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(wav[0])) < 0.5**0.5)) * 8000 / 4096


def interval(wav: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(wav[0] * np.hanning(8000), 1 << 17))
    return 12 * log2(np.argmax(spectrum) * 8000 / (1 << 17) / 400)


RAMP, INFINITE = torch.linspace(-1, 1, 2001)[None], float("inf")
TONE = torch.sin(torch.arange(8000) * (2 * torch.pi * 400 / 8000))[None]
DRAWN = {
    "clip": Drawn(
        lambda graph: graph.clip(gain_db=(2, 22), hard=1.0), RAMP, lambda wav: -20 * log10(np.abs(wav).max()),
        (2, 22), (2 - 1e-3, INFINITE), (-INFINITE, 22), 500,
    ),
    "loudness": Drawn(
        lambda graph: graph.loudness((-40.0, -10.0)), noise(1, 8000), lambda wav: loudness(torch.from_numpy(wav), 8000),
        (-40, -10), (-INFINITE, INFINITE), (-INFINITE, INFINITE), 150,
    ),
    "lowpass": Drawn(
        lambda graph: graph.lowpass((500.0, 2500.0)), click(4096), cutoff,
        (500, 2500), (500, 550), (2450, 2505), 300,
    ),
    "pitch_shift": Drawn(
        lambda graph: graph.pitch_shift((-5.0, 3.0)), TONE, interval,
        (-5, 3), (-5.1, -4.5), (2.5, 3.1), 100,
    ),
    "reverberate": Drawn(
        lambda graph: graph.reverberate(rt60=(0.3, 0.9)), click(10_000), lambda wav: decay_time(wav[0], 8000),
        (0.3, 0.9), (-INFINITE, INFINITE), (-INFINITE, INFINITE), 150,
    ),
    "volume_perturb": Drawn(
        lambda graph: graph.volume_perturb(), RAMP, lambda wav: float(wav[0, -1]),
        (0.125, 2), (0.125, 0.14), (1.98, 2.0), 800,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_draws_are_even_between_the_bounds(name: str) -> None:
    """Kolmogorov and Smirnov's distance from even ones, below its 99.9 % quantile. Draws are hashes: no flakiness."""
    one = DRAWN[name]
    values = np.sort([one.measured(wav.numpy()) for wav in changed(one.stage, [one.wav] * one.count)])
    low, high = one.bounds
    assert np.abs((values - low) / (high - low) - np.arange(one.count) / one.count).max() < 1.95 / one.count**0.5
    assert one.least[0] <= values[0] < one.least[1]
    assert one.largest[0] < values[-1] <= one.largest[1]


def test_hard_is_the_share_that_is_cut_off() -> None:
    for share in (0.0, 0.3, 1.0):
        out = changed(lambda graph, share=share: graph.clip(gain_db=(10, 10), hard=share), [RAMP] * 300)
        flat = sum(bool(wav[0, -1] == wav[0, -2]) for wav in out)
        assert abs(flat - 300 * share) <= 3.3 * (300 * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_every_utterance_has_the_loudness_that_was_asked_for(rate: int) -> None:
    wavs = [10 * noise(1, rate) * level for level in (1e-3, 0.1, 30.0)] + [2 * noise(2, rate), 0.1 * noise(7, rate)]
    for wav in changed(lambda graph: graph.loudness((-23.0, -23.0)), wavs, rate):
        assert loudness(wav, rate) == pytest.approx(-23, abs=0.05)


def test_what_has_no_loudness_stays() -> None:
    wavs = [torch.zeros(1, 16_000), noise(1, 6399), noise(1, 1), 1e-5 * noise(1, 16_000)]  # the last: below -70 LUFS
    out = changed(lambda graph: graph.loudness((-23, -23)), wavs, 16_000)
    assert all(torch.equal(a, b) for a, b in zip(wavs, out, strict=True))


def test_one_factor_for_the_whole_waveform_and_no_clipping() -> None:
    (loud,) = changed(lambda graph: graph.volume_perturb(30.0, 30.0), [noise(1, 1600)])
    assert torch.equal(loud, noise(1, 1600) * 30)
    assert loud.abs().max() > 1


# codec


def test_each_codec_is_about_equally_often() -> None:
    """300 draws: chi-squared with 2 degrees of freedom, below its 99.9 % quantile."""
    wav = 0.1 * torch.randn(1, 800, generator=torch.Generator().manual_seed(0))
    wanted = {transcode(wav, 8000, codec, 0.9).numpy().tobytes(): codec for codec in ("mp3", "gsm", "mulaw")}
    rows = [{"key": f"{i}", "wav": wav, "sample_rate": 8000} for i in range(300)]
    graph = uio.from_iterable(rows).codec(["mp3", "gsm", "mulaw"], compression_level=(0.9, 0.9))
    counts = Counter(wanted[b["wav"].numpy().tobytes()] for b in run(graph, failures="raise")[0])
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 13.8
    assert len(counts) == 3


def test_one_codec_may_be_given_by_its_name() -> None:
    graph = uio.from_iterable([]).codec("gsm")
    assert graph.stages[-1] == uio.from_iterable([]).codec(["gsm"]).stages[-1]


def test_what_cannot_be_encoded_is_counted() -> None:
    rows = [{"key": f"{i}", "wav": torch.full((1, 80), v), "sample_rate": 8000} for i, v in enumerate([0.1, torch.nan])]
    batches, loader = run(uio.from_iterable(rows).codec(["mp3"]))
    assert len(batches) == 1
    assert loader.stats().skipped == {"nan_audio": 1}


# speed_perturb


SPEEDS = [0.9, 1.0, 1.1]


def test_each_speed_is_about_equally_often(tmp_path: Path) -> None:
    """600 draws: chi-squared with 2 degrees of freedom, below its 99.9 % quantile. Draws are hashes: no flakiness."""
    batches, _ = run(uio.from_raw_list(raw_items(tmp_path, 1) * 600).decode_audio().speed_perturb(SPEEDS))
    counts = Counter(batch["wav"].shape[1] for batch in batches)
    assert sorted(counts) == sorted(speed_length(1600, s) for s in SPEEDS) == [1455, 1600, 1778]
    assert sum((n - 200) ** 2 / 200 for n in counts.values()) < 13.8


def test_two_stages_draw_independently(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 1)
    graph = uio.from_raw_list(items * 60).decode_audio().speed_perturb([0.5, 2.0]).speed_perturb([0.5, 2.0])
    assert set(Counter(b["wav"].shape[1] for b in run(graph)[0])) == {400, 1600, 6400}


# mono


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
