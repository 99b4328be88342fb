"""The peak of a step is its own, and probes have the shapes that are asked for, whatever is in a batch."""

import pytest
import torch
from contract import digest
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.inspect.fit_budget import Shape, peak, template

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
