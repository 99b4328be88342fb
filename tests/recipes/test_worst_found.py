"""2 % of the transcripts of a mini corpus are swapped: the record finds them, and the next epoch comes without them."""

import json
from pathlib import Path

import pytest
from command import uio as run_uio
from swapped import Training, swap

import uio_pipes as uio

FIRST = 5  # epochs until the losses tell


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_swapped_transcripts_are_found_and_the_next_epoch_comes_without_them(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader")
    data, swapped = swap(tmp_path, hours=0.3, seed=1)
    training = Training(data, seed=2, epochs=14)
    with uio.Recorder(tmp_path / "record", training.loader) as recorder:
        training.train(range(FIRST), recorder)
    bad = tmp_path / "bad.jsonl"
    told = json.loads(run_uio("worst", tmp_path / "record", "--top", "4%", "--exclude", bad, "--json").stdout)
    found = {one["key"] for one in told["worst"]}
    assert len(found) == round(0.04 * told["utterances"])
    assert len(found & swapped) >= 0.9 * len(swapped), "so many are among the worst 4 %"

    training.loader.exclude(bad)
    training.loader.set_epoch(FIRST)
    left = {key for batch in training.loader for key in batch["keys"]}  # what the next epoch would train on
    assert len(left) == told["utterances"] - len(found)
    assert not left & found
    assert training.loader.stats().skipped["excluded"] == len(found)
