"""The sort: shortest first within each buffer, by the plan."""

from helpers_bad import drained, keys, run, started
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.order.shuffle import Sort


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 30), max_size=120), size=st.integers(1, 40))
def test_each_buffer_comes_shortest_first_and_equal_ones_in_their_order(lengths: list[int], size: int) -> None:
    node, _ = started(Sort(size), lengths)
    got = [int(sample["key"]) for sample in drained(node)]
    want = [
        n
        for i in range(0, len(lengths), size)
        for n in sorted(range(len(lengths))[i : i + size], key=lengths.__getitem__)
    ]
    assert got == want


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(0, 5), max_size=60), size=st.integers(1, 20))
def test_what_has_no_frame_is_a_failure_and_the_rest_comes(lengths: list[int], size: int) -> None:
    node, ledger = started(Sort(size), lengths)
    got = sorted(int(sample["key"]) for sample in drained(node))
    assert got == [i for i, n in enumerate(lengths) if n]
    assert ledger.skipped == ({"too_short": lengths.count(0)} if 0 in lengths else {})


def test_sorting_decodes_nothing() -> None:
    items = [{"key": str(i), "wav": "/nowhere.wav", "txt": "t", "duration": 3 - i} for i in range(3)]
    seen: list[str] = []
    graph = uio.from_raw_list(items).decode_audio().fbank(20).sort(3).filter(lambda s: seen.append(s["key"]))
    assert run(graph)[1].stats().failures == 0
    assert seen == ["2", "1", "0"]


def test_plans_are_after_the_speeds_drawn_before(tmp_path: object) -> None:
    items = [{"key": str(i), "wav": "/nowhere.wav", "txt": "t", "duration": 1} for i in range(30)]
    lengths: list[int] = []
    graph = uio.from_raw_list(items).decode_audio().speed_perturb([0.5, 1.0, 2.0]).sort(30)
    run(graph.filter(lambda s: lengths.append(s.plan.length)))
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == 3


def test_keys_stay(tmp_path: object) -> None:
    assert keys(run(uio.from_raw_list([{"key": "a", "wav": "x", "txt": "", "duration": 1}]).sort(1))[0]) == ["a"]
