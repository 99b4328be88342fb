"""The loader as its user meets it: epochs, states and what does not fit them, counts, several at once."""

import copy
import io
import json
import logging
import multiprocessing
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract import restored
from helpers_bad import keys, members, raw_items, raw_list, run, shard, shard_list

import uio_pipes as uio
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.stage import Node, Stage
from uio_pipes.run.state import read_lane, read_meta


def graph(root: Path, count: int = 12) -> uio.Pipeline:
    items = raw_items(root, count)
    return uio.from_raw_list(items, shuffle=True).decode_audio().speed_perturb([0.9, 1.1]).shuffle(5).batch(2).pad()


def take(loader: uio.Loader, count: int) -> list[str]:
    iterator = iter(loader)
    return keys([next(iterator) for _ in range(count)])


@pytest.fixture(params=[0, 1], ids=["here", "worker"])
def workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


# Epochs


def test_set_epoch_keeps_the_position_in_the_same_epoch_and_starts_another_afresh(tmp_path: Path, workers: int) -> None:
    pipeline = graph(tmp_path)
    zero, one = keys(run(pipeline)[0]), (lambda x: (x.set_epoch(1), keys(x))[1])(uio.Loader(pipeline))
    loader = uio.Loader(pipeline, num_workers=workers)
    first = take(loader, 2)
    loader.set_epoch(0)
    assert first + keys(loader) == zero
    loader.set_epoch(0)
    assert keys(loader) == []  # it is over
    loader.set_epoch(1)
    assert keys(loader) == one
    loader.set_epoch(0)
    assert keys(loader) == zero
    take(loader, 2)
    loader.set_epoch(1)
    loader.set_epoch(0)
    assert keys(loader) == zero


def test_the_loop_of_the_readme_resumes_anywhere(tmp_path: Path) -> None:
    """`for epoch in range(start, n): loader.set_epoch(epoch)`, stopped at any batch, an epoch's last one too."""
    pipeline, epochs = graph(tmp_path), 3
    whole = uio.Loader(pipeline)
    want = []
    for epoch in range(epochs):
        whole.set_epoch(epoch)
        want += [keys([batch]) for batch in whole]
    for stop in range(len(want)):
        got: list[list[str]] = []
        saved: tuple[int, dict[str, str]] = (0, uio.Loader(pipeline).state_dict())
        loader = uio.Loader(pipeline)
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                got.append(keys([batch]))
                saved = (epoch, loader.state_dict())
                if len(got) == stop + 1:
                    break
            if len(got) == stop + 1:
                break
        start, state = saved
        loader = restored(pipeline, state)
        for epoch in range(start, epochs):
            loader.set_epoch(epoch)
            got += [keys([batch]) for batch in loader]
        assert got == want


def test_set_epoch_before_and_after_loading(tmp_path: Path) -> None:
    pipeline = graph(tmp_path)
    loader = uio.Loader(pipeline)
    loader.set_epoch(3)
    want = take(loader, 2)
    rest = keys(restored(pipeline, loader.state_dict()))
    for epoch, expected in ((3, rest), (4, None)):
        before, after = uio.Loader(pipeline), uio.Loader(pipeline)
        before.set_epoch(epoch)
        before.load_state_dict(loader.state_dict())
        after.load_state_dict(loader.state_dict())
        after.set_epoch(epoch)
        a, b = keys(before), keys(after)
        assert a == b
        assert before.epoch == after.epoch == epoch
        assert a == expected if expected is not None else len(a) == 12
    assert len(want + rest) == 12


# Iterating


def test_after_a_break_it_goes_on(tmp_path: Path, workers: int) -> None:
    pipeline = graph(tmp_path)
    loader = uio.Loader(pipeline, num_workers=workers)
    got: list[str] = []
    for _ in range(3):
        for batch in loader:
            got += batch["keys"]
            break
    assert loader.stats().utterances == 6
    got += keys(loader)
    assert got == keys(run(pipeline)[0])
    assert loader.stats().utterances == 12


