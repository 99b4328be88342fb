"""Times in Lhotse's manifests as samples."""

from __future__ import annotations

from math import floor

from hypothesis import example, given
from hypothesis import strategies as st

from uio_pipes.sources.lhotse.transforms import samples_in

RATES = st.sampled_from([8_000, 11_025, 16_000, 22_050, 44_100, 48_000])


@given(st.integers(0, 10**9), RATES)
def test_a_time_that_is_so_many_samples_gives_them(samples: int, rate: int) -> None:
    assert samples_in(samples / rate, rate) == samples


@given(st.floats(0, 1e5), RATES)
@example(0.5, 1)
@example(2.5, 1)  # halves are rounded up, not to the even number
@example(0.49999999999, 1)  # what floats add beyond eight digits is no part of the number
def test_any_time_is_rounded_as_lhotse_rounds_it(seconds: float, rate: int) -> None:
    assert samples_in(seconds, rate) == floor(round(seconds * rate, 8) + 0.5)
