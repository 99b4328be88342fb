"""The model of a step's memory finds what peaks are made of, and is a bound of those that were measured."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from uio_pipes.inspect.fit_budget import MemoryModel

SHAPES = [(b, t, u) for b in (1, 4, 30) for t in (100, 700, 3_000) for u in (1, t // 30)]
SHAPES += [(b, 3_000, 23) for b in (1, 4, 30)]  # as `fit_budget` measures them
WEIGHTS = st.tuples(st.just(5e8), *(st.sampled_from([0.0, scale]) for scale in (1e5, 2e4, 15.0, 3e3, 40.0, 30.0)))


@settings(max_examples=15, deadline=None)
@given(WEIGHTS, st.integers(1, 200), st.integers(50, 4_000), st.floats(0, 1))
@example((5e8, 0.0, 2e4, 0.0, 3e3, 0.0, 30.0), 136, 2_780, 0.5)
def test_peaks_that_are_such_a_sum_are_forecast_wherever_they_are(
    weights: tuple[float, ...], count: int, frames: int, dense: float
) -> None:
    true = MemoryModel(weights, 0.0)
    model = MemoryModel.fitted([(shape, int(peak)) for shape, peak in zip(SHAPES, true.bytes(SHAPES), strict=True)])
    shape = [(count, frames, 1 + int(dense * frames / 30))]
    np.testing.assert_allclose(model.bytes(shape), true.bytes(shape), rtol=0.02)
    assert model.error < 0.011
    ((_, frames, labels),) = shape
    written = eval(str(model))(frames, labels)
    assert model.cost(frames, labels) <= written <= 1.002 * model.cost(frames, labels)
    np.testing.assert_allclose(model.bytes([(3, frames, labels)]), model.weights[0] + 3 * model.cost(frames, labels))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(10**6, 10**9), min_size=len(SHAPES), max_size=len(SHAPES)))
def test_it_is_above_any_peaks(peaks: list[int]) -> None:
    model = MemoryModel.fitted(list(zip(SHAPES, peaks, strict=True)))
    forecasts = model.bytes(SHAPES)
    assert (forecasts >= np.array(peaks) * (1 - 1e-9)).all()
    assert model.error == pytest.approx((forecasts / peaks - 1).max(), abs=1e-9)
    assert (model.bytes([(b + 1, t + 1, u + 1) for b, t, u in SHAPES]) >= forecasts).all(), "it never falls"
