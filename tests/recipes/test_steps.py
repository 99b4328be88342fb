"""Optimizer steps: groups of batches, accumulation, ranks without batches, the learning rate."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

import uio_pipes as uio
from recipes.common.config import Config, OptimConfig
from recipes.common.model import AsrModel
from recipes.common.steps import Groups, Stepper, learning_rate

MODEL = {"num_mel_bins": 20, "channels": 4, "dim": 16, "heads": 2, "feed_forward": 32, "layers": 1, "kernel": 7}
DECODER = {"decoder_layers": 1, "decoder_feed_forward": 32, "dropout": 0.0}


@pytest.fixture(scope="module", autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def loader(tmp_path: Path) -> uio.Loader:
    made = corpus.shards(tmp_path, [4, 5], seconds=(0.3, 0.5))
    pipeline = uio.from_shard_list(str(made.list)).decode_audio().fbank(num_mel_bins=20).batch(2).pad()
    return uio.Loader(pipeline)


def keys(group: list[dict[str, Any]]) -> list[list[str]]:
    return [batch["keys"] for batch in group]


def test_groups_of_batches_and_what_is_left(loader: uio.Loader) -> None:
    groups, taken = Groups(loader, 2), []
    while groups.more:
        taken.append(groups.take())
    assert [len(group) for group in taken] == [2, 2, 1]
    assert groups.take() == []


def test_a_position_is_that_behind_the_group_not_behind_the_batch_ahead(loader: uio.Loader) -> None:
    groups = Groups(loader, 2)
    groups.take()
    position, rest = groups.position, [groups.take(), groups.take()]
    loader.load_state_dict(position)
    again = Groups(loader, 2)
    assert [keys(again.take()), keys(again.take())] == [keys(group) for group in rest]


def make_stepper(encoder: str = "conformer", **train: Any) -> Stepper:
    torch.manual_seed(0)
    model = {**MODEL, **DECODER, "encoder": encoder}
    config = Config.of({"model": model, "optim": {"clip": 1e9}, "train": train})
    return Stepper(AsrModel(config.model, 11), config, torch.device("cpu"))


def make_batch(seed: int, size: int = 2) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "keys": [f"{seed}-{i}" for i in range(size)],
        "feats": torch.randn(size, 40, 20, generator=generator),
        "feats_lengths": torch.full((size,), 40, dtype=torch.int32),
        "target": torch.randint(3, 11, (size, 4), generator=generator),
        "target_lengths": torch.full((size,), 4, dtype=torch.int32),
    }


def weights(stepper: Stepper) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in stepper.plain.parameters()])


def test_accumulated_batches_step_like_one_large_batch() -> None:
    one, many = make_stepper(), make_stepper()
    batches = [make_batch(1), make_batch(2)]
    names = ("feats", "feats_lengths", "target", "target_lengths")
    large = {name: torch.cat([batch[name] for batch in batches]) for name in names}
    large["keys"] = [key for batch in batches for key in batch["keys"]]
    losses, norm = one.step([large], 1e-3)
    sums, its_norm = many.step(batches, 1e-3)
    torch.testing.assert_close(norm, its_norm, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(losses["loss"], sums["loss"], rtol=1e-4, atol=1e-4)
    assert (weights(one) - weights(many)).abs().mean() < 1e-5  # Adam's first step is the sign of tiny gradients


def test_a_rank_without_batches_adds_nothing() -> None:
    stepper = make_stepper()
    losses, norm = stepper.step([], 1e-3)
    assert not losses
    assert norm == 0


def test_infinite_gradients_change_nothing() -> None:
    stepper = make_stepper()
    before, bad = weights(stepper), make_batch(1)
    bad["feats"][0, 0, 0] = float("inf")
    stepper.step([bad], 1e-3)
    assert torch.equal(weights(stepper), before)
    stepper.step([make_batch(2)], 1e-3)
    assert not torch.equal(weights(stepper), before)


@pytest.mark.parametrize("encoder", ["conformer", "transformer"])
def test_a_saved_state_goes_on_with_the_same_bits(encoder: str) -> None:
    stepper, other = (make_stepper(encoder, precision="fp16") for _ in range(2))
    stepper.step([make_batch(1)], 1e-3)
    other.load_state_dict(copy.deepcopy(stepper.state_dict()))
    for one in (stepper, other):
        one.step([make_batch(2)], 1e-3)
    assert torch.equal(weights(stepper), weights(other))
    assert stepper.scaler.state_dict() == other.scaler.state_dict()


def test_the_rate_rises_and_falls() -> None:
    sqrt, cosine = OptimConfig(learning_rate=2.0, warm_up=100), OptimConfig(2.0, 100, "cosine")
    assert [learning_rate(sqrt, step, 0, 10) for step in (1, 50, 100, 400)] == pytest.approx([0.02, 1.0, 2.0, 1.0])
    assert learning_rate(cosine, 50, 0, 10) == pytest.approx(1.0)
    assert [learning_rate(cosine, 1000, epoch, 10) for epoch in (0, 5)] == pytest.approx([2.0, 1.0])
