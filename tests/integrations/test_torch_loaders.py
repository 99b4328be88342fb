"""``as_dataset()`` in other people's loaders: torch's ``DataLoader`` and torchdata's ``StatefulDataLoader``."""

import json
import logging
import os
import pickle
from collections import Counter
from copy import deepcopy
from itertools import islice
from typing import Any

import pytest
import torch
from contract import digest, keys_of
from corpus import Corpus
from journeys import small
from processes import left, raises
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import uio_pipes as uio


def pipeline(corpus: Corpus) -> uio.Pipeline:
    return small(corpus.list, bins=6).batch(3).pad()


def stateful(corpus: Corpus, workers: int, every: int = 1) -> StatefulDataLoader:
    dataset = pipeline(corpus).as_dataset(seed=3)
    return StatefulDataLoader(dataset, batch_size=None, num_workers=workers, snapshot_every_n_steps=every)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader_resumes_mid_epoch(many_shards: Corpus, workers: int, every: int) -> None:
    undisturbed = [digest(b) for b in stateful(many_shards, workers, every)]
    for cut in (1, 4, len(undisturbed) - 1):
        loader = stateful(many_shards, workers, every)
        batches = iter(loader)
        assert [digest(next(batches)) for _ in range(cut)] == undisturbed[:cut]
        state = json.loads(json.dumps(loader.state_dict()))
        del batches
        left(loader)
        resumed = stateful(many_shards, workers, every)
        resumed.load_state_dict(state)
        assert [digest(b) for b in resumed] == undisturbed[cut:], f"after batch {cut}"


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_other_loaders_deliver_every_utterance_once(many_shards: Corpus, workers: int, kind: Any) -> None:
    loader = kind(pipeline(many_shards).as_dataset(seed=3), batch_size=None, num_workers=workers)
    assert Counter(k for b in loader for k in keys_of(b)) == Counter(many_shards.keys)


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"batch_size": 2, "drop_last": True}])
def test_batches_are_not_put_into_batches(
    many_shards: Corpus, kind: Any, workers: int, padded: bool, options: dict[str, Any]
) -> None:
    graph = uio.from_shard_list(many_shards.list).decode_audio().batch(2)
    loader = kind((graph.pad() if padded else graph).as_dataset(), num_workers=workers, **options)
    with raises(uio.PipelineError, match="give it batch_size=None", loader=loader):
        next(iter(loader))


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_a_collate_function_of_the_users_gets_batches_as_they_are(many_shards: Corpus, kind: Any) -> None:
    graph = uio.from_shard_list(many_shards.list).decode_audio().batch(2).pad()
    got = list(kind(graph.as_dataset(), batch_size=2, collate_fn=list))
    assert [len(pair) for pair in got[:-1]] == [2] * (len(got) - 1)
    assert [digest(batch) for pair in got for batch in pair] == [digest(batch) for batch in uio.Loader(graph)]


def test_utterances_may_be_batched_by_the_other_loader(many_shards: Corpus) -> None:
    graph = uio.from_shard_list(many_shards.list).map(lambda sample: {"key": sample["key"]})
    batches = list(DataLoader(graph.as_dataset(), batch_size=4))
    assert [key for batch in batches for key in batch["key"]] == [s["key"] for s in uio.Loader(graph)]


@pytest.mark.parametrize("options", [{"rank": 0, "world_size": "2"}, {"rank": "0", "world_size": 2}, {"lanes": 0}])
def test_wrong_options_fail_when_the_dataset_is_made(many_shards: Corpus, options: dict[str, Any]) -> None:
    with pytest.raises(uio.PipelineError, match=r"must be a whole number|lanes"):
        pipeline(many_shards).as_dataset(**options)