def superseded(iterator: Any) -> str:
    """Return what an iterator that has not come to its end says, again and again."""
    for _ in range(2):
        with pytest.raises(uio.UioError, match="has ended") as error:
            next(iterator)
    return str(error.value)


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("steps", [None, 5])
def test_an_iterator_whose_place_another_took_says_so(
    tmp_path: Path, steps: int | None, epoch: int, workers: int
) -> None:
    loader, total = uio.Loader(graph(tmp_path), steps_per_epoch=steps, num_workers=workers), 6 if steps is None else 5
    old = iter(loader)
    next(old)
    loader.set_epoch(0)  # it is there
    next(old)
    new = iter(loader)
    assert "a newer iteration over the same loader has begun" in superseded(old)
    assert len(list(new)) == total - 2
    ended = iter(loader)
    assert list(new) == []  # it had come to its end
    next(ended)
    loader.set_epoch(epoch + 1)
    assert f"set_epoch({epoch + 1}) moved the loader" in superseded(ended)
    assert len(list(loader)) == total
    assert loader.epoch == epoch + 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("steps", [None, 6])
def test_a_copy_is_a_loader_of_its_own_at_the_same_place(
    tmp_path: Path, copied: Callable[[Any], Any], steps: int | None, workers: int
) -> None:
    loader = uio.Loader(graph(tmp_path), num_workers=workers, steps_per_epoch=steps)
    expected = [batch["keys"] for batch in uio.Loader(graph(tmp_path))]
    batches = iter(loader)
    got = [next(batches)["keys"] for _ in range(2)]
    other = copied(loader)
    assert other.state_dict() == loader.state_dict()
    assert [batch["keys"] for batch in other] == expected[2:]
    other.skip(1)
    other.set_epoch(7)
    assert got + [batch["keys"] for batch in batches] == expected
    assert (loader.epoch, other.epoch) == (0, 7)
    with pytest.raises(uio.UioError, match="copy the loader"):
        copied(iter(loader))


def in_a_fork(call: Callable[[], Any]) -> str:
    """Return what ``call`` raises in a child that is forked now; it is killed if it does not end."""
    results = multiprocessing.get_context("fork").SimpleQueue()

    def child() -> None:
        try:
            results.put(f"no error, but {call()}")
        except Exception as error:
            results.put(f"{type(error).__name__}: {error}")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        return "it hangs"
    return str(results.get())


def test_a_child_forked_in_mid_epoch_that_iterates_gets_an_error_and_leaves_the_trainer_alone(
    tmp_path: Path, workers: int
) -> None:
    loader = uio.Loader(graph(tmp_path), num_workers=workers)
    expected = [batch["keys"] for batch in loader]
    loader.set_epoch(7)
    loader.set_epoch(0)
    batches = iter(loader)
    got = [next(batches)["keys"]]
    for call in (lambda: next(batches), lambda: next(iter(loader))):
        said = in_a_fork(call)
        assert said.startswith("UioError: this process was forked from process"), said
    state = loader.state_dict()
    assert (
        in_a_fork(lambda: keys(restored(graph(tmp_path), state)))
        == f"no error, but {[key for one in expected[1:] for key in one]}"
    )
    got += [batch["keys"] for batch in batches]
    assert got == expected
    assert in_a_fork(lambda: len(list(loader))) == "no error, but 6"  # between two epochs there is nothing to share


def test_two_loaders_at_once_do_not_disturb_each_other(tmp_path: Path, workers: int) -> None:
    pipeline = graph(tmp_path)
    a, b = (uio.Loader(pipeline, seed=s, num_workers=workers) for s in (1, 2))
    pairs = list(zip(a, b, strict=True))
    assert keys(x for x, _ in pairs) == keys(run(pipeline, seed=1)[0])
    assert keys(x for _, x in pairs) == keys(run(pipeline, seed=2)[0])


def test_the_trainer_s_own_random_numbers_are_left_alone(tmp_path: Path, workers: int) -> None:
    pipeline = uio.from_raw_list(raw_items(tmp_path, 4)).decode_audio().fbank(20, dither=1.0).spec_aug().batch(2).pad()
    torch.manual_seed(7)
    np.random.seed(7)
    want = torch.rand(3).tolist(), np.random.rand(3).tolist()
    torch.manual_seed(7)
    np.random.seed(7)
    first = run(pipeline, num_workers=workers)[0]
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist()) == want
    second = run(pipeline, num_workers=workers)[0]
    assert all(torch.equal(x["feats"], y["feats"]) for x, y in zip(first, second, strict=True))


