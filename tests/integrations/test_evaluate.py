"""Several validation sets in one call: the means over all utterances, on one rank and on three."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command import ranks, write_list

import uio_pipes as uio

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


if __name__ == "__main__":
    main(*sys.argv[1:])
