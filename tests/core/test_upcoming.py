"""Items looked at before their turn: same items, same errors and same states as without looking ahead."""

from typing import Any

import pytest

from uio_pipes.base.errors import DataError, ListError, UioError
from uio_pipes.core import items as upcoming
from uio_pipes.core.items import COUNT, Upcoming
from uio_pipes.core.lane import Lane, Mode
from uio_pipes.core.ledger import Ledger
from uio_pipes.io.local import LocalFile
from uio_pipes.io.references import Ref

BAD = 5
BYTE = Ref(LocalFile(__file__), 0, 1)


class Numbers:
    """A node that gives numbers, and at its end StopIteration or ``error``."""

    def __init__(self, end: int, error: Exception | None = None) -> None:
        self.at, self.end, self.error = 0, end, error

    def next(self) -> int:
        if self.at == self.end:
            raise self.error or StopIteration
        self.at += 1
        return self.at - 1

    def get_state(self) -> dict[str, Any]:
        return {"at": self.at}


def load(number: int) -> dict[str, Any]:
    if number == BAD:
        raise DataError("bad_line", "no JSON")
    return {"wav": BYTE, "number": number}


@pytest.fixture(params=[False, True], ids=["near", "far"])
def far(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if the references are taken for some into remote files, of 1 byte each."""
    monkeypatch.setattr(upcoming, "is_far", lambda value: request.param)
    monkeypatch.setattr(upcoming, "fetch_early", len)
    return bool(request.param)


def test_items_come_in_order_each_with_its_fields_or_error(far: bool) -> None:
    items: Upcoming[int] = Upcoming(Numbers(100), load, Lane(Ledger()))
    for number in range(100):
        value, fields = items.next()
        assert value == number
        assert isinstance(fields, DataError) if number == BAD else fields["number"] == number
    for _ in range(2):
        with pytest.raises(StopIteration):
            items.next()


def test_the_state_is_that_of_the_first_item_not_given_out(far: bool) -> None:
    source = Numbers(100)
    items: Upcoming[int] = Upcoming(source, load, Lane(Ledger()))
    for number in range(100):
        assert items.get_state() == {"at": number}
        items.next()
    assert items.get_state() == {"at": 100}


@pytest.mark.parametrize("large", [False, True])
def test_items_in_remote_files_are_taken_early_fewer_of_large_ones(
    far: bool, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(upcoming, "fetch_early", lambda taken: len(taken) * upcoming.BYTES // 8)
    source = Numbers(1000)
    items: Upcoming[int] = Upcoming(source, load, Lane(Ledger()))
    early = []
    for number in range(500):
        items.next()
        early.append(source.at - number - 1)
        assert len(items) == early[-1]
    if far and large:
        assert max(early[100:]) <= 4, "half of the bytes that may be held"
    else:
        assert max(early) == (COUNT - 1 if far else 0)
        assert min(early[1:]) >= (COUNT // 2 - 1 if far else 0)


@pytest.mark.parametrize("error", [ListError("the list ends in the middle"), DataError("bad_zip", "no directory")])
def test_an_error_of_the_node_comes_out_at_its_turn(far: bool, error: UioError) -> None:
    items: Upcoming[int] = Upcoming(Numbers(9, error), load, Lane(Ledger()))
    assert [items.next()[0] for _ in range(9)] == list(range(9))
    with pytest.raises(type(error)):
        items.next()


@pytest.mark.parametrize("lane", [Lane(Ledger(quiet=True)), Lane(Ledger(), mode=Mode(skimming=True))])
def test_a_lane_that_is_restored_takes_nothing_early(far: bool, lane: Lane) -> None:
    source = Numbers(100)
    items: Upcoming[int] = Upcoming(source, load, lane)
    for number in range(50):
        items.next()
        assert source.at == number + 1