def test_threads_are_as_before_and_pinned_memory_without_a_gpu_is_harmless(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before, pipeline, got = torch.get_num_threads(), graph(tmp_path), []
    for batch in uio.Loader(pipeline, pin_memory=True, num_workers=workers):
        assert torch.get_num_threads() == before
        got.append(batch)
    assert keys(got) == keys(run(pipeline)[0])


def test_printing_a_loader_shows_where_it_stands(tmp_path: Path) -> None:
    text = repr(uio.Loader(graph(tmp_path), num_workers=2, lanes=4))
    for part in ("rank 0 of 1", "2 workers", "4 lanes", "epoch 0", "speed_perturb"):
        assert part in text


# States


def test_a_state_is_a_flat_dict_of_small_strings(tmp_path: Path) -> None:
    loader = uio.Loader(graph(tmp_path), lanes=3)
    take(loader, 2)
    state = loader.state_dict()
    assert sorted(state) == ["lane_000000", "lane_000001", "lane_000002", "meta"]
    assert all(isinstance(json.loads(value), dict) for value in state.values())
    assert json.loads(state["meta"])["schema"] == 1
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=True)
    assert keys(restored(graph(tmp_path), again, lanes=3)) == keys(loader)


def test_before_the_first_batch(tmp_path: Path, workers: int) -> None:
    pipeline = graph(tmp_path)
    fresh = uio.Loader(pipeline, num_workers=workers)
    state = fresh.state_dict()
    assert sorted(state) == ["lane_000000", "meta"]
    iter(fresh)
    assert fresh.state_dict() == state
    want = keys(run(pipeline)[0])
    assert keys(restored(pipeline, state)) == want
    assert keys(fresh) == want


