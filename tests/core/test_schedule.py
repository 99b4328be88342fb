"""Values that follow the step: where they are given, and what comes of them."""

from collections import Counter
from typing import Any

import pytest
from helpers_bad import ones

import uio_pipes as uio
from uio_pipes.core.schedule import Schedule, at_step, steps_in


def texts(name: str = "u", count: int = 300) -> uio.Pipeline:
    items = [{"key": f"{name}{i}", "txt": "a" * (1 + i * 7 % 11)} for i in range(count)]
    return uio.from_iterable(items).sharding_filter().tokenize(ones)


def batches(pipeline: uio.Pipeline, **options: Any) -> list[list[dict[str, Any]]]:
    return list(uio.Loader(pipeline, **options))


def test_a_value_holds_from_its_step_on() -> None:
    given: Any = {"a": [uio.by_step({0: 1, 10: 2}), 5], "b": uio.by_step({5: "y", 0: "x"})}
    assert sorted(steps_in(given)) == [0, 5, 10]
    assert at_step(given, 4) == {"a": [1, 5], "b": "x"}
    assert at_step(given, 9) == {"a": [1, 5], "b": "y"}
    assert at_step(given, 10_000) == {"a": [2, 5], "b": "y"}


def test_parts_that_follow_the_step_make_one_schedule() -> None:
    weights: Any = (1.0, uio.by_step({0: 0.0, 10: uio.by_step({0: 2.0, 20: 3.0})}))
    assert Schedule.of(weights) == Schedule(((1.0, 0.0), (1.0, 2.0), (1.0, 3.0)), (0, 10, 20))
    assert not Schedule.of((1.0, 2.0)).changes
    by_hand = Schedule(((1.0, 0.0), (0.0, 1.0)), None)
    assert Schedule.of(by_hand) is by_hand, "what a loader was told by reweight has no steps"


def test_a_filter_lets_longer_utterances_in_from_a_step_on() -> None:
    short = texts().filter(length="tokens", max_length=uio.by_step({0: 3, 20: 11})).batch(3)
    longest = [max(len(s["label"]) for s in batch) for batch in batches(short)]
    assert max(longest[:20]) == 3
    assert max(longest[20:30]) == 11
    assert [len(b) for b in batches(short)][:30] == [3] * 30


def test_a_function_may_follow_the_step() -> None:
    def even(sample: uio.Sample) -> bool:
        return int(sample["key"][1:]) % 2 == 0

    def odd(sample: uio.Sample) -> bool:
        return not even(sample)

    numbers = [
        int(s["key"][1:]) % 2 for b in batches(texts().filter(uio.by_step({0: even, 7: odd})).batch(2)) for s in b
    ]
    assert numbers[:28] == [0] * 14 + [1] * 14


def test_a_budget_follows_the_step_and_is_never_exceeded() -> None:
    made = batches(texts().dynamic_batch(max_tokens=uio.by_step({0: 30, 10: 60, 20: 8})))
    padded = [len(b) * max(len(s["label"]) for s in b) for b in made]
    assert all(20 <= p <= 30 for p in padded[:10])
    assert all(30 < p <= 60 for p in padded[10:20])
    assert max(padded[20:]) <= 8


def test_weights_follow_the_step() -> None:
    mixed = uio.mix({"a": texts("a"), "b": texts("b")}, {"a": 1, "b": uio.by_step({0: 0, 50: 3})}).batch(2)
    of = [Counter(s["key"][0] for s in batch) for batch in batches(mixed)]
    assert sum(of[:50], Counter()) == {"a": 100}
    later = sum(of[50:130], Counter())
    assert 0.65 < later["b"] / later.total() < 0.85


def test_steps_are_those_of_the_ranks_that_began() -> None:
    pipeline = texts().filter(length="tokens", max_length=uio.by_step({0: 3, 6: 11})).batch(2)
    for world in (1, 2, 4):
        ranks = [batches(pipeline, lanes=4, rank=r, world_size=world, uneven="join") for r in range(world)]
        for rank in ranks:
            assert max(len(s["label"]) for b in rank[:6] for s in b) == 3
            assert max(len(s["label"]) for b in rank[6:12] for s in b) > 3


def test_a_stream_in_steps_counts_on_over_its_epochs_and_passes() -> None:
    pipeline = texts(count=20).filter(length="tokens", max_length=uio.by_step({0: 3, 25: 11})).batch(2)
    loader = uio.Loader(pipeline, steps_per_epoch=10)
    made = []
    for epoch in range(5):
        loader.set_epoch(epoch)
        made += [[len(sample["label"]) for sample in batch] for batch in loader]
    assert len(made) == 50
    assert max(map(max, made[:25])) == 3
    assert max(map(max, made[25:32])) > 3


@pytest.mark.parametrize("before", ["filter", "mix"])
def test_what_follows_the_step_stands_behind_sharding_filter(before: str) -> None:
    plain = uio.from_iterable([{"key": "a", "txt": ""}])
    graphs = {
        "filter": lambda: plain.filter(max_frames=uio.by_step({0: 100, 2: 400})),
        "mix": lambda: uio.mix([plain, plain], [1, uio.by_step({0: 1, 2: 3})]),
    }
    with pytest.raises(uio.PipelineError, match=r"put sharding_filter before|into each of them"):
        graphs[before]().sharding_filter()
