"""Fields that a stage needs and nothing makes are missed when the graph is described, if the source can tell."""

from collections.abc import Callable
from pathlib import Path

import parquet_corpus
import pytest
from helpers_bad import code_points

import uio_pipes as uio

SHARDS = uio.from_shard_list("a.tar").decode_audio()
TABLE = uio.from_table("a.tsv", fields={"wav": "path", "txt": "text"}).decode_audio()
Then = Callable[[uio.Pipeline], uio.Pipeline]
LABELS: list[Then] = [
    lambda p: p.dynamic_batch(max_tokens=100),
    lambda p: p.dynamic_batch(max_frames=100, length="tokens"),
    lambda p: p.bucket_batch(num_buckets=(3, 2), max_frames=100),
    lambda p: p.sort(length="tokens"),
    lambda p: p.filter(length="tokens", max_length=9),
    lambda p: p.pack(100),
    lambda p: p.ctc_filter(),
]
FEATURES: list[Then] = [lambda p: p.spec_aug(), lambda p: p.global_cmvn("cmvn"), lambda p: p.random_crop(max_frames=9)]


@pytest.mark.parametrize("source", [SHARDS, TABLE, uio.mix({"a": SHARDS, "b": TABLE}, weights=[1, 1])])
@pytest.mark.parametrize("then", LABELS)
def test_labels_are_missed(source: uio.Pipeline, then: Then) -> None:
    with pytest.raises(uio.PipelineError, match=r"works on label, .*: put \.tokenize\(…\) before"):
        then(source)
    then(source.tokenize(code_points))
    then(source.map(dict))


@pytest.mark.parametrize("then", LABELS)
def test_labels_that_may_be_there_are_not_missed(then: Then) -> None:
    then(uio.from_shard_list("a.tar", fields={"label": "json:ids"}).decode_audio())
    then(uio.from_table("a.tsv", fields={"wav": "path", "label": "ids"}).decode_audio())
    then(uio.from_table("a.tsv").decode_audio())
    then(uio.from_raw_list("a.list").decode_audio())
    then(uio.mix({"a": SHARDS, "b": SHARDS.tokenize(code_points)}, weights=[1, 1]))


@pytest.mark.parametrize("then", FEATURES)
def test_features_are_missed(then: Then, tmp_path: Path) -> None:
    rows = uio.from_parquet(parquet_corpus.write(tmp_path / "a.parquet", parquet_corpus.rows(2)))
    for source in (TABLE, rows.decode_audio()):
        with pytest.raises(uio.PipelineError, match=r"works on feat, .*: put \.fbank\(…\) before"):
            then(source)
        then(source.fbank())
    then(SHARDS), then(uio.from_table("a.tsv", fields={"feat": "path", "txt": "text"}))


def test_audio_that_a_table_does_not_name_is_missed() -> None:
    with pytest.raises(uio.PipelineError, match="works on wav, and fields of from_table does not name it: add wav=…"):
        uio.from_table("a.tsv", fields={"txt": "text"}).decode_audio()


def test_a_stage_that_takes_audio_or_features_needs_one_of_them(tmp_path: Path) -> None:
    features = uio.from_table("a.tsv", fields={"feat": "path", "txt": "text"}).tokenize(code_points)
    features.ctc_filter()
    TABLE.tokenize(code_points).ctc_filter(subsampling=len)
