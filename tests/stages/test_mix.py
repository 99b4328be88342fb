"""``mix`` and ``interleave``: shares, ends and epochs of their own; ``repeat``, ``take`` and ``skip``."""

import os
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pytest
from contract import Case, check_cuts, digest, keys_of, record
from corpus import Corpus
from helpers_bad import keys, members, raw_items, raw_list, shard, texts
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger


def order(pipeline: uio.Pipeline, count: int | None = None, **options: Any) -> list[str]:
    if count is not None:
        return [sample["key"] for sample in uio.Loader(pipeline, steps_per_epoch=count, **options)]
    return [sample["key"] for sample in uio.Loader(pipeline, **options)]


def names(got: list[str]) -> list[str]:
    return [key[0] for key in got]


def test_interleave_takes_turns_and_goes_on_with_those_that_are_left() -> None:
    got = order(uio.interleave([texts("a", 4), texts("b", 1), texts("c", 2)]))
    assert sorted(got) == ["a0", "a1", "a2", "a3", "b0", "c0", "c1"]
    assert names(got[:3]) == ["a", "b", "c"]
    assert got[-2:] == ["a2", "a3"]


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    lanes=st.integers(1, 3),
    kind=st.sampled_from(["mix", "interleave"]),
    seed=st.integers(0, 99),
)
def test_all_delivers_every_utterance_once(counts: list[int], lanes: int, kind: str, seed: int) -> None:
    sources = {f"{i}_": texts(f"{i}_", n) for i, n in enumerate(counts)}
    pipeline = uio.mix(sources) if kind == "mix" else uio.interleave(sources)
    expected = sorted(f"{i}_{j}" for i, n in enumerate(counts) for j in range(n))
    assert sorted(order(pipeline, lanes=lanes, seed=seed)) == expected


def test_first_ends_with_the_first_source() -> None:
    assert order(uio.interleave([texts("a", 9), texts("b", 3)], stop="first")) == [
        "a0",
        "b0",
        "a1",
        "b1",
        "a2",
        "b2",
        "a3",
    ]


def test_cycle_repeats_sources_until_each_has_ended_once() -> None:
    got = order(uio.interleave([texts("a", 5), texts("b", 2)], stop="cycle"))
    assert [k for k in got if k[0] == "a"] == ["a0", "a1", "a2", "a3", "a4"]
    assert [k for k in got if k[0] == "b"] == ["b0", "b1", "b0", "b1", "b0"]


def test_endless_goes_on_in_the_given_shares() -> None:
    mixed = uio.mix({"a": texts("a", 50), "b": texts("b", 7)}, {"b": 1, "a": 3}, stop="endless")
    counts = Counter(names(order(mixed, 2000)))
    assert abs(counts["a"] - 1500) < 4 * (2000 * 0.75 * 0.25) ** 0.5, "within 4 standard deviations"


def test_an_utterance_is_given_equally_often_within_its_source() -> None:
    counts = Counter(order(uio.mix([texts("a", 5), texts("b", 3)], stop="endless"), 2000))
    for name in "ab":
        own = [n for key, n in counts.items() if key[0] == name]
        assert max(own) - min(own) <= 1


def test_a_source_that_begins_anew_has_another_order_and_other_draws(plain_corpus: Corpus) -> None:
    source = uio.from_shard_list(plain_corpus.list, shuffle=True).decode_audio().fbank(num_mel_bins=4, dither=1.0)
    got = list(uio.Loader(uio.mix({"only": source}, stop="endless"), steps_per_epoch=50))
    first, second = got[:25], got[25:]
    assert sorted(s["key"] for s in first) == sorted(s["key"] for s in second) == sorted(plain_corpus.keys)
    assert [s["key"] for s in first] != [s["key"] for s in second]
    noisy = {s["key"]: s["feat"] for s in second}
    assert all((s["feat"] != noisy[s["key"]]).any() for s in first)


def test_the_same_list_under_two_names_is_augmented_twice(plain_corpus: Corpus) -> None:
    source = uio.from_shard_list(plain_corpus.list).decode_audio().fbank(num_mel_bins=4, dither=1.0)
    got = list(uio.Loader(uio.interleave({"one": source, "two": source})))
    by_key: dict[str, list[Any]] = {}
    for sample in got:
        by_key.setdefault(sample["key"], []).append(sample["feat"])
    assert all(len(feats) == 2 and (feats[0] != feats[1]).any() for feats in by_key.values())


