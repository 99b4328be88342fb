"""Utterances of different sample rates never meet in a batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from failing import fails_as
from helpers_bad import audio, run

import uio_pipes as uio
from uio_pipes.base.errors import TooManyFailures
from uio_pipes.tools.cli.look import tables as of_contents
from uio_pipes.tools.cli.plan import simulation_tables as of_simulation
from uio_pipes.tools.reports.inspect import inspect
from uio_pipes.tools.reports.simulate import simulate


def items(root: Path, rates: list[int], samples: int = 8000) -> list[dict[str, Any]]:
    out = []
    for i, rate in enumerate(rates):
        path = root / f"u{i}.wav"
        path.write_bytes(audio(samples + 100 * i, seed=i, rate=rate))
        out.append({"key": f"u{i}", "wav": str(path), "txt": "x"})
    return out


GRAPHS: dict[str, Callable[[uio.Pipeline], uio.Pipeline]] = {
    "features": lambda graph: graph.decode_audio().fbank(8),
    "samples": lambda graph: graph.decode_audio(),
    "features and samples": lambda graph: graph.decode_audio().fbank(8),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_those_of_another_rate_than_most_of_their_batch_fail(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph = GRAPHS[kind](uio.from_raw_list(items(tmp_path, [16_000, 44_100, 16_000, 8_000, 16_000])))
    pcm = kind == "features and samples"
    (batch,), loader = run(graph.batch(5).pad(pcm=pcm))
    (alone,), _ = run(GRAPHS[kind](uio.from_raw_list(items(tmp_path, [16_000] * 5)[::2])).batch(5).pad(pcm=pcm))
    assert batch["keys"] == ["u4", "u2", "u0"]
    assert batch.keys() == alone.keys()
    for name in batch.keys() - {"keys"}:
        assert batch[name].equal(alone[name]), name
        assert batch[name].is_contiguous()
    stats = loader.stats()
    assert (stats.skipped, stats.failures, stats.utterances) == ({"mixed_rates": 2}, 2, 3)
    assert "u1.wav" in caplog.text or "'u1'" in caplog.text
    assert "has 44100 Hz, but 'u4' and others in its batch have 16000 Hz" in caplog.text
    assert ".resample(16_000)" in caplog.text


def test_resampling_is_the_remedy(tmp_path: Path) -> None:
    graph = uio.from_raw_list(items(tmp_path, [16_000, 44_100, 8_000])).decode_audio().resample(16_000).fbank(8)
    (batch,), loader = run(graph.batch(5).pad())
    assert sorted(batch["keys"]) == ["u0", "u1", "u2"]
    assert loader.stats().skipped == {}


def test_a_mixed_list_soon_stops_the_run(tmp_path: Path) -> None:
    graph = uio.from_raw_list(items(tmp_path, [16_000, 44_100] * 20, 2000)).decode_audio().fbank(8)
    with pytest.raises(TooManyFailures, match=r"in a row in pad.*resample\(16_000\)"):
        run(graph.batch(8).pad(), failures=uio.Failures(max_consecutive_failures=10))
    with fails_as("mixed_rates"):
        run(graph.batch(8).pad(), failures="raise")


def test_precomputed_features_without_a_rate_are_left_alone() -> None:
    made = [{"key": f"u{i}", "feat": np.ones((5 + i, 4), np.float32), "txt": ""} for i in range(3)]
    (batch,), _ = run(uio.from_iterable(made).batch(3).pad())
    assert batch["keys"] == ["u2", "u1", "u0"]
    rates = [{**one, "sample_rate": rate} for one, rate in zip(made, (8000, 16_000, 16_000), strict=True)]
    (batch,), loader = run(uio.from_iterable(rates).batch(3).pad())
    assert batch["keys"] == ["u2", "u1"]
    assert loader.stats().skipped == {"mixed_rates": 1}


def test_text_alone_has_no_rate() -> None:
    made = [{"key": f"u{i}", "txt": "ab", "sample_rate": 8000 * (i + 1)} for i in range(3)]
    graph = uio.from_iterable(made).tokenize(uio.CharTokenizer({"<unk>": 0, "a": 1, "b": 2})).batch(3).pad()
    (batch,), loader = run(graph)
    assert len(batch["keys"]) == 3
    assert loader.stats().skipped == {}


def test_simulate_and_inspect_show_them(tmp_path: Path) -> None:
    listed = items(tmp_path, [16_000, 44_100, 16_000, 8_000, 16_000, 44_100], 3000)
    raw = uio.from_raw_list(listed)
    graph = raw.decode_audio().fbank(8).batch(3).pad()
    planned = simulate(graph)
    batches, loader = run(graph)
    assert planned.rates == {16_000: 3, 44_100: 2, 8_000: 1}
    assert planned.left_out == loader.stats().skipped == {"mixed_rates": 3}
    assert planned.utterances == sum(len(batch["keys"]) for batch in batches) == 3
    assert "put .resample(16_000) before the features" in str(of_simulation(planned))
    mended = simulate(raw.decode_audio().resample(16_000).fbank(8).batch(3).pad())
    assert (mended.rates, mended.left_out) == ({16_000: 6}, {})
    assert "mixed" not in str(of_simulation(mended))
    seen = inspect(raw)
    assert seen.rates == planned.rates
    assert "put .resample(16_000) before the features" in str(of_contents([], seen))


def test_rates_that_a_duration_hides_are_said_to_be_unknown(tmp_path: Path) -> None:
    listed = [item | {"duration": 0.2} for item in items(tmp_path, [16_000, 44_100] * 3, 3000)]
    raw = uio.from_raw_list(listed)
    planned = simulate(raw.decode_audio().fbank(8).batch(3).pad())
    (note,) = planned.notes
    assert "sample rates of 6 utterances are not known here" in note
    assert "uio inspect" in note
    assert planned.rates == {}
    assert inspect(raw).rates == {16_000: 3, 44_100: 3}
    assert simulate(raw.decode_audio().resample(16_000).fbank(8).batch(3).pad()).notes == []
    assert simulate(uio.interleave([raw.decode_audio().resample(16_000)]).fbank(8).batch(3).pad()).notes == []


def test_inspect_counts_the_rates_that_only_decoding_tells(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.mp3", np.zeros(16_000), 16_000)
    seen = inspect(uio.from_raw_list([{"key": "a", "wav": str(tmp_path / "a.mp3"), "txt": "", "duration": 1.0}]))
    assert (seen.rates, seen.unknown_rates) == ({}, 1)
    assert "sample rate unknown until decoded" in str(of_contents([], seen))
