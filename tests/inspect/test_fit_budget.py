"""``fit_budget`` forecasts the memory of steps, refuses plans that run out of it, and proposes batches that fill it."""

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.inspect.fit_budget import peak

NOISE = np.random.default_rng(0).standard_normal((1_500, 8), dtype=np.float32)
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.fixture(autouse=True)
def few_objects() -> Iterator[None]:
    """Each measurement collects garbage first, which takes half a second among all that other tests have left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def speech(count: int = 200, labels: bool = True) -> uio.Pipeline:
    """Utterances of 50 to 1,500 frames, most of them short; number 17 has 1,499 frames and 100 labels."""
    frames = np.random.default_rng(1).exponential(300, count).clip(50, 1_400).astype(int)
    frames[17] = 1_499
    items = [{"key": f"U{i}", "feat": NOISE[:t], "label": [1] * (1 + t // 15)} for i, t in enumerate(frames.tolist())]
    given = [one if labels else {"key": one["key"], "feat": one["feat"]} for one in items]
    return uio.from_iterable(given).sharding_filter()


class Attention:
    """A step whose memory grows with the square of the frames, and with frames × labels."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.model = torch.nn.Linear(8, 32).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def __call__(self, batch: dict[str, Any]) -> None:
        hidden = self.model(batch["feats"].to(self.device))
        weights = (hidden @ hidden.transpose(1, 2)).softmax(-1)
        loss = (weights @ hidden).square().mean()
        if "target" in batch:
            joint = hidden[:, :, None, :4] + batch["target"].to(self.device).float()[:, None, :, None]
            loss = loss + joint.tanh().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def resident() -> float:
    """Bytes for steps that may take 155 MB beside what is resident now, however much that is, after the head-room."""
    return (peak(lambda: None) + 155 * 2**20) / 0.9


def room(fit: uio.BudgetFit, lengths: tuple[int, int]) -> float:
    """The utterances of these lengths that fit into the memory."""
    return (fit.limit - fit.model.weights[0]) / fit.model.cost(*lengths)


def check(fit: uio.BudgetFit, step: Attention, pipeline: uio.Pipeline, most: float) -> None:
    """The proposed batches hold all 200 utterances, none takes above ``most``, and no forecast is 5 % too low, or 10 %
    too high (on a CPU, malloc keeps more of some probes than of others)."""
    loader = uio.Loader(pipeline.bucket_batch(**fit.options).pad())
    for batch in loader:
        labels = batch["target"].shape[1] if "target" in batch else 0
        shape = (*batch["feats"].shape[:2], labels)
        found = peak(partial(step, batch), step.device == "cuda")
        assert found <= most, shape
        assert 0.95 < fit.model.bytes([shape])[0] / found < 1.1, shape
    assert loader.stats().utterances == 200


@pytest.mark.parametrize("labels", [True, False])
def test_batches_that_fill_the_memory_fit_into_it(labels: bool) -> None:
    step, pipeline = Attention(), speech(labels=labels)
    memory = resident()
    fit = uio.fit_budget(step, uio.Loader(pipeline.batch(1).pad()), memory)
    assert fit.limit == 0.9 * memory
    check(fit, step, pipeline, memory)  # within the head-room, as malloc may keep some MB of what ran before
    assert len(fit.planned) == 200
    assert fit.planned.max(axis=0).tolist() == [1, 1_499, 100 * labels]
    sizes = [room(fit, lengths) for lengths in fit.options["bucket_boundaries"]]
    assert sizes[0] > 20 * sizes[-1], "short utterances come in far larger batches"
    assert fit.proposal in str(fit)
    assert f"{fit.limit / 2**30:.2f} GiB" in str(fit)


def test_a_plan_that_would_run_out_is_refused_and_names_the_utterance() -> None:
    loader = uio.Loader(speech().shuffle(200).batch(60).pad(), lanes=2, seed=5)
    with pytest.raises(uio.PipelineError, match="U17, is too long") as refused:
        uio.fit_budget(Attention(), loader, memory=resident())
    (planned,) = [batch["feats"].shape for batch in loader if "U17" in batch["keys"]]
    assert f"{planned[0]} × 1,499 frames × 100 labels" in str(refused.value)
    assert ".bucket_batch(bucket_boundaries=[(" in str(refused.value)


def test_the_loader_goes_on_as_if_nothing_had_been(plain_corpus: Corpus) -> None:
    source = uio.from_shard_list(plain_corpus.list, shuffle=True).decode_audio().fbank(num_mel_bins=8)
    loader, alone = (uio.Loader(source.batch(2).pad(), seed=3, num_workers=1) for _ in range(2))
    expected = [batch["keys"] for batch in alone]
    batches = iter(loader)
    given = [next(batches)["keys"]]
    step = Attention()
    state, drawn = loader.state_dict(), torch.random.get_rng_state()
    uio.fit_budget(step, loader, memory=resident())
    assert loader.state_dict() == state
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert given + [batch["keys"] for batch in batches] == expected


