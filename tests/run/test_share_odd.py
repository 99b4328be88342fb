"""Odd cases of ranks that share what is left (``uneven="share"``): hardly any data, ranks with other workers, changes
in the middle of it, steps that are made again, states of ranks that stand apart."""

import json
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from command import ranks

import uio_pipes as uio
from uio_pipes.tools.reports.replay import Replay

WORLD = 3
pytestmark = pytest.mark.slow  # real processes


# What each rank does


def rows(count: int, name: str = "") -> uio.Pipeline:
    utterances = [{"key": f"{name}{n}", "txt": "a", "feat": np.zeros((3, 1), np.float32)} for n in range(count)]
    return uio.from_iterable(utterances).sharding_filter()


def keys_of(batches: Iterable[Any]) -> list[list[str]]:
    return [[sample["key"] for sample in batch] for batch in batches]


def all_of(mine: Any) -> list[Any]:
    found: list[Any] = [None] * WORLD
    dist.all_gather_object(found, mine)
    return found


def flat(batches: list[list[str]]) -> list[str]:
    """The keys that all ranks got."""
    return [key for of_rank in all_of(batches) for batch in of_rank for key in batch]


def few(count: int, tail: Any) -> str | list[str]:
    try:
        return flat(keys_of(uio.Loader(rows(count).batch(2), tail=tail)))
    except uio.ListError as error:
        return str(error)


def unlike(tail: Any) -> bool:
    """Whether ranks with other numbers of workers get what they get without any."""
    options: dict[str, Any] = {"tail": tail, "lanes": 5, "seed": 3}
    graph = rows(25).shuffle(4).batch(2)
    wanted = keys_of(uio.Loader(graph, **options))
    return keys_of(uio.Loader(graph, num_workers=2 * (dist.get_rank() == 1), **options)) == wanted


def epochs(tail: Any) -> list[bool]:
    """Whether epochs after one that was shared, or left while it was shared, are those of a new loader."""

    def new() -> uio.Loader:
        return uio.Loader(rows(25).shuffle(4).batch(2), seed=3, lanes=2, tail=tail)

    one, other, left = new(), new(), new()
    other.set_epoch(1)
    wanted = keys_of(other)
    first = keys_of(one)
    keys_of(islice(iter(left), 3))
    left.set_epoch(1)
    return [
        keys_of(one) == wanted,
        keys_of(left) == wanted,
        one.stats().left_out == other.stats().left_out,
        first != wanted,
    ]


def changed(how: str, step: int) -> list[Any]:
    """The keys that come if a loader is changed after so many steps, and whether its state goes on with them."""
    graph = uio.mix({"a": rows(20, "a"), "b": rows(10, "b")}).batch(2)
    loader, again = (uio.Loader(graph, seed=3, lanes=2) for _ in range(2))
    batches = iter(loader)
    before = keys_of(islice(batches, step))
    bad = {f"a{n}" for n in range(12, 18)}
    if how == "reweight":
        loader.reweight({"a": 5.0})
    elif how == "exclude":
        loader.exclude(bad)
    else:
        loader.skip(bad.__contains__)
        again.skip(bad.__contains__)
    again.load_state_dict(loader.state_dict())
    rest = keys_of(batches)
    came = flat(before + rest)
    wanted = {*(f"a{n}" for n in range(20)), *(f"b{n}" for n in range(10))} - (bad if how != "reweight" else set())
    return [keys_of(again) == rest, len(came) == len({*came}), len(wanted - {*came}) <= 2 * (WORLD - 1)]


def replayed(lanes: int) -> list[Any]:
    """What came of asking for each step from each state: whether it is the batch, or why not."""
    graph = rows(30).batch(2)
    loader, whole, states = uio.Loader(graph, lanes=lanes), list[list[str]](), list[Any]()
    for batch in loader:
        whole.append([sample["key"] for sample in batch])
        states.append(uio.gather_state(loader))
    dist.broadcast_object_list(states, 0)
    dealt = json.loads(states[-1]["meta"])["deal"]["steps"]
    found = []
    for number, state in enumerate(states):
        for step in range(len(whole) + 1):
            given = states if number == 0 else [state, states[-1]]  # a later one tells when they shared
            try:
                made = keys_of([Replay(graph, given, step, dist.get_rank(), None, None).batch()])
                found.append(made == whole[step : step + 1])
            except uio.UioError as error:
                apart = any((0 if number == 0 else number + 1) <= at <= step for at in dealt)
                found.append(f"{'' if apart or number or step == len(whole) else 'needless: '}{error}")
    for step in range(len(whole) + 1):
        try:
            found.append(keys_of([loader.batch_at(step)]) == whole[step : step + 1])
        except uio.UioError as error:
            found.append(str(error))
    return found


