"""Rule 6: lanes move, state does not change. Saved under one topology, restored under another."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import corpus
import pytest
from contract import Case, check_cuts, digest, keys_of, record, restored
from corpus import Corpus
from journeys import GRAPHS, LANES, Expected, Topology, different, run_ranks, training

import uio_pipes as uio


@pytest.mark.parametrize("topology", [(1, 0), (1, 1), (1, 4), (2, 0), (2, 3), (3, 2), (4, 4)], ids=str)
def test_undisturbed_epoch_is_in_order_of_k_and_lane(many_shards: Corpus, topology: Topology) -> None:
    pipeline = training(many_shards.list)
    expected = Expected(pipeline)
    delivered, _ = run_ranks(pipeline, topology, None, None, lanes=LANES)
    for rank, got in enumerate(delivered):
        assert [digest(b) for b in got] == expected.take(rank, topology[0], None)
    assert Counter(k for got in delivered for b in got for k in keys_of(b)) == Counter(many_shards.keys)


JOURNEYS = [
    pytest.param([(1, 0), (4, 4)], marks=pytest.mark.slow),
    pytest.param([(4, 4), (1, 0)], marks=pytest.mark.slow),
    pytest.param([(2, 2), (3, 1), (1, 3)], marks=pytest.mark.slow),
    pytest.param([(1, 2), (4, 0), (2, 1), (1, 0)], marks=pytest.mark.slow),
    [(8, 0), (3, 0), (5, 0), (1, 1), (2, 0)],
]


@pytest.mark.parametrize(("graph", "thinned"), [("training", 1), ("training", 3), ("three_streams", 1)])
@pytest.mark.parametrize("journey", JOURNEYS, ids=str)
def test_every_leg_of_a_journey_delivers_what_is_due(
    many_shards: Corpus, journey: list[Topology], graph: str, thinned: int
) -> None:
    pipeline = GRAPHS[graph](many_shards.list)
    expected = Expected(pipeline)
    rng = random.Random(str(journey))
    state, keys = None, Counter[str]()
    for leg, topology in enumerate(journey):
        steps = None if leg == len(journey) - 1 else rng.randint(0, 6)
        delivered, state = run_ranks(pipeline, topology, state, steps, lanes=LANES, snapshot_every=thinned)
        for rank, got in enumerate(delivered):
            assert [digest(b) for b in got] == expected.take(rank, topology[0], steps), f"leg {leg}, rank {rank}"
            keys.update(k for b in got for k in keys_of(b))
    assert keys == Counter(many_shards.keys)


@pytest.mark.slow
def test_random_journeys_with_kills(many_shards: Corpus) -> None:
    """As many as the graphs; ``journeys.py`` makes any number."""
    assert different(many_shards.list, len(GRAPHS), seed=1) == []


def test_lane_count_of_a_state_holds_until_its_epoch_ends(many_shards: Corpus) -> None:
    pipeline = training(many_shards.list)
    _, state = run_ranks(pipeline, (1, 0), None, 4, lanes=6)
    loader = restored(pipeline, state, seed=3, lanes=2)
    assert json.loads(loader.state_dict()["meta"])["lanes"] == 6
    assert list(loader)
    assert json.loads(loader.state_dict()["meta"])["lanes"] == 6
    assert list(loader)
    assert loader.epoch == 1
    assert json.loads(loader.state_dict()["meta"])["lanes"] == 2


def test_same_batches_at_each_global_step_where_ranks_divide_lanes(many_shards: Corpus) -> None:
    pipeline = training(many_shards.list)
    until = min(len(lane) for lane in Expected(pipeline).lanes) * LANES
    steps = {}
    for world in (1, 2, 4, 8):
        delivered, _ = run_ranks(pipeline, (world, 0), None, until // world, lanes=LANES)
        rows = [[digest(b) for b in got] for got in delivered]
        steps[world] = [row[i] for i in range(until // world) for row in rows]
    assert len(steps[1]) == until > 0
    for world in (2, 4, 8):
        for first in range(0, until, LANES):
            assert sorted(steps[world][first : first + LANES]) == sorted(steps[1][first : first + LANES])


@pytest.mark.parametrize("topology", [(1, 0), (2, 0), (2, 2), (3, 1), (2, 4)], ids=str)
def test_default_lanes_are_wenets_shares(many_shards: Corpus, topology: Topology) -> None:
    world, workers = topology
    shards = [line for line in many_shards.list.read_text().splitlines() if line and line[0] != "#"]
    of_shard = {shard: [b["key"] for b in uio.Loader(uio.from_shard_list([shard]).decode_audio())] for shard in shards}
    delivered, state = run_ranks(uio.from_shard_list(many_shards.list).decode_audio(), topology, None, None)
    for rank, got in enumerate(delivered):
        shares = [shards[rank::world][worker :: max(1, workers)] for worker in range(max(1, workers))]
        columns = [[key for shard in share for key in of_shard[shard]] for share in shares]
        longest = max(map(len, columns))
        by_turns = [column[i] for i in range(longest) for column in columns if i < len(column)]
        assert [sample["key"] for sample in got] == by_turns
    assert json.loads(state["meta"])["lanes"] == world * max(1, workers)


def test_without_partition_every_rank_gets_everything_and_no_state_forgets_it(many_shards: Corpus) -> None:
    options = {"world_size": 3, "partition": False, "lanes": 2, "uneven": "join"}
    first, second = (record(Case(training(many_shards.list), {"rank": rank, **options})) for rank in range(2))
    assert first.digests == second.digests
    assert first.stats.utterances == second.stats.utterances == len(many_shards.keys)
    check_cuts(second, [0, 3, len(second.digests)])


@pytest.mark.parametrize("workers", [1, 4])
def test_augmentation_belongs_to_the_utterance(many_shards: Corpus, workers: int) -> None:
    pipeline = (
        uio.from_shard_list(many_shards.list, shuffle=True)
        .decode_audio()
        .speed_perturb([0.9, 1.0, 1.1])
        .fbank(num_mel_bins=8, dither=1.0)
        .spec_aug(max_t=9, max_f=3)
        .shuffle(5)
    )
    alone = {s["key"]: digest(s["feat"]) for s in uio.Loader(pipeline, seed=3)}
    there = {s["key"]: digest(s["feat"]) for s in uio.Loader(pipeline, seed=3, num_workers=workers)}
    assert there == alone
    assert len(alone) == len(many_shards.keys)
    other = {s["key"]: digest(s["feat"]) for s in uio.Loader(pipeline, seed=4)}
    assert all(other[key] != alone[key] for key in alone)


def test_a_shard_listed_twice_is_augmented_in_two_ways(tmp_path: Path) -> None:
    made = corpus.shards(tmp_path, [3], seconds=(0.3, 0.6))
    shard = str(tmp_path / "s000.tar")
    pipeline = uio.from_shard_list([shard, shard]).decode_audio().fbank(num_mel_bins=8, dither=1.0)
    features: dict[str, set[str]] = {}
    for sample in uio.Loader(pipeline, seed=3):
        features.setdefault(sample["key"], set()).add(digest(sample["feat"]))
    assert {key: len(ways) for key, ways in features.items()} == dict.fromkeys(made.keys, 2)


def test_resharding_before_or_behind_a_shuffle_loses_nothing(many_shards: Corpus) -> None:
    for start in (
        uio.list_files(many_shards.list).shuffle(5).sharding_filter().open_files().load_from_tar(),
        uio.list_files(many_shards.list, shuffle=True).open_files().sharding_filter().load_from_tar(),
        uio.list_files(many_shards.list, shuffle=True).open_files().load_from_tar().sharding_filter(),
    ):
        delivered, _ = run_ranks(start.decode_audio().batch(2).pad(), (3, 0), None, None)
        assert Counter(k for got in delivered for b in got for k in keys_of(b)) == Counter(many_shards.keys)


@pytest.mark.parametrize("lanes", [1, 3])
def test_what_is_skipped_before_a_late_sharding_filter_counts_once(bad_corpus: Corpus, lanes: int) -> None:
    late = uio.list_files(bad_corpus.list).open_files().load_from_tar().sharding_filter().decode_audio().batch(2).pad()
    recorded = record(Case(late, {"lanes": lanes}))
    assert sorted(recorded.keys) == sorted(bad_corpus.keys)
    assert recorded.stats.failures == len(bad_corpus.damage)


def test_lanes_without_sharding_filter_are_refused(many_shards: Corpus) -> None:
    pipeline = uio.list_files(many_shards.list).open_files().load_from_tar()
    with pytest.raises(uio.PipelineError, match="sharding_filter"):
        uio.Loader(pipeline, lanes=2)


# Merging


def parts(path: Path, steps: tuple[int, int], **options: Any) -> list[dict[str, str]]:
    """States of two ranks after so many steps of each."""
    states = []
    for rank, count in enumerate(steps):
        given: dict[str, Any] = {"seed": 3, "lanes": 4, **options}
        loader = uio.Loader(training(path), rank=rank, world_size=2, uneven="join", **given)
        batches = iter(loader)
        for _ in range(count):
            next(batches)
        states.append(loader.state_dict())
    return states


@pytest.mark.parametrize(("corpus", "options", "differs"), [
    ("many_shards", {"seed": 4}, "seed"), ("many_shards", {"lanes": 6}, "lanes"), ("plain_corpus", {}, "list"),
])  # fmt: skip
def test_merge_refuses_states_of_other_runs(
    many_shards: Corpus, request: pytest.FixtureRequest, corpus: str, options: dict[str, int], differs: str
) -> None:
    theirs = parts(request.getfixturevalue(corpus).list, (1, 1), **options)
    with pytest.raises(uio.StateError, match=differs):
        uio.merge_states([parts(many_shards.list, (1, 1))[0], theirs[1]])


# Epochs


def test_a_rank_that_is_done_yields_nothing_more_until_the_others_are(many_shards: Corpus) -> None:
    pipeline = training(many_shards.list)
    expected = Expected(pipeline, lanes=2)
    loaders = [uio.Loader(pipeline, seed=3, rank=r, world_size=2, lanes=2, uneven="join") for r in range(2)]
    first = [digest(b) for b in loaders[0]]
    batches = iter(loaders[1])
    second = [digest(next(batches)) for _ in range(2)]
    merged = uio.merge_states([loader.state_dict() for loader in loaders])
    rest, merged = run_ranks(pipeline, (2, 0), merged, None, lanes=2)
    assert rest[0] == []
    second += [digest(b) for b in rest[1]]
    assert [first, second] == [expected.take(rank, 2, None) for rank in range(2)]
    after, other = (uio.Loader(pipeline, seed=3, lanes=2) for _ in range(2))
    after.load_state_dict(merged)
    other.set_epoch(1)
    assert [digest(b) for b in after] == [digest(b) for b in other]
    assert after.epoch == 1
