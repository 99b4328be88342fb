"""Batches of a fixed number."""

from pathlib import Path

from helpers_bad import drained, keys, raw_items, run, started
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.stages.batches.dynamic import Batch


@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 50), size=st.integers(1, 20))
def test_all_come_in_order_and_only_the_last_batch_is_smaller(count: int, size: int) -> None:
    node, _ = started(Batch(size), [1] * count)
    batches = list(drained(node))
    assert [int(sample["key"]) for batch in batches for sample in batch] == list(range(count))
    assert [len(b) for b in batches] == [size] * (count // size) + [count % size] * (count % size > 0)


def test_wenet_s_default_is_16(tmp_path: Path) -> None:
    batches, _ = run(uio.from_raw_list(raw_items(tmp_path, 20)).batch())
    assert [len(b) for b in batches] == [16, 4]


def test_without_pad_a_batch_is_a_list_of_dicts_with_everything_computed(tmp_path: Path) -> None:
    batches, loader = run(uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio().fbank(20).batch(2))
    assert keys(batches) == ["R000", "R001", "R002"]
    assert all(type(sample) is dict and sample["feat"].shape[1] == 20 for batch in batches for sample in batch)
    assert loader.stats().utterances == 3


def test_a_failed_sample_leaves_its_batch_smaller_and_an_empty_batch_is_not_delivered(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 6)
    for i in (0, 2, 3):
        Path(items[i]["wav"]).write_bytes(b"no audio")
    for graph in (
        uio.from_raw_list(items).decode_audio().batch(2),
        uio.from_raw_list(items).decode_audio().batch(2).pad(),
    ):
        batches, loader = run(graph)
        assert [keys([b]) for b in batches] == [["R001"], ["R005", "R004"]] or keys(batches) == ["R001", "R004", "R005"]
        assert loader.stats().batches == 2
        assert loader.stats().failures == 3


def test_an_empty_batch_uses_up_its_number(tmp_path: Path) -> None:
    """Resuming after an empty batch goes on behind it."""
    items = raw_items(tmp_path, 8)
    for i in (2, 3, 4, 5):
        Path(items[i]["wav"]).write_bytes(b"no audio")
    graph = uio.from_raw_list(items).decode_audio().batch(2).pad()
    first = uio.Loader(graph)
    next(iter(first))
    for every in (1, 5):
        second = uio.Loader(graph, snapshot_every=every)
        second.load_state_dict(first.state_dict())
        assert sorted(keys(second)) == ["R006", "R007"]
        assert second.stats().failures == 4
