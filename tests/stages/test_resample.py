"""Resampling through a graph: torchaudio's numbers and exact plans."""

from pathlib import Path

import pytest
import torch
from helpers_bad import audio, planned, raw_items, run
from torchaudio.transforms import Resample

import uio_pipes as uio


@pytest.mark.parametrize("orig", [8_000, 11_025, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("new", [8_000, 16_000])
def test_equal_to_torchaudio_and_as_long_as_planned(tmp_path: Path, orig: int, new: int) -> None:
    items = []
    for samples in (1, 77, 441, orig + 3):
        path = tmp_path / f"{samples}.wav"
        path.write_bytes(audio(samples, rate=orig))
        items.append({"key": str(samples), "wav": str(path), "txt": "t"})

    plain = {b["key"]: b["wav"] for b in run(uio.from_raw_list(items).decode_audio())[0]}
    graph = uio.from_raw_list(items).decode_audio().resample(new)
    plans, batches = planned(graph)
    assert len(batches) == 4
    for batch in batches:
        want = Resample(orig, new)(plain[batch["key"]])
        assert batch["sample_rate"] == new
        assert batch["wav"].shape == want.shape
        assert torch.allclose(batch["wav"], want, atol=1e-5)
        assert (plans[batch["key"]].samples, plans[batch["key"]].sample_rate) == (want.shape[1], new)


def test_equal_rates_change_nothing(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 2)
    plain = run(uio.from_raw_list(items).decode_audio())[0]
    same = run(uio.from_raw_list(items).decode_audio().resample(8_000))[0]
    assert all(torch.equal(a["wav"], b["wav"]) for a, b in zip(plain, same, strict=True))
