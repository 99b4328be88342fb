"""Arguments by their older names: they count, and a warning names the new way and the line that has them."""

import inspect
import warnings
from pathlib import Path
from typing import Any

import pytest

import uio_pipes as uio
from uio_pipes.run.options import RunOptions

TEXTS = uio.from_iterable([{"key": "a", "txt": "b"}]).batch(1)
NOTED = Path("noted.jsonl")
OLDER: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"prefetch": 5}, {"prefetch_factor": 5}, ["prefetch=… is written prefetch_factor=… now"]),
    ({"on_error": "raise"}, {"failures": "raise"}, ["on_error=… is written failures=uio.Failures(on_error=…) now"]),
    (
        {"max_failures": 3, "max_consecutive_failures": 2},
        {"failures": uio.Failures(max_failures=3, max_consecutive_failures=2)},
        ["uio.Failures(max_failures=…) now", "uio.Failures(max_consecutive_failures=…) now"],
    ),
    ({"mesh": None, "data": None}, {}, ["ranks=uio.Ranks(mesh=…) now", "ranks=uio.Ranks(data=…) now"]),
    ({"workers": None, "num_workers": 1}, {"num_workers": 1}, ["workers=… is written num_workers=… now"]),
]


def options(loader: uio.Loader) -> RunOptions:
    return loader._options


@pytest.mark.parametrize(("older", "today", "says"), OLDER, ids=[str(older) for older, _, _ in OLDER])
def test_older_names_count_and_are_warned_of_once_each(
    older: dict[str, Any], today: dict[str, Any], says: list[str]
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader = uio.Loader(TEXTS, **older)
    assert options(loader) == options(uio.Loader(TEXTS, **today))
    assert [one.category for one in caught] == [DeprecationWarning] * len(says)
    assert all(part in str(one.message) for one, part in zip(caught, says, strict=True))
    assert {one.filename for one in caught} == {__file__}


def test_a_dataset_and_a_loader_for_lightning_take_them_too() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = TEXTS.as_dataset(on_error="raise")
        lightning = uio.LightningLoader(TEXTS, on_error="raise")
    assert [(one.category, one.filename) for one in caught] == [(DeprecationWarning, __file__)] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert options(lightning.loader).failures == uio.Failures("raise")
        assert [len(batch) for batch in dataset] == [1]
    with pytest.warns(match="prefetch=…"), pytest.raises(uio.PipelineError, match="prefetch_factor is an option of"):
        TEXTS.as_dataset(prefetch=2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"prefetch": 2, "prefetch_factor": 3}, "prefetch is an older word for prefetch_factor=….*leave out prefetch"),
        ({"on_error": "raise", "failures": "skip"}, "on_error is an older word for failures=uio.Failures.on_error=…"),
        ({"on_error": "ignore"}, "on_error must be 'skip' or 'raise', not 'ignore'"),
        ({"data": "dp"}, "names dimensions of a mesh"),
    ],
)
def test_old_and_new_exclude_each_other_and_values_are_checked(given: dict[str, Any], says: str) -> None:
    with pytest.warns(DeprecationWarning, match="is written"), pytest.raises(uio.PipelineError, match=says):
        uio.Loader(TEXTS, **given)


def test_an_unknown_argument_is_a_type_error_with_the_nearest_name() -> None:
    with pytest.raises(
        TypeError, match=r"unexpected keyword argument 'step_per_epoch'\. Did you mean 'steps_per_epoch'"
    ):
        uio.Loader(TEXTS, step_per_epoch=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzz'; it takes pipeline, seed, .*"):
        uio.Loader(TEXTS, zzz=3)  # type: ignore[call-arg]


def test_help_shows_the_names_of_today() -> None:
    parameters = inspect.signature(uio.Loader).parameters
    assert len(parameters) == 15
    assert {"failures", "ranks", "prefetch_factor"} < parameters.keys()
    assert not {"on_error", "mesh", "prefetch", "older"} & parameters.keys()
