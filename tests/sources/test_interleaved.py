"""Several shards read at once in a lane: the order, and that nothing is lost of any of them."""

from collections import Counter
from pathlib import Path
from typing import Any

import corpus
import pytest

import uio_pipes as uio

SHARDS = [3, 5, 2, 4, 6, 1, 3, 4]  # utterances of each


@pytest.fixture
def made(tmp_path: Path) -> Any:
    return corpus.shards(tmp_path, SHARDS, seconds=(0.1, 0.2))


def keys(pipeline: uio.Pipeline, **options: Any) -> list[str]:
    return [sample["key"] for sample in uio.Loader(pipeline, **options)]


def test_an_utterance_of_each_in_turn_and_a_shard_that_ends_is_followed_by_the_next(made: Any) -> None:
    shard = {key: number for number, count in enumerate(SHARDS) for key in made.keys[sum(SHARDS[:number]) :][:count]}
    order = [shard[key] for key in keys(uio.from_shard_list(made.list, interleave=3))]
    assert order[:12] == [0, 1, 2, 0, 1, 2, 0, 1, 3, 4, 1, 3]
    assert Counter(order) == dict(enumerate(SHARDS))
    assert all(order.index(n) < order.index(n + 1) for n in range(len(SHARDS) - 1))


@pytest.mark.parametrize("count", [1, 2, 8, 50])
@pytest.mark.parametrize("lanes", [1, 3])
def test_each_utterance_comes_once(made: Any, count: int, lanes: int) -> None:
    pipeline = uio.from_shard_list(made.list, interleave=count, shuffle=True)
    assert sorted(keys(pipeline, lanes=lanes)) == sorted(made.keys)


def test_one_at_a_time_is_what_it_was_and_its_fingerprint_too(made: Any) -> None:
    before, after = uio.from_shard_list(made.list), uio.from_shard_list(made.list, interleave=1)
    assert keys(after) == list(made.keys)
    assert before.fingerprint() == after.fingerprint() != uio.from_shard_list(made.list, interleave=2).fingerprint()


def test_damaged_and_missing_shards_cost_only_what_is_damaged(made: Any) -> None:
    shards = sorted(made.list.parent.glob("*.tar"))
    shards[1].unlink()
    cut = shards[4].read_bytes()
    shards[4].write_bytes(cut[: len(cut) // 2])
    whole = uio.Loader(uio.from_shard_list(made.list))
    expected = [sample["key"] for sample in whole]
    loader = uio.Loader(uio.from_shard_list(made.list, interleave=4))
    assert sorted(sample["key"] for sample in loader) == sorted(expected)
    assert loader.stats().failures == whole.stats().failures > 0