@pytest.mark.parametrize("workers", [0, 2])
def test_fixed_lanes_give_the_same_batches_as_our_loader(many_shards: Corpus, workers: int) -> None:
    ours = [digest(b) for b in uio.Loader(pipeline(many_shards), seed=3, lanes=4)]
    dataset = pipeline(many_shards).as_dataset(seed=3, lanes=4)
    theirs = [digest(b) for b in DataLoader(dataset, batch_size=None, num_workers=workers)]
    assert sorted(theirs) == sorted(ours)
    assert (theirs == ours) or workers > 0, "one process: in the order of (k, lane)"


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_share_the_work(many_shards: Corpus, workers: int) -> None:
    keys: list[str] = []
    for rank in range(2):
        dataset = pipeline(many_shards).as_dataset(seed=3, rank=rank, world_size=2)
        keys += [k for b in DataLoader(dataset, batch_size=None, num_workers=workers) for k in keys_of(b)]
    assert Counter(keys) == Counter(many_shards.keys)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_set_epoch_reaches_workers_that_live_on(many_shards: Corpus, method: str) -> None:
    dataset = pipeline(many_shards).as_dataset(seed=3, lanes=2)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context=method
    )
    epochs = []
    for epoch in (0, 1, 2, 0):
        dataset.set_epoch(epoch)
        epochs.append(sorted(digest(b) for b in loader))
    assert epochs[0] == epochs[3]
    assert len({str(e) for e in epochs}) == 3
    fresh = pipeline(many_shards).as_dataset(seed=3, lanes=2)
    fresh.set_epoch(2)
    assert sorted(digest(b) for b in DataLoader(fresh, batch_size=None)) == epochs[2]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str)
def test_a_pass_that_was_left_begins_again(many_shards: Corpus, options: dict[str, Any]) -> None:
    """As torch's loaders do. Only a loaded state is gone on from."""
    loader = DataLoader(pipeline(many_shards).as_dataset(partition=False), batch_size=None, **options)
    for number, _ in enumerate(loader):
        if number == 2:
            break
    for _ in range(2):
        assert Counter(k for b in loader for k in keys_of(b)) == Counter(many_shards.keys)


@pytest.fixture(scope="module")
def epochs(many_shards: Corpus) -> list[list[str]]:
    """The batches of eight epochs, each sorted, as our own loader gives them."""
    loader = uio.Loader(pipeline(many_shards), seed=3, lanes=4)
    return [sorted(digest(b) for b in loader) for _ in range(8)]


def passes(loader: Any, count: int) -> list[list[str]]:
    return [sorted(digest(b) for b in loader) for _ in range(count)]


PERSISTENT = {"num_workers": 2, "persistent_workers": True}
WORKERS: list[dict[str, Any]] = [{}, {"num_workers": 2}, PERSISTENT]


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_each_pass_is_the_next_epoch(
    many_shards: Corpus, epochs: list[list[str]], kind: Any, options: dict[str, Any]
) -> None:
    dataset = pipeline(many_shards).as_dataset(seed=3, lanes=4)
    loader = kind(dataset, batch_size=None, **options)
    assert passes(loader, 2) == epochs[:2]
    dataset.set_epoch(6)
    assert passes(loader, 2) == epochs[6:]
    dataset.set_epoch(1)
    assert passes(loader, 2) == epochs[1:3]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, PERSISTENT], ids=str)
@pytest.mark.parametrize("partition", [True, False])
def test_a_pass_that_was_left_counts_and_is_told(
    many_shards: Corpus,
    epochs: list[list[str]],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    partition: bool,
    options: dict[str, Any],
) -> None:
    """Ranks may leave a pass at other batches than that on which one of them ends: all go on with the same epoch."""
    handler = logging.StreamHandler(os.fdopen(os.dup(2), "w"))  # workers write to the same
    monkeypatch.setattr(logging.getLogger("uio_pipes"), "handlers", [handler])
    loader = DataLoader(
        pipeline(many_shards).as_dataset(seed=3, lanes=4, partition=partition), batch_size=None, **options
    )
    assert passes(loader, 2) == epochs[:2]
    assert "stopped" not in capfd.readouterr().err
    for _ in range(3):
        next(iter(loader))
    assert passes(loader, 2) == epochs[5:7]
    told = capfd.readouterr().err
    assert (
        all(f"epoch {e} was stopped before its end: this pass is epoch {e + 1}" in told for e in (2, 3, 4)) == partition
    )
    assert ("stopped" in told) == partition, "validation loses nothing"
    assert "epoch 5 was stopped" not in told


def test_several_loaders_of_one_dataset_get_whole_epochs(many_shards: Corpus, epochs: list[list[str]]) -> None:
    """They count on from each other; each pass is one epoch in all of its workers, whatever the seed of the loader."""
    dataset = pipeline(many_shards).as_dataset(seed=3, lanes=4)
    for epoch, (workers, seed) in enumerate([(1, 0), (2, 0), (4, 0), (0, 0), (4, 1), (2, 0), (2, 0)]):
        torch.manual_seed(seed)
        assert passes(DataLoader(dataset, batch_size=None, num_workers=workers), 1) == [epochs[epoch]]


