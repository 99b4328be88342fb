"""Batches on a device, the next one under way: the same stream, and states as without. ``meta`` stands for a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from contract import digest
from corpus import Corpus

import uio_pipes as uio


def made(corpus: Corpus, workers: int, **options: object) -> uio.Loader:
    graph = uio.from_shard_list(corpus.list, shuffle=True).decode_audio().fbank(8).shuffle(5).batch(2).pad()
    return uio.Loader(graph, seed=3, lanes=4, num_workers=workers, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", [0, 2])
def test_tensors_are_on_the_device_and_the_stream_is_the_same(plain_corpus: Corpus, workers: int) -> None:
    here, on_cpu, moved = (
        list(made(plain_corpus, workers)),
        *(uio.to_device(made(plain_corpus, workers), device) for device in ("cpu", "meta")),
    )
    assert [digest(batch) for batch in on_cpu] == [digest(batch) for batch in here]
    for batch, wanted in zip(moved, here, strict=True):
        assert batch["keys"] == wanted["keys"]
        assert {k: v.shape for k, v in batch.items() if k != "keys"} == {
            k: v.shape for k, v in wanted.items() if k != "keys"
        }
        assert {v.device.type for v in batch.values() if isinstance(v, torch.Tensor)} == {"meta"}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_does_not_count_the_batch_that_is_under_way(plain_corpus: Corpus, workers: int) -> None:
    plain, moved = made(plain_corpus, workers), uio.to_device(made(plain_corpus, workers), "cpu")
    batches = iter(moved)
    for number, _ in enumerate(plain):
        next(batches)
        if number % 3 == 1:
            rest = made(plain_corpus, 0)
            rest.load_state_dict(moved.state_dict())
            wanted = made(plain_corpus, 0)
            wanted.load_state_dict(plain.state_dict())
            assert [digest(b) for b in rest] == [digest(b) for b in wanted]


def test_further_epochs_and_steps_go_on_for_a_watched_loader_too(plain_corpus: Corpus) -> None:
    plain, moved = (made(plain_corpus, workers, steps_per_epoch=5) for workers in (0, 2))
    to_cpu = uio.to_device(moved, "cpu")
    for epoch in range(2):
        to_cpu.set_epoch(epoch)
        plain.set_epoch(epoch)
        assert [digest(b) for b in to_cpu] == [digest(b) for b in plain]
    for device in ("cpu", "meta"):
        batches = list(uio.to_device(uio.watch(moved), device))
        assert [batch["keys"] for batch in batches] == [batch["keys"] for batch in plain]
        assert {batch["feats"].device.type for batch in batches} == {device}


def test_leaving_in_the_middle_ends_the_process_soon(plain_corpus: Corpus) -> None:
    code = f"""
import time, uio_pipes as uio
def graph():
    return uio.from_shard_list({str(plain_corpus.list)!r}).decode_audio().map(slow).batch(1).pad()
def slow(sample):
    time.sleep(0.05)
    return sample
if __name__ == "__main__":
    loader = uio.to_device(uio.Loader(graph(), num_workers=2), "cpu")
    next(iter(loader))
    print("left")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("left\n", 0), done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_s_error_is_raised(plain_corpus: Corpus, tmp_path: Path) -> None:
    missing = uio.from_shard_list(str(tmp_path / "none.list")).decode_audio().batch(2).pad()
    with pytest.raises(uio.ListError):
        list(uio.to_device(uio.Loader(missing, num_workers=1), "cpu"))
    failing = uio.to_device(made(plain_corpus, 1, failures="raise"), "cpu")
    assert len(list(failing)) > 0


def test_a_device_that_is_not_there_is_named_and_a_pipeline_is_no_loader(plain_corpus: Corpus) -> None:
    with pytest.raises(uio.PipelineError, match="the device 'tpu' is not available"):
        uio.to_device(made(plain_corpus, 0), "tpu")
    with pytest.raises(uio.PipelineError, match="not a Pipeline"):
        uio.to_device(uio.from_shard_list(plain_corpus.list).batch(2), "cpu")  # type: ignore[arg-type]
