"""Speeds: drawn evenly, two stages apart from one another."""

import io
from collections import Counter
from pathlib import Path

import numpy as np
import soundfile
import torch
from helpers_bad import raw_items, run

import uio_pipes as uio
from uio_pipes.dsp.resample import speed_length

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
