"""Features that are in the data go through every stage of features; what would make them from audio says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import Corpus
from helpers_bad import raw_items, run

import uio_pipes as uio

BINS = 6
STATS = {"mean_stat": [3.0] * BINS, "var_stat": [30.0] * BINS, "frame_num": 3}
Build = Callable[[uio.Pipeline], uio.Pipeline]
ON_FEATURES: dict[str, Build] = {
    "spec_aug": lambda p: p.spec_aug(max_t=9, max_f=2),
    "spec_sub": lambda p: p.spec_sub(),
    "spec_trim": lambda p: p.spec_trim(),
    "deltas": lambda p: p.deltas(),
    "global_cmvn": lambda p: p.global_cmvn(STATS),
    "all": lambda p: p.global_cmvn(STATS).deltas().spec_sub().spec_trim().spec_aug(max_t=9, max_f=2),
}
FROM_AUDIO: dict[str, Build] = {
    "fbank": lambda p: p.fbank(20),
    "mfcc": lambda p: p.mfcc(num_ceps=13),
    "log_mel_spectrogram": lambda p: p.log_mel_spectrogram(),
}


def raw_features(root: Path, count: int = 8) -> list[dict[str, Any]]:
    """A raw list of arrays; half of them float64, as NumPy makes them."""
    out = []
    for i in range(count):
        array = np.random.default_rng(i).standard_normal((40 + i, BINS))
        np.save(root / f"{i}.npy", array if i % 2 else array.astype(np.float32))
        out.append({"key": f"F{i}", "feat": str(root / f"{i}.npy"), "txt": "t"})
    return out


@pytest.mark.parametrize("source", ["shards", "raw"])
@pytest.mark.parametrize("name", ON_FEATURES)
def test_go_through_every_stage_of_features(name: str, source: str, feature_corpus: Corpus, tmp_path: Path) -> None:
    data = uio.from_shard_list(feature_corpus.list) if source == "shards" else uio.from_raw_list(raw_features(tmp_path))
    before, _ = run(data, failures="raise")
    after, loader = run(ON_FEATURES[name](data), failures="raise")
    assert [a["key"] for a in after] == [b["key"] for b in before]
    assert any(not torch.equal(a["feat"], b["feat"]) for a, b in zip(after, before, strict=True))
    assert all(a["feat"].dtype == torch.float32 for a in after)
    batches, loader = run(ON_FEATURES[name](data).shuffle(10).sort(5).dynamic_batch(400).pad(), failures="raise")
    assert sum(len(b["keys"]) for b in batches) == len(before)
    assert loader.stats().skipped == {}


@pytest.mark.parametrize("name", FROM_AUDIO)
def test_are_not_made_again(name: str, feature_corpus: Corpus) -> None:
    """Passing them through would hide features of another kind; the failure names the remedy."""
    data = uio.from_shard_list(feature_corpus.list)
    graph = FROM_AUDIO[name](data.decode_audio())
    with pytest.raises(uio.DataError, match=rf"already has features.*remove \.{name}\(\)") as info:
        run(graph.batch(2).pad(), failures="raise")
    assert info.value.reason == "has_features"
    _, loader = run(graph.batch(2).pad())
    assert loader.stats().skipped == {"has_features": len(feature_corpus.keys)}


def touched(sample: uio.Sample) -> uio.Sample:
    assert len(sample["feat"])
    return sample


@pytest.mark.parametrize("name", FROM_AUDIO)
def test_are_not_made_again_when_touched_before_planning(name: str, feature_corpus: Corpus) -> None:
    data = uio.from_shard_list(feature_corpus.list)
    with pytest.raises(uio.DataError, match=rf"remove \.{name}\(\)"):
        run(FROM_AUDIO[name](data.map(touched)).map(touched), failures="raise")
    with pytest.raises(uio.DataError, match="no audio to decode, but features: leave out what makes them"):
        run(FROM_AUDIO[name](data.decode_audio()).map(touched), failures="raise")


@pytest.mark.parametrize("name", FROM_AUDIO)
def test_beside_audio_are_told_too(name: str, tmp_path: Path) -> None:
    """A line with `wav` and `feat`: which one counts is for the user to say."""
    (feat,), (wav,) = raw_features(tmp_path, 1), raw_items(tmp_path, 1)
    graph = FROM_AUDIO[name](uio.from_raw_list([{**wav, "feat": feat["feat"]}]).decode_audio().resample(16_000))
    with pytest.raises(uio.DataError, match="or remove `feat` from the data"):
        run(graph, failures="raise")


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_stage_of_features_without_features_names_what_makes_them(name: str, tmp_path: Path) -> None:
    graph = ON_FEATURES[name](uio.from_raw_list(raw_items(tmp_path, 1)).decode_audio())
    with pytest.raises(uio.DataError, match=r"is \.fbank\(…\) missing before"):
        run(graph, failures="raise")


@pytest.mark.parametrize("name", [n for n in ON_FEATURES if n not in ("spec_trim", "all")])
def test_given_as_numpy_arrays_by_a_function(name: str) -> None:
    def look_up(sample: uio.Sample) -> uio.Sample:
        sample["feat"] = np.arange(60, dtype=np.float32).reshape(10, BINS)
        return sample

    items = [{"key": "a", "wav": "none.wav", "txt": "t"}]
    (batch,), _ = run(ON_FEATURES[name](uio.from_raw_list(items).map(look_up)), failures="raise")
    assert isinstance(batch["feat"], torch.Tensor)


def test_what_is_there_and_what_to_do_is_said() -> None:
    entry = {"key": "a", "txt": "", "speaker": "x", "note": 1}
    with pytest.raises(
        uio.DataError, match=r"no audio to decode: it has key, txt, speaker, note; say by fields which of them is wav"
    ):
        run(uio.from_iterable([entry]).decode_audio(), failures="raise")
    cut = {"key": "a", "feat": torch.ones(5, 4), "wav": torch.ones(1, 800), "sample_rate": 8000, "supervisions": []}
    with pytest.raises(uio.DataError, match=r'fields=\{"feat": None\} leaves them out'):
        run(uio.from_iterable([cut]).decode_audio().fbank(), failures="raise")
