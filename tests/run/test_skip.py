"""``loader.skip`` of a range of steps, and of utterances by their keys: all else stays as it is, on any topology."""

import json
import sys
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from command import ranks as run_ranks
from contract import carried, digest, keys_of, restored
from corpus import Corpus
from journeys import GRAPHS, training
from tones import tone, wav_bytes

import uio_pipes as uio


def ranks(pipeline: uio.Pipeline, world: int, **options: Any) -> list[uio.Loader]:
    place = {"seed": 3, "uneven": "join", **options}
    return [uio.Loader(pipeline, rank=rank, world_size=world, **place) for rank in range(world)]


OPTIONS: dict[str, Any] = {"seed": 3, "lanes": 6}
WORLDS = pytest.mark.parametrize(("world", "workers"), [(1, 0), (2, 2), (3, 0)])


def spied(corpus: Corpus, decoded: list[str]) -> uio.Pipeline:
    def spy(sample: Any) -> Any:
        decoded.append(sample["key"])
        return sample

    return uio.from_shard_list(corpus.list, shuffle=True).decode_audio().map(spy, length="same").batch(3).pad()


# A range of steps


@WORLDS
@pytest.mark.parametrize("given_at", [0, 2, 4])
def test_steps_are_passed_over_when_their_turn_comes(
    many_shards: Corpus, world: int, workers: int, given_at: int
) -> None:
    graph = training(many_shards.list)
    for whole, loader in zip(
        ranks(graph, world, lanes=6), ranks(graph, world, lanes=6, num_workers=workers), strict=True
    ):
        expected = [digest(batch) for batch in whole]
        batches = iter(loader)
        got = [digest(next(batches)) for _ in range(given_at)]
        loader.skip(range(3, 6))
        loader.skip(range(7, 1000, 2))
        wanted = [d for n, d in enumerate(expected) if n < given_at or (n not in range(3, 6) and (n < 7 or n % 2 == 0))]
        assert got + [digest(batch) for batch in batches] == wanted
        loader.set_epoch(1)
        whole.set_epoch(1)
        assert [digest(b) for b in loader] == [digest(b) for b in whole]  # another epoch forgets it


def test_nothing_is_decoded_of_what_is_left_out_and_nothing_else_is_counted(many_shards: Corpus) -> None:
    for in_steps in (True, False):
        decoded: list[str] = []
        loader = uio.Loader(spied(many_shards, decoded), **OPTIONS)
        loader.skip(2 if in_steps else lambda key: key == many_shards.keys[0])
        loader.skip(range(4, 7) if in_steps else lambda key: key == many_shards.keys[5])
        delivered = [key for batch in loader for key in batch["keys"]]
        assert sorted(decoded) == sorted(delivered)
        assert loader.stats().utterances == len(delivered) == len(many_shards.keys) - (15 if in_steps else 2)
        assert loader.stats().skipped == ({} if in_steps else {"skip": 2})