def apart() -> list[str]:
    """What is said of states of ranks that take turns at different steps; and whether those of one step are joined."""
    loader = uio.Loader(rows(30).batch(2), lanes=2)
    mine = [loader.state_dict() for _ in loader]
    states = all_of(mine)
    told = []
    for steps in ([2, 2, 2], [2, 1, 2], [0, 0, 3]):
        try:
            uio.merge_states(of_rank[step] for of_rank, step in zip(states, steps, strict=True))
            told.append("")
        except uio.StateError as error:
            told.append(str(error))
    joined = [uio.merge_states(of_rank[step] for of_rank in states for step in steps) for steps in ([2], [1, 2])]
    return [*told, str(len({json.dumps({**one, "meta": ""}) for one in joined}) == 1)]


CASES: dict[str, Any] = {
    **{f"few {count} {tail}": (few, count, tail) for count in (0, 1, 5) for tail in ("drop", "repeat")},
    **{f"unlike {tail}": (unlike, tail) for tail in ("drop", "repeat")},
    **{f"epochs {tail}": (epochs, tail) for tail in ("drop", "repeat")},
    **{f"{how} {step}": (changed, how, step) for how in ("reweight", "exclude", "skip") for step in (1, 2, 3, 4)},
    **{f"replayed {lanes}": (replayed, lanes) for lanes in (2, 5)},
    "apart": (apart,),
}


def main(out: str) -> None:
    dist.init_process_group("gloo")
    found = {name: all_of(way(*arguments)) for name, (way, *arguments) in CASES.items()}
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


# What must hold


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    out = tmp_path_factory.mktemp("odd") / "out.json"
    done = ranks(WORLD, __file__, out)
    assert done.returncode == 0, done.stderr[-3000:]
    reports: dict[str, list[Any]] = json.loads(out.read_text())
    return reports


def test_fewer_batches_than_ranks_are_repeated_or_an_error_on_all_of_them(found: dict[str, list[Any]]) -> None:
    for tail in ("drop", "repeat"):
        assert all("at least as many" in text for text in found[f"few 0 {tail}"])
    assert all('choose tail="repeat"' in text for text in found["few 1 drop"])
    assert found["few 1 repeat"] == [["0"] * WORLD] * WORLD
    assert [sorted(keys) for keys in found["few 5 drop"]] == [[*"01234"]] * WORLD


@pytest.mark.parametrize("tail", ["drop", "repeat"])
def test_ranks_may_have_other_numbers_of_workers(found: dict[str, list[Any]], tail: str) -> None:
    assert found[f"unlike {tail}"] == [True] * WORLD


@pytest.mark.parametrize("tail", ["drop", "repeat"])
def test_epochs_after_one_that_was_shared_are_as_ever(found: dict[str, list[Any]], tail: str) -> None:
    assert found[f"epochs {tail}"] == [[True] * 4] * WORLD


@pytest.mark.parametrize("how", ["reweight", "exclude", "skip"])
def test_a_change_while_ranks_share_is_exact(found: dict[str, list[Any]], how: str) -> None:
    for step in (1, 2, 3, 4):
        assert found[f"{how} {step}"] == [[True] * 3] * WORLD, step


@pytest.mark.parametrize("lanes", [2, 5])
def test_a_step_is_made_again_as_it_was_or_not_at_all(found: dict[str, list[Any]], lanes: int) -> None:
    remedies = "load a checkpoint|name a state|cannot be made again|with which all ranks ended|has no batch"
    told = [one for rank in found[f"replayed {lanes}"] for one in rank]
    assert told.count(True) > 3 * WORLD
    assert not [
        one for one in told if one is False or (one is not True and not any(r in one for r in remedies.split("|")))
    ]
    assert not [one for one in told if one is not True and one.startswith("needless")]


def test_states_of_ranks_that_take_turns_must_be_of_one_step(found: dict[str, list[Any]]) -> None:
    for same, one_behind, two_behind, with_older in found["apart"]:
        assert (same, with_older) == ("", "True")
        assert "one state is of step 2 of epoch 0, another of step 3 of epoch 0" in one_behind
        assert "one state is of step 1 of epoch 0, another of step 4 of epoch 0" in two_behind
        assert "pass the last states that all of them have of one step" in two_behind


if __name__ == "__main__":
    main(*sys.argv[1:])
