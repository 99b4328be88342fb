"""Batches on their way to a GPU: whole, whatever the trainer's stream does, and counted when the trainer gets them."""

import contextlib
from typing import Any

import pytest
import torch
from contract import digest
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.run.device import Mover

STEPS = 90  # more than enough that the memory of a batch is used again
SLEEP = 2_000_000  # clock cycles, about a millisecond

workers = pytest.mark.parametrize("workers", [0, 2])


def made(corpus: Corpus, workers: int, **options: Any) -> uio.Loader:
    graph = uio.from_shard_list(corpus.list, shuffle=True).decode_audio().fbank(80).shuffle(5).batch(2).pad()
    return uio.Loader(graph, seed=3, lanes=4, num_workers=workers, **options)


def tensors(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}


@workers
@pytest.mark.parametrize("own_stream", [False, True])
def test_batches_are_whole_although_the_trainer_s_stream_is_busy(
    plain_corpus: Corpus, device: torch.device, workers: int, own_stream: bool
) -> None:
    expected = [digest(batch) for batch in made(plain_corpus, 0, steps_per_epoch=STEPS)]
    loader = uio.to_device(made(plain_corpus, workers, steps_per_epoch=STEPS), device)
    kept = []
    on_gpu = device.type == "cuda"
    with torch.cuda.stream(torch.cuda.Stream()) if on_gpu and own_stream else contextlib.nullcontext():
        for batch in loader:
            if on_gpu:  # the host is far ahead: batches are dropped long before this stream has read them
                torch.cuda._sleep(SLEEP)
            kept.append({name: tensor.clone() for name, tensor in tensors(batch).items()} | {"keys": batch["keys"]})
        if on_gpu:
            torch.cuda.current_stream().synchronize()
    assert all(tensor.device.type == device.type for batch in kept for tensor in tensors(batch).values())
    assert [digest(batch) for batch in kept] == expected


@workers
def test_pinned_batches_are_copied_while_the_host_goes_on(
    plain_corpus: Corpus, device: torch.device, workers: int
) -> None:
    expected = [digest(batch) for batch in made(plain_corpus, 0)]
    copied = []
    for batch in made(plain_corpus, workers, pin_memory=True):
        assert all(tensor.is_pinned() == torch.cuda.is_available() for tensor in tensors(batch).values())
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors(batch).items()}
        copied.append(batch | moved)
        del batch, moved  # pinned memory is used again, but not before its copy has been made
    assert [digest(batch) for batch in copied] == expected


@workers
def test_a_state_goes_on_after_the_last_batch_received(
    plain_corpus: Corpus, device: torch.device, workers: int
) -> None:
    expected = [digest(batch) for batch in made(plain_corpus, 0)]
    for received in (1, 4, len(expected) - 1):
        loader = uio.to_device(made(plain_corpus, workers), device)
        batches = iter(loader)
        for _ in range(received):
            next(batches)
        resumed = uio.to_device(made(plain_corpus, workers), device)
        resumed.load_state_dict(loader.state_dict())
        assert [digest(batch) for batch in resumed] == expected[received:]
        assert [digest(batch) for batch in batches] == expected[received:]  # that were under way


@pytest.mark.gpu
def test_a_device_without_a_number_is_the_gpu_of_this_process() -> None:
    assert Mover("cuda").device == torch.device("cuda", torch.cuda.current_device())
