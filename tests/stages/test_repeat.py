"""``repeat``, ``take`` and ``skip``."""

from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pytest
from contract import Case, check_cuts, record, some_cuts
from corpus import Corpus
from helpers_bad import keys, members, raw_items, raw_list, shard
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio


def texts(count: int) -> uio.Pipeline:
    return uio.from_iterable([{"key": f"{i:03d}", "txt": ""} for i in range(count)])


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 20), times=st.integers(1, 4), lanes=st.integers(1, 3), before=st.booleans())
def test_every_utterance_comes_as_often_as_told(count: int, times: int, lanes: int, before: bool) -> None:
    graph = texts(count)
    graph = graph.repeat(times).sharding_filter() if before else graph.sharding_filter().repeat(times)
    expected = Counter({f"{i:03d}": times for i in range(count)})
    assert Counter(keys(uio.Loader(graph, lanes=lanes))) == expected


def test_each_round_is_shuffled_and_augmented_anew(plain_corpus: Corpus) -> None:
    graph = uio.from_shard_list(plain_corpus.list, shuffle=True).decode_audio().fbank(num_mel_bins=4, dither=1.0)
    got = list(uio.Loader(graph.repeat(2)))
    half = len(got) // 2
    first, second = got[:half], got[half:]
    assert sorted(s["key"] for s in first) == sorted(s["key"] for s in second) == sorted(plain_corpus.keys)
    assert [s["key"] for s in first] != [s["key"] for s in second]
    other = {s["key"]: s["feat"] for s in second}
    assert all((s["feat"] != other[s["key"]]).any() for s in first)


@pytest.mark.parametrize("options", [{}, {"lanes": 3}], ids=str)
def test_resume_in_every_round(plain_corpus: Corpus, options: dict[str, Any]) -> None:
    lists = uio.list_files(plain_corpus.list, shuffle=True).repeat(2)
    graph = lists.sharding_filter().open_files().load_from_tar().decode_audio().shuffle(7).repeat(2).batch(4).pad()
    recorded = record(Case(graph, options))
    assert len(recorded.keys) == 4 * len(plain_corpus.keys)
    check_cuts(recorded, some_cuts(len(recorded.digests), 8))


def test_nothing_repeated_for_ever_is_an_error_that_names_who_left_it_out() -> None:
    with pytest.raises(uio.ListError, match=r"nothing to go on with.*filter\(.*left out 3 as filter"):
        keys(uio.Loader(texts(3).filter(lambda sample: False).repeat()))


def early(sample: uio.Sample) -> bool:
    return sample["key"] < "K002"


def with_draws(sample: uio.Sample, rng: Any) -> uio.Sample:
    sample["txt"] = str(rng.integers(1000))
    return sample


def test_a_resume_within_a_file_of_which_nothing_comes_any_more(tmp_path: Path) -> None:
    """The round of which something came before is not one of which nothing comes."""
    files = uio.list_files([shard(tmp_path / "a.tar", members(6))], shuffle=True).repeat().sharding_filter()
    graph = files.open_files().load_from_tar().filter(early).map(with_draws).batch(1)
    recorded = record(Case(graph, {"steps_per_epoch": 7}))
    check_cuts(recorded, range(8))


def test_what_is_fetched_ahead_of_a_short_round_changes_nothing(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3)
    memory = fsspec.filesystem("memory")
    for item in items:
        memory.pipe(f"/repeated/{item['key']}.wav", Path(item["wav"]).read_bytes())
    far = [{**item, "wav": f"memory://repeated/{item['key']}.wav"} for item in items]
    got = []
    for listed in (items, far):
        lines = uio.list_files(raw_list(tmp_path / "list", listed), shuffle=True).repeat().sharding_filter()
        loader = uio.Loader(lines.load_from_raw().map(with_draws).batch(1), steps_per_epoch=14)
        got.append([(sample["key"], sample["txt"]) for batch in loader for sample in batch])
    assert got[0] == got[1]


def test_endless_says_so() -> None:
    assert "endless" in str(texts(3).repeat())
    assert "endless" in str(texts(3).repeat(-1))
    assert "endless" not in str(texts(3).repeat(2))


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 20), taken=st.integers(1, 25), skipped=st.integers(0, 25))
def test_take_and_skip_are_slices(count: int, taken: int, skipped: int) -> None:
    everything = [f"{i:03d}" for i in range(count)]
    assert keys(uio.Loader(texts(count).take(taken))) == everything[:taken]
    assert keys(uio.Loader(texts(count).skip(skipped))) == everything[skipped:]
    assert keys(uio.Loader(texts(count).skip(skipped).take(taken))) == everything[skipped:][:taken]


def test_before_the_sharding_filter_the_epoch_is_cut_after_it_each_lane() -> None:
    assert len(keys(uio.Loader(texts(20).take(6).sharding_filter(), lanes=4))) == 6
    assert len(keys(uio.Loader(texts(20).sharding_filter().take(2), lanes=4))) == 8


def test_lists_and_batches_can_be_cut(plain_corpus: Corpus) -> None:
    shards = uio.list_files(plain_corpus.list).skip(1).take(2).sharding_filter().open_files().load_from_tar()
    assert keys(uio.Loader(shards)) == list(plain_corpus.keys[5:14])
    assert len(list(uio.Loader(shards.decode_audio().batch(2).take(3)))) == 3