def again(dataset: Any) -> Any:
    """Pickle it, as Ray and trainers do, which is not how workers are spawned."""
    return pickle.loads(pickle.dumps(dataset))


@pytest.mark.parametrize("copied", [deepcopy, again])
def test_a_copy_counts_its_passes_for_itself(many_shards: Corpus, epochs: list[list[str]], copied: Any) -> None:
    dataset = pipeline(many_shards).as_dataset(seed=3, lanes=4)
    next(iter(dataset))  # a look at it begins the first pass
    copies = [copied(dataset) for _ in range(2)]
    for other in (*copies, dataset):
        assert passes(DataLoader(other, batch_size=None, num_workers=2), 2) == epochs[1:3]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_look_at_a_dataset_leaves_workers_alone(many_shards: Corpus, epochs: list[list[str]], method: str) -> None:
    dataset = pipeline(many_shards).as_dataset(seed=3, lanes=4)
    next(iter(dataset))
    loader = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context=method)
    assert passes(loader, 1) == epochs[1:2]


def test_iterators_side_by_side_get_whole_epochs(many_shards: Corpus, epochs: list[list[str]]) -> None:
    dataset = pipeline(many_shards).as_dataset(seed=3, lanes=4)
    loaders = [DataLoader(dataset, batch_size=None, num_workers=2) for _ in range(2)]
    iterators = [iter(loader) for loader in loaders]
    together = list(zip(*iterators, strict=True))
    assert sorted(sorted(map(digest, batches)) for batches in zip(*together, strict=True)) == sorted(epochs[:2])


def test_an_epoch_that_cannot_be_is_refused(many_shards: Corpus) -> None:
    dataset = pipeline(many_shards).as_dataset()
    for epoch in (-1, 1.5, 1 << 40):
        with pytest.raises(uio.PipelineError, match="epoch must be"):
            dataset.set_epoch(epoch)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, PERSISTENT], ids=str)
def test_epochs_go_on_after_a_resume(many_shards: Corpus, options: dict[str, Any]) -> None:
    def loader() -> StatefulDataLoader:
        return StatefulDataLoader(pipeline(many_shards).as_dataset(seed=3), batch_size=None, **options)

    saved = loader()
    expected = [[digest(b) for b in saved] for _ in range(4)]
    left(saved)
    for epoch, cut in ((0, 2), (1, 0), (1, 3), (1, len(expected[1])), (1, None)):
        saved = loader()
        for _ in range(epoch):
            list(saved)
        batches = iter(saved)
        assert [digest(b) for b in islice(batches, cut)] == expected[epoch][:cut]
        state = json.loads(json.dumps(saved.state_dict()))
        del batches
        left(saved)
        resumed = loader()
        resumed.load_state_dict(state)
        rest = [] if cut is None else [expected[epoch][cut:]]  # torchdata's own: after its end comes the next one
        assert [[digest(b) for b in resumed] for _ in range(2)] == [*rest, *expected[epoch + 1 :]][:2], (epoch, cut)
        left(resumed)


def test_a_state_of_an_earlier_epoch_goes_on_from_there(many_shards: Corpus) -> None:
    dataset = pipeline(many_shards).as_dataset(seed=3)
    loader = StatefulDataLoader(dataset, batch_size=None)
    batches = iter(loader)
    first = [digest(next(batches))]
    state = loader.state_dict()
    first += [digest(b) for b in batches]
    second, _ = passes(loader, 2)
    dataset.set_epoch(5)
    list(loader)
    loader.load_state_dict(state)
    assert first[:1] + [digest(b) for b in loader] == first
    assert passes(loader, 1) == [second]
    dataset.set_epoch(0)
    assert passes(loader, 1) == [sorted(first)]


def test_the_empty_state_of_a_dataset_whose_workers_have_theirs_is_told(
    many_shards: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = pipeline(many_shards).as_dataset(seed=3)
    next(iter(DataLoader(dataset, batch_size=None, num_workers=1)))
    state = dataset.state_dict()
    assert state == {}
    assert not caplog.messages
    dataset.load_state_dict(state)
    assert "the state is empty, so the next pass begins at its beginning" in caplog.text
    assert "use torchdata's StatefulDataLoader, or uio.Loader" in caplog.text


def test_another_number_of_workers_is_refused(many_shards: Corpus) -> None:
    loader = stateful(many_shards, 2)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    del batches
    left(loader)
    other = stateful(many_shards, 1)
    other.load_state_dict(state)
    with raises((AssertionError, uio.StateError), r"\S", other):
        list(other)