def test_arguments_are_checked() -> None:
    loader = uio.Loader(speech(20).batch(1).pad())
    step = Attention()
    for arguments, message in [
        ((step, speech(20)), "Loader"),
        ((step, loader, 0), "memory"),
        ((step, uio.Loader(uio.from_iterable([]).batch(1).pad()), 8e9), "no batch|audio"),
    ]:
        with pytest.raises(uio.PipelineError, match=message):
            uio.fit_budget(*arguments)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU says how much memory it has")
def test_a_cpu_needs_a_number_of_bytes() -> None:
    with pytest.raises(uio.PipelineError, match="memory=8e9"):
        uio.fit_budget(Attention(), uio.Loader(speech(20).batch(1).pad()))


def test_a_step_that_runs_out_of_memory_is_named() -> None:
    def step(batch: dict[str, Any]) -> None:
        if batch["feats"].shape[1] > 1_000:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(uio.PipelineError, match=r"1 × 1,499 frames.*the longest utterance, U17.*filter\(max_frames"):
        uio.fit_budget(step, uio.Loader(speech(30).batch(1).pad()), memory=8e9)


def test_a_device_with_less_memory_than_was_given_gets_smaller_batches() -> None:
    largest, refused = 0, 0

    def step(batch: dict[str, Any]) -> None:
        nonlocal largest, refused
        size = len(batch["keys"]) * batch["feats"].shape[1] ** 2
        if size > 80 * 2**20 // 4:
            refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        torch.ones(size)
        largest = max(largest, size)

    pipeline = speech(labels=False)
    fit = uio.fit_budget(step, uio.Loader(pipeline.batch(1).pad()), memory=resident())
    assert refused, "the memory that was given is more"
    assert fit.limit < 0.9 * resident()
    refused = 0
    for batch in uio.Loader(pipeline.bucket_batch(**fit.options).pad()):
        step(batch)
    assert not refused
    assert largest > 40 * 2**20 // 4, "and yet they use what there is"


def test_what_hides_small_batches_does_not_lead_to_probes_above_the_memory() -> None:
    """As an optimizer's temporaries do, which a large model has; and each utterance is as large as any other."""
    most = 0

    def step(batch: dict[str, Any]) -> None:
        nonlocal most
        most = max(most, len(batch["keys"]))
        for size in (50 * 2**20, len(batch["keys"]) * 2**20):
            torch.ones(size // 4)

    fit = uio.fit_budget(step, uio.Loader(speech().batch(1).pad()), memory=resident())
    assert 40 <= most <= 160, "1 MB each, and 155 MB in all, of which malloc may have taken some"
    assert 0.5 * 2**20 < fit.model.cost(1_499, 100) < 2 * 2**20


def test_a_memory_that_is_too_small_for_any_batch_blames_none() -> None:
    with pytest.raises(uio.PipelineError, match="in use before the first batch"):
        uio.fit_budget(Attention(), uio.Loader(speech(20).batch(1).pad()), memory=1e6)


def test_utterances_without_labels_are_left_out_of_the_fit() -> None:
    def tokenize(text: str) -> list[int]:
        if text == "bad":
            raise ValueError("no such character")
        return [1] * len(text)

    texts = ["bad" if t > 1_000 else "x" * (t // 20) for t in range(100, 1_400, 50)]
    items = [{"key": f"U{n}", "feat": NOISE[: 100 + 50 * n], "txt": text} for n, text in enumerate(texts)]
    pipeline = uio.from_iterable(items).tokenize(tokenize)
    fit = uio.fit_budget(Attention(), uio.Loader(pipeline.batch(1).pad()), memory=resident())
    assert fit.options["bucket_boundaries"][-1] == (1_000, 50)


@pytest.mark.gpu
@GPU
def test_a_step_on_the_cpu_counts_there_although_a_gpu_is_in_use() -> None:
    kept = torch.ones(1_000_000, device="cuda")
    test_batches_that_fill_the_memory_fit_into_it(labels=True)
    assert kept.is_cuda


@pytest.mark.gpu
@GPU
def test_on_a_gpu_the_memory_of_tensors_counts() -> None:
    step, pipeline = Attention("cuda"), speech()
    loader = uio.to_device(uio.Loader(pipeline.batch(1).pad()), "cuda")
    fit = uio.fit_budget(step, loader, memory=400 * 2**20)
    check(fit, step, pipeline, fit.limit)
    assert uio.fit_budget(step, loader).limit > fit.limit, "what is free on the GPU"
