"""The model of a step's memory is a bound of its peaks; the peak is the step's own, and probes have any shape."""

import numpy as np
import pytest
import torch
from contract import digest
from corpus import Corpus
from hypothesis import example, given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.inspect.fit_budget import MemoryModel, Shape, peak, template

SHAPES = [(b, t, u) for b in (1, 4, 30) for t in (100, 700, 3_000) for u in (1, t // 30)]
SHAPES += [(b, 3_000, 23) for b in (1, 4, 30)]  # as `fit_budget` measures them
WEIGHTS = st.tuples(st.just(5e8), *(st.sampled_from([0.0, scale]) for scale in (1e5, 2e4, 15.0, 3e3, 40.0, 30.0)))


@settings(max_examples=15, deadline=None)
@given(WEIGHTS, st.integers(1, 200), st.integers(50, 4_000), st.floats(0, 1))
@example((5e8, 0.0, 2e4, 0.0, 3e3, 0.0, 30.0), 136, 2_780, 0.5)
def test_peaks_that_are_such_a_sum_are_forecast_wherever_they_are(
    weights: tuple[float, ...], count: int, frames: int, dense: float
) -> None:
    true = MemoryModel(weights, 0.0)
    model = MemoryModel.fitted([(shape, int(peak)) for shape, peak in zip(SHAPES, true.bytes(SHAPES), strict=True)])
    shape = [(count, frames, 1 + int(dense * frames / 30))]
    np.testing.assert_allclose(model.bytes(shape), true.bytes(shape), rtol=0.02)
    assert model.error < 0.011
    ((_, frames, labels),) = shape
    written = eval(str(model))(frames, labels)
    assert model.cost(frames, labels) <= written <= 1.002 * model.cost(frames, labels)
    np.testing.assert_allclose(model.bytes([(3, frames, labels)]), model.weights[0] + 3 * model.cost(frames, labels))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(10**6, 10**9), min_size=len(SHAPES), max_size=len(SHAPES)))
def test_it_is_above_any_peaks(peaks: list[int]) -> None:
    model = MemoryModel.fitted(list(zip(SHAPES, peaks, strict=True)))
    forecasts = model.bytes(SHAPES)
    assert (forecasts >= np.array(peaks) * (1 - 1e-9)).all()
    assert model.error == pytest.approx((forecasts / peaks - 1).max(), abs=1e-9)
    assert (model.bytes([(b + 1, t + 1, u + 1) for b, t, u in SHAPES]) >= forecasts).all(), "it never falls"


# Probes


MB = 2**20


def allocate(megabytes: int) -> None:
    torch.ones(megabytes * MB // 4)


@pytest.mark.skipif(torch.cuda.is_initialized(), reason="resident size is measured without a GPU")
def test_the_peak_is_that_of_the_step_alone() -> None:
    nothing = peak(lambda: allocate(1))
    found = {size: peak(lambda size=size: allocate(size)) - nothing for size in (200, 20, 60)}  # type: ignore[misc]
    assert all(abs(got / MB + 1 - size) < 8 for size, got in found.items()), found


def test_many_small_pieces_of_an_earlier_step_do_not_count() -> None:
    nothing = peak(lambda: None)
    peak(lambda: [torch.ones(1_000) for _ in range(30_000)])
    assert peak(lambda: None) - nothing < 30 * MB


def test_probes_have_the_shape_asked_for(plain_corpus: Corpus) -> None:
    pipeline = uio.from_shard_list(plain_corpus.list).decode_audio().tokenize(lambda text: [ord(c) for c in text])
    pipeline = pipeline.fbank(num_mel_bins=6).batch(3).pad(pcm=True, keep=["txt"])
    first = next(iter(uio.Loader(pipeline)))
    probe = template(uio.Loader(pipeline))(Shape(7, 321, 19))
    assert probe.keys() == first.keys()
    assert probe["feats"].shape == (7, 321, 6)
    assert probe["target"].shape == (7, 19)
    assert probe["pcm"].shape[1] == pytest.approx(321 * 80, rel=0.05), "8 kHz: 80 samples a frame"
    assert probe["feats_lengths"].tolist() == [321] * 7
    assert probe["pcm_length"].tolist() == [probe["pcm"].shape[1]] * 7
    assert probe["target_lengths"].tolist() == [19] * 7
    assert len(probe["keys"]) == len(probe["txt"]) == 7
    assert (probe["target"] >= 0).all(), "labels, no padding"
    assert all(probe[name].dtype == first[name].dtype for name in ("feats", "pcm", "target", "feats_lengths"))
    assert torch.equal(probe["feats"][0, :50], first["feats"][0, :50])


def test_the_loader_stays_where_it_is(plain_corpus: Corpus) -> None:
    pipeline = uio.from_shard_list(plain_corpus.list, shuffle=True).decode_audio().shuffle(5).batch(3).pad()
    expected = [digest(batch) for batch in uio.Loader(pipeline, seed=3)]
    loader = uio.Loader(pipeline, seed=3)
    batches = iter(loader)
    given = [digest(next(batches)) for _ in range(2)]
    state = loader.state_dict()
    template(loader)(Shape(2, 30, 0))
    assert loader.state_dict() == state
    assert given + [digest(batch) for batch in batches] == expected


def test_fields_that_are_not_of_utterances_are_as_they_are() -> None:
    items = [{"key": f"U{n}", "feat": torch.ones(20, 4)} for n in range(2)]
    extra = {"scale": torch.tensor(2.0), "source": "ab", "of": {"a": 1, "b": 2}}
    pipeline = uio.from_iterable(items).batch(2).pad().map(lambda batch: batch | extra)
    probe = template(uio.Loader(pipeline))(Shape(3, 30, 0))
    assert {name: probe[name] for name in extra} == extra
    assert probe["keys"] == ["U0"] * 3


def test_batches_that_are_not_padded_are_refused(plain_corpus: Corpus) -> None:
    source = uio.from_shard_list(plain_corpus.list).decode_audio()
    packed = uio.from_iterable([{"key": "U", "label": [1, 2]}]).pack(20, length="tokens")
    for pipeline in (source, source.batch(2), source.batch(2).pad(layout="ragged"), packed):
        with pytest.raises(uio.PipelineError, match=r"\.pad\(\)"):
            template(uio.Loader(pipeline))
