"""Computed rooms: decay times by Schroeder's integration, and places of echoes by geometry."""

import math

import numpy as np
import pytest
import torch

from uio_pipes.base.hashing import Draws
from uio_pipes.dsp.effects import REACH, SPEED, room_response

SIZE, SOURCE, MICROPHONE = (6.0, 4.0, 3.0), (2.0, 1.0, 1.5), (4.0, 2.5, 1.2)


def noise(samples: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(samples, generator=torch.Generator().manual_seed(seed))


def decay_time(response: torch.Tensor, rate: int) -> float:
    """Seconds for 60 dB, from the slope of Schroeder's backward integral between -5 and -25 dB."""
    energy = np.cumsum(response.double().numpy()[::-1] ** 2)[::-1]
    level = 10 * np.log10(energy / energy[0] + 1e-30)
    first, last = int(np.argmax(level <= -5)), int(np.argmax(level <= -25))
    return -60 / float(np.polyfit(np.arange(first, last) / rate, level[first:last], 1)[0])


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
@pytest.mark.parametrize(("rt60", "within"), [(0.2, 0.15), (0.3, 0.12), (0.5, 0.06), (0.8, 0.05), (1.5, 0.05)])
def test_sound_decays_in_the_time_that_was_asked_for(rate: int, rt60: float, within: float) -> None:
    draws = Draws(rate)
    times = []
    for i in range(12):
        size = (draws.uniform(3, 10), draws.uniform(3, 10), draws.uniform(2.5, 4))
        source, microphone = ([x * draws.uniform(0.1, 0.9) for x in size] for _ in range(2))
        response = room_response(rate, rt60, size, source, microphone, noise(round(rt60 * rate), i))
        times.append(decay_time(response, rate) / rt60)
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
        response = room_response(rate, 0.6, size, source, microphone, noise(9600, i)).double()
        change = REACH + round(0.05 * rate)
        before += float(response[change - 160 : change].square().sum())
        after += float(response[change : change + 160].square().sum())
    assert 10 * math.log10(before / after) == pytest.approx(1.0, abs=2.0)  # 60 dB in 0.6 s: 1 dB in 10 ms


def test_sources_beside_the_microphone_count_as_30_cm_away() -> None:
    beside = room_response(16_000, 0.3, SIZE, MICROPHONE, MICROPHONE, noise(4800))
    assert beside.isfinite().all()
    assert int(beside.abs().argmax()) == REACH


@pytest.mark.parametrize("size", [(1.0, 1.0, 2.5), (100.0, 100.0, 4.0)])
@pytest.mark.parametrize("rt60", [0.05, 0.051, 10.0])
def test_smallest_and_largest_rooms_are_finite(size: tuple[float, float, float], rt60: float) -> None:
    source, microphone = [0.3 * x for x in size], [0.6 * x for x in size]
    response = room_response(8000, rt60, size, source, microphone, noise(round(rt60 * 8000)))
    assert response.isfinite().all()
    assert len(response) == REACH + round(rt60 * 8000)
