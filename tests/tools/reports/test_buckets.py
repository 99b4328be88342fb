"""``uio buckets``: boundaries by the lengths that batches have, of all utterances or of a sample."""

from pathlib import Path

import numpy as np
import pytest
from corpus import Corpus
from helpers_bad import code_points, raw_items, raw_list

import uio_pipes as uio
from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.stages.batches.buckets import longest_of, pairs_of
from uio_pipes.tools.reports.simulation import find_buckets, shuffled


def lengths_of(graph: uio.Pipeline) -> np.ndarray:
    samples = [sample for batch in uio.Loader(graph.batch(4)) for sample in batch]
    return np.array([(len(sample["feat"]), len(sample["label"])) for sample in samples])


def labelled(source: uio.Pipeline) -> uio.Pipeline:
    return source.decode_audio().fbank(num_mel_bins=8).tokenize(code_points)


def test_boundaries_are_those_of_the_utterances_before_the_batches(many_shards: Corpus) -> None:
    graph = labelled(uio.from_shard_list(many_shards.list)).filter(min_frames=40)
    lengths = lengths_of(graph)
    one, two = find_buckets(graph.batch(3).pad(), 3), find_buckets(graph.dynamic_batch(500).pad(), (3, 2))
    assert one.boundaries == [longest + 1 for longest in longest_of(lengths[:, 0], 3)[:-1]]
    assert two.boundaries == pairs_of(lengths, (3, 2))
    assert (one.units, two.units) == (("frames",), ("frames", "tokens"))
    for found in (one, two):
        assert found.utterances == len(lengths)
        assert sum(bucket.frames for bucket in found.buckets) == lengths[:, 0].sum()
        padded = sum(bucket.utterances * np.array(bucket.longest) for bucket in found.buckets)
        assert found.padding == pytest.approx(tuple(1 - lengths.sum(axis=0)[: len(found.units)] / padded))
    assert one.left_out == {"too_short": len(many_shards.keys) - len(lengths)} != {"too_short": 0}
    assert not one.failures


def test_the_lengths_are_those_by_which_batches_go(many_shards: Corpus) -> None:
    graph = labelled(uio.from_shard_list(many_shards.list))
    assert find_buckets(graph.bucket_batch(max_tokens=40), 2).units == ("tokens",)
    pairs = graph.bucket_batch(num_buckets=(2, 2), max_frames=400, length=("tokens", "frames"))
    assert find_buckets(pairs, (2, 2)).units == ("tokens", "frames")
    assert find_buckets(pairs, 2).units == ("frames",)


def test_a_sample_of_data_is_a_random_one(tmp_path: Path) -> None:
    sources = [
        uio.from_raw_list(raw_list(tmp_path / f"{name}.list", raw_items(tmp_path, 200))) for name in ("one", "two")
    ]
    mixed = uio.mix(dict(zip("ab", sources, strict=True)))
    for graph in (sources[0], mixed):
        given, drawn = ([sample["key"] for sample in uio.Loader(g.take(30))] for g in (graph, shuffled(graph)))  # type: ignore[attr-defined]
        assert drawn != given
        assert int(max(drawn)[1:]) > 100
    assert find_buckets(shuffled(sources[0].decode_audio()), 2, most=30).utterances == 30


def test_an_endless_pipeline_needs_a_number(many_shards: Corpus) -> None:
    endless = labelled(uio.from_shard_list(many_shards.list)).repeat()
    with pytest.raises(PipelineError, match="no end"):
        find_buckets(endless, 2)
    assert find_buckets(endless, 2, most=300).utterances == 300


def test_without_an_utterance_the_first_failure_is_told(many_shards: Corpus) -> None:
    with pytest.raises(ListError, match=r"no utterance has a length .*no tokens here"):
        find_buckets(uio.from_shard_list(many_shards.list).decode_audio(), (2, 2))
