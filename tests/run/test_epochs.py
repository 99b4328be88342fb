"""Epochs made of steps, batches passed over, lengths known beforehand, validation, and several loaders."""

import gc
import multiprocessing
import time
from collections import Counter
from typing import Any

import pytest
from contract import carried, digest, keys_of, restored
from corpus import Corpus
from hypothesis import given, settings
from hypothesis import strategies as st
from journeys import small

import uio_pipes as uio


def training(corpus: Corpus) -> uio.Pipeline:
    return small(corpus.list).batch(3).pad()


def ranks(pipeline: uio.Pipeline, world: int, **options: Any) -> list[uio.Loader]:
    given = {"seed": 3, "uneven": "join", **options}
    return [uio.Loader(pipeline, rank=rank, world_size=world, **given) for rank in range(world)]


# steps_per_epoch


@pytest.mark.parametrize("options", [{}, {"lanes": 3}, {"lanes": 2, "num_workers": 2}], ids=str)
def test_steps_make_epochs_of_one_stream(many_shards: Corpus, options: dict[str, Any]) -> None:
    pipeline = training(many_shards)
    loader = uio.Loader(pipeline, seed=1, steps_per_epoch=7, **options)
    epochs, states = [], []
    for epoch in range(6):
        loader.set_epoch(epoch)
        epochs.append([digest(b) for b in loader])
        states.append(loader.state_dict())
    assert [len(epoch) for epoch in epochs] == [7] * 6
    assert len({d for epoch in epochs for d in epoch}) == 42, "each pass of the data is shuffled and augmented anew"
    for epoch in (0, 2, 4):
        resumed = restored(pipeline, states[epoch], seed=1, steps_per_epoch=7, **options)
        assert [digest(b) for b in resumed] == epochs[epoch + 1]
        assert resumed.epoch == epoch + 1


def test_the_end_of_an_epoch_whose_last_step_was_loaded_is_saved(many_shards: Corpus) -> None:
    pipeline = training(many_shards)
    loader = uio.Loader(pipeline, seed=1, steps_per_epoch=7)
    for _, _ in zip(range(7), loader, strict=False):
        pass
    state, whole = loader.state_dict(), uio.Loader(pipeline, seed=1, steps_per_epoch=7)
    _, after = ([digest(b) for b in whole] for _ in range(2))
    resumed = restored(pipeline, state, seed=1, steps_per_epoch=7)
    assert list(resumed) == []
    again = restored(pipeline, resumed.state_dict(), seed=1, steps_per_epoch=7)
    assert [digest(b) for b in again] == after
    assert again.epoch == 1


def test_the_stream_begins_again_when_every_utterance_was_given(many_shards: Corpus) -> None:
    loader = uio.Loader(training(many_shards), steps_per_epoch=16)  # 48 utterances in batches of 3
    for _ in range(3):
        assert Counter(k for b in loader for k in keys_of(b)) == Counter(many_shards.keys)
    endless = uio.Loader(uio.from_shard_list(many_shards.list).repeat().batch(3), steps_per_epoch=40)
    assert [len(list(endless)) for _ in range(2)] == [40, 40]


@settings(max_examples=15, deadline=None)
@given(steps=st.integers(1, 20), cut=st.integers(0, 40), workers=st.sampled_from([0, 0, 0, 2]))
def test_resume_in_an_epoch_of_steps(steps: int, cut: int, workers: int, many_shards: Corpus) -> None:
    pipeline = training(many_shards)

    def stream(loader: uio.Loader, count: int) -> list[Any]:
        got: list[Any] = []
        while len(got) < count:
            for batch in loader:
                got.append((loader.epoch, digest(batch)))
                if len(got) == count:
                    break
        return got

    undisturbed = stream(uio.Loader(pipeline, seed=1, lanes=2, steps_per_epoch=steps), cut + 9)
    first = uio.Loader(pipeline, seed=1, lanes=2, steps_per_epoch=steps)
    assert stream(first, cut) == undisturbed[:cut]
    second = restored(pipeline, first.state_dict(), seed=1, lanes=2, num_workers=workers, steps_per_epoch=steps)
    assert stream(second, 9) == undisturbed[cut:]


