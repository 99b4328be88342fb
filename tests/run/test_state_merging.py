"""States that ranks saved one by one under ``uneven="join"``, where ranks are in different places, epochs too."""

import itertools
from collections import Counter
from typing import Any

import pytest
from contract import carried, restored

import uio_pipes as uio

KEYS = [f"u{i:02d}" for i in range(23)]
State = dict[str, str]
Seen = list[tuple[int, str]]


def graph() -> uio.Pipeline:
    listed = uio.from_iterable([{"key": key, "txt": "x"} for key in KEYS]).sharding_filter()
    return listed.shuffle(4).batch(2)


def loaders(world: int, state: State | None = None, **options: Any) -> list[uio.Loader]:
    made = [uio.Loader(graph(), seed=3, rank=r, world_size=world, uneven="join", **options) for r in range(world)]
    for loader in made:
        if state is not None:
            loader.load_state_dict(carried(state))
    return made


def go(loader: uio.Loader, batches: int | None, seen: Seen, last: int = 1) -> None:
    """Take so many batches, across the borders of epochs; None: all, up to the end of epoch ``last``."""
    taken = 0
    while not (loader.finished and loader.epoch == last):
        for batch in loader:
            seen += [(loader.epoch, sample["key"]) for sample in batch]
            taken += 1
            if taken == batches:
                return


def whole(last: int = 1) -> Counter[tuple[int, str]]:
    return Counter(itertools.product(range(last + 1), KEYS))


def of_four(seen: Seen) -> State:
    """The state of four ranks, after a batch of each."""
    four = loaders(4)
    for loader in four:
        go(loader, 1, seen)
    return uio.merge_states([loader.state_dict() for loader in four])


@pytest.mark.parametrize("lanes", [None, 2, 5], ids=["default lanes", "2 lanes", "5 lanes"])
@pytest.mark.parametrize("places", list(itertools.product(["begun", "last", "end", "next"], repeat=2)), ids="-".join)
@pytest.mark.parametrize("world", [1, 2, 3])
def test_nothing_is_lost_or_repeated_wherever_two_ranks_stand(
    places: tuple[str, str], lanes: int | None, world: int
) -> None:
    """Epoch 0 has four lanes, from a state of four ranks; the next has as many as this run takes."""
    seen: Seen = []
    two = loaders(2, of_four(seen), lanes=lanes)
    for loader, place in zip(two, places, strict=True):
        bring(loader, place, seen)
    merged = uio.merge_states([loader.state_dict() for loader in two])
    for loader in loaders(world, merged):
        go(loader, None, seen)
    assert Counter(seen) == whole()


def bring(loader: uio.Loader, place: str, seen: Seen) -> None:
    """Bring a rank into the epoch, to its last batch without asking for more, to its end, or into the next epoch."""
    where = {"rank": loader.rank, "world_size": loader.world_size, "uneven": "join"}
    count = len(list(restored(graph(), loader.state_dict(), seed=3, **where)))
    if place in ("begun", "last"):
        go(loader, {"begun": 1, "last": count}[place], seen)
    else:
        go(loader, None, seen, last=0)
    if place == "next":
        go(loader, 2, seen)


def test_a_run_that_goes_on_from_such_a_state_can_be_stopped_and_joined_again() -> None:
    seen: Seen = []
    two = loaders(2, lanes=4)
    go(two[0], None, seen, last=0)
    go(two[0], 1, seen)
    go(two[1], 1, seen)
    merged = uio.merge_states([loader.state_dict() for loader in two])
    for steps in [(1, 2, 1), (3, 1, 2), (2, 3, 3)]:
        three = loaders(3, merged)
        for loader, count in zip(three, steps, strict=True):
            go(loader, count, seen)
        merged = uio.merge_states([loader.state_dict() for loader in three])
    for loader in loaders(2, merged):
        go(loader, None, seen)
    assert Counter(seen) == whole()


def test_older_states_of_the_same_ranks_change_nothing() -> None:
    two, older = loaders(2, lanes=4), []
    go(two[0], 1, [])
    go(two[1], 1, [])
    older = [loader.state_dict() for loader in two]
    go(two[0], None, [], last=0)
    go(two[0], 1, [])
    newer = [loader.state_dict() for loader in two]
    assert uio.merge_states([*older, *newer]) == uio.merge_states([*newer, *older]) == uio.merge_states(newer)


def test_where_the_number_of_lanes_changed_states_of_all_ranks_are_needed() -> None:
    three = loaders(3, of_four([]))
    go(three[0], None, [], last=0)
    go(three[0], 1, [])
    go(three[1], None, [], last=0)
    with pytest.raises(uio.StateError, match="pass the newest state of every rank"):
        uio.merge_states([loader.state_dict() for loader in three[:2]])


def test_ranks_that_have_taken_nothing_since_they_were_resumed_are_joined() -> None:
    """Such a rank saves all that it was loaded from: lanes of the others, too, and perhaps an epoch that is over."""
    for taken in itertools.product([0, 1, 2], repeat=4):
        seen: Seen = []
        (one,) = loaders(1)
        go(one, None, seen, last=0)
        four = loaders(4, one.state_dict())
        for loader, count in zip(four, taken, strict=True):
            if count:
                go(loader, count, seen)
        merged = uio.merge_states([loader.state_dict() for loader in four])
        for loader in loaders(2, merged):
            go(loader, None, seen)
        assert Counter(seen) == whole(), taken


@pytest.mark.parametrize("still", [0, 1, 2])
def test_a_rank_that_has_taken_nothing_of_a_begun_epoch_is_joined_with_one_in_the_next(still: int) -> None:
    seen: Seen = []
    three = loaders(3, of_four(seen))
    ahead, begun = three[(still + 1) % 3], three[(still + 2) % 3]
    go(ahead, None, seen, last=0)
    go(ahead, 1, seen)
    go(begun, 1, seen)
    merged = uio.merge_states([loader.state_dict() for loader in three])
    for loader in loaders(2, merged):
        go(loader, None, seen)
    assert Counter(seen) == whole()


def test_ranks_two_epochs_apart_are_refused() -> None:
    two = loaders(2)
    go(two[0], None, [], last=1)
    go(two[0], 1, [], last=2)
    with pytest.raises(uio.StateError, match="further than one epoch apart"):
        uio.merge_states([loader.state_dict() for loader in two])


def test_set_epoch_goes_on_in_the_next_epoch_where_others_had_begun_it() -> None:
    seen: Seen = []
    two = loaders(2)
    go(two[0], None, seen, last=0)
    go(two[0], 2, seen)
    go(two[1], 1, seen)
    (alone,) = loaders(1, uio.merge_states([loader.state_dict() for loader in two]))
    for epoch in (0, 1):
        alone.set_epoch(epoch)
        seen += [(epoch, sample["key"]) for batch in alone for sample in batch]
    assert Counter(seen) == whole()
