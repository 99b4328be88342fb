"""``uio.encode``: each utterance once, by whole batches, whatever happens in between."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import encoding
import pytest
import torch
from contract import digest
from corpus import Corpus, shards
from encoding import Codec, encoded, to_encode

import uio_pipes as uio
from uio_pipes.io.shelf import _shelves
from uio_pipes.run.encode import FrozenModel

COUNT = 15


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return shards(tmp_path / "data", [5, 4, 6], seconds=(0.3, 1.2))


def codes(corpus: Corpus, cache: Path | str, **options: Any) -> dict[str, torch.Tensor]:
    graph = encoded(str(corpus.list), str(cache)).shuffle(5)
    return {sample["key"]: sample["codes"] for sample in uio.Loader(graph, seed=3, **options)}


def by_hand(corpus: Corpus) -> dict[str, torch.Tensor]:
    """The codes of each utterance alone."""
    model, found = Codec().eval(), {}
    with torch.no_grad():
        for sample in uio.Loader(uio.from_shard_list(corpus.list).decode_audio()):
            values, lengths = model(sample["wav"], torch.tensor([sample["wav"].shape[1]]))
            found[sample["key"]] = values[0, : lengths[0]]
    return found


def run(corpus: Corpus, cache: Path | str, model: FrozenModel | None = None, **options: Any) -> uio.Stats:
    graph = to_encode(str(corpus.list), str(cache))
    return uio.encode(uio.Loader(graph, seed=3, **options), Codec() if model is None else model)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_cache_before_it_draws_nothing(corpus: Corpus, tmp_path: Path) -> None:
    audio = uio.from_shard_list(corpus.list).decode_audio().resample(8_000).cache(tmp_path / "first")
    graph = audio.encoded(tmp_path / "codes", ["codes"], by="codec").batch(4).pad()
    assert uio.encode(uio.Loader(graph), Codec()).utterances == COUNT


@pytest.mark.parametrize("workers", [0, 2])
def test_codes_are_those_of_the_model_and_made_once(corpus: Corpus, tmp_path: Path, workers: int, caplog: Any) -> None:
    model = Codec()
    found = run(corpus, tmp_path / "cache", model, num_workers=workers)
    assert (found.utterances, found.skipped, model.called, model.training) == (COUNT, {}, COUNT, True)
    assert same(codes(corpus, tmp_path / "cache"), by_hand(corpus))
    again = run(corpus, tmp_path / "cache", model, num_workers=workers)
    assert (again.utterances, again.skipped, model.called) == (0, {"encoded": COUNT}, COUNT)
    assert not caplog.text, "that nothing is left to do is nothing to warn of"


@pytest.mark.parametrize("workers", [0, 1])
def test_any_lane_may_come_first(corpus: Corpus, tmp_path: Path, workers: int) -> None:
    """As when the utterances of the first lane have been encoded before."""
    run(corpus, tmp_path / "cache", lanes=3, rank=0, world_size=3, uneven="join")
    next((tmp_path / "cache").rglob("stages.txt")).unlink()
    _shelves.clear()
    assert run(corpus, tmp_path / "cache", lanes=3, num_workers=workers).utterances > 0
    assert run(corpus, tmp_path / "cache").skipped == {"encoded": COUNT}


def test_ranks_share_the_work(corpus: Corpus, tmp_path: Path) -> None:
    ranks = [run(corpus, tmp_path / "cache", rank=rank, world_size=2, uneven="join") for rank in range(2)]
    assert sum(one.utterances for one in ranks) == COUNT
    assert min(one.utterances for one in ranks) > 0
    assert same(codes(corpus, tmp_path / "cache"), by_hand(corpus))


def test_what_was_removed_is_made_again(corpus: Corpus, tmp_path: Path) -> None:
    """In the same process, too, which must not go on to write to files that are gone."""
    run(corpus, tmp_path / "cache")
    shutil.rmtree(tmp_path / "cache")
    assert run(corpus, tmp_path / "cache", Codec(1.0)).utterances == COUNT
    _shelves.clear()
    assert not same(codes(corpus, tmp_path / "cache"), by_hand(corpus))


def test_a_killed_run_goes_on(corpus: Corpus, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, encoding.__file__, str(corpus.list), str(cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(3)]  # two batches are whole, the third one is under way
        os.kill(process.pid, signal.SIGKILL)
    assert told == ["3\n"] * 3
    model = Codec()
    found = run(corpus, cache, model)
    assert (found.utterances, found.skipped) == (COUNT - 6, {"encoded": 6})
    assert model.called == COUNT - 6
    assert same(codes(corpus, cache), by_hand(corpus))


def test_a_damaged_record_is_made_again(corpus: Corpus, tmp_path: Path) -> None:
    run(corpus, tmp_path / "cache")
    (data,) = (tmp_path / "cache").rglob("*.data")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    _shelves.clear()
    loader = uio.Loader(encoded(str(corpus.list), str(tmp_path / "cache")))
    assert len(list(loader)) == COUNT - 1
    assert loader.stats().skipped == {"damaged_cache": 1, "not_encoded": 1}
    found = run(corpus, tmp_path / "cache")
    assert (found.utterances, found.skipped) == (1, {"damaged_cache": 1, "encoded": COUNT - 1})
    assert same(codes(corpus, tmp_path / "cache"), by_hand(corpus))


def test_other_weights_need_another_name(corpus: Corpus, tmp_path: Path) -> None:
    run(corpus, tmp_path / "cache")
    for workers in (0, 1):
        with pytest.raises(uio.PipelineError, match="filled by another model, or by other weights, under the name"):
            run(corpus, tmp_path / "cache", Codec(1.0), num_workers=workers)
    run(corpus, tmp_path / "cache", torch.compile(Codec(), backend="eager"))
    assert same(codes(corpus, tmp_path / "cache"), by_hand(corpus))


def test_a_model_may_make_several_fields_of_features(corpus: Corpus, tmp_path: Path) -> None:
    def model(feats: torch.Tensor, lengths: torch.Tensor) -> Any:
        return {"halves": (feats[:, ::2].half(), (lengths + 1) // 2), "means": (feats.mean(2), lengths)}

    audio = uio.from_shard_list(corpus.list).decode_audio().fbank(num_mel_bins=8)
    graph = audio.encoded(tmp_path / "cache", ["means", "halves"], by="means")
    assert uio.encode(uio.Loader(graph.batch(4).pad()), model).utterances == COUNT
    plain = {sample["key"]: sample["feat"] for sample in uio.Loader(audio)}
    for sample in uio.Loader(graph):
        feat = plain[sample["key"]]
        assert torch.equal(sample["halves"], feat[::2].half())
        assert torch.equal(sample["means"], feat.mean(1))
        assert sample.keys().isdisjoint(["feat", "wav"])


def test_by_url_and_in_a_mix(corpus: Corpus) -> None:
    import fsspec

    part = encoded(str(corpus.list), "memory://test_encode/cache")
    graph = uio.mix({"one": part, "other": part.tag({"lang": "zh"})}, weights=[1, 1])
    memory = fsspec.filesystem("memory")
    try:
        found = uio.encode(uio.Loader(graph.batch(4).pad()), Codec())
        assert found.utterances == 2 * COUNT, "each source passes over what had been encoded before"
        batches = list(uio.Loader(graph.batch(4).pad(keep=["codes"])))
        assert sum(len(batch["keys"]) for batch in batches) == 2 * COUNT
    finally:
        memory.rm("/test_encode", recursive=True)


def test_what_cannot_be_kept_ends_the_run(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(uio.UioError, match="cannot be written any more"):
        run(corpus, tmp_path / "file" / "cache")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda pcm, n: pcm, "for 3 utterances the model must return values .3, T, …. and lengths .3,. of codes"),
        (lambda pcm, n: (pcm[0], n), "not \\[\\(\\d+,\\), \\(3,\\)\\]"),
        (lambda pcm, n: (pcm[:1], n[:1]), "for 3 utterances"),
        (lambda pcm, n: (pcm, n + 1), "and lengths \\d+ to"),
        (lambda pcm, n: {"units": (pcm, n)}, "the model returned units, not codes"),
    ],
)
def test_what_a_model_must_return(corpus: Corpus, tmp_path: Path, made: Any, told: str) -> None:
    with pytest.raises(uio.PipelineError, match=told):
        run(corpus, tmp_path / "cache", made)


def test_what_can_be_encoded(corpus: Corpus, tmp_path: Path) -> None:
    audio = uio.from_shard_list(corpus.list).decode_audio()
    graph = audio.encoded(tmp_path, ["codes"], by="codec")
    other = uio.mix({"one": graph, "other": audio.encoded(tmp_path, ["codes"], by="other")}, weights=[1, 1])
    perturbed = audio.speed_perturb([0.9, 1.1]).encoded(tmp_path, ["codes"], by="codec")
    for pipeline, told in [
        (audio.batch(2).pad(), "has no .encoded"),
        (graph.batch(2), r"must end with .pad\(\)"),
        (graph.batch(2).pad(names={"pcm": "x"}), "neither pcm nor feats"),
        (other.batch(2).pad(), "one model at a time, not codec, other"),
        (graph.repeat().batch(2).pad(), r"remove repeat\(\)"),
        (perturbed.batch(2).pad(), "is random"),
    ]:
        with pytest.raises(uio.PipelineError, match=told):
            uio.encode(uio.Loader(pipeline), Codec())
    with pytest.raises(uio.PipelineError, match="must be a Loader"):
        uio.encode(graph, Codec())  # type: ignore[arg-type]


def test_the_loader_does_not_move(corpus: Corpus, tmp_path: Path) -> None:
    run(corpus, tmp_path / "cache")
    loader = uio.Loader(to_encode(str(corpus.list), str(tmp_path / "cache")), seed=3)
    before = loader.state_dict()
    uio.encode(loader, Codec())
    assert loader.state_dict() == before
    assert [digest(batch) for batch in loader]