def buffers_of_repeated() -> list[uio.Pipeline]:
    return [texts("a", 7).repeat().shuffle(5), texts("b", 9).shuffle(3)]


NESTED = {
    "mix": lambda: uio.mix(buffers_of_repeated()),
    "interleave": lambda: uio.interleave(buffers_of_repeated(), stop="cycle").shuffle(4),
    "within": lambda: uio.mix(
        [uio.mix(buffers_of_repeated(), stop="endless").shuffle(6), texts("c", 3).repeat(2).shuffle(2)], stop="endless"
    ).shuffle(4),
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_a_running_epoch_of_repeated_sources_is_looked_into_and_changed(nested: Any) -> None:
    pipeline = nested().batch(3)
    whole = [digest(batch) for batch in uio.Loader(pipeline, steps_per_epoch=20)]
    loader = uio.Loader(pipeline, steps_per_epoch=20)
    got = []
    for step, batch in enumerate(loader):
        if step < 12:
            got.append(digest(batch))
        if step == 6:
            assert digest(loader.batch_at(9)) == whole[9]
        if step == 9:
            loader.skip(range(11, 12))
        if step == 14 and pipeline.stages[0].name == "mix":
            loader.reweight({"0": 2.0})
    assert got == [*whole[:11], whole[12]]


def test_what_arrives_late_is_not_of_the_next_round() -> None:
    lane = Lane(Ledger())
    node = uio.mix([texts("a", 1)], stop="endless")._nodes(lane)
    node.reset(None)
    node.next()
    lane.stall_guard.arrived += 1
    node.next()  # of its second round
    with pytest.raises(StopIteration):  # as nothing came of it
        node.next()
    lane.stall_guard.arrived += 1  # the last batch, which was not full
    assert node.get_state()["sources"] == {"0": [2, 0, None]}


def test_empty_sources_neither_hang_nor_end_the_others() -> None:
    nothing = texts("x", 3).filter(lambda sample: False)
    for stop in ("all", "cycle", "endless"):
        got = order(uio.mix([nothing, texts("a", 3)], stop=stop), 3 if stop == "endless" else None)  # type: ignore[arg-type]
        assert sorted(got) == ["a0", "a1", "a2"]
    with pytest.raises(uio.TooManyFailures, match=r"filter\(.* left out 3"):
        order(uio.mix([nothing], stop="cycle"))


def test_batches_can_be_mixed(plain_corpus: Corpus) -> None:
    audio = uio.from_shard_list(plain_corpus.list).decode_audio().fbank(num_mel_bins=4)
    mixed = uio.interleave([audio.filter(max_frames=80).batch(2).pad(), audio.filter(min_frames=81).batch(3).pad()])
    batches = list(uio.Loader(mixed))
    assert sorted(k for b in batches for k in keys_of(b)) == sorted(plain_corpus.keys)
    assert len({digest(b) for b in batches}) == len(batches)


def test_small_sources_are_spread_over_the_lanes() -> None:
    sources = {f"s{i}_": texts(f"s{i}_", 1) for i in range(400)}
    per_rank = [len(order(uio.mix(sources), rank=rank, world_size=4, lanes=8, uneven="join")) for rank in range(4)]
    assert sum(per_rank) == 400
    assert min(per_rank) > 60


def test_a_source_that_some_lanes_lack_is_told(caplog: pytest.LogCaptureFixture) -> None:
    mixed = uio.mix({"many": texts("a", 50), "few": texts("b", 2)}, stop="endless")
    order(mixed, 8, lanes=8)
    assert "1 of 2 sources have fewer list items than there are lanes (8), as 'few' with 2" in caplog.text
    caplog.clear()
    order(mixed, 8, lanes=2)
    assert caplog.text == ""


@pytest.mark.slow
def test_hundreds_of_streams_need_few_descriptors(gz_corpus: Corpus) -> None:
    shards = [line for line in gz_corpus.list.read_text().splitlines() if line.endswith(".gz")]
    sources = {f"s{i}": uio.from_shard_list([shards[i % len(shards)]]).shuffle(2) for i in range(300)}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_already = len(os.listdir("/proc/self/fd"))  # by tests before this one
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, open_already + 300), hard))
    try:
        got = order(uio.interleave(sources))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(got) == 300 // 4 * len(gz_corpus.keys)
    counts = Counter(got)
    assert set(counts.values()) == {75}


