"""``uio simulate``: what it says is what loaders do."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import Corpus
from helpers_bad import code_points

import uio_pipes as uio
from uio_pipes.tools.cli.plan import simulation_tables
from uio_pipes.tools.reports.page import html
from uio_pipes.tools.reports.simulate import simulate
from uio_pipes.tools.reports.simulation import LOSES, Simulation, of_simulation


def by_frames(pipeline: uio.Pipeline) -> uio.Pipeline:
    audio = pipeline.decode_audio().speed_perturb().fbank(num_mel_bins=8)
    return audio.filter(min_frames=30, max_frames=75).shuffle(5).sort(4).dynamic_batch(250).pad()


def in_buckets(pipeline: uio.Pipeline) -> uio.Pipeline:
    audio = pipeline.decode_audio().fbank(num_mel_bins=8).shuffle(5)
    return audio.bucket_batch([45, 60], bucket_batch_sizes=[4, 3, 2], max_wait=9).pad()


def by_both(pipeline: uio.Pipeline) -> uio.Pipeline:
    audio = pipeline.decode_audio().fbank(num_mel_bins=8).tokenize(code_points).shuffle(5)
    return audio.bucket_batch(num_buckets=(2, 2), max_frames=250, max_wait=9).pad()


def loaders(pipeline: uio.Pipeline, world: int, lanes: int, workers: int = 0) -> list[uio.Loader]:
    return [
        uio.Loader(pipeline, rank=r, world_size=world, lanes=lanes, num_workers=workers, seed=4) for r in range(world)
    ]


@pytest.mark.parametrize("graph", [by_frames, in_buckets, by_both], ids=lambda g: g.__name__)
@pytest.mark.parametrize(("world", "lanes"), [(1, 1), (2, 2), (3, 6), (2, 5)])
def test_steps_padding_and_counts_are_those_of_real_loaders(
    graph: Callable[[uio.Pipeline], uio.Pipeline], world: int, lanes: int, many_shards: Corpus
) -> None:
    pipeline = graph(uio.from_shard_list(many_shards.list, shuffle=True))
    for epoch in range(2):
        run = simulate(pipeline, world_size=world, lanes=lanes, seed=4, epoch=epoch, uneven="join")
        steps, frames, padded, utterances = [], 0, 0, 0
        skipped: dict[str, int] = {}
        for loader, planned in zip(loaders(pipeline, world, lanes), run.padded, strict=True):
            loader.set_epoch(epoch)
            sizes = [int(b["feats"].shape[0] * b["feats"].shape[1]) for b in loader]
            assert sizes == planned.tolist(), "batch by batch"
            steps.append(len(sizes))
            stats = loader.stats()
            frames, padded = frames + stats.frames, padded + stats.padded
            utterances += stats.utterances
            for reason, n in stats.skipped.items():
                skipped[reason] = skipped.get(reason, 0) + n
        assert run.steps == steps
        assert run.utterances == utterances
        assert run.padding[0] == pytest.approx(1 - frames / padded)
        assert run.left_out == skipped


def test_stop_and_share_give_every_rank_equal_steps(many_shards: Corpus) -> None:
    pipeline = by_frames(uio.from_shard_list(many_shards.list, shuffle=True))
    free = simulate(pipeline, world_size=5, seed=1, uneven="join")
    assert len(set(free.own)) > 1
    stopped = simulate(pipeline, world_size=5, seed=1, uneven="stop")
    assert stopped.steps == [min(free.own)] * 5
    assert stopped.cut_off[0] == free.utterances - stopped.utterances > 0
    assert stopped.cut_off[1] == sum(free.own) - 5 * min(free.own)
    assert stopped.delivered_share == pytest.approx(stopped.utterances / len(stopped.lengths))
    assert stopped.summary()["delivered_share"] == stopped.delivered_share < free.delivered_share == 1.0
    for remedy in ("more lanes", "uio index", 'uneven="share"'):
        assert remedy in stopped.remedy
    assert free.remedy == ""
    shared = simulate(pipeline, world_size=5, seed=1)
    assert (shared.uneven, shared.own, shared.steps) == ("share", free.own, [sum(free.own) // 5] * 5)
    assert shared.cut_off == (free.utterances - shared.utterances, sum(free.own) % 5)


def test_skew_and_fill_by_hand() -> None:
    texts = [{"key": str(i), "feat": np.zeros((n, 2), np.float32), "txt": ""} for i, n in enumerate([10, 30, 20, 20])]
    pipeline = uio.from_iterable(texts).sharding_filter().batch(1).pad()
    run = simulate(pipeline, world_size=2)
    assert run.steps == [2, 2]  # ranks have 10, 20 and 30, 20 frames
    assert run.skew == pytest.approx(1 - (10 + 30 + 20 + 20) / (30 * 2 + 20 * 2))
    fixed = simulate(uio.from_iterable(texts).sharding_filter().dynamic_batch(60).pad())
    assert [p.tolist() for p in fixed.padded] == [[60, 40]]
    assert fixed.fill == pytest.approx((60 / 60 + 40 / 60) / 2)


def test_buckets_and_their_fill(many_shards: Corpus) -> None:
    run = simulate(in_buckets(uio.from_shard_list(many_shards.list)), lanes=2)
    assert [(b.low, b.high) for b in run.buckets] == [(0, 45), (45, 60), (60, None)]
    assert sum(b.utterances for b in run.buckets) == run.utterances == len(many_shards.keys)
    for bucket, size in zip(run.buckets, [4, 3, 2], strict=True):
        assert bucket.fill == pytest.approx(bucket.utterances / bucket.batches / size)


def test_buckets_by_two_lengths_and_the_padding_of_both(many_shards: Corpus) -> None:
    pipeline = by_both(uio.from_shard_list(many_shards.list))
    loader = uio.Loader(pipeline)
    run, batches = simulate(pipeline), list(loader)
    assert run.padding == pytest.approx((loader.stats().padding_ratio, loader.stats().token_padding_ratio))
    assert (run.units, run.utterances) == (("frames", "tokens"), len(many_shards.keys))
    for name, share in zip(("feats", "target"), run.padding, strict=True):
        padded = sum(batch[name].shape[0] * batch[name].shape[1] for batch in batches)
        assert share == pytest.approx(1 - sum(int(b[f"{name}_lengths"].sum()) for b in batches) / padded)
    sizes = [(len(b["keys"]), b["feats"].shape[1], b["target"].shape[1]) for b in batches]
    assert run.largest == max(sizes, key=np.prod)
    assert sum(bucket.utterances for bucket in run.buckets) == run.utterances
    assert sum(bucket.batches for bucket in run.buckets) == len(batches)
    assert all(bucket.name == f"up to {bucket.high[0]} × {bucket.high[1]}" for bucket in run.buckets)
    assert run.fill == pytest.approx(np.mean([count * frames / 250 for count, frames, _ in sizes]))
    assert run.summary()["largest_batch"] == dict(zip(("utterances", "frames", "tokens"), run.largest, strict=True))
    assert json.loads(json.dumps(run.summary()))["buckets"][0]["padding"][1] >= 0


@pytest.mark.parametrize("buckets", [(3, 3), 3])
def test_lanes_that_find_other_boundaries_lose_no_batch(buckets: Any) -> None:
    sizes = [(10, 1), (10, 1), (20, 2), (10, 1), (30, 3), (10, 1)]  # those of one lane are all the same
    items = [
        {"key": str(n), "feat": np.zeros((size, 2), np.float32), "label": [1] * labels}
        for n, (size, labels) in enumerate(sizes)
    ]
    graph = uio.from_iterable(items).sharding_filter().bucket_batch(num_buckets=buckets, max_frames=60).pad()
    run = simulate(graph, lanes=2)
    assert sum(bucket.utterances for bucket in run.buckets) == len(run.lengths) == len(sizes)
    assert sum(bucket.batches for bucket in run.buckets) == sum(run.own)
    names = [bucket.name for bucket in run.buckets]
    assert len(set(names)) == len(names)
    if buckets != 3:
        assert names == ["up to 10 × 1", "up to 20 × 2", "up to 30 × 3"]
        assert run.boundaries == [(10, 1), (20, 2), (30, 3)]
        assert [bucket.utterances for bucket in run.buckets] == [4, 1, 1]
    else:
        assert run.boundaries == [11, 21]


@pytest.mark.parametrize(
    "batches",
    [
        lambda p: p.dynamic_batch(max_tokens=30),
        lambda p: p.bucket_batch(max_tokens=30, num_buckets=2),
        lambda p: p.pack(30),
    ],
)
def test_batches_by_tokens_are_told_in_tokens_and_hours_are_of_audio(
    batches: Callable[[uio.Pipeline], uio.Pipeline], many_shards: Corpus
) -> None:
    labelled = uio.from_shard_list(many_shards.list).decode_audio().fbank(num_mel_bins=8).tokenize(code_points)
    frames, run = simulate(labelled.batch(1)), simulate(batches(labelled))
    assert (frames.units, run.units) == (("frames",), ("tokens",))
    assert run.hours == frames.hours == float(frames.lengths.sum()) / 360_000
    assert {"padded_tokens_per_batch", "tokens_per_utterance"} <= set(run.summary())
    assert run.summary()["hours"] == run.hours
    assert "frames" not in json.dumps(run.summary())


def test_damage_is_counted_as_in_a_run(bad_corpus: Corpus) -> None:
    pipeline = in_buckets(uio.from_shard_list(bad_corpus.list))
    run = simulate(pipeline, lanes=2)
    loader = uio.Loader(pipeline, lanes=2)
    for _ in loader:
        pass
    counted = loader.stats().skipped
    found_by_header = {r: n for r, n in counted.items() if r in run.left_out}
    assert run.left_out == found_by_header
    assert {"truncated", "missing_text", "missing_audio"} <= set(run.left_out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world_size": 4, "lanes": 2, "uneven": "stop"}, "2 lanes cannot feed 4 ranks"),
        ({"uneven": "never"}, "uneven must be"),
        ({"world_size": 200}, "a rank has no batch at all"),
    ],
)
def test_what_a_loader_would_refuse_is_refused(options: dict[str, object], message: str, many_shards: Corpus) -> None:
    with pytest.raises(uio.UioError, match=message):
        simulate(by_frames(uio.from_shard_list(many_shards.list)), **options)  # type: ignore[arg-type]


def test_an_epoch_of_nothing_is_an_error_that_says_why(many_shards: Corpus) -> None:
    graph = uio.from_shard_list(many_shards.list).decode_audio().fbank(num_mel_bins=8).filter(min_frames=9_000)
    with pytest.raises(uio.PipelineError, match=r"nothing comes out .*\(\d+ × too_short\)"):
        simulate(graph.batch(2), lanes=2)


def test_the_drawing_and_the_summary(many_shards: Corpus, tmp_path: Path) -> None:
    runs: list[Simulation] = [
        simulate(graph(uio.from_shard_list(many_shards.list)), world_size=2)
        for graph in (by_frames, in_buckets, by_both)
    ]
    for run in runs:
        assert json.loads(json.dumps(run.summary()))["steps"] == run.steps
    page = html("<title>", [("t", ("a",), [("<script>",)])], of_simulation(runs[0]))
    assert "&lt;script&gt;" in page


def following(stop: str) -> uio.Pipeline:
    sources = {n: uio.from_iterable([{"key": n, "txt": n}] * 200).sharding_filter() for n in ("a", "b")}
    weights = {"a": 1, "b": uio.by_step({0: 0, 20: 3})}
    graph = uio.mix(sources, weights, stop=stop).tokenize(code_points)  # type: ignore[arg-type]
    return graph.dynamic_batch(max_tokens=uio.by_step({0: 2, 30: 4}))


def test_stretches_show_what_follows_the_step_as_real_loaders_do() -> None:
    run = simulate(following("endless"), world_size=2, lanes=4, steps=40)
    made: list[list[str]] = [[] for _ in run.along]
    for rank in range(2):
        loader = uio.Loader(following("endless"), rank=rank, world_size=2, lanes=4, steps_per_epoch=40)
        for step, batch in enumerate(loader):
            made[step // 4] += [sample["key"][0] for sample in batch]
    assert run.steps == [40, 40]
    assert [stretch.first for stretch in run.along] == list(range(0, 40, 4))
    assert [stretch.utterances for stretch in run.along] == [len(keys) / 8 for keys in made]
    assert [stretch.shares["b"] for stretch in run.along] == [keys.count("b") / len(keys) for keys in made]
    assert [stretch.shares["b"] for stretch in run.along][:5] == [0.0] * 5
    shares = next(chart for chart in of_simulation(run) if chart.title == "Shares of the sources")
    assert [list(values) for values in shares.series.values()] == [
        [stretch.shares[name] for stretch in run.along] for name in ("a", "b")
    ]


def test_equal_notes_come_once_and_one_utterance_is_drawn_as_one_bar() -> None:
    many = {f"s{n}": uio.from_iterable([{"key": "k", "txt": "a"}] * 2).sharding_filter() for n in range(3)}
    notes = simulate(uio.mix(many, dict.fromkeys(many, 1)).tokenize(code_points).batch(2), lanes=4).notes
    assert (len(notes), sum("2 of 4 lanes have nothing" in note for note in notes)) == (2, 1)
    one = uio.from_iterable([{"key": "k", "txt": "a" * 204}]).tokenize(code_points)
    run = simulate(one.dynamic_batch(max_tokens=500))
    assert [chart.x for chart in of_simulation(run)] == [["0"], [204.0], [0], [204.0]]
    assert dict(simulation_tables(run)[0][2])["largest batch"].startswith("1 utterance × ")  # type: ignore[arg-type]


def test_mixing_is_how_far_apart_neighbours_of_a_shard_come(many_shards: Corpus) -> None:
    def median(pipeline: uio.Pipeline) -> float:
        return float(np.median(simulate(pipeline.batch(2), lanes=1).apart))

    assert median(uio.from_shard_list(many_shards.list, shuffle=True)) == 1
    assert median(uio.from_shard_list(many_shards.list, interleave=3)) == 3
    assert median(uio.from_shard_list(many_shards.list).shuffle(30)) > 5
    assert not len(simulate(uio.from_iterable([{"key": "a", "txt": ""}]).batch(2)).apart)


@pytest.mark.parametrize(
    ("batches", "line"),
    [
        (
            lambda p: p.shuffle(9).dynamic_batch(max_tokens=50),
            r"max_tokens=50\) in place of .shuffle\(…\) and .dynamic",
        ),
        (lambda p: p.sort(9, length="tokens").batch(3), r"max_frames=\d+\) in place of .sort\(…\) and .batch\(…\)"),
        (lambda p: p.bucket_batch(num_buckets=2, max_tokens=50), r"bucket_batch\(max_tokens=50\) in place of .bucket"),
        (lambda p: p.bucket_batch(max_tokens=50, window=5), r": a window of 10 makes"),
    ],
)
def test_what_ranks_lose_is_told_with_the_line_that_mends_it(
    batches: Callable[[uio.Pipeline], uio.Pipeline], line: str
) -> None:
    lengths = np.random.default_rng(1).integers(3, 20, 80).tolist()
    items = [{"key": str(i), "feat": np.zeros((n, 1), np.float32), "label": [1] * n} for i, n in enumerate(lengths)]
    run = simulate(batches(uio.from_iterable(items).sharding_filter()), world_size=4)
    assert run.skew_squared > run.skew
    assert re.search(rf"wait {run.skew:.1%} of the time.*{line}", run.notes[-1])


def test_packed_batches_are_not_to_be_padded_again_and_the_end_is_named_as_it_was_asked_for() -> None:
    lengths = np.random.default_rng(1).integers(3, 20, 104).tolist()
    items = [{"key": str(i), "feat": np.zeros((n, 1), np.float32)} for i, n in enumerate(lengths)]
    for uneven in ("share", "stop"):
        packed = uio.from_iterable(items).sharding_filter().pack(max_frames=60)
        run = simulate(packed, world_size=4, lanes=4, uneven=uneven)
        assert run.skew_squared > LOSES
        assert not any("in place of" in note for note in run.notes)
        assert run.cut_off[0]
        assert f"after the common end ({uneven})" in str(simulation_tables(run))