def test_ranks_step_alike_though_one_has_hardly_any_data(many_shards: Corpus) -> None:
    pipeline = uio.list_files(many_shards.list).take(3).sharding_filter().open_files().load_from_tar().decode_audio()
    counts = [len(list(loader)) for loader in ranks(pipeline.batch(1), 2, steps_per_epoch=11)]
    assert counts == [11, 11]
    loaders = ranks(pipeline.batch(1), 4, steps_per_epoch=11)
    with pytest.raises(uio.ListError, match="a rank has no batch at all"):
        list(loaders[3])


def test_a_topology_change_within_an_epoch_of_steps(many_shards: Corpus) -> None:
    pipeline = training(many_shards)
    two = ranks(pipeline, 2, lanes=4, steps_per_epoch=4)
    got = [[digest(b) for _, b in zip(range(2), loader, strict=False)] for loader in two]
    state = uio.merge_states([loader.state_dict() for loader in two])
    alone = uio.Loader(pipeline, seed=3, lanes=4, steps_per_epoch=8)
    whole = [digest(b) for b in alone]
    four = ranks(pipeline, 4, lanes=4, steps_per_epoch=4)
    for loader in four:
        loader.load_state_dict(carried(state))
    after = [[digest(b) for b in loader] for loader in four]
    assert [len(batches) for batches in after] == [2] * 4, "two steps were left of this epoch"
    assert sorted(got[0] + got[1] + [batches[0] for batches in after]) == sorted(whole)


def test_more_ranks_than_lanes_of_a_state_are_told_its_lanes_and_the_remedy(many_shards: Corpus) -> None:
    pipeline = training(many_shards)
    for options in ({"steps_per_epoch": 4}, {}):
        first = ranks(pipeline, 1, lanes=2, **options)[0]
        next(iter(first))
        state = carried(first.state_dict())
        loaders = ranks(pipeline, 3, **options)
        for loader in loaders:
            loader.load_state_dict(state)
        if not options:  # each by itself: the third has nothing to do, and the next epoch is dealt anew
            assert [len(list(loader)) > 0 for loader in loaders] == [True, True, False]
            continue
        for loader in loaders:
            with pytest.raises(uio.StateError) as raised:
                list(loader)
            assert "lanes: the state has 2, so 1 of 3 ranks would have nothing to deliver" in str(raised.value)
            assert "at most 2 ranks" in str(raised.value)
            assert "Loader(lanes=64)" in str(raised.value)
            loader.set_epoch(5)  # a fresh one
            assert len(list(loader)) == 4


def test_a_state_with_steps_does_not_pass_for_one_without(many_shards: Corpus) -> None:
    pipeline = training(many_shards)
    stepped = uio.Loader(pipeline, steps_per_epoch=3).state_dict()
    whole = uio.Loader(pipeline).state_dict()
    for state, options in ((stepped, {}), (whole, {"steps_per_epoch": 3})):
        with pytest.raises(uio.StateError, match="steps_per_epoch"):
            uio.Loader(pipeline, **options).load_state_dict(state)  # type: ignore[arg-type]


# skip


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("world", [1, 2])
def test_skip_passes_over_exactly_the_next_batches(many_shards: Corpus, workers: int, world: int) -> None:
    pipeline = training(many_shards)
    for undisturbed, disturbed in zip(ranks(pipeline, world, lanes=6), ranks(pipeline, world, lanes=6), strict=True):
        expected = [digest(b) for b in undisturbed]
        for at, count in ((0, 1), (0, 5), (2, 3), (1, 100)):
            loader = uio.Loader(
                pipeline, seed=3, lanes=6, rank=disturbed.rank, world_size=world, uneven="join", num_workers=workers
            )
            batches = iter(loader)
            got = [digest(next(batches)) for _ in range(at)]
            loader.skip(count)
            got += [digest(b) for b in batches]
            assert got == expected[:at] + expected[at + count :], (at, count)


def test_skip_after_loading_and_the_state_after_it(many_shards: Corpus) -> None:
    pipeline = training(many_shards)
    expected = [digest(b) for b in uio.Loader(pipeline, lanes=2)]
    first = uio.Loader(pipeline, lanes=2)
    batches = iter(first)
    for _ in range(3):
        next(batches)
    resumed = restored(pipeline, first.state_dict(), lanes=2)
    resumed.skip(4)
    rest = iter(resumed)
    assert digest(next(rest)) == expected[7]
    again = restored(pipeline, resumed.state_dict(), lanes=2)
    assert [digest(b) for b in again] == expected[8:]


