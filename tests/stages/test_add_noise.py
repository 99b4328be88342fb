"""Noise in a graph: the ratios that were drawn, belonging to the utterance, and nothing lost in silence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import audio, keys, raw_items, run, shard

import uio_pipes as uio


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


def test_the_cache_changes_nothing(tmp_path: Path, noises: str) -> None:
    items = raw_items(tmp_path, 12)
    kept, read_again = (wavs(items, lambda g, size=size: g.add_noise(noises, cache_mb=size)) for size in (256, 0))
    assert all(torch.equal(a, b) for a, b in zip(kept, read_again, strict=True))


@pytest.mark.parametrize("lanes", [1, 4])
def test_shards_of_noise_serve_every_lane_alike(tmp_path: Path, lanes: int) -> None:
    name = shard(tmp_path / "n.tar", [(f"{i}.wav", audio(500 + 700 * i, i)) for i in range(5)])
    graph = uio.from_raw_list(raw_items(tmp_path, 12)).decode_audio().add_noise([name], snr=(0, 10))
    batches, _ = run(graph, lanes=lanes)
    one, _ = run(graph, lanes=1)
    wanted = {b["key"]: b["wav"] for b in one}
    assert len(batches) == 12
    assert all(torch.equal(b["wav"], wanted[b["key"]]) for b in batches)


@pytest.mark.parametrize("lanes", [1, 3])
def test_estimate_of_memory_includes_the_cache_once_for_all_lanes(tmp_path: Path, noises: str, lanes: int) -> None:
    from uio_pipes.core.ledger import Failures
    from uio_pipes.run.lane_runner import LaneStream, RunSpec
    from uio_pipes.run.state import LaneState

    graph = uio.from_raw_list(raw_items(tmp_path, 6)).decode_audio().add_noise(noises, cache_mb=12)
    spec = RunSpec(graph, lanes, 0, 0, Failures())
    first = next(LaneStream(spec, {i: LaneState(0) for i in range(lanes)}))
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
    with pytest.raises(uio.DataError, match=r"0\.wav: .*take it off the list \[bad_noise\]"):
        run(uio.from_raw_list(items).decode_audio().add_noise(noises), failures="raise")


def test_describing_reads_nothing_and_building_reads_the_list(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().add_noise(str(tmp_path / "later.list"))
    assert "add_noise" in str(graph)
    with pytest.raises(uio.ListError, match=r"later\.list"):
        run(graph)
    (tmp_path / "later.list").write_text(f"{tmp_path}/R000.wav\n")
    assert len(run(graph)[0]) == 2


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


def test_clips_and_parts_are_in_the_fingerprint() -> None:
    graph = uio.from_raw_list("x.list").decode_audio()
    assert "clips=[2, 3], part=[0.1, 0.5]" in graph.add_noise("n.list", clips=(2, 3), part=(0.1, 0.5)).fingerprint()[-1]