def test_the_graph_is_drawn_with_its_sources() -> None:
    drawn = str(uio.mix({"read": texts("a", 1), "meetings": texts("b", 1).shuffle(7)}, [1, 2]).batch(4))
    assert "read: from_iterable(list, 1 items)" in drawn
    assert "meetings" in drawn
    assert "shuffle(7)" in drawn


def test_a_sharding_filter_behind_the_mix_deals_utterances() -> None:
    plain = [uio.from_iterable([{"key": f"{n}{i}", "txt": ""} for i in range(9)]) for n in "ab"]
    mixed = uio.mix(plain).sharding_filter()
    assert sorted(order(mixed, lanes=4)) == sorted(f"{n}{i}" for n in "ab" for i in range(9))
    with pytest.raises(uio.PipelineError, match="needs a sharding_filter"):
        uio.Loader(uio.mix(plain), lanes=4)


@pytest.mark.parametrize(("temperature", "weights"), [(1, (4.0, 9.0, 0)), (0.5, (2.0, 3.0, 0)), (0, (1.0, 1.0, 0))])
def test_a_temperature_evens_out_the_weights(temperature: float, weights: tuple[float, ...]) -> None:
    pipelines = {name: uio.from_iterable([{"key": name}]) for name in "abc"}
    given = {"a": 4.0, "b": 9.0, "c": 0}
    assert uio.mix(pipelines, given, temperature=temperature) == uio.mix(pipelines, list(weights))
    later = uio.mix(pipelines, uio.by_step({0: given, 5: {"a": 1, "b": 1, "c": 1}}), temperature=temperature)
    assert later == uio.mix(pipelines, uio.by_step({0: list(weights), 5: [1, 1, 1]}))
    with pytest.raises(uio.PipelineError, match=r"temperature must be a number, 0 or more, not -1; 1 changes nothing"):
        uio.mix(pipelines, given, temperature=-1)
    with pytest.raises(uio.PipelineError, match=r"temperature changes weights, .* not 0.5; give weights"):
        uio.mix(pipelines, temperature=0.5)
    assert uio.mix(pipelines, temperature=0) == uio.mix(pipelines)


# repeat, take and skip


def numbered(count: int) -> uio.Pipeline:
    return uio.from_iterable([{"key": f"{i:03d}", "txt": ""} for i in range(count)])


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 20), times=st.integers(1, 4), lanes=st.integers(1, 3), before=st.booleans())
def test_every_utterance_comes_as_often_as_told(count: int, times: int, lanes: int, before: bool) -> None:
    graph = numbered(count)
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


def test_nothing_repeated_for_ever_is_an_error_that_names_who_left_it_out() -> None:
    with pytest.raises(uio.ListError, match=r"the stream cannot continue.*filter\(.*left out 3 as filter"):
        keys(uio.Loader(numbered(3).filter(lambda sample: False).repeat()))


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
    assert "endless" in str(numbered(3).repeat())
    assert "endless" in str(numbered(3).repeat(-1))
    assert "endless" not in str(numbered(3).repeat(2))


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 20), taken=st.integers(1, 25), skipped=st.integers(0, 25))
def test_take_and_skip_are_slices(count: int, taken: int, skipped: int) -> None:
    everything = [f"{i:03d}" for i in range(count)]
    assert keys(uio.Loader(numbered(count).take(taken))) == everything[:taken]
    assert keys(uio.Loader(numbered(count).skip(skipped))) == everything[skipped:]
    assert keys(uio.Loader(numbered(count).skip(skipped).take(taken))) == everything[skipped:][:taken]


def test_before_the_sharding_filter_the_epoch_is_cut_after_it_each_lane() -> None:
    assert len(keys(uio.Loader(numbered(20).take(6).sharding_filter(), lanes=4))) == 6
    assert len(keys(uio.Loader(numbered(20).sharding_filter().take(2), lanes=4))) == 8


def test_lists_and_batches_can_be_cut(plain_corpus: Corpus) -> None:
    shards = uio.list_files(plain_corpus.list).skip(1).take(2).sharding_filter().open_files().load_from_tar()
    assert keys(uio.Loader(shards)) == list(plain_corpus.keys[5:14])
    assert len(list(uio.Loader(shards.decode_audio().batch(2).take(3)))) == 3
