"""Noise and rooms in a graph: what was drawn, belonging to the utterance, and nothing lost in silence."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from helpers_bad import audio, keys, raw_items, run, shard

import uio_pipes as uio
from uio_pipes.dsp.effects import reverberate


@pytest.fixture
def noises(tmp_path: Path) -> str:
    (tmp_path / "noises").mkdir()
    for i in range(5):
        (tmp_path / "noises" / f"{i}.wav").write_bytes(audio(700 + 900 * i, 100 + i, rate=16_000 if i == 2 else 8000))
    return str(tmp_path / "noises" / "*.wav")


def wavs(items: list[dict[str, Any]], *stages: Any, **options: Any) -> list[torch.Tensor]:
    graph = uio.from_raw_list(items).decode_audio()
    for stage in stages:
        graph = stage(graph)
    return [b["wav"] for b in run(graph, failures="raise", **options)[0]]


def ratios(items: list[dict[str, Any]], noises: str, snr: tuple[float, float], **options: Any) -> np.ndarray:
    """Signal-to-noise ratios in dB, measured."""
    clean = wavs(items)
    noisy = wavs(items, lambda g: g.add_noise(noises, snr=snr), **options)
    power = [(c.double().square().mean(), (n - c).double().square().mean()) for c, n in zip(clean, noisy, strict=True)]
    return np.array([10 * float(torch.log10(s / n)) for s, n in power])


def test_measured_ratio_is_the_one_that_is_wanted(tmp_path: Path, noises: str) -> None:
    items = raw_items(tmp_path, 20)
    for snr in (-5.0, 0.0, 12.5):
        assert np.abs(ratios(items, noises, (snr, snr)) - snr).max() < 0.01


def test_ratios_are_even_between_the_bounds(tmp_path: Path, noises: str) -> None:
    """Kolmogorov and Smirnov's distance of 800 draws, below its 99.9 % quantile."""
    measured = np.sort(ratios(raw_items(tmp_path, 1) * 800, noises, (3.0, 18.0)))
    assert 3 - 0.01 < measured[0] < 3.2
    assert 17.8 < measured[-1] < 18.01
    assert np.abs((measured - 3) / 15 - np.arange(800) / 800).max() < 1.95 / 800**0.5


@pytest.mark.parametrize("lanes", [1, 3])
def test_estimate_of_memory_includes_the_cache_once_for_all_lanes(tmp_path: Path, noises: str, lanes: int) -> None:
    from uio_pipes.core.ledger import Failures
    from uio_pipes.run.lane_runner import LaneOptions, LaneStream
    from uio_pipes.run.state import LaneState

    graph = uio.from_raw_list(raw_items(tmp_path, 6)).decode_audio().add_noise(noises, cache_mb=12)
    options = LaneOptions(graph, 0, lanes, Failures())
    first = next(LaneStream(options, {i: LaneState(0) for i in range(lanes)}))
    assert first.memory == pytest.approx(12 << 20, abs=10)


def test_bad_noise_fails_the_utterance_and_is_counted_and_named(
    tmp_path: Path, noises: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "noises" / "0.wav").write_bytes(b"no audio")
    items = raw_items(tmp_path, 60)
    batches, loader = run(uio.from_raw_list(items).decode_audio().add_noise(noises))
    failed = loader.stats().skipped["bad_noise"]
    assert 2 <= failed <= 30
    assert loader.stats().skipped == {"bad_noise": failed}
    assert len(batches) + failed == 60
    assert "0.wav: cannot be decoded" in caplog.text
    left = set(keys(batches))
    assert any(f"utterance '{i['key']}'" in caplog.text for i in items if i["key"] not in left)
    with pytest.raises(uio.DataError, match=r"0\.wav: .*remove it from the list \[bad_noise\]"):
        run(uio.from_raw_list(items).decode_audio().add_noise(noises), failures="raise")


def test_state_knows_the_list_of_noises(tmp_path: Path) -> None:
    path = tmp_path / "noises.list"
    path.write_text(f"{tmp_path}/R000.wav\n")
    graph = uio.from_raw_list(raw_items(tmp_path, 4)).decode_audio().add_noise(str(path))
    loader = uio.Loader(graph)
    next(iter(loader))
    state = loader.state_dict()
    path.write_text(f"{tmp_path}/R000.wav\n{tmp_path}/R001.wav\n")
    with pytest.raises(uio.StateError, match="list"):
        list(_loaded(graph, state))


def _loaded(graph: uio.Pipeline, state: dict[str, str]) -> uio.Loader:
    loader = uio.Loader(graph)
    loader.load_state_dict(state)
    return loader


def under(items: list[dict[str, Any]], noises: str, **options: Any) -> list[torch.Tensor]:
    """What was added to each utterance."""
    clean, noisy = wavs(items), wavs(items, lambda g: g.add_noise(noises, **options))
    return [n[0] - c[0] for c, n in zip(clean, noisy, strict=True)]


