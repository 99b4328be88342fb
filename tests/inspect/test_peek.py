"""``peek`` shows one utterance after every stage, and the numbers are those of a run."""

from typing import Any

import pytest
from contract import all_stages, example_of
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.core.stage import Stage


def training(corpus: Corpus) -> uio.Pipeline:
    return (
        uio.list_files(corpus.list, shuffle=True)
        .sharding_filter()
        .open_files()
        .load_from_tar()
        .decode_audio()
        .resample(16_000)
        .filter(min_frames=10)
        .fbank(num_mel_bins=20, dither=0.1)
        .spec_aug()
        .shuffle(1500)
        .sort(500)
        .dynamic_batch(2000)
        .pad()
    )


def test_every_stage_has_its_row(many_shards: Corpus) -> None:
    pipeline = training(many_shards)
    seen = pipeline.peek()
    assert [s.stage for s in seen.stages] == [s.describe() for s in pipeline.stages]
    assert all(s.milliseconds >= 0 for s in seen.stages)
    by_name = {s.stage.partition("(")[0]: s for s in seen.stages}
    assert by_name["load_from_tar"].changed == ("key", "txt", "wav")
    assert "bytes" in by_name["load_from_tar"].fields["wav"]
    assert by_name["resample"].fields["sample_rate"] == "16000"
    assert by_name["filter"].changed == ()
    assert by_name["spec_aug"].changed == ("feat",)
    (batch,) = uio.Loader(pipeline.__class__((*pipeline.stages[:-4], *batch_of_all(many_shards)))).__iter__()
    frames = int(batch["feats_lengths"][batch["keys"].index(seen.key)])
    assert by_name["fbank"].fields["feat"] == f"float32 ({frames}, 20)"
    assert by_name["fbank"].length == f"{frames} frames"
    assert by_name["pad"].fields["feats"] == f"float32 (1, {frames}, 20)"
    text = str(seen)
    assert repr(seen) == text
    assert seen.key in text.splitlines()[0]
    assert f"feat float32 ({frames}, 20)" in text


def batch_of_all(corpus: Corpus) -> tuple[Stage, ...]:
    return uio.from_shard_list(corpus.list).decode_audio().batch(10_000).pad().stages[-2:]


def test_only_the_first_utterance_is_touched(many_shards: Corpus) -> None:
    touched: list[str] = []

    def note(sample: Any) -> Any:
        touched.append(sample["key"])
        return sample

    uio.from_shard_list(many_shards.list).decode_audio().map(note).shuffle(1000).batch(64).pad().peek()
    assert len(set(touched)) == 1


def test_utterances_that_a_filter_drops_are_passed_over(many_shards: Corpus) -> None:
    wanted = many_shards.keys[11]
    pipeline = uio.from_shard_list(many_shards.list).decode_audio().filter(lambda s: s["key"] == wanted).batch(1).pad()
    seen = pipeline.peek()
    assert seen.key == wanted
    shard = next(s for s in seen.stages if s.stage.startswith("open_files"))
    assert shard.fields[""].endswith("s005.tar"), "the shard that it is in"
    assert seen.stages[-1].fields["keys"].startswith("list of 1 str")


def test_damaged_utterances_are_passed_over(bad_corpus: Corpus) -> None:
    assert uio.from_shard_list(bad_corpus.list).decode_audio().fbank().peek().key in bad_corpus.keys


def test_nothing_left_is_an_error_that_says_why(many_shards: Corpus) -> None:
    with pytest.raises(uio.PipelineError, match="left out as too_short"):
        uio.from_shard_list(many_shards.list).decode_audio().filter(min_frames=9000).batch(1).peek()
    with pytest.raises(uio.PipelineError, match="decode_audio"):
        uio.from_shard_list(many_shards.list).fbank().peek()


def test_precomputed_features_and_raw_lists(feature_corpus: Corpus, raw_corpus: Corpus) -> None:
    seen = uio.from_shard_list(feature_corpus.list).spec_aug().batch(2).pad().peek()
    assert seen.stages[-1].fields["feats"].endswith(", 6)")
    assert uio.from_raw_list(raw_corpus.list).decode_audio().peek().key in raw_corpus.keys


@pytest.mark.parametrize("stage", all_stages(), ids=lambda s: s.__name__)
def test_every_stage_can_be_looked_at(stage: type[Stage], pipelines: list[uio.Pipeline]) -> None:
    pipeline = example_of(stage, pipelines)
    assert len(pipeline.peek().stages) == len(pipeline.stages)
