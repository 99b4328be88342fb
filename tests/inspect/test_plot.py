"""``plot`` draws what there is, and leaves matplotlib's global state alone."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.inspect import plot

image = pytest.importorskip("matplotlib.image", reason="could not import matplotlib: pip install matplotlib")
pytestmark = pytest.mark.filterwarnings("error")  # a glyph that is missing in the font warns
RED = np.array([0xD6, 0x27, 0x28]) / 255


def utterances(corpus: Corpus) -> uio.Pipeline:
    return uio.from_shard_list(corpus.list).decode_audio()


def drawn(pipeline: uio.Pipeline, path: Path, count: int = 1) -> Any:
    pipeline.plot(path, count=count)
    pixels: Any = image.imread(path)
    return pixels[..., :3]


def red(pixels: Any) -> float:
    return float((abs(pixels - RED).max(-1) < 0.02).mean())


def test_masks_are_marked(many_shards: Corpus, tmp_path: Path) -> None:
    features = utterances(many_shards).fbank(num_mel_bins=20)
    without = drawn(features.batch(4).pad(), tmp_path / "a.png")
    masked = drawn(features.spec_aug(num_t_mask=2, max_t=20, max_f=5).shuffle(9).batch(4).pad(), tmp_path / "b.png")
    assert red(without) < 0.001
    assert red(masked) > 0.01
    assert masked.shape[1] > without.shape[1], "features before and after masks stand beside each other"


def test_marked_is_what_spec_aug_changed(many_shards: Corpus) -> None:
    pipeline = utterances(many_shards).fbank(num_mel_bins=20).spec_aug(max_t=20, max_f=5)
    for records in plot.trace(pipeline, 3):
        one = plot._drawn(pipeline.stages, records)
        assert one.feat is not None
        assert one.masked is not None
        np.testing.assert_array_equal(one.masked, one.feat == 0)


def test_a_row_for_each_utterance(many_shards: Corpus, tmp_path: Path) -> None:
    heights = [drawn(utterances(many_shards), tmp_path / "a.png", count).shape[0] for count in (1, 2, 4)]
    assert heights[2] - heights[1] == 2 * (heights[1] - heights[0]) > 0


def test_precomputed_features_have_no_waveform(feature_corpus: Corpus, tmp_path: Path) -> None:
    alone = drawn(uio.from_shard_list(feature_corpus.list), tmp_path / "a.png")
    both = drawn(uio.from_shard_list(feature_corpus.list).spec_aug(), tmp_path / "b.png")
    assert both.shape[1] == pytest.approx(2 * alone.shape[1], abs=2)


def test_features_that_are_trimmed_and_scaled(many_shards: Corpus, tmp_path: Path) -> None:
    features = utterances(many_shards).fbank(num_mel_bins=20)
    assert red(drawn(features.spec_trim(max_t=5), tmp_path / "a.png")) < 0.001
    masked = features.spec_aug(max_t=20, max_f=5)
    for name, graph in {
        "then trimmed": masked.spec_sub().spec_trim(max_t=5),
        "trimmed before": features.spec_trim(max_t=5).spec_aug(max_t=20, max_f=5),
        "scaled after": masked.map(halved, length="same"),
    }.items():
        assert red(drawn(graph, tmp_path / f"{name}.png")) > 0.01, name


def halved(sample: Any) -> Any:
    sample["feat"] = sample["feat"] / 2
    return sample


def test_names_with_dollars_and_mandarin(many_shards: Corpus, tmp_path: Path) -> None:
    def rename(sample: Any) -> Any:
        sample["key"], sample["txt"] = "录音_{a$b$", "今天天气不错\t$x$"
        return sample

    drawn(utterances(many_shards).map(rename), tmp_path / "a.png")


def test_titles_have_the_key_whatever_fonts_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "CHINESE_FONTS", [])
    plot.families.cache_clear()
    plot.glyphs.cache_clear()
    key = "录音_" + "a" * 70
    assert plot.label(key, "今天天气") == "\\u5f55\\u97f3_" + "a" * 70 + " · 4 characters"
    assert plot.label("K1", "é ω ж") == "K1 · é ω ж"
    monkeypatch.undo()
    plot.families.cache_clear()
    plot.glyphs.cache_clear()
    chinese = len(plot.families()) > 1
    assert (plot.label("录音", "今天") == "录音 · 今天") == chinese


def test_no_global_state(many_shards: Corpus, tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    drawn(utterances(many_shards), tmp_path / "a.png")
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_what_cannot_be_drawn_is_an_error(many_shards: Corpus, tmp_path: Path) -> None:
    with pytest.raises(uio.PipelineError, match="count must"):
        utterances(many_shards).plot(tmp_path / "a.png", count=0)
    with pytest.raises(uio.PipelineError, match="neither audio nor features"):
        uio.from_shard_list(many_shards.list).plot(tmp_path / "a.png")
    with pytest.raises(uio.PipelineError, match="load_from_tar"):
        uio.list_files(many_shards.list).plot(tmp_path / "a.png")