def test_the_noise_of_a_part_has_its_length_place_and_ratio(tmp_path: Path) -> None:
    """A long noise under 20 to 50 % of each utterance; the places are even over what is possible."""
    (tmp_path / "long.wav").write_bytes(audio(20_000, 77))
    items = raw_items(tmp_path, 1, samples=4000) * 300
    (clean,) = wavs(items[:1])
    places, shares = [], []
    for added in under(items, str(tmp_path / "long.wav"), snr=(-5.0, -5.0), part=(0.2, 0.5)):
        heard = torch.nonzero(added.abs() > 1e-4)[:, 0]
        first, last = int(heard[0]), int(heard[-1])
        length = last - first + 1
        shares.append(length / 4000)
        places.append(first / (4000 - length))
        part = added[first : last + 1]
        ratio = 10 * torch.log10(clean.square().mean() / part.square().mean())
        assert float(ratio) == pytest.approx(-5, abs=0.1)
    assert np.abs((np.sort(shares) - 0.2) / 0.3 - np.arange(300) / 300).max() < 1.95 / 300**0.5
    assert np.abs(np.sort(places) - np.arange(300) / 300).max() < 1.95 / 300**0.5


def test_a_noise_that_is_shorter_than_its_part_is_heard_once(tmp_path: Path) -> None:
    (tmp_path / "short.wav").write_bytes(audio(400, 77))
    for added in under(raw_items(tmp_path, 5, samples=4000), str(tmp_path / "short.wav"), part=(0.5, 0.9)):
        heard = torch.nonzero(added.abs() > 1e-4)[:, 0]
        assert 390 <= int(heard[-1] - heard[0]) + 1 <= 400


def test_several_clips_add_up_each_with_its_own_ratio(tmp_path: Path, noises: str) -> None:
    """Independent noises: their powers add up. As many of each number as of any other."""
    items = raw_items(tmp_path, 1) * 240
    (clean,) = wavs(items[:1])
    power = float(clean.square().mean())
    for count in (1, 4):
        added = under(items[:60], noises, snr=(10.0, 10.0), clips=(count, count))
        share = np.mean([float(a.square().mean()) for a in added]) / power
        assert share == pytest.approx(count / 10, rel=0.25)
    drawn = [float(a.square().mean()) / power for a in under(items, noises, snr=(10.0, 10.0), clips=(1, 2))]
    one = sum(share < 0.101 for share in drawn)
    assert abs(one - 120) < 50


# reverberate


def response(i: int, rate: int = 8000) -> bytes:
    """A decaying tail after a direct sound that comes 10 (i + 1) samples late."""
    rng = np.random.default_rng(i)
    taps = 0.1 * rng.standard_normal(900) * np.exp(-np.arange(900) / 150)
    taps[10 * (i + 1)] = 0.9
    buffer = io.BytesIO()
    soundfile.write(buffer, taps, rate, format="WAV", subtype="FLOAT")
    return buffer.getvalue()


@pytest.fixture
def rooms(tmp_path: Path) -> str:
    return shard(tmp_path / "rooms.tar", [(f"{i}.wav", response(i)) for i in range(4)])


def taps(i: int) -> torch.Tensor:
    return torch.from_numpy(soundfile.read(io.BytesIO(response(i)), dtype="float32")[0])


def clicks(count: int, channels: int) -> uio.Pipeline:
    wav = torch.zeros(channels, 8000)
    wav[:, 1000] = 1.0
    return uio.from_iterable([{"key": f"{i}", "wav": wav, "sample_rate": 8000} for i in range(count)])


def test_each_room_is_about_equally_often_and_is_convolved_with(tmp_path: Path, rooms: str) -> None:
    """400 draws: chi-squared with 3 degrees of freedom, below its 99.9 % quantile."""
    items = raw_items(tmp_path, 1) * 400
    (clean,), _ = run(uio.from_raw_list(items[:1]).decode_audio())
    wanted = {reverberate(clean["wav"], taps(i)).numpy().tobytes(): i for i in range(4)}
    batches, _ = run(uio.from_raw_list(items).decode_audio().reverberate(rooms), failures="raise")
    counts = Counter(wanted[b["wav"].numpy().tobytes()] for b in batches)
    assert len(counts) == 4
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 16.3


def test_response_is_resampled_to_the_utterance(tmp_path: Path) -> None:
    """A room recorded at 16 kHz delays its echo by as many seconds at 8 kHz."""
    echo = np.zeros(4001)
    echo[0], echo[4000] = 1.0, 0.5  # a quarter of a second
    soundfile.write(tmp_path / "room.wav", echo, 16_000, subtype="FLOAT")

    graph = clicks(1, 1).reverberate(str(tmp_path / "room.wav"))
    (batch,), _ = run(graph, failures="raise")
    first, second = torch.topk(batch["wav"][0].abs(), 2).indices.sort().values.tolist()
    assert (first, second) == (1000, 3000)


@pytest.mark.parametrize("content", [b"no audio", None])
def test_bad_and_silent_responses_fail_the_utterance(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "room.wav"
    if content is None:
        soundfile.write(path, np.zeros(100), 8000)
    else:
        path.write_bytes(content)
    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().reverberate(str(path))
    assert run(graph)[1].stats().skipped == {"bad_impulse_response": 3}
    with pytest.raises(uio.DataError, match=r"room\.wav: .* \[bad_impulse_response\]"):
        run(graph, failures="raise")


def test_computed_rooms_keep_length_timing_and_power_and_differ() -> None:
    wavs = [b["wav"] for b in run(clicks(20, 2).reverberate(rt60=(0.2, 0.6)), failures="raise")[0]]
    for wav in wavs:
        assert wav.shape == (2, 8000)
        assert torch.equal(wav[0], wav[1])
        assert float(wav.square().sum()) == pytest.approx(2.0, rel=1e-4)
        assert float(wav[0, :990].abs().max()) < 1e-3 * float(wav[0, 1000])
        assert wav[0, 1000] > 0.1
    assert len({wav.numpy().tobytes() for wav in wavs}) == 20
