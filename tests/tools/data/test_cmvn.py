"""Global CMVN from the pipeline: Kaldi's sums, the same bits on any number of workers, resumed after a kill."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import torchaudio

from recipes.common.lists import line_of, write_raw_list
from uio_pipes.tools.data import cmvn
from uio_pipes.tools.data.cmvn import CmvnFailed, compute_cmvn
from uio_pipes.tools.data.reading import Utterance

BINS = {"fbank_conf": {"num_mel_bins": 20}}
COUNT = 70  # more than the lanes, so that a lane has several batches or none


@pytest.fixture(scope="module")
def raw_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("cmvn"), np.random.default_rng(1)
    utterances = []
    for number in range(COUNT):
        path = folder / f"u{number:03d}.wav"
        soundfile.write(path, rng.normal(0, 0.1, rng.integers(3_000, 20_000)).astype(np.float32), 16_000)
        utterances.append(Utterance(path.stem, str(path), "今天"))
    write_raw_list(folder / "data.list", utterances)
    return folder / "data.list"


def reference(raw_list: Path, bins: int) -> tuple[np.ndarray, np.ndarray, int]:
    """One utterance after the other, by torchaudio's port of Kaldi's compute-fbank-feats."""
    feats = []
    for line in raw_list.read_text().splitlines():
        samples, rate = soundfile.read(json.loads(line)["wav"], dtype="int16")
        wave = torch.from_numpy(samples.astype(np.float32))[None]
        feats.append(torchaudio.compliance.kaldi.fbank(wave, num_mel_bins=bins, dither=0.0, energy_floor=0.0,
                                                       sample_frequency=rate).double())  # fmt: skip
    frames = torch.cat(feats)
    return frames.sum(0).numpy(), frames.square().sum(0).numpy(), len(frames)


def test_equals_kaldis(raw_list: Path, tmp_path: Path) -> None:
    sums = compute_cmvn(raw_list, tmp_path / "global_cmvn", BINS)
    mean, squares, frames = reference(raw_list, 20)
    found = json.loads((tmp_path / "global_cmvn").read_text())
    assert list(found) == ["mean_stat", "var_stat", "frame_num"]
    assert found["frame_num"] == frames == sums.frame_num
    assert sums.utterances == COUNT
    np.testing.assert_allclose(found["mean_stat"], mean, rtol=1e-5)
    np.testing.assert_allclose(found["var_stat"], squares, rtol=1e-5)


def test_workers_change_no_bit(raw_list: Path, tmp_path: Path) -> None:
    for workers in (0, 2):
        compute_cmvn(raw_list, tmp_path / str(workers), BINS, num_workers=workers)
    assert (tmp_path / "0").read_bytes() == (tmp_path / "2").read_bytes()


class Killed(BaseException):
    """Stands for a kill between two batches."""


Groups = Iterator[tuple[None, int]]


def until(batches: int, seen: list[int]) -> Callable[[Groups, str, int], Iterator[None]]:
    """In the place of the progress bar: notes what is counted, and is killed after so many batches."""

    def follow(groups: Groups, what: str, total: int) -> Iterator[None]:
        for number, (item, worth) in enumerate(groups):
            if number > batches:
                raise Killed
            seen.append(worth)
            yield item

    return follow


@pytest.mark.parametrize("batches", [1, 20, 31])
def test_goes_on_after_a_kill(raw_list: Path, tmp_path: Path, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    out, whole, before, after = tmp_path / "global_cmvn", tmp_path / "whole", [], []
    compute_cmvn(raw_list, whole, BINS)
    monkeypatch.setattr(cmvn, "follow", until(batches, before))
    monkeypatch.setattr(cmvn, "SAVE_EVERY", 0)
    with pytest.raises(Killed):
        compute_cmvn(raw_list, out, BINS)
    assert not out.exists()
    monkeypatch.setattr(cmvn, "follow", until(COUNT, after))
    compute_cmvn(raw_list, out, BINS, num_workers=2)
    assert after[0] >= sum(before) > 0  # the first is what the killed run had saved
    assert sum(after) == COUNT
    assert out.read_bytes() == whole.read_bytes()


def test_what_is_done_is_not_done_again(raw_list: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compute_cmvn(raw_list, tmp_path / "global_cmvn", BINS)
    monkeypatch.setattr(cmvn, "follow", until(-1, []))
    assert compute_cmvn(raw_list, tmp_path / "global_cmvn", BINS) == first
    with pytest.raises(Killed):  # other features: from the beginning
        compute_cmvn(raw_list, tmp_path / "global_cmvn", {"fbank_conf": {"num_mel_bins": 10}})


def test_counts_what_cannot_be_read(raw_list: Path, tmp_path: Path) -> None:
    lost = line_of(Utterance("lost", str(tmp_path / "lost.wav"), "今天"))
    (tmp_path / "data.list").write_text("\n".join([*raw_list.read_text().splitlines()[:5], lost, ""]))
    sums = compute_cmvn(tmp_path / "data.list", tmp_path / "global_cmvn", BINS)
    assert (sums.utterances, sums.failures) == (5, 1)


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    write_raw_list(tmp_path / "data.list", [Utterance("lost", str(tmp_path / "lost.wav"), "今天")])
    with pytest.raises(CmvnFailed, match=r"lost.wav.*missing_file"):
        compute_cmvn(tmp_path / "data.list", tmp_path / "global_cmvn", BINS)
