"""What a process remembers: it is listed with its bounds, and the trainer hears of what a worker holds."""

import pickle
from array import array

import numpy as np
import pytest
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.base import memory
from uio_pipes.base.memory import Lru, bytes_in, held, kept


def test_all_that_is_remembered_is_listed_with_its_bound() -> None:
    cache = Lru("test", 100)
    cache.get("a", lambda: b"12345", len)
    found = {one.name: one for one in held()}
    assert found["test"] == ("test", 5, "bytes", 100, 1)
    assert {"local files", "blocks read ahead", "inflated stretches", "io.connections.proxy_for"} <= found.keys()
    assert pickle.loads(pickle.dumps(cache)).held == 0, "another process begins with nothing"
    del cache
    assert "test" not in {one.name for one in held()}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_loader_says_what_a_worker_holds(
    raw_corpus: Corpus, many_shards: Corpus, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "OFTEN", 0.0)
    pipeline = uio.from_shard_list(many_shards.list).decode_audio().add_noise(raw_corpus.list, probability=1.0)
    loader = uio.Loader(pipeline.batch(2).pad(), num_workers=num_workers)
    assert loader.stats().remembered == (0, 0)
    shown = [str(loader.stats()) for _ in loader]
    files, cached = loader.stats().remembered
    assert files > 0
    assert cached > 0
    assert f"; a process holds {files} open files, {cached / 1e6:,.1f} MB in caches" in shown[-1].replace(
        "file,", "files,"
    )


def test_least_recently_used_goes_first_and_the_bound_holds() -> None:
    cache, made = Lru("test", 10), []

    def get(key: str, size: int) -> str:
        def make() -> str:
            made.append(key)
            return key.upper()

        return cache.get(key, make, lambda _: size)

    assert [get("a", 4), get("b", 4), get("a", 4)] == ["A", "B", "A"]
    assert made == ["a", "b"]
    get("c", 5)  # b was used longest ago
    assert ("a" in cache, "b" in cache, "c" in cache) == (True, False, True)
    assert cache.held == 9
    assert get("huge", 11) == "HUGE"
    assert "huge" not in cache
    assert cache.held == 9
    get("b", 10)
    assert ("a" in cache, "b" in cache, "c" in cache) == (False, True, False)


def test_a_limit_of_0_keeps_nothing() -> None:
    cache = Lru("test", 0)
    values = iter(range(3))
    assert [cache.get("a", lambda: next(values), lambda _: 8) for _ in range(3)] == [0, 1, 2]


def test_results_of_a_function_are_kept_and_their_bytes_counted() -> None:
    made = []

    @kept("test results", 2, len)
    def doubled(text: str) -> str:
        made.append(text)
        return 2 * text

    assert [doubled(text) for text in ("a", "bb", "a", "ccc", "bb")] == ["aa", "bbbb", "aa", "cccccc", "bbbb"]
    assert made == ["a", "bb", "ccc", "bb"], "two are kept, and those used last"
    assert {one.name: one for one in held()}["test results"] == ("test results", 10, "bytes", None, 1)


def test_bytes_of_tables_are_those_of_their_arrays() -> None:
    class Table:
        def __init__(self) -> None:
            self.columns, self.names = {"place": np.zeros(1000)}, array("q", range(500))

    assert 12_000 <= bytes_in(Table()) < 12_000 + 9_000
    assert 1_000_000 <= bytes_in(["1234567890"] * 100_000) <= 2_000_000
