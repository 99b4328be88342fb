"""The state of a buffer: a snapshot of its source that is old enough, and what was held, which must still be there."""

from typing import Any

import pytest

import uio_pipes as uio
from uio_pipes.core.buffer import MARK_EVERY
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger


def started(count: int, state: dict[str, Any] | None = None, first: int = 0) -> uio.Node:
    graph = uio.from_iterable([{"key": f"k{first + i}", "txt": ""} for i in range(count)]).shuffle(9)
    node = graph.build(Lane(Ledger(), seed=5))
    node.reset(state)
    return node


def test_any_state_around_a_snapshot_leads_back_to_it() -> None:
    """The oldest utterance that is held may be the last one before a snapshot, or the first one after it."""
    count = 8 * MARK_EVERY
    node, states, keys = started(count), [], []
    for _ in range(count):
        states.append(node.get_state())
        keys.append(node.next().key)
    for cut in (n for n in range(count) if (n + 4) % MARK_EVERY < 12):
        again = started(count, states[cut])
        assert [again.next().key for _ in keys[cut : cut + 12]] == keys[cut : cut + 12]


def test_other_utterances_in_the_place_of_those_held_are_noticed() -> None:
    node = started(30)
    node.next()
    with pytest.raises(uio.StateError, match=r"data that shuffle reads changed .*the utterances are different now"):
        started(30, node.get_state(), first=7)
