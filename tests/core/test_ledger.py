"""Failures, filtered utterances and quarantine lines are counted once, however often a run is stopped and resumed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from contract import counted, digest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uio_pipes as uio

RATE = 1000
ODD = 7  # every so many utterances one fails, and one is too short


def speech(name: str, count: int) -> uio.Pipeline:
    """Utterances of 100 ms and more; of each seven one has no sample rate (a failure), and one is short."""
    items: list[dict[str, Any]] = []
    for i in range(count):
        samples = 40 if i % ODD == 2 else 100 + 13 * (i % 9)
        item = {"key": f"{name}{i}", "txt": "x", "wav": np.ones(samples, np.int16), "sample_rate": RATE}
        items.append({n: v for n, v in item.items() if i % ODD != 5 or n != "sample_rate"})
    return uio.from_iterable(items).sharding_filter()


def some(name: str, count: int = 40) -> uio.Pipeline:
    return speech(name, count).filter(min_frames=6)


def twice_unless_fourth(sample: uio.Sample) -> Any:
    if sample["key"].endswith("4"):
        raise ValueError("no fourth one")
    yield from (sample, sample)


GRAPHS: dict[str, Callable[[], uio.Pipeline]] = {
    "buffers in a mix": lambda: uio.mix({"a": some("a").shuffle(9), "b": some("b").sort(8)}),
    "buffers in an interleave": lambda: uio.interleave([some("a").shuffle(9), some("b", 15).concat(max_seconds=0.3)]),
    "mixes in mixes": lambda: uio.mix(
        {
            "a": uio.interleave([some("a").shuffle(5), some("b").flat_map(twice_unless_fourth)]).shuffle(7),
            "c": some("c"),
        }
    ).sort(5),
    "a mix that is repeated": lambda: uio.mix([some("a", 20).shuffle(6), some("b", 20).sort(4)]).repeat(3),
    "repeats in a mix": lambda: uio.mix([some("a", 15).shuffle(6).repeat(2), some("b", 20)], stop="cycle").shuffle(4),
    "joined in a mix": lambda: uio.mix([some("a").concat(max_seconds=0.4), some("b").shuffle(6)]),
    "batches in a mix": lambda: uio.mix(
        [some("a").shuffle(5).dynamic_batch(max_frames=60).pad(), some("b").bucket_batch([15], [3, 2]).pad()]
    ),
    "no mix": lambda: some("a").shuffle(9).flat_map(twice_unless_fourth).sort(6),
}


def stopped_and_resumed(
    graph: uio.Pipeline, stops: list[int], folder: Path, **options: Any
) -> tuple[list[str], dict[str, Any], list[str]]:
    """Digests of what was delivered, the counts at the end, and what went into quarantine; a resume after each stop."""
    state, digests, quarantine = None, [], folder / "quarantine.jsonl"
    for stop in [*stops, None]:
        loader = uio.Loader(graph, seed=3, quarantine=quarantine, **options)
        if state is not None:
            loader.load_state_dict(state)
        for taken, batch in enumerate(loader, 1):
            digests.append(digest(batch))
            if taken == stop:
                break
        else:
            break
        state = loader.state_dict()
        assert loader.stats().failures == sum(
            json.loads(state[k])["counts"].get("failures", 0) for k in state if k != "meta"
        )
    lines = sorted(line for line in quarantine.read_text().splitlines() if line)
    return digests, counted(loader.stats()), lines


def check(graph: uio.Pipeline, stops: list[int], **options: Any) -> None:
    with TemporaryDirectory() as whole, TemporaryDirectory() as parts:
        expected = stopped_and_resumed(graph, [], Path(whole), **options)
        got = stopped_and_resumed(graph, stops, Path(parts), **options)
    assert expected[1]["failures"] > 0
    assert got[0] == expected[0], "what was delivered"
    assert got[1] == expected[1], "counts"
    assert [_named(line) for line in got[2]] == [_named(line) for line in expected[2]], "quarantine"


def _named(line: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(line).items() if name != "time"}


@pytest.mark.parametrize("stops", [[1], [9], [5, 5], [3, 1, 4, 1, 5]], ids=str)
@pytest.mark.parametrize("name", GRAPHS)
def test_resumes_count_nothing_twice(name: str, stops: list[int]) -> None:
    check(GRAPHS[name](), stops)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(sorted(GRAPHS)),
    stops=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    lanes=st.integers(1, 3),
    every=st.sampled_from([1, 3]),
)
def test_any_stops_count_nothing_twice(name: str, stops: list[int], lanes: int, every: int) -> None:
    check(GRAPHS[name](), stops, lanes=lanes, snapshot_every=every)


def test_a_resumed_mix_stays_within_its_budget_of_failures() -> None:
    graph = GRAPHS["buffers in a mix"]()
    with TemporaryDirectory() as folder:
        failures = stopped_and_resumed(graph, [], Path(folder))[1]["failures"]
        stopped_and_resumed(graph, [4] * 12, Path(folder), max_failures=failures)


def test_a_source_of_a_mix_that_does_not_fit_its_state_is_refused_before_the_first_batch() -> None:
    """It used to be restored when its turn came, in the middle of the training."""
    graph = uio.interleave({"a": some("a").shuffle(9), "b": some("b").shuffle(9)})
    loader = uio.Loader(graph)
    for sample in loader:
        if sample["key"].startswith("b"):
            break
    state = loader.state_dict()
    lane = json.loads(state["lane_000000"])
    lane["nodes"]["sources"]["1"][2]["check"] ^= 1
    resumed = uio.Loader(graph)
    resumed.load_state_dict(state | {"lane_000000": json.dumps(lane)})
    delivered = []
    with pytest.raises(uio.StateError, match="shuffle"):
        delivered += list(resumed)
    assert delivered == []
