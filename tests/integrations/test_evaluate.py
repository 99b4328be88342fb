"""Several validation sets in one call: the means over all utterances, on one rank and on three."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import ranks, write_list

import uio_pipes as uio
from uio_pipes.run.merge import utterances_in

SEEN: list[list[str]] = []


def sets(path: str) -> dict[str, Any]:
    """Two, of which the second is split unevenly, so that a rank steps without a share of its own."""
    corpus = uio.from_raw_list(path).decode_audio().fbank(8)
    few = corpus.filter(lambda sample: sample["key"] in ("U00000", "U00003"))
    return {"all": corpus.batch(3).pad(), "few": uio.EvaluationLoader(few.batch(2).pad(), lanes=3)}


def measure(batch: Any) -> dict[str, Any]:
    """``one`` is a number of the whole batch, which no batch that comes again may spoil."""
    assert not torch.is_grad_enabled()
    again = len(SEEN) and SEEN[-1] == batch["keys"]
    SEEN.append(batch["keys"])
    one = math.inf if again else 1
    return {"frames": batch["feats_lengths"], "mean": batch["feats"].sum((1, 2)) / batch["feats_lengths"], "one": one}


def main(path: str, folder: str) -> None:
    """What each rank runs."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    found = []
    for _ in range(2):
        SEEN.clear()
        found.append(uio.evaluate(sets(path), measure, lanes=3))
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    with pytest.raises(uio.PipelineError, match="evaluate: ranks measure different names; return"):
        uio.evaluate(sets(path), lambda batch: {f"of rank {rank}": 1}, lanes=3)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def test_means_are_those_over_all_utterances(tmp_path: Path) -> None:
    path = str(write_list(tmp_path, 20))
    found = uio.evaluate(sets(path), measure, num_workers=1)
    batches = list(uio.Loader(sets(path)["all"]))
    frames = torch.cat([batch["feats_lengths"] for batch in batches])
    means = torch.cat([batch["feats"].sum((1, 2)) / batch["feats_lengths"] for batch in batches])
    assert found["all"] == {
        "frames": pytest.approx(float(frames.double().mean())),
        "mean": pytest.approx(float(means.double().mean())),
        "one": 1.0,
        "utterances": 20,
    }
    assert found["few"]["utterances"] == 2
    assert list(found) == ["all", "few"]
    assert torch.is_grad_enabled()


def test_each_rank_gets_the_means_of_all_and_each_call_begins_anew(tmp_path: Path) -> None:
    path = str(write_list(tmp_path, 20))
    done = ranks(3, __file__, path, tmp_path)
    assert done.returncode == 0, done.stderr
    SEEN.clear()
    alone = uio.evaluate(sets(path), measure, lanes=3)
    for rank in range(3):
        for found in json.loads((tmp_path / f"{rank}.json").read_text()):
            assert found == {name: pytest.approx(alone[name]) for name in alone}


def test_options_of_a_training_are_refused(tmp_path: Path) -> None:
    path = str(write_list(tmp_path, 3))
    with pytest.raises(uio.PipelineError, match="steps_per_epoch cannot be set for an evaluation"):
        uio.evaluate(sets(path), measure, steps_per_epoch=3)


def test_utterances_that_come_alone_count_as_one_each(tmp_path: Path) -> None:
    alone = uio.from_raw_list(str(write_list(tmp_path, 10))).decode_audio()
    found = uio.evaluate({"alone": alone}, lambda sample: {"samples": sample["wav"].shape[-1]}, lanes=1)
    assert found["alone"]["utterances"] == 10
    lengths = [sample["wav"].shape[-1] for sample in uio.Loader(alone)]
    assert found["alone"]["samples"] == pytest.approx(sum(lengths) / 10)


@pytest.mark.parametrize("rows", [["a", "b", "c"], torch.ones(3, 2), np.ones((3, 2))])
def test_rows_of_a_batch_without_keys_are_its_utterances(rows: Any) -> None:
    assert utterances_in({"x": rows, "y": 1}) == 3
    assert utterances_in({"key": "U00000", "x": rows}) == 1
    assert utterances_in({"loss": 0.5, "x": rows}) == 1


@pytest.mark.parametrize(
    ("measured", "said"),
    [
        (lambda batch: {"loss": torch.ones(len(batch["keys"]), 3)}, r"gives \{'loss': \(3, 3\)\} for a batch of 3 utt"),
        (lambda batch: {"loss": torch.ones(7)}, r"\{'loss': \(7,\)\} for a batch of 3 utterances of 'dev'; return for"),
        (lambda batch: {"loss": torch.ones(0)}, r"\{'loss': \(0,\)\}"),
        (lambda batch: {"utterances": 3}, r"a dict of the same names, 'utterances' not among them"),
        (lambda batch: {"a" if "U00000" in batch["keys"] else "b": 1}, r"\{'b': \(\)\} .* a dict of the same names"),
        (lambda batch: None, r"measure gives None for 'dev'; return for every batch a dict"),
    ],
)
def test_what_has_no_mean_is_refused(measured: Any, said: str, tmp_path: Path) -> None:
    dev = uio.from_raw_list(str(write_list(tmp_path, 20))).decode_audio().batch(3).pad()
    with pytest.raises(uio.PipelineError, match=said):
        uio.evaluate({"dev": dev}, measured, lanes=1)


def test_sets_without_names_are_refused(tmp_path: Path) -> None:
    dev = uio.from_raw_list(str(write_list(tmp_path, 20))).batch(3).pad()
    with pytest.raises(uio.PipelineError, match=r'give the sets by name, not .*; as in ."dev": dev'):
        uio.evaluate([dev], measure)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