def test_loading_in_the_middle_of_iterating(tmp_path: Path, workers: int) -> None:
    pipeline = graph(tmp_path)
    loader = uio.Loader(pipeline, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = keys(iterator)
    loader.load_state_dict(state)
    assert list(iterator) == []  # it had come to its end
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(state)
    assert "load_state_dict moved the loader" in superseded(iterator)
    assert keys(loader) == rest


def test_what_could_not_be_loaded_leaves_the_loader_as_it_was(tmp_path: Path) -> None:
    pipeline = graph(tmp_path)
    loader = uio.Loader(pipeline)
    iterator = iter(loader)
    first = keys([next(iterator), next(iterator)])
    for bad in ({}, uio.Loader(pipeline, seed=5).state_dict(), {**loader.state_dict(), "lane_000000": "{"}):
        with pytest.raises(uio.StateError):
            loader.load_state_dict(bad)
    assert first + keys(iterator) == keys(run(pipeline)[0])


# States that do not fit


def refused(pipeline: uio.Pipeline, state: Any, **options: Any) -> str:
    with pytest.raises(uio.StateError) as error:
        restored(pipeline, state, **options)
    return str(error.value)


def test_another_seed_is_refused(tmp_path: Path) -> None:
    pipeline = graph(tmp_path)
    message = refused(pipeline, uio.Loader(pipeline, seed=1).state_dict(), seed=2)
    assert "seed changed" in message
    assert "1 then, 2 now" in message
    assert 'on_change="restart"' in message


def test_another_graph_is_refused_naming_the_stage(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3)
    state = uio.Loader(uio.from_raw_list(items).shuffle(3)).state_dict()
    for other, old, new in (
        (uio.from_raw_list(items).shuffle(4), "shuffle_size=3", "shuffle_size=4"),
        (uio.from_raw_list(items), "shuffle_size=3", "no stage"),
        (uio.from_raw_list(items).shuffle(3).sort(3), "no stage", "sort_size=3"),
    ):
        assert re.search(f'graph changed.*{old}.* then.*{new}.* now.*on_change="restart"', refused(other, state))


@pytest.mark.parametrize(
    "change", [lambda x: x[:-1], lambda x: x[::-1], lambda x: [*x, x[0]]], ids=["less", "order", "more"]
)
def test_another_list_is_refused(tmp_path: Path, change: Callable[[list[Any]], list[Any]]) -> None:
    items = raw_items(tmp_path, 5)
    path = raw_list(tmp_path / "x.list", items)
    state = uio.Loader(uio.from_raw_list(path)).state_dict()
    raw_list(tmp_path / "x.list", ["# only a comment more", *items])
    restored(uio.from_raw_list(path), state)
    raw_list(tmp_path / "x.list", change(items))
    count = len(change(items))
    told = f"5 items then, {count} now" if count != 5 else r"\[5, .* then.*\[5, .* now"
    assert re.search(f'list changed.*{told}.*on_change="restart"', refused(uio.from_raw_list(path), state))


def test_restart_begins_the_state_s_epoch_again_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    items = raw_items(tmp_path, 6)
    old = uio.Loader(uio.from_raw_list(items, shuffle=True))
    old.set_epoch(4)
    take(old, 3)
    more = uio.from_raw_list([*items, {**items[0], "key": "new"}], shuffle=True)
    with caplog.at_level(logging.WARNING, "uio_pipes"):
        loader = restored(more, old.state_dict(), on_change="restart")
    assert len(keys(restored(uio.from_raw_list(items, shuffle=True), old.state_dict(), on_change="restart"))) == 3
    assert "epoch 4 restarts: list changed" in caplog.text
    assert loader.epoch == 4
    assert sorted(keys(loader)) == ["R000", "R001", "R002", "R003", "R004", "R005", "new"]
    assert loader.stats().utterances == 7


def test_incomplete_and_foreign_states_are_refused(tmp_path: Path) -> None:
    loader = uio.Loader(graph(tmp_path))
    take(loader, 2)
    state = loader.state_dict()
    meta, lane = read_meta(state), state["lane_000000"]
    of_two = {**state, "meta": replace(meta, lanes=2).text}
    for wrong in (
        {"model": torch.zeros(3)},
        {"meta": state["meta"]},
        {"lane_000000": lane},
        {**state, "lane_x": "{}"},
        {**state, "lane_000000": replace(read_lane(state, 0), epoch=7).text(0)},
        {**state, "meta": state["meta"].replace('"schema": 1', '"schema": 99')},
        of_two,
    ):
        with pytest.raises(uio.StateError):
            uio.Loader(graph(tmp_path)).load_state_dict(wrong)


def test_lanes_of_other_ranks_missing_says_how_to_join(tmp_path: Path) -> None:
    pipeline = graph(tmp_path)
    states = [uio.Loader(pipeline, rank=r, world_size=2).state_dict() for r in range(2)]
    message = refused(pipeline, states[1])
    assert "merge_states" in message
    assert "Loader(lanes=2)" in message
    assert len(keys(restored(pipeline, uio.merge_states(states)))) == 12


# Shards that changed meanwhile


def shards(root: Path) -> tuple[uio.Pipeline, uio.Loader, list[str]]:
    names = [shard(root / f"{i}.tar", members(4, 4 * i)) for i in range(3)]
    pipeline = uio.from_shard_list(shard_list(root / "x.list", names)).decode_audio().batch(1).pad()
    loader = uio.Loader(pipeline)
    return pipeline, loader, take(loader, 6)  # in the middle of 1.tar


@pytest.mark.parametrize("gone", [False, True])
def test_a_shard_that_changed_or_is_gone_is_refused_and_the_remedy_helps(
    tmp_path: Path, gone: bool, workers: int
) -> None:
    pipeline, loader, _ = shards(tmp_path)
    old = (tmp_path / "1.tar").stat().st_size
    if gone:
        (tmp_path / "1.tar").unlink()
        said = r"1\.tar.*no such file.*Restore"
    else:
        new = Path(shard(tmp_path / "1.tar", members(3, 4))).stat().st_size
        said = rf'1\.tar changed.*size:{old} then.*size:{new} now.*on_change="restart"'
    with pytest.raises(uio.StateError, match=said):
        list(restored(pipeline, loader.state_dict(), num_workers=workers))
    again = restored(pipeline, loader.state_dict(), on_change="restart")
    want = [f"K{i:03d}" for i in range(12) if not (4 <= i < 8 if gone else i == 7)]
    assert sorted(keys(again)) == want
    assert again.stats().utterances == len(want)


def test_shards_before_and_after_may_change(tmp_path: Path) -> None:
    pipeline, loader, first = shards(tmp_path)
    shard(tmp_path / "0.tar", members(1, 90))
    shard(tmp_path / "2.tar", members(2, 80))
    assert first + keys(restored(pipeline, loader.state_dict())) == [f"K{i:03d}" for i in range(8)] + ["K080", "K081"]


def test_a_shard_exchanged_within_a_buffer_s_window_is_noticed(tmp_path: Path) -> None:
    """Other utterances of the same size in the same place."""
    names = [shard(tmp_path / f"{i}.tar", members(4, 4 * i)) for i in range(3)]
    pipeline = uio.from_shard_list(shard_list(tmp_path / "x.list", names)).decode_audio().shuffle(6).batch(1).pad()
    loader = uio.Loader(pipeline)
    take(loader, 3)
    state = loader.state_dict()
    for i in range(3):
        shard(tmp_path / f"{i}.tar", [(name.replace("K", "X"), data) for name, data in members(4, 4 * i)])
    with pytest.raises(uio.StateError, match="shuffle reads changed since"):
        list(restored(pipeline, state))


# Counts


def test_stats_count_what_the_trainer_received(tmp_path: Path, workers: int) -> None:
    pipeline = uio.from_raw_list(raw_items(tmp_path, 10)).decode_audio().filter(min_frames=21).fbank(20).batch(3).pad()
    loader = uio.Loader(pipeline, num_workers=workers)
    assert loader.stats() == uio.Stats()
    seen = padded = frames = 0
    for number, batch in enumerate(loader, 1):
        seen += len(batch["keys"])
        frames += int(batch["feats_lengths"].sum())
        padded += batch["feats"].shape[0] * batch["feats"].shape[1]
        stats = loader.stats()
        assert (stats.batches, stats.utterances, stats.frames, stats.padded) == (number, seen, frames, padded)
    stats = loader.stats()
    assert (stats.utterances, stats.skipped, stats.failures) == (9, {"too_short": 1}, 0)
    assert stats.padding_ratio == pytest.approx(1 - frames / padded)
    assert stats.waited >= 0


def test_stats_begin_anew_with_each_epoch_and_survive_a_resume(tmp_path: Path) -> None:
    pipeline = graph(tmp_path)
    loader = uio.Loader(pipeline)
    list(loader)
    assert loader.stats().utterances == 12
    take(loader, 2)
    assert loader.stats().utterances == 4
    second = restored(pipeline, loader.state_dict())
    assert second.stats() == loader.stats()
    list(second)
    assert second.stats().utterances == 12
    assert second.stats().waited >= loader.stats().waited


def test_stats_are_the_sum_of_the_lanes_and_a_copy(tmp_path: Path) -> None:
    pipeline = graph(tmp_path)
    for options in ({"lanes": 4}, {"num_workers": 2}, {"num_workers": 2, "lanes": 5}):
        loader = run(pipeline, **options)[1]
        stats = loader.stats()
        assert stats.utterances == 12
        assert stats.batches == sum(1 for _ in uio.Loader(pipeline, **options))
        stats.utterances, stats.skipped["x"] = 99, 1
        assert (loader.stats().utterances, loader.stats().skipped) == (12, {})


def test_more_lanes_than_utterances(tmp_path: Path, workers: int) -> None:
    pipeline = graph(tmp_path, 3)
    batches, loader = run(pipeline, lanes=8, num_workers=2 * workers)
    assert sorted(keys(batches)) == ["R000", "R001", "R002"]
    assert len(keys(loader)) == 3


class Mistaken(Node):
    state_fields = ("given",)

    def start(self) -> None:
        self.given = 0

    def reset(self, initial_state: Any = None) -> None:
        super().reset(initial_state)
        if initial_state is not None:
            self.kinds.clear()  # type: ignore[attr-defined]

    def next(self) -> Any:
        return self.source.next()


class _WithAMistake(Stage):
    name = "mistaken"

    def build(self, source: Node | None, lane: Lane, site: Site) -> Node:
        return Mistaken(source)


def test_a_mistake_in_a_node_is_not_called_a_damaged_state(tmp_path: Path) -> None:
    mistaken = uio.Pipeline((*graph(tmp_path).stages[:-2], _WithAMistake()))
    loader = uio.Loader(mistaken)
    next(iter(loader))
    with pytest.raises(AttributeError, match="'Mistaken' object has no attribute 'kinds'"):
        list(restored(mistaken, loader.state_dict()))


def test_a_loader_that_has_begun_is_not_pickled_and_says_what_to_send_instead() -> None:
    loader = uio.Loader(uio.from_iterable([{"key": "a"}, {"key": "b"}]).batch(1))
    assert len(list(pickle.loads(pickle.dumps(loader)))) == 2
    next(iter(loader))
    with pytest.raises(uio.UioError, match=r"begun to iterate cannot be pickled: send its pipeline.*load_state_dict"):
        pickle.dumps(loader)
