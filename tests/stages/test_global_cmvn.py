"""Normalization: WeNet's and Kaldi's statistics, wrong files, fingerprints."""

import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import Corpus
from helpers_bad import run

import uio_pipes as uio


def features(corpus: Corpus) -> list[np.ndarray]:
    return [b["feat"].numpy() for b in run(uio.from_shard_list(corpus.list), failures="raise")[0]]


def sums_of(feats: list[np.ndarray]) -> np.ndarray:
    """Kaldi's matrix: sums and the number of frames, sums of squares and 0."""
    frames = np.concatenate(feats).astype(np.float64) * 3 + 40  # features with an offset, as log energies have one
    return np.array([[*frames.sum(0), len(frames)], [*(frames**2).sum(0), 0.0]])


def wenet_json(matrix: np.ndarray) -> dict[str, Any]:
    sums, squares = matrix[:, :-1].tolist()
    return {"mean_stat": sums, "var_stat": squares, "frame_num": int(matrix[0, -1])}


def kaldi_binary(matrix: np.ndarray, form: str) -> bytes:
    """Byte by byte, as Kaldi's kaldi-matrix.cc writes it: "FM " of float32 or "DM " of float64."""
    rows, columns = matrix.shape
    head = b"\0B" + form.encode() + b" \4" + struct.pack("<i", rows) + b"\4" + struct.pack("<i", columns)
    return head + matrix.astype("<f4" if form == "FM" else "<f8").tobytes()


def kaldi_text(matrix: np.ndarray, digits: str = ".17g") -> str:
    rows = ("  " + " ".join(format(x, digits) for x in row) for row in matrix)
    return " [\n" + " \n".join(rows) + " ]\n"


FORMS = {
    "json": lambda m: json.dumps(wenet_json(m)).encode(),
    "text": lambda m: kaldi_text(m).encode(),
    "float": lambda m: kaldi_binary(m, "FM"),
    "double": lambda m: kaldi_binary(m, "DM"),
}


def shifted(sample: uio.Sample) -> uio.Sample:
    sample["feat"] = sample["feat"] * 3 + 40
    return sample


