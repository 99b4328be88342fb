"""Several utterances of one: any kind of result, origins of their own, resumable within an item."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import keys, raw_items, run

import uio_pipes as uio
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger


def thirds(sample: uio.Sample) -> Iterator[dict[str, Any]]:
    wav = sample["wav"]
    for i in range(3):
        yield {"key": f"{sample['key']}-{i}", "wav": wav[:, i * 500 : i * 500 + 500], "sample_rate": 8000, "txt": "t"}


@pytest.mark.parametrize("result", [list, tuple, iter, lambda x: (y for y in x)])
def test_any_iterable_of_mappings(tmp_path: Path, result: Any) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 2)).decode_audio().flat_map(lambda s: result(list(thirds(s))))
    batches, loader = run(graph.fbank(20), failures="raise")
    assert keys(batches) == [f"R00{i}-{j}" for i in range(2) for j in range(3)]
    assert all(b["feat"].shape == (4, 20) for b in batches)
    assert loader.stats().utterances == 6


def test_none_one_or_several(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 4)).flat_map(lambda s: [s] * int(s["key"][-1]))
    assert keys(run(graph)[0]) == ["R001", "R002", "R002", "R003", "R003", "R003"]


def test_copies_do_not_share_changes(tmp_path: Path) -> None:
    def copies(sample: uio.Sample) -> Iterator[uio.Sample]:
        for i in range(3):
            sample["txt"] = f"t{i}"
            yield sample

    batches, _ = run(uio.from_raw_list(raw_items(tmp_path, 1)).flat_map(copies).shuffle(1).batch(3))
    assert [s["txt"] for s in batches[0]] == ["t0", "t1", "t2"]


def test_each_gets_draws_of_its_own(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 1)).flat_map(lambda s: [s] * 40).decode_audio()
    batches, _ = run(graph.speed_perturb([0.9, 1.0, 1.1]))
    assert len({b["wav"].shape[1] for b in batches}) == 3
    nested, _ = run(graph.flat_map(lambda s: [s, s]).speed_perturb([0.9, 1.0, 1.1]))
    pairs = [(a["wav"].shape, b["wav"].shape) for a, b in zip(nested[::2], nested[1::2], strict=True)]
    assert any(a != b for a, b in pairs)


def test_rng_is_reproducible_and_the_utterance_s_own(tmp_path: Path) -> None:
    def noisy(sample: uio.Sample, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
        for i in range(int(rng.integers(1, 4))):
            yield {"key": f"{sample['key']}-{i}-{rng.integers(10**6)}", "txt": "t"}

    graph = uio.from_raw_list(raw_items(tmp_path, 10)).flat_map(noisy)
    first = keys(run(graph)[0])
    assert keys(run(graph)[0]) == first
    assert sorted(keys(run(graph, num_workers=2)[0])) == sorted(first)
    assert keys(run(graph, seed=1)[0]) != first
    assert len({k.rsplit("-", 1)[1] for k in first}) == len(first)


def test_a_reader_of_another_archive_right_after_open_files(tmp_path: Path) -> None:
    def lines(file: Any) -> Iterator[dict[str, Any]]:
        with file.open() as stream:
            for number, line in enumerate(stream):
                yield {"key": f"{Path(file.url).stem}-{number}", "txt": line.decode().strip()}

    for name in "ab":
        (tmp_path / f"{name}.tar").write_text("x\ny\n")
    graph = uio.list_files(f"{tmp_path}/*.tar").sharding_filter().open_files().flat_map(lines)
    assert keys(run(graph)[0]) == ["a-0", "a-1", "b-0", "b-1"]
    (tmp_path / "b.tar").unlink()
    source = uio.list_files([f"{tmp_path}/a.tar", f"{tmp_path}/b.tar"]).sharding_filter().open_files()
    batches, loader = run(source.flat_map(lines))
    assert (keys(batches), loader.stats().skipped) == (["a-0", "a-1"], {"missing_file": 1})


def test_what_came_before_a_failure_is_delivered(tmp_path: Path) -> None:
    def breaks(sample: uio.Sample) -> Iterator[uio.Sample]:
        yield sample
        if sample["key"] == "R001":
            raise LookupError("in the middle")
        yield sample

    graph = uio.from_raw_list(raw_items(tmp_path, 3)).flat_map(breaks)
    batches, loader = run(graph)
    assert keys(batches) == ["R000", "R000", "R001", "R002", "R002"]
    assert loader.stats().skipped == {"flat_map_failed": 1}
    for cut in range(1, 5):
        first = uio.Loader(graph)
        iterator = iter(first)
        before = [next(iterator) for _ in range(cut)]
        second = uio.Loader(graph)
        second.load_state_dict(first.state_dict())
        assert keys(before + list(second)) == keys(batches)
        assert second.stats().failures == 1


def test_features_can_be_yielded(tmp_path: Path) -> None:
    def made(sample: uio.Sample) -> list[dict[str, Any]]:
        return [{"key": f"{sample['key']}{n}", "feat": torch.ones(n, 3)} for n in (2, 5)]

    (batch,), _ = run(uio.from_raw_list(raw_items(tmp_path, 1)).flat_map(made).sort(2).dynamic_batch(10).pad())
    assert batch["feats_lengths"].tolist() == [5, 2]


class Counting(uio.Node):
    """Counts how often its state is asked for."""

    asked = 0

    def next(self) -> Any:
        return self.source.next()

    def get_state(self) -> dict[str, Any]:
        Counting.asked += 1
        state: dict[str, Any] = self.source.get_state()
        return state


def numbered(count: int) -> uio.Pipeline:
    return uio.from_iterable([{"key": f"{i:03d}", "txt": "x"} for i in range(count)]).sharding_filter()


def test_the_state_of_what_stands_before_is_not_taken_for_each_item() -> None:
    """A shuffle of 6,000 that packs all it holds for each item made this three times as slow."""
    Counting.asked = 0
    graph = numbered(400).through(Counting).flat_map(lambda sample: [sample, sample])
    assert sum(1 for _ in uio.Loader(graph)) == 800
    assert Counting.asked <= 400 // 64 + 3


@pytest.mark.parametrize("cut", [0, 1, 2, 126, 127, 128, 129, 130, 255, 256, 299, 300])
def test_a_resume_passes_over_what_came_since_the_last_snapshot(cut: int) -> None:
    graph = numbered(150).shuffle(20).flat_map(lambda sample: [sample, sample])
    whole = [sample["key"] for sample in uio.Loader(graph)]
    loader = uio.Loader(graph)
    for _ in zip(range(cut), loader, strict=False):
        pass
    state = loader.state_dict()
    resumed = uio.Loader(graph)
    resumed.load_state_dict(state)
    assert [sample["key"] for sample in resumed] == whole[cut:]


def test_failures_behind_the_last_item_are_counted_once() -> None:
    items: list[dict[str, Any]] = [{"key": str(i), "txt": "x"} for i in range(4)]
    items += [{"key": f"bad{i}", "txt": "x", "wav": 3} for i in range(3)]
    graph = uio.from_iterable(items).sharding_filter().flat_map(lambda sample: [sample, sample]).batch(3)
    loader = uio.Loader(graph)
    for _ in zip(range(3), loader, strict=False):
        pass
    resumed = uio.Loader(graph)
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == []
    assert resumed.stats().failures == 3


@pytest.mark.parametrize("change", [{"delivered": 4}, {"delivered": 10**6}, {"passed": 9}])
def test_data_that_gives_fewer_utterances_now_is_refused(change: dict[str, int]) -> None:
    node = numbered(9).flat_map(lambda sample: [sample] * 3).build(Lane(Ledger()))
    node.reset(None)
    for _ in range(5):
        node.next()
    with pytest.raises(uio.StateError, match="flat_map"):
        node.reset(node.get_state() | change)
