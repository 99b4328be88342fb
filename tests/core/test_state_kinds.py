"""Kinds of a state's fields: what fits is given back, everything else is refused by name."""

from typing import Any

import pytest

from uio_pipes.base.errors import ListError, StateError
from uio_pipes.base.json_text import (
    FLAG,
    MOST,
    OBJECT,
    SOMETHING,
    TEXT,
    Kind,
    like,
    listed,
    optional,
    read_field,
    refused,
    rising,
    whole,
)

VALUES: list[Any] = [None, True, 0, 1, 2, -1, MOST, 0.5, "", "x", [], [0], [1, 0], [0, 1], [0, "x"], {}, {"a": 1}]


@pytest.mark.parametrize(
    ("kind", "fitting"),
    [
        (FLAG, [0, 1]),
        (whole(), [0, 1, 2]),
        (whole(2), [0, 1]),
        (whole(0), []),
        (TEXT, ["", "x"]),
        (OBJECT, [{}, {"a": 1}]),
        (SOMETHING, [value for value in VALUES if value is not None]),
        (like(True), [True, 0, 1, 2, -1, MOST]),
        (like(7), [0, 1, 2, -1]),
        (like(0.1), [0, 1, 2, -1, MOST, 0.5]),
        (like("a"), ["", "x"]),
        (like([]), [[], [0], [1, 0], [0, 1], [0, "x"]]),
        (like({}), [{}, {"a": 1}]),
        (like(None), VALUES),
        (optional(FLAG), [None, 0, 1]),
        (listed(whole()), [[], [0], [1, 0], [0, 1]]),
        (rising(whole()), [[], [0], [0, 1]]),
    ],
    ids=lambda value: value.rule if isinstance(value, Kind) else "",
)
def test_only_these_fit(kind: Kind, fitting: list[Any]) -> None:
    found = [value for value in VALUES if kind.fits(value)]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in fitting]


def test_numbers_end_below_their_count() -> None:
    assert whole(10).fits(9)
    assert not whole(10).fits(10)
    assert whole().fits(MOST - 1)
    assert not rising(whole()).fits([3, 3])


def test_a_field_that_fits_is_given_back() -> None:
    assert read_field({"step": 7}, "step", whole(), "shuffle") == 7


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"step": -1}, r"^shuffle: step is -1, but must be a whole number, 0 or more; the state is damaged"),
        ({"steps": 1}, r"^shuffle: step is missing, but must be a whole number"),
        ([1], r"^shuffle: its state is \[1\], not an object; the state is damaged"),
        ({"step": "x" * 999}, r"^shuffle: step is 'x{59}, but must"),
    ],
)
def test_any_other_is_refused_by_name_rule_and_value(state: Any, message: str) -> None:
    with pytest.raises(StateError, match=message):
        read_field(state, "step", whole(), "shuffle")


def test_an_error_of_the_users_object_names_it() -> None:
    message = r"^MyNode refused the state that it saved \(KeyError: 'at'\)"
    with pytest.raises(StateError, match=message) as raised, refused("MyNode"):
        {}["at"]
    assert isinstance(raised.value.__cause__, KeyError)


def test_an_error_of_the_package_passes_as_it_is() -> None:
    with pytest.raises(ListError, match=r"^as it is$"), refused("MyNode"):
        raise ListError("as it is")