@pytest.mark.parametrize("norm_var", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_the_corpus_gets_mean_0_and_variance_1(
    form: str, norm_var: bool, feature_corpus: Corpus, tmp_path: Path
) -> None:
    raw = features(feature_corpus)
    (tmp_path / "cmvn").write_bytes(FORMS[form](sums_of(raw)))
    graph = uio.from_shard_list(feature_corpus.list).map(shifted, length="same")
    graph = graph.global_cmvn(tmp_path / "cmvn", norm_var=norm_var)
    got = np.concatenate([b["feat"].numpy() for b in run(graph, failures="raise")[0]])
    frames = np.concatenate(raw) * 3 + 40
    want = (frames - frames.mean(0, dtype=np.float64)) / (frames.std(0, dtype=np.float64) if norm_var else 1)
    assert got.dtype == np.float32
    assert np.abs(got - want).max() < (1e-3 if form == "float" else 1e-4)  # float32 sums are that coarse
    assert np.abs(got.mean(0)).max() < 1e-3
    assert np.abs(got.std(0) - (1 if norm_var else frames.std(0))).max() < 1e-3


@pytest.mark.parametrize("digits", [".17g", "d", "e"])
def test_text_sums_are_not_rounded(digits: str, tmp_path: Path) -> None:
    """Sums of a real corpus are far above what float32 or int32 hold exactly."""
    count = 60_000_000
    matrix = np.array([[9 * count + 1, count], [82 * count, 0]])
    (tmp_path / "cmvn").write_text(kaldi_text(matrix if digits == "d" else matrix.astype(np.float64), digits))
    feat = apply(tmp_path / "cmvn", torch.tensor([[10.0]]))
    assert feat.item() == pytest.approx(1.0, abs=1e-5)


def apply(stats: Any, feat: torch.Tensor, **options: Any) -> torch.Tensor:
    """``feat`` through a graph."""

    def look_up(sample: uio.Sample) -> uio.Sample:
        sample["feat"] = feat
        return sample

    graph = uio.from_raw_list([{"key": "a", "wav": "none.wav", "txt": "t"}]).map(look_up)
    ((batch,), _) = run(graph.global_cmvn(stats, **options), failures="raise")
    out: torch.Tensor = batch["feat"]
    return out


def test_by_hand_and_the_user_s_features_stay() -> None:
    feat = torch.tensor([[1.0, 5.0], [3.0, 5.0]])
    got = apply({"mean_stat": [8.0, 20.0], "var_stat": [32.0, 100.0], "frame_num": 4}, feat)
    assert got[:, 0].tolist() == [-0.5, 0.5]  # mean 2, variance 4
    assert got[:, 1].tolist() == [0.0, 0.0]
    assert feat.tolist() == [[1.0, 5.0], [3.0, 5.0]]


def test_variance_is_floored_at_1e_20_as_wenet_s() -> None:
    got = apply({"mean_stat": [20.0], "var_stat": [100.0], "frame_num": 4}, torch.tensor([[6.0]]))
    assert got.item() == pytest.approx(1e10, rel=1e-6)


# Wrong files and arguments

MATRIX = np.array([[8.0, 20.0, 4.0], [32.0, 120.0, 0.0]])
WRONG = {
    "empty": (b"", "neither a JSON object nor a single Kaldi matrix"),
    "no statistics": (b"hello", "neither a JSON object nor a single Kaldi matrix"),
    "a token list": (b"<blank> 0\n<unk> 1\n", "neither a JSON object nor a single"),
    "binary rubbish": (bytes(range(200, 255)), "utf-8"),
    "damaged JSON": (b'{"mean_stat": [1', "Expecting"),
    "other JSON": (b'{"mean": [1], "frame_num": 2}', "no mean_stat and no var_stat"),
    "no numbers": (b'{"mean_stat": ["x"], "var_stat": [1], "frame_num": 2}', "could not convert"),
    "null": (b'{"mean_stat": [1], "var_stat": [1], "frame_num": null}', "should be numbers"),
    "unequal": (b'{"mean_stat": [1, 2], "var_stat": [1], "frame_num": 2}', r"\(2,\), \(1,\)"),
    "no frames": (b'{"mean_stat": [1], "var_stat": [1], "frame_num": 0}', "more than 0 frames, not 0"),
    "not finite": (b'{"mean_stat": [NaN], "var_stat": [1], "frame_num": 2}', "finite"),
    "three rows": (kaldi_binary(np.ones((3, 4)), "FM"), r"\(3, 4\)"),
    "one column": (kaldi_text(np.ones((2, 1))).encode(), r"\(2, 1\)"),
    "a vector": (b" [ 1 2 3 ]\n", r"\(1, 3\)"),
    "ragged text": (b" [\n 1 2 3\n 4 5 ]\n", "inhomogeneous"),
    "truncated": (kaldi_binary(MATRIX, "DM")[:-9], "not a Kaldi matrix"),
    "another type": (b"\0BXX " + kaldi_binary(MATRIX, "DM")[5:], "not a Kaldi matrix"),
    "per speaker, text": (f"a {kaldi_text(MATRIX)}b {kaldi_text(MATRIX)}".encode(), "nor a single Kaldi matrix"),
    "two matrices": (kaldi_binary(MATRIX, "DM") * 2, "single one"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_told_before_the_first_utterance(name: str, feature_corpus: Corpus, tmp_path: Path) -> None:
    content, message = WRONG[name]
    (tmp_path / "cmvn").write_bytes(content)
    graph = uio.from_shard_list(feature_corpus.list).global_cmvn(tmp_path / "cmvn")
    with pytest.raises(uio.ListError, match=rf"(?s)cmvn cannot be used for global_cmvn: .*{message}.*WeNet's JSON"):
        run(graph)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_missing_file_is_told_when_a_loader_starts_not_when_described(
    workers: int, feature_corpus: Corpus, tmp_path: Path
) -> None:
    graph = uio.from_shard_list(feature_corpus.list).global_cmvn(str(tmp_path / "none"))
    assert "none" in str(pickle.loads(pickle.dumps(graph)))
    with pytest.raises(uio.ListError, match=r"none cannot be used for global_cmvn: "):
        run(graph, num_workers=workers)


def test_other_numbers_of_bins_are_told_with_both(feature_corpus: Corpus) -> None:
    graph = uio.from_shard_list(feature_corpus.list).global_cmvn(wenet_json(MATRIX))
    with pytest.raises(uio.PipelineError, match="statistics are of 2 bins, the features of F0000 have 6"):
        run(graph)


def test_a_state_fits_by_the_numbers_not_by_the_path(feature_corpus: Corpus, tmp_path: Path) -> None:
    matrix = sums_of(features(feature_corpus))

    def loader(name: str, content: bytes) -> uio.Loader:
        (tmp_path / name).write_bytes(content)
        return uio.Loader(uio.from_shard_list(feature_corpus.list).global_cmvn(tmp_path / name), seed=1)

    first = loader("here", FORMS["double"](matrix))
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    moved = loader("there", FORMS["text"](matrix))
    moved.load_state_dict(state)
    assert torch.equal(next(iter(moved))["feat"], next(batches)["feat"])
    changed = loader("here", FORMS["double"](matrix * [[1.1], [1.3]]))
    with pytest.raises(uio.StateError, match="graph"):
        changed.load_state_dict(state)
