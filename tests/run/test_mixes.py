"""Mixes that change during a run: ``loader.reweight``, edited mixes that are adopted, and the journal of both."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import edits
import numpy as np
import pytest
from contract import restored
from helpers_bad import ones
from torch.utils.data import DataLoader

import uio_pipes as uio

JOURNEYS = int(os.environ.get("UIO_EDITS", "3"))  # 1,000 were run
OPTIONS: dict[str, Any] = {"seed": 3, "lanes": 4}
NAN = float("nan")


def texts(name: str, count: int = 1000) -> uio.Pipeline:
    return uio.from_iterable([{"key": f"{name}{i}", "txt": "a" * (1 + i * 7 % 11)} for i in range(count)])


def mixed(weights: dict[str, float] | None = None, stop: Any = "all") -> uio.Pipeline:
    weights = weights or {"a": 1, "b": 1}
    sources = {name: texts(name).sharding_filter() for name in weights}
    return uio.mix(sources, weights, stop=stop).tokenize(ones).shuffle(20).dynamic_batch(max_tokens=24)


class Again(uio.Node):
    """A node that changes nothing."""

    def next(self) -> Any:
        return self.source.next()


def keys(batch: Any) -> list[str]:
    return [sample["key"] for sample in batch]


def some(batches: Iterator[Any], steps: int) -> list[list[str]]:
    return [keys(batch) for _, batch in zip(range(steps), batches, strict=False)]


def of(batches: list[list[str]]) -> Counter[str]:
    return Counter(key[0] for batch in batches for key in batch)


def resumed(pipeline: uio.Pipeline, state: dict[str, str], **options: Any) -> uio.Loader:
    return restored(pipeline, state, **{**OPTIONS, **options})


def meta(state: dict[str, str]) -> dict[str, Any]:
    saved: dict[str, Any] = json.loads(state["meta"])
    return saved


# reweight


def test_new_weights_hold_from_the_next_batch_on_and_a_resume_repeats_them() -> None:
    loader = uio.Loader(mixed(), **OPTIONS)
    batches = iter(loader)
    first = some(batches, 20)
    loader.reweight({"a": 0})
    state = loader.state_dict()
    rest = some(batches, 10**6)
    assert not of(rest[200:])["a"]
    assert of(rest)["b"] > 900
    for options in ({}, {"num_workers": 2}, {"snapshot_every": 3}):
        assert some(iter(resumed(mixed(), state, **options)), 10**6) == rest
    every = first + rest
    assert len({key for batch in every for key in batch}) == sum(map(len, every))


def test_shares_are_those_of_the_weights() -> None:
    """30,000 draws before and after a change, within 1 %."""
    sources = {name: texts(name, 100).sharding_filter().repeat() for name in "abc"}
    loader = uio.Loader(uio.mix(sources, {"a": 1, "b": 2, "c": 5}).batch(100), lanes=4, steps_per_epoch=600)
    batches = iter(loader)
    for weights in ({"a": 1, "b": 2, "c": 5}, {"a": 6, "b": 1, "c": 1}):
        loader.reweight(weights)
        drawn, total = of(some(batches, 300)), sum(weights.values())
        assert drawn.total() == 30_000
        assert all(abs(drawn[name] / 30_000 - weight / total) < 0.01 for name, weight in weights.items())


def test_steps_before_and_after_changes_can_be_made_again() -> None:
    loader = uio.Loader(mixed(), **OPTIONS)
    batches = iter(loader)
    made = some(batches, 15)
    loader.reweight({"a": 5})
    made += some(batches, 3)  # not all lanes have come to the change
    early = loader.state_dict()
    made += some(batches, 20)
    loader.reweight({"b": 0})
    late = loader.state_dict()
    made += some(batches, 20)
    assert [keys(loader.batch_at(step)) for step in range(0, 58, 3)] == made[::3]
    for state, upto in ((early, 38), (late, 58)):  # from the beginning of the epoch, too
        again = resumed(mixed(), state)
        assert [keys(again.batch_at(step)) for step in range(0, upto, 3)] == made[:upto:3]


def test_a_change_holds_in_later_epochs() -> None:
    loader = uio.Loader(mixed(stop="first"), **OPTIONS)
    loader.reweight({"a": 9})
    loader.set_epoch(1)
    made = [keys(batch) for batch in loader]
    assert of(made)["a"] > 5 * of(made)["b"]
    assert made != [keys(b) for b in uio.Loader(mixed({"a": 9, "b": 1}, "first"), **OPTIONS)]  # of epoch 0
    other = uio.Loader(mixed({"a": 9, "b": 1}, "first"), **OPTIONS)
    other.set_epoch(1)
    assert made == [keys(batch) for batch in other]


def test_it_is_the_same_on_all_ranks_and_workers() -> None:
    def run(world: int, workers: int, before: int) -> list[list[str]]:
        made = []
        for rank in range(world):
            loader = uio.Loader(mixed(), **OPTIONS, rank=rank, world_size=world, num_workers=workers, uneven="join")
            batches = iter(loader)
            made += some(batches, before // world)
            loader.reweight({"a": 3})
            made += some(batches, 10**6)
        return sorted(made)

    whole = run(1, 0, 40)
    assert run(2, 0, 40) == run(1, 2, 40) == run(4, 1, 40) == whole


def test_a_mix_within_a_mix_changes_by_its_path() -> None:
    inner = uio.mix({"x": texts("x").sharding_filter(), "y": texts("y").sharding_filter()})
    outer = uio.mix({"in": inner, "z": texts("z").sharding_filter()}).batch(10)
    loader = uio.Loader(outer, **OPTIONS)
    batches = iter(loader)
    some(batches, 4)
    loader.reweight({"in/x": 0, "z": 3})
    state = loader.state_dict()
    rest = some(batches, 60)
    assert not of(rest)["x"]
    assert 0.6 < of(rest)["z"] / of(rest).total() < 0.9
    assert some(iter(resumed(outer, state)), 60) == rest
    assert {path: len(one["journal"]) for path, one in meta(state)["mixes"].items()} == {"": 2, "in": 2}


def test_a_state_loaded_and_reweighted_before_its_first_batch_keeps_both() -> None:
    loader = uio.Loader(mixed(), **OPTIONS)
    some(iter(loader), 8)
    again = resumed(mixed(), loader.state_dict())
    again.reweight({"a": 0})
    state = again.state_dict()
    assert some(iter(resumed(mixed(), state)), 40) == some(iter(again), 40)
    assert [entry["step"] for entry in meta(state)["mixes"][""]["journal"]] == [0, 8]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"c": 1}, "there is no source 'c'; there are a, b"),
        ({"a": -1}, "'a' must be a number, 0 or more, not -1"),
        ({"a": "many"}, "'a' must be a number, 0 or more, not 'many'"),
        ({"a": 0, "b": 0}, "at least one source must keep a weight above 0"),
        *((wrong, "reweight: ") for wrong in (None, 5, "a", [1, 2], {"a": 1e-320, "b": 0}, {"a": NAN}, {"a": True})),
    ],
)
def test_wrong_weights_change_nothing(weights: Any, message: str) -> None:
    loader = uio.Loader(mixed(), **OPTIONS)
    before = loader.state_dict()
    with pytest.raises(uio.PipelineError, match=message):
        loader.reweight(weights)
    assert loader.state_dict() == before


def test_a_mix_that_is_dealt_to_lanes_afterwards_is_refused() -> None:
    pipeline = uio.mix({"a": texts("a"), "b": texts("b")}).sharding_filter().batch(2)
    with pytest.raises(uio.PipelineError, match="before sharding_filter"):
        uio.Loader(pipeline, lanes=2).reweight({"a": 2})
    with pytest.raises(uio.PipelineError, match="no mix with weights"):
        uio.Loader(texts("a").batch(2)).reweight({"a": 2})


# adopt


@pytest.fixture
def stopped() -> tuple[dict[str, str], list[list[str]]]:
    """A state of a mix of two sources, and what it would give next."""
    loader = uio.Loader(mixed(), **OPTIONS)
    batches = iter(loader)
    some(batches, 20)
    return loader.state_dict(), some(batches, 10**6)


def test_an_edited_mix_is_a_difference_that_names_what_changed(stopped: Any) -> None:
    with pytest.raises(uio.StateError, match=r"weights of the mix: b 1.* → 2, c not there → 4.*on_change=\"adopt\""):
        resumed(mixed({"a": 1, "b": 2, "c": 4}), stopped[0])


def test_an_edited_mix_goes_on_exactly_where_the_others_stood(stopped: Any) -> None:
    state, rest = stopped
    loader = resumed(mixed({"c": 4, "b": 2, "a": 1}), state, on_change="adopt")
    batches = iter(loader)
    assert some(batches, 4) == rest[:4]  # of each lane the first, drawn before
    middle = loader.state_dict()
    made = rest[:4] + some(batches, 10**6)
    delivered = [key for batch in made for key in batch]
    assert len(delivered) == len(set(delivered))
    assert of(made)["c"] == 1000
    undisturbed = {key for batch in rest for key in batch}
    assert {key for key in delivered if key[0] in "ab"} == undisturbed
    for order in ("abc", "cab"):  # the file may list them in any order
        pipeline = mixed({name: {"a": 1, "b": 2, "c": 4}[name] for name in order})
        assert some(iter(resumed(pipeline, middle)), 10**6) == made[4:]
    journal = meta(middle)["mixes"][""]["journal"]
    assert [(entry["step"], entry["weights"]) for entry in journal] == [
        (0, {"a": 1, "b": 1}),
        (20, {"a": 1, "b": 2, "c": 4}),
    ]


def test_it_is_as_if_the_source_had_been_there_with_weight_0(stopped: Any) -> None:
    loader = uio.Loader(mixed({"a": 1, "b": 1, "c": 0}), **OPTIONS)
    batches = iter(loader)
    some(batches, 20)
    loader.reweight({"c": 4})
    adopted = resumed(mixed({"a": 1, "b": 1, "c": 4}), stopped[0], on_change="adopt")
    assert some(iter(adopted), 10**6) == some(batches, 10**6)


def test_an_edited_file_is_adopted(tmp_path: Path) -> None:
    made = corpus.shards(tmp_path, [4] * 8, seconds=(0.3, 0.5))
    entry = "  - {{type: shard_list, paths: {0}, name: {1}, weight: {2}, tags: {{of: {1}}}}}\n"

    def loader(*sources: tuple[str, int], **options: Any) -> uio.Loader:
        lines = [entry.format(made.list, name, weight) for name, weight in sources]
        (tmp_path / "data.yaml").write_text("sources:\n" + "".join(lines))
        pipeline = uio.from_config(tmp_path / "data.yaml").decode_audio().fbank(8).shuffle(4).batch(2).pad()
        return uio.Loader(pipeline, **OPTIONS, **options)

    before = loader(("read", 1), ("heard", 1))
    some_keys = [batch["keys"] for _, batch in zip(range(5), before, strict=False)]
    after = loader(("new", 3), ("read", 2), ("heard", 1), on_change="adopt")
    after.load_state_dict(before.state_dict())
    every = some_keys + [batch["keys"] for batch in after]
    assert Counter(key for batch in every for key in batch) == Counter(dict.fromkeys(made.keys, 3))


@pytest.mark.parametrize(
    ("edited", "message"),
    [
        (lambda: mixed({"b": 1, "c": 1}), "has no source 'a' any more"),
        (lambda: mixed({"a": 1, "b": 1, "c": 1}).through(Again), "graph changed"),
        (lambda: mixed({"a": 1, "b": 1, "c": 1}, "cycle"), "graph changed"),
        (lambda: uio.mix({"a": texts("a", 9).sharding_filter(), "b": texts("b").sharding_filter()}, [1, 2]), "changed"),
    ],
)
def test_more_than_weights_and_new_sources_cannot_be_adopted(edited: Any, message: str, stopped: Any) -> None:
    with pytest.raises(uio.StateError, match=message):
        resumed(edited(), stopped[0], on_change="adopt")


def test_restart_begins_again_with_the_edited_mix(stopped: Any) -> None:
    pipeline = mixed({"a": 1, "b": 2})
    loader = resumed(pipeline, stopped[0], on_change="restart")
    assert [keys(batch) for batch in loader] == [keys(batch) for batch in uio.Loader(pipeline, **OPTIONS)]


def test_ranks_that_know_a_change_and_ranks_that_do_not_yet_are_joined() -> None:
    states = []
    for rank in range(2):
        loader = uio.Loader(mixed(), **OPTIONS, rank=rank, world_size=2, uneven="join")
        some(iter(loader), 5 + rank)
        if rank == 1:
            loader.reweight({"a": 0})
        states.append(loader.state_dict())
    for order in (states, states[::-1]):
        assert len(meta(uio.merge_states(order))["mixes"][""]["journal"]) == 2


def test_random_journeys_with_edits_kills_and_moves(tmp_path: Path) -> None:
    made = corpus.shards(tmp_path, edits.SHARDS, seconds=(0.3, 0.8))
    assert not edits.different(made.list, JOURNEYS, seed=7)


# What a sceptic found


def test_a_change_deep_within_mixes_is_saved_in_later_rounds_too() -> None:
    def graph() -> uio.Pipeline:
        sources = {name: texts(name, 20).sharding_filter() for name in "abcd"}
        inner = uio.mix({"news": sources["a"], "talks": sources["b"]})
        return uio.mix({"speech": uio.mix({"en": inner, "zh": sources["c"]}), "noise": sources["d"]}).batch(4)

    loader = uio.Loader(graph(), steps_per_epoch=10)
    for epoch in range(4):
        loader.set_epoch(epoch)
        assert len(list(loader)) == 10
        loader.reweight({"speech/en/news": epoch + 2})
    again = restored(graph(), loader.state_dict(), steps_per_epoch=10)
    for one in (loader, again):
        one.set_epoch(4)
    assert [keys(batch) for batch in again] == [keys(batch) for batch in loader]


def test_steps_can_be_made_again_once_the_stream_has_begun_again() -> None:
    sources = {name: texts(name, 20).sharding_filter() for name in "ab"}
    loader = uio.Loader(uio.mix(sources).batch(5), steps_per_epoch=40)
    batches = iter(loader)
    made = some(batches, 14)
    loader.reweight({"a": 3})
    assert [keys(loader.batch_at(step)) for step in range(14)] == made
    made += some(batches, 12)
    assert [keys(loader.batch_at(step)) for step in range(26)] == made


def test_adopting_a_source_keeps_the_weights_that_were_given_by_hand() -> None:
    loader = uio.Loader(mixed(), **OPTIONS)
    batches = iter(loader)
    some(batches, 8)
    loader.reweight({"a": 9})
    adopted = resumed(mixed({"a": 1, "b": 2, "c": 1}), loader.state_dict(), on_change="adopt")
    assert meta(adopted.state_dict())["mixes"][""]["journal"][-1]["weights"] == {"a": 9, "b": 2, "c": 1}


def test_lightning_saves_changes_where_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uio_pipes.integrations.lightning._trainer_that_asks", object)
    lightning = uio.LightningLoader(mixed(), **OPTIONS)
    batches = iter(lightning)
    some(batches, 6)
    lightning.loader.reweight({"a": 0})
    lightning.loader.exclude([f"b{number}" for number in range(0, 1000, 3)])
    state = lightning.state_dict()
    rest = some(batches, 60)
    again = uio.LightningLoader(mixed(), **OPTIONS)
    again.load_state_dict(state)
    assert some(iter(again), 61)[1:] == rest  # it takes the batch that was ahead again


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_of_another_loader_are_no_ranks(workers: int) -> None:
    short = texts("a", 400).sharding_filter().tokenize(ones)
    kept = short.filter(length="tokens", max_length=uio.by_step({0: 1, 20: 200})).batch(1)
    longest = [
        max(len(s["label"]) for s in b) for b in DataLoader(kept.as_dataset(), batch_size=None, num_workers=workers)
    ]
    assert longest[:20] == [1] * 20
    assert max(longest[20:24]) > 1


def test_ranks_apart_by_an_epoch_are_joined_after_an_edit() -> None:
    def graph(*names: str) -> uio.Pipeline:
        return uio.mix({name: texts(name, 20).sharding_filter() for name in names}).batch(3)

    def ranks(names: str, state: Any, steps: tuple[int, int], **options: Any) -> list[dict[str, str]]:
        states = []
        for rank in range(2):
            loader = uio.Loader(graph(*names), lanes=2, rank=rank, world_size=2, uneven="join", **options)
            if state is not None:
                loader.load_state_dict(state)
            for _ in range(steps[rank]):
                if next(batches := iter(loader), None) is None:
                    next(batches, None)
            states.append(loader.state_dict())
        return states

    state = uio.merge_states(ranks("ab", None, (3, 9)))
    assert uio.merge_states(ranks("abc", state, (2, 2), on_change="adopt"))


def test_the_length_counts_steps_as_the_epoch_began() -> None:
    short = texts("a", 400).sharding_filter().tokenize(ones)
    pipeline = short.filter(length="tokens", max_length=uio.by_step({0: 200, 6: 3})).batch(5)
    ranks = [uio.Loader(pipeline, lanes=4, rank=rank, world_size=4, uneven="join") for rank in range(4)]
    for loader in ranks:
        some(iter(loader), 2)
    whole = restored(pipeline, uio.merge_states(loader.state_dict() for loader in ranks), lanes=4)
    assert len(whole) == 8 + len(list(whole))


def test_the_length_is_known_again_after_the_epoch_of_a_change() -> None:
    loader = uio.Loader(mixed(stop="first"), **OPTIONS)
    some(iter(loader), 3)
    loader.reweight({"a": 3})
    with pytest.raises(TypeError, match="weights of a mix have changed in this epoch"):
        len(loader)
    loader.set_epoch(1)
    assert len(loader) == len(list(loader))


@pytest.mark.parametrize("stop", ["all", "cycle"])
def test_a_source_that_rests_until_a_step_is_read_if_the_others_end_before(stop: Any) -> None:
    sources = {"a": texts("a", 20).sharding_filter(), "b": texts("b", 200).sharding_filter()}
    pipeline = uio.mix(sources, {"a": 1, "b": uio.by_step({0: 0, 100: 1})}, stop=stop).batch(4)
    loader = uio.Loader(pipeline)
    made, states = list[list[str]](), list[dict[str, str]]()
    for batch in loader:
        made.append(keys(batch))
        states.append(loader.state_dict())
    assert of(made) == ({"a": 20, "b": 200} if stop == "all" else {"a": of(made)["a"], "b": 200})
    for number in (3, 4, 5, 6, 30):
        assert [keys(batch) for batch in resumed(pipeline, states[number], seed=0, lanes=1)] == made[number + 1 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda loader, rank: loader.reweight({"a": 2 + rank}), "call reweight with the same weights on all ranks"),
        (lambda loader, rank: loader.exclude([f"a{rank}"]), "call exclude with the same"),
    ],
)
def test_ranks_that_make_other_changes_are_refused(change: Any, message: str) -> None:
    states = []
    for rank in range(2):
        loader = uio.Loader(mixed(), **OPTIONS, rank=rank, world_size=2, uneven="join")
        some(iter(loader), 3)
        change(loader, rank)
        states.append(loader.state_dict())
    with pytest.raises(uio.StateError, match=message):
        uio.merge_states(states)


def test_many_changes_cost_little() -> None:
    """A batch does not carry all changes, and weights that are the same again are none."""
    loader = uio.Loader(mixed(stop="endless"), **OPTIONS, steps_per_epoch=10**6)
    batches = iter(loader)
    for number in range(100):
        loader.reweight({"a": 1 + number % 3})
        loader.reweight({"a": 1 + number % 3})
        next(batches)
    assert len(meta(loader.state_dict())["mixes"][""]["journal"]) == 100  # the first one is what was there
    assert loader._run is not None
    message = loader._run.merge._runner_of[0].take()
    assert message.settings is None or len(message.settings["marks"]["/mix"]) <= 100


def test_numbers_of_numpy_are_weights() -> None:
    loader = uio.Loader(mixed(), **OPTIONS)
    loader.reweight({"a": np.float32(2), "b": np.int64(3)})
    assert meta(loader.state_dict())["mixes"][""]["journal"][-1]["weights"] == {"a": 2.0, "b": 3.0}