def test_a_state_remembers_steps_to_come(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    expected = [digest(batch) for batch in uio.Loader(graph, **OPTIONS)]
    plain = uio.Loader(graph, **OPTIONS).state_dict()
    loader = uio.Loader(graph, **OPTIONS)
    loader.skip(range(4, 8))
    batches = iter(loader)
    got = [digest(next(batches)) for _ in range(3)]
    state = carried(loader.state_dict())
    for workers in (0, 2):
        resumed = restored(graph, state, num_workers=workers, **OPTIONS)
        assert resumed.state_dict() == state
        assert got + [digest(batch) for batch in resumed] == expected[:4] + expected[8:]
    got += [digest(next(batches)) for _ in range(2)]
    assert "over" not in loader.state_dict()["meta"]  # as without them, once they have passed
    assert got == expected[:4] + expected[8:9]
    loader.load_state_dict(plain)
    assert digest(next(iter(loader))) == expected[0]
    loader.skip(range(0, 1))  # has passed, so that a script may say it after every resume
    assert digest(next(iter(loader))) == expected[1]


def test_steps_of_a_stream(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    whole = uio.Loader(graph, steps_per_epoch=9, **OPTIONS)
    first, second, third = ([digest(batch) for batch in whole] for _ in range(3))
    loader = uio.Loader(graph, steps_per_epoch=9, num_workers=2, **OPTIONS)
    loader.skip(range(2, 4))
    assert [digest(batch) for batch in loader] == first[:2] + first[4:]
    loader.set_epoch(1)
    loader.skip(range(6, 100))
    batches = iter(loader)
    got = [digest(next(batches)) for _ in range(5)]
    resumed = restored(graph, loader.state_dict(), steps_per_epoch=9, **OPTIONS)
    assert digest(resumed.batch_at(6)) == second[6]
    for one in (loader, resumed):
        assert got + [digest(batch) for batch in (batches if one is loader else one)] == second[:6]
        one.set_epoch(2)
        assert [digest(batch) for batch in one] == third


def test_an_epoch_of_which_all_is_passed_over_is_no_error(many_shards: Corpus) -> None:
    loader = uio.Loader(training(many_shards.list), **OPTIONS)
    loader.skip(range(1000))
    assert list(loader) == []
    assert loader.finished


# Utterances


def without(batch: Any, bad: set[str]) -> Any:
    """Return a padded batch without the rows of some keys."""
    rows = [i for i, key in enumerate(batch["keys"]) if key not in bad]
    longest = int(batch["feats_lengths"][rows].max())
    return {
        "keys": [batch["keys"][i] for i in rows],
        "feats": batch["feats"][rows][:, :longest].contiguous(),
        "feats_lengths": batch["feats_lengths"][rows],
    }


@WORLDS
@pytest.mark.parametrize("way", ["skip", "exclude"])
def test_utterances_are_left_out_of_their_batches_and_nothing_else_changes(
    many_shards: Corpus, world: int, workers: int, way: str
) -> None:
    graph = training(many_shards.list)
    bad, reason = set(many_shards.keys[::4]), {"skip": "skip", "exclude": "excluded"}[way]
    for whole, loader in zip(
        ranks(graph, world, lanes=6), ranks(graph, world, lanes=6, num_workers=workers), strict=True
    ):
        expected = list(whole)
        batches = iter(loader)
        got = [next(batches) for _ in range(2)]
        loader.skip(bad.__contains__) if way == "skip" else loader.exclude(bad)
        got += list(batches)
        later = [without(batch, bad) for batch in expected[2:] if not bad.issuperset(batch["keys"])]
        assert [digest(batch) for batch in got] == [digest(batch) for batch in [*expected[:2], *later]]
        stats = loader.stats()
        assert (stats.failures, stats.utterances) == (0, sum(len(batch["keys"]) for batch in got))
        assert stats.skipped[reason] == sum(len(batch["keys"]) for batch in expected) - stats.utterances
        loader.set_epoch(1)
        assert bad.isdisjoint(key for batch in loader for key in batch["keys"])  # it holds for the loader


def test_no_state_holds_a_function_and_given_again_it_goes_on(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    bad = set(many_shards.keys[::3])
    whole = uio.Loader(graph, **OPTIONS)
    whole.skip(bad.__contains__)
    expected = [digest(batch) for batch in whole]
    loader = uio.Loader(graph, **OPTIONS)
    loader.skip(bad.__contains__)
    batches = iter(loader)
    got = [digest(next(batches)) for _ in range(4)]
    parts = []
    for rank in range(3):
        resumed = restored(graph, loader.state_dict(), rank=rank, world_size=3, uneven="join", **OPTIONS)
        resumed.skip(bad.__contains__)
        parts += [digest(batch) for batch in resumed]
    assert sorted(got + parts) == sorted(expected)
    plain = restored(graph, loader.state_dict(), **OPTIONS)
    assert not bad.isdisjoint(key for batch in plain for key in batch["keys"])


@pytest.mark.parametrize("end", ["single", "batch", "map_of_a_batch", "map_of_a_padded_batch", "three_streams"])
def test_whatever_makes_the_batches(many_shards: Corpus, end: str) -> None:
    source = uio.from_shard_list(many_shards.list, shuffle=True).decode_audio().fbank(8)
    graph = {
        "single": lambda: source,
        "batch": lambda: source.batch(3),
        "map_of_a_batch": lambda: source.batch(3).map(_collated),
        "map_of_a_padded_batch": lambda: source.batch(3).pad().map(lambda batch: {"keys": batch["keys"]}),
        "three_streams": lambda: GRAPHS[end](many_shards.list),
    }[end]()
    whole, loader = (uio.Loader(graph, **OPTIONS) for _ in range(2))
    bad = set(many_shards.keys[1::5])
    loader.skip(bad.__contains__)
    expected = [[key for key in keys_of(batch) if key not in bad] for batch in whole]
    assert [keys_of(batch) for batch in loader] == [keys for keys in expected if keys]
    assert loader.stats().skipped["skip"] > 0


def _collated(batch: list[Any]) -> dict[str, Any]:
    return {"keys": [sample["key"] for sample in batch], "frames": torch.tensor([len(s["feat"]) for s in batch])}


def test_an_epoch_or_a_stream_without_an_utterance_says_why(many_shards: Corpus) -> None:
    for of_steps, kind in ((None, uio.TooManyFailures), (5, uio.ListError)):
        loader = uio.Loader(training(many_shards.list), steps_per_epoch=of_steps, **OPTIONS)
        loader.skip(lambda key: True)
        count = len(many_shards.keys) if of_steps is None else r"\d+"
        with pytest.raises(kind, match=rf"loader\.skip left out {count} as skip"):
            list(loader)
        excluding = uio.Loader(training(many_shards.list), steps_per_epoch=of_steps, **OPTIONS)
        excluding.exclude(many_shards.keys)
        with pytest.raises(kind, match=rf"loader\.exclude left out {count} as excluded"):
            list(excluding)


# Ranks that step together


def unequal(lanes: list[int]) -> uio.Pipeline:
    """Lanes of so many batches each, without an end if they are dealt again."""
    last = [{"key": f"{lane}-{n}", "txt": ""} for lane, count in enumerate(lanes) for n in range(count)]
    items = [[one for one in last if one["key"].startswith(f"{lane}-")] for lane in range(len(lanes))]
    rows = [row[n] if n < len(row) else {"key": "", "txt": ""} for n in range(max(lanes)) for row in items]
    return uio.from_iterable(rows).sharding_filter().filter(is_named).batch(1)


def is_named(sample: Any) -> bool:
    return bool(sample["key"])


def in_a_stream(lanes: list[int], count: int) -> list[str]:
    """The keys of a stream of these lanes, in the order (pass, k, lane)."""
    one = sorted((k, lane) for lane, number in enumerate(lanes) for k in range(number))
    return ([f"{lane}-{k}" for k, lane in one] * (1 + count // len(one)))[:count]


def main(out: str) -> None:
    """Two ranks, of which the first has a batch of which nothing is left: it comes to the steps one batch later."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    items = [{"key": f"U{i}", "wav": b"RIFF" if i == 2 else wav_bytes(tone(8000, i))} for i in range(30)]
    graph = uio.from_iterable(items).sharding_filter().decode_audio().batch(1).pad()
    seen = []
    for workers in (0, 1):
        loader = uio.Loader(graph, num_workers=workers, uneven="stop")
        loader.skip(range(4, 9))
        seen.append([batch["keys"][0] for batch in loader])
    for count in (4, 15):  # the first rank has 12 batches, the second one 40, which it shares
        loader = uio.Loader(unequal([1, 20, 11, 20]), lanes=4, uneven="share")
        batches = iter(loader)
        got = [keys_of(batch)[0] for batch in islice(batches, 3)]
        loader.skip(count)
        seen.append(got + [keys_of(batch)[0] for batch in batches])
    Path(out, f"{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


def test_ranks_that_step_together_need_not_come_to_the_steps_together(tmp_path: Path) -> None:
    done = run_ranks(2, __file__, tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first[:2] == [[f"U{2 * n}" for n in range(15) if n != 1 and n not in range(4, 9)]] * 2
    assert second[:2] == [[f"U{2 * n + 1}" for n in range(15) if n not in range(4, 9)][: len(first[0])]] * 2
    for mine, other in zip(first[2:], second[2:], strict=True):
        assert len(mine) == len(other)
        assert len({*mine, *other}) == 2 * len(mine)
    assert len(first[2]) == 52 // 2 - 4


if __name__ == "__main__":
    main(sys.argv[1])


# What a sceptic found


def test_an_open_end_is_no_long_count(many_shards: Corpus) -> None:
    graph = training(many_shards.list)
    loader, whole = uio.Loader(graph, seed=3), [digest(batch) for batch in uio.Loader(graph, seed=3)]
    loader.skip(range(5, sys.maxsize))
    assert [digest(batch) for batch in loader] == whole[:5]


def test_utterances_that_were_joined_are_found_by_their_own_keys_or_as_a_whole(many_shards: Corpus) -> None:
    joined = uio.from_shard_list(many_shards.list).decode_audio().concat(max_seconds=2).batch(1)
    made = [sample["key"] for batch in uio.Loader(joined) for sample in batch]
    inner = next(key for key in made if "+" in key)
    for key in (inner.split("+")[1], inner):
        skipping, excluding = uio.Loader(joined), uio.Loader(joined)
        skipping.skip({key}.__contains__)
        excluding.exclude([key])
        for loader, reason in ((skipping, "skip"), (excluding, "excluded")):
            assert [sample["key"] for batch in loader for sample in batch] == [one for one in made if one != inner]
            assert loader.stats().skipped[reason] == 1


# Lanes of very unequal lengths


@pytest.mark.parametrize(
    ("lanes", "workers"), [([1, 11], 0), ([0, 1, 11, 2], 0), ([11, 0, 0, 1], 0), ([1, 11], 2)], ids=str
)
def test_where_a_lane_begins_its_next_round_nothing_more_is_passed_over(lanes: list[int], workers: int) -> None:
    due = in_a_stream(lanes, 90)
    options: dict[str, Any] = {"lanes": len(lanes), "steps_per_epoch": 40, "num_workers": workers}

    def keys(batches: Any) -> list[str]:
        return [key for batch in batches for key in keys_of(batch)]

    for at, count in product((3,), (4, 17)) if workers else product((0, 3, 13), range(0, 30, 3)):
        loader = uio.Loader(unequal(lanes), **options)
        batches = iter(loader)
        assert keys(islice(batches, at)) == due[:at]
        loader.skip(count)
        assert keys(batches) == due[at + count : 40 + count]
        loader = uio.Loader(unequal(lanes), **options)
        batches = iter(loader)
        assert keys(islice(batches, at)) == due[:at]
        loader.skip(range(5, 5 + count))
        assert keys([loader.batch_at(3 + count)]) == [due[3 + count]]
        assert keys(batches) == [key for n, key in enumerate(due[:40]) if n >= at and n not in range(5, 5 + count)]