def test_a_skip_to_come_is_in_the_state_and_another_epoch_forgets_it(many_shards: Corpus) -> None:
    pipeline = training(many_shards)
    expected = [digest(b) for b in uio.Loader(pipeline, lanes=2)]
    for loaded in (False, True):
        loader = uio.Loader(pipeline, lanes=2)
        if loaded:
            loader.load_state_dict(uio.Loader(pipeline, lanes=2).state_dict())
        loader.skip(3)
        resumed = restored(pipeline, loader.state_dict(), lanes=2)
        assert [digest(b) for b in resumed] == expected[3:]
    loader = uio.Loader(pipeline, lanes=2)
    before = loader.state_dict()
    loader.skip(3)
    loader.load_state_dict(before)
    assert [digest(b) for b in loader] == expected
    loader.skip(4)
    assert sorted(k for b in loader for k in keys_of(b)) == sorted(many_shards.keys)


def test_fewer_steps_than_the_state_has_made_end_the_epoch(many_shards: Corpus) -> None:
    pipeline = training(many_shards)
    loader = uio.Loader(pipeline, steps_per_epoch=9)
    batches = iter(loader)
    for _ in range(5):
        next(batches)
    resumed = restored(pipeline, loader.state_dict(), steps_per_epoch=2)
    assert list(resumed) == []
    assert len(list(resumed)) == 2


def test_a_forgotten_loader_of_steps_ends_its_workers(many_shards: Corpus) -> None:
    others = multiprocessing.active_children()
    loader = uio.Loader(training(many_shards), steps_per_epoch=2, num_workers=2)
    assert len(list(loader)) == 2
    workers = [child for child in multiprocessing.active_children() if child not in others]
    assert len(workers) == 2, "they live on for the next epoch"
    gc.disable()
    try:
        del loader
        deadline = time.monotonic() + 20
        while any(worker.is_alive() for worker in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(worker.is_alive() for worker in workers)
    finally:
        gc.enable()


# len


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 40),
    size=st.integers(1, 7),
    lanes=st.integers(1, 5),
    world=st.integers(1, 3),
    drop_last=st.booleans(),
)
def test_len_is_the_number_of_batches(count: int, size: int, lanes: int, world: int, drop_last: bool) -> None:
    items = [{"key": str(i), "txt": ""} for i in range(count)]
    graph = uio.from_iterable(items).sharding_filter().shuffle(4).repeat(2).skip(1).batch(size, drop_last=drop_last)
    failures = uio.Failures(max_setting_share=1)  # else it is an error if drop_last leaves nothing
    for loader in ranks(graph, world, lanes=max(lanes, world), failures=failures):
        assert len(loader) == len(list(loader))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 4}], ids=str)
def test_a_trainer_that_counts_by_len_gets_whole_epochs(
    raw_corpus: Corpus, options: dict[str, Any], workers: int
) -> None:
    graph = uio.from_raw_list(raw_corpus.list, shuffle=True).decode_audio().batch(4).pad()
    expected = uio.Loader(graph, lanes=2, **options)
    epochs = [[keys_of(b) for b in expected] for _ in range(3)]
    counting = uio.Loader(graph, lanes=2, num_workers=workers, **options)
    got = [[keys_of(b) for _, b in zip(range(len(counting)), counting, strict=False)] for _ in range(3)]
    assert got == epochs


# validation and second loaders


@pytest.mark.parametrize("workers", [0, 2])
def test_a_validation_loader_in_the_middle_of_an_epoch_changes_nothing(many_shards: Corpus, workers: int) -> None:
    pipeline = training(many_shards)
    expected = [digest(b) for b in uio.Loader(pipeline, seed=1, lanes=2)]
    train = uio.Loader(pipeline, seed=1, lanes=2, num_workers=workers)
    valid = uio.Loader(pipeline, seed=9, partition=False, num_workers=workers)
    got = []
    for step, batch in enumerate(train):
        got.append(digest(batch))
        if step % 5 == 2:
            assert sum(len(keys_of(b)) for b in valid) == len(many_shards.keys)
    assert got == expected


def test_a_loader_whose_epoch_was_over_says_how_to_go_on(many_shards: Corpus, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = uio.from_shard_list(many_shards.list).batch(4)
    loader = uio.Loader(pipeline)
    for _ in loader:
        state = loader.state_dict()  # after the last batch: as a training saves it
    again = restored(pipeline, state)
    assert list(again) == []
    told = "epoch 0 is complete in the state that was loaded: continuing with epoch 1"
    assert [record.message for record in caplog.records] == [told]
    assert len(list(again)) > 4
    assert again.epoch == 1
