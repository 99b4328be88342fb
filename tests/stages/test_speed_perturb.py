"""Speeds: drawn evenly, planned exactly, the utterance's own."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from helpers_bad import planned, raw_items, run

import uio_pipes as uio
from uio_pipes.dsp.resample import speed_length

SPEEDS = [0.9, 1.0, 1.1]


def lengths(items: list[dict[str, Any]], speeds: Any = SPEEDS, seed: int = 0, epoch: int = 0) -> dict[str, int]:
    loader = uio.Loader(uio.from_raw_list(items).decode_audio().speed_perturb(speeds), seed=seed, failures="raise")
    loader.set_epoch(epoch)
    return {b["key"]: b["wav"].shape[1] for b in loader}


def test_each_speed_is_about_equally_often(tmp_path: Path) -> None:
    """600 draws: chi-squared with 2 degrees of freedom, below its 99.9 % quantile. Draws are hashes: no flakiness."""
    (item,) = raw_items(tmp_path, 1)
    items = [{**item, "key": str(i)} for i in range(600)]
    counts = Counter(lengths(items).values())
    assert sorted(counts) == sorted(speed_length(1600, s) for s in SPEEDS) == [1455, 1600, 1778]
    assert sum((n - 200) ** 2 / 200 for n in counts.values()) < 13.8


def test_a_file_listed_twice_gets_two_draws(tmp_path: Path) -> None:
    (item,) = raw_items(tmp_path, 1)
    batches, _ = run(uio.from_raw_list([item] * 40).decode_audio().speed_perturb(SPEEDS))
    assert len({b["wav"].shape[1] for b in batches}) == 3


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("speeds", [SPEEDS, [0.85, 1.15], [1 / 3, 2.0], [1.0]])
def test_planned_length_is_the_real_one(tmp_path: Path, features: bool, speeds: list[float]) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 40)).decode_audio().resample(16_000).speed_perturb(speeds)
    graph = graph.fbank(20) if features else graph
    plans, samples = planned(graph)
    real = {s["key"]: len(s["feat"]) if features else -(-s["wav"].shape[1] // 160) for s in samples}
    assert real == {key: plan.length for key, plan in plans.items()}


def test_two_stages_draw_independently(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 1)
    graph = uio.from_raw_list(items * 60).decode_audio().speed_perturb([0.5, 2.0]).speed_perturb([0.5, 2.0])
    assert set(Counter(b["wav"].shape[1] for b in run(graph)[0])) == {400, 1600, 6400}


def test_speed_1_is_the_input_itself(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3)
    plain = run(uio.from_raw_list(items).decode_audio())[0]
    same = run(uio.from_raw_list(items).decode_audio().speed_perturb([1.0]))[0]
    assert all(torch.equal(a["wav"], b["wav"]) for a, b in zip(plain, same, strict=True))


def test_faster_is_higher(tmp_path: Path) -> None:
    """A tone of 500 Hz at 1.1 × is one of 550 Hz."""

    buffer = io.BytesIO()
    soundfile.write(buffer, 0.5 * np.sin(2 * np.pi * 500 * np.arange(8000) / 8000), 8000, format="WAV")
    (tmp_path / "x.wav").write_bytes(buffer.getvalue())
    item = {"key": "x", "wav": str(tmp_path / "x.wav"), "txt": "t"}
    (batch,), _ = run(uio.from_raw_list([item]).decode_audio().speed_perturb([1.1]))
    spectrum = torch.fft.rfft(batch["wav"][0]).abs()
    assert abs(int(spectrum.argmax()) * 8000 / batch["wav"].shape[1] - 550) < 2
