"""Noise at a ratio, reverberation, and rooms that are computed: against torchaudio, sums written out, and geometry."""

import math

import numpy as np
import pytest
import torch
import torchaudio
from tones import decay_time

from uio_pipes.base.hashing import Draws
from uio_pipes.dsp.effects import REACH, SPEED, add_noise, reverberate, room_response


def noise(samples: int, seed: int = 0, scale: float = 0.1) -> torch.Tensor:
    return scale * torch.randn(samples, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("snr", [-20.0, 0.0, 7.5, 40.0])
def test_noise_is_added_as_torchaudio_does(snr: float) -> None:
    speech, other = noise(8000)[None], noise(8000, 1, 0.7)
    wanted = torchaudio.functional.add_noise(speech, other[None], torch.tensor([snr]))
    assert torch.allclose(add_noise(speech, other, snr), wanted, atol=1e-6)


def test_every_channel_gets_the_same_noise_and_the_input_stays() -> None:
    speech = torch.stack([noise(900), noise(900, 1)])
    before = speech.clone()
    added = add_noise(speech, noise(900, 2), 3.0) - speech
    assert torch.equal(speech, before)
    assert torch.allclose(added[0], added[1], atol=1e-7)


@pytest.mark.parametrize("scale", [0.0, 1e-30])
def test_silence_gives_no_nan(scale: float) -> None:
    sound = noise(100)
    quiet = scale * torch.ones(100)
    assert torch.equal(add_noise(sound, quiet, 10.0), sound)
    assert torch.equal(add_noise(quiet, sound, 10.0), quiet)
    assert torch.equal(reverberate(torch.zeros(1, 100), sound), torch.zeros(1, 100))


def slow_reverberate(speech: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Kaldi's definition with shift and normalization, sum by sum."""
    peak = int(np.argmax(np.abs(response)))
    wet = np.zeros(len(speech))
    for n in range(len(speech)):
        for i, h in enumerate(response):
            if 0 <= n + peak - i < len(speech):
                wet[n] += h * speech[n + peak - i]
    return wet * np.sqrt((speech**2).mean() / (wet**2).mean())


@pytest.mark.parametrize(("samples", "taps"), [(300, 40), (40, 300), (1, 7), (255, 1), (128, 129)])
def test_reverberation_is_the_convolution_from_the_peak_on(samples: int, taps: int) -> None:
    speech = noise(samples)
    response = noise(taps, 3) * torch.exp(-torch.arange(taps) / 20)
    response[taps // 5] = 0.9
    wanted = slow_reverberate(speech.double().numpy(), response.double().numpy())
    assert np.abs(reverberate(speech[None], response)[0].numpy() - wanted).max() < 1e-5


def test_reverberation_keeps_length_power_and_place() -> None:
    speech = torch.zeros(1, 16_000)
    speech[0, 5000] = 0.5
    response = noise(8000, 1, 0.01) * torch.exp(-torch.arange(8000) / 900)
    response[700] = 1.0
    wet = reverberate(speech, response)
    assert wet.shape == speech.shape
    assert int(wet[0].abs().argmax()) == 5000
    assert float(wet.square().mean()) == pytest.approx(float(speech.square().mean()), rel=1e-4)


# Computed rooms


SIZE, SOURCE, MICROPHONE = (6.0, 4.0, 3.0), (2.0, 1.0, 1.5), (4.0, 2.5, 1.2)


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
@pytest.mark.parametrize(("rt60", "within"), [(0.2, 0.15), (0.3, 0.12), (0.5, 0.06), (0.8, 0.05), (1.5, 0.05)])
def test_sound_decays_in_the_time_that_was_asked_for(rate: int, rt60: float, within: float) -> None:
    draws = Draws(rate)
    times = []
    for i in range(12):
        size = (draws.uniform(3, 10), draws.uniform(3, 10), draws.uniform(2.5, 4))
        source, microphone = ([x * draws.uniform(0.1, 0.9) for x in size] for _ in range(2))
        response = room_response(rate, rt60, size, source, microphone, noise(round(rt60 * rate), i, 1.0))
        times.append(decay_time(response.numpy(), rate) / rt60)
    assert max(times) < 1 + within
    assert min(times) > 1 - within


def test_direct_sound_and_first_reflections_are_where_geometry_puts_them() -> None:
    """The floor's image: the source below the floor, its distance by Pythagoras, its sign turned."""
    rate, rt60 = 16_000, 0.6
    response = room_response(rate, rt60, SIZE, SOURCE, MICROPHONE, torch.zeros(9600))
    assert response.shape == (REACH + 9600,)
    assert float(response[REACH]) == pytest.approx(1.0, abs=1e-5)
    assert int(response.abs().argmax()) == REACH
    assert float(response[:REACH].abs().max()) < 1e-9
    direct = math.dist(SOURCE, MICROPHONE)
    floor = math.dist((2.0, 1.0, -1.5), MICROPHONE)
    volume, surface = 72.0, 108.0
    reflection = math.exp(-12 * math.log(10) * volume / (SPEED * surface * rt60))
    at = (floor - direct) / SPEED * rate + REACH
    whole = math.floor(at)
    near = response[whole : whole + 2].double().numpy()
    wanted = -reflection * direct / floor * np.sinc([at - whole, at - whole - 1])
    assert near == pytest.approx(wanted, abs=0.02)


def test_late_energy_goes_on_where_early_energy_ends() -> None:
    """Mean power of the 10 ms before and after the change of methods, over many rooms: within 2 dB, decay included."""
    rate, before, after = 16_000, 0.0, 0.0
    draws = Draws(3)
    for i in range(60):
        size = (draws.uniform(3, 10), draws.uniform(3, 10), draws.uniform(2.5, 4))
        source, microphone = ([x * draws.uniform(0.1, 0.9) for x in size] for _ in range(2))
        response = room_response(rate, 0.6, size, source, microphone, noise(9600, i, 1.0)).double()
        change = REACH + round(0.05 * rate)
        before += float(response[change - 160 : change].square().sum())
        after += float(response[change : change + 160].square().sum())
    assert 10 * math.log10(before / after) == pytest.approx(1.0, abs=2.0)  # 60 dB in 0.6 s: 1 dB in 10 ms


def test_sources_beside_the_microphone_count_as_30_cm_away() -> None:
    beside = room_response(16_000, 0.3, SIZE, MICROPHONE, MICROPHONE, noise(4800, 0, 1.0))
    assert beside.isfinite().all()
    assert int(beside.abs().argmax()) == REACH


@pytest.mark.parametrize("size", [(1.0, 1.0, 2.5), (100.0, 100.0, 4.0)])
@pytest.mark.parametrize("rt60", [0.05, 0.051, 10.0])
def test_smallest_and_largest_rooms_are_finite(size: tuple[float, float, float], rt60: float) -> None:
    source, microphone = [0.3 * x for x in size], [0.6 * x for x in size]
    response = room_response(8000, rt60, size, source, microphone, noise(round(rt60 * 8000), 0, 1.0))
    assert response.isfinite().all()
    assert len(response) == REACH + round(rt60 * 8000)
