"""Rooms in a graph: length, timing and loudness stay; which room belongs to the utterance."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from helpers_bad import raw_items, run, shard

import uio_pipes as uio
from uio_pipes.dsp.effects import reverberate


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


def test_each_room_is_about_equally_often_and_is_convolved_with(tmp_path: Path, rooms: str) -> None:
    """400 draws: chi-squared with 3 degrees of freedom, below its 99.9 % quantile."""
    items = raw_items(tmp_path, 1) * 400
    (clean,), _ = run(uio.from_raw_list(items[:1]).decode_audio())
    wanted = {reverberate(clean["wav"], taps(i)).numpy().tobytes(): i for i in range(4)}
    batches, _ = run(uio.from_raw_list(items).decode_audio().reverberate(rooms), failures="raise")
    counts = Counter(wanted[b["wav"].numpy().tobytes()] for b in batches)
    assert len(counts) == 4
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 16.3


def test_length_and_power_stay(tmp_path: Path, rooms: str) -> None:
    items = raw_items(tmp_path, 10)
    clean, _ = run(uio.from_raw_list(items).decode_audio())
    wet, _ = run(uio.from_raw_list(items).decode_audio().reverberate(rooms), failures="raise")
    for a, b in zip(clean, wet, strict=True):
        assert a["wav"].shape == b["wav"].shape
        assert float(b["wav"].square().mean()) == pytest.approx(float(a["wav"].square().mean()), rel=1e-4)


def test_response_is_resampled_to_the_utterance(tmp_path: Path) -> None:
    """A room recorded at 16 kHz delays its echo by as many seconds at 8 kHz."""
    echo = np.zeros(4001)
    echo[0], echo[4000] = 1.0, 0.5  # a quarter of a second
    soundfile.write(tmp_path / "room.wav", echo, 16_000, subtype="FLOAT")

    def click(sample: uio.Sample) -> dict[str, Any]:
        wav = torch.zeros(1, 8000)
        wav[0, 1000] = 1.0
        return {"key": sample["key"], "wav": wav, "sample_rate": 8000}

    graph = uio.from_raw_list(raw_items(tmp_path, 1)).map(click).reverberate(str(tmp_path / "room.wav"))
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


def test_computed_rooms_keep_length_timing_and_power_and_differ(tmp_path: Path) -> None:
    def click(sample: uio.Sample) -> dict[str, Any]:
        wav = torch.zeros(2, 8000)
        wav[:, 1000] = 1.0
        return {"key": sample["key"], "wav": wav, "sample_rate": 8000}

    graph = uio.from_raw_list(raw_items(tmp_path, 1) * 20).map(click).reverberate(rt60=(0.2, 0.6))
    wavs = [b["wav"] for b in run(graph, failures="raise")[0]]
    for wav in wavs:
        assert wav.shape == (2, 8000)
        assert torch.equal(wav[0], wav[1])
        assert float(wav.square().sum()) == pytest.approx(2.0, rel=1e-4)
        assert float(wav[0, :990].abs().max()) < 1e-3 * float(wav[0, 1000])
        assert wav[0, 1000] > 0.1
    assert len({wav.numpy().tobytes() for wav in wavs}) == 20


def test_decay_times_are_even_between_the_bounds(tmp_path: Path) -> None:
    """A click in computed rooms of 0.3 to 0.9 s: Schroeder's integral says how long each is."""

    def click(sample: uio.Sample) -> dict[str, Any]:
        wav = torch.zeros(1, 10_000)
        wav[0, 0] = 1.0
        return {"key": sample["key"], "wav": wav, "sample_rate": 8000}

    graph = uio.from_raw_list(raw_items(tmp_path, 1) * 150).map(click).reverberate(rt60=(0.3, 0.9))
    times = []
    for batch in run(graph, failures="raise")[0]:
        energy = np.cumsum(batch["wav"][0].double().numpy()[::-1] ** 2)[::-1]
        level = 10 * np.log10(energy / energy[0] + 1e-30)
        first, last = int(np.argmax(level <= -5)), int(np.argmax(level <= -25))
        times.append(-60 / float(np.polyfit(np.arange(first, last) / 8000, level[first:last], 1)[0]))
    drawn = np.sort(times)
    assert np.abs((drawn - 0.3) / 0.6 - np.arange(150) / 150).max() < 1.95 / 150**0.5


def test_computed_rooms_need_no_list(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio()
    assert graph.reverberate(rt60=(0.1, 0.2)).stages[-1].content() == []
    assert "rt60=[0.1, 0.2]" in graph.reverberate(rt60=(0.1, 0.2)).fingerprint()[-1]


def test_the_size_of_a_recorded_room_is_not_to_be_chosen(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 1)).decode_audio()
    with pytest.raises(uio.PipelineError, match="room_size, of computed rooms, cannot be combined with impulse_resp"):
        graph.reverberate(["rooms.tar"], room_size=(2, 3))
