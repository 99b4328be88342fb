"""Fields that a stage needs and nothing makes are missed when the graph is described, if the source can tell."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import parquet_corpus
import pytest
import torch
from corpus import Corpus
from helpers_bad import code_points

import uio_pipes as uio
from uio_pipes.core.roles import Op

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


@dataclass(frozen=True)
class Gain(Op):
    """One of a user's own, which works on the sample as a function does."""

    name: ClassVar[str] = "gain"
    reads = ("wav",)
    writes = ("wav",)

    def apply(self, sample: uio.Sample, draws: Any) -> None:
        sample["wav"] = sample["wav"] * 0.5


@dataclass(frozen=True)
class Pitch(Op):
    name: ClassVar[str] = "pitch"
    reads = ("wav", "sample_rate")
    writes = ("f0",)

    def apply(self, sample: uio.Sample, draws: Any) -> None:
        sample["f0"] = float(sample["wav"].abs().max())


@dataclass(frozen=True)
class Voiced(Op):
    name: ClassVar[str] = "voiced"
    reads = ("f0",)
    writes = ("is_voiced",)

    def apply(self, sample: uio.Sample, draws: Any) -> None:
        sample["is_voiced"] = sample.fields["f0"] > 0


RAW = uio.from_raw_list("a.list")
OF_AUDIO: list[Then] = [
    lambda p: p.volume_perturb(),
    lambda p: p.resample(16_000),
    lambda p: p.speed_perturb(),
    lambda p: p.mono(),
    lambda p: p.fbank(),
    lambda p: p.then(Gain()),
    lambda p: p.then(Pitch()),
]


@pytest.mark.parametrize("then", OF_AUDIO)
def test_audio_that_is_not_decoded_is_missed(then: Then) -> None:
    stored = [
        RAW,
        uio.from_shard_list("a.tar").shuffle(3),
        uio.from_table("a.tsv"),
        uio.mix({"a": RAW.decode_audio(channel=None), "b": RAW}, weights=[1, 1]),
    ]
    for source in stored:
        with pytest.raises(uio.PipelineError, match=r"needs decoded audio, but .*: put \.decode_audio\(\) before"):
            then(source)
        then(source.decode_audio(channel=None))
        then(source.map(dict))
    then(uio.from_iterable([{"wav": torch.ones(1, 8), "sample_rate": 8_000, "txt": ""}]))
    with pytest.raises(uio.PipelineError, match=r"put \.decode_audio\(of='prompt'\) before fbank"):
        RAW.decode_audio().fbank(of="prompt")


def test_a_field_that_is_made_too_late_is_missed() -> None:
    audio = RAW.decode_audio()
    with pytest.raises(uio.PipelineError, match="voiced works on f0, but pitch creates it only later: put pitch be"):
        audio.then(Voiced()).then(Pitch())
    with pytest.raises(uio.PipelineError, match="voiced works on f0, and fields of from_table does not name it"):
        TABLE.then(Voiced())
    with pytest.raises(uio.PipelineError, match="pad works on speakr, and fields of from_table does not name it: add"):
        TABLE.batch(2).pad(keep=["speakr"])
    TABLE.batch(2).pad(keep=["key", "txt"])  # every utterance has a key
    for later in (
        audio.then(Pitch()).then(Voiced()).then(Pitch()),
        uio.from_table("a.tsv", fields={"wav": "path", "f0": "f0"}).then(Voiced()),
    ):
        assert "voiced" in str(later)


def test_what_a_source_does_not_know_is_told_when_it_runs(raw_corpus: Corpus) -> None:
    stored = uio.from_iterable([{"wav": str(path), "txt": ""} for path in raw_corpus.list.parent.glob("*.wav")])
    with pytest.raises(uio.PipelineError, match=r"gain needs decoded audio, .*: put \.decode_audio\(\) before gain"):
        list(uio.Loader(stored.then(Gain()).batch(2).pad()))
    lacking = uio.from_raw_list(raw_corpus.list).decode_audio().then(Voiced()).batch(2).pad()
    with pytest.raises(
        uio.TooManyFailures, match=r"first 10 .*no 'f0', which voiced reads: it has key, wav, .*missing_"
    ):
        list(uio.Loader(lacking))


def test_an_own_stage_sees_the_fields_as_they_are_at_its_place(raw_corpus: Corpus) -> None:
    """What comes after it, and touches the same field, waits."""
    audio = uio.from_raw_list(raw_corpus.list).decode_audio()
    batch = next(iter(uio.Loader(audio.then(Pitch()).then(Gain()).fbank(8).batch(4).pad(pcm=True, keep=["f0"]))))
    louder = next(iter(uio.Loader(audio.fbank(8).batch(4).pad(pcm=True))))
    assert torch.equal(batch["pcm"], louder["pcm"] * 0.5)
    assert torch.allclose(batch["f0"], louder["pcm"].abs().amax(1))
    assert (batch["feats"] < louder["feats"]).any()
