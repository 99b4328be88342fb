"""The cache: the same bits whether it is full, empty or half gone, and what must not disturb a training."""

import os
import resource
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import soundfile
import torch
from contract import Case, check_cuts, digest, in_fresh_process, record
from corpus import Corpus, raw_list, shards

import uio_pipes as uio
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.roles import Op
from uio_pipes.formats.stored_fields import dumps
from uio_pipes.io.shelf import Shelf, _shelves, entry_of, rows_of
from uio_pipes.stages.utterances.map import Map


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return shards(tmp_path / "data", [5, 4, 6], seconds=(0.3, 1.2))


def features(corpus: Corpus) -> uio.Pipeline:
    return uio.from_shard_list(corpus.list, shuffle=True).decode_audio().fbank(num_mel_bins=8)


def batched(graph: uio.Pipeline) -> uio.Pipeline:
    return graph.filter(max_frames=110).shuffle(5).sort(4).dynamic_batch(300).pad()


def batches(graph: uio.Pipeline, epochs: int = 1, **options: Any) -> list[str]:
    loader = uio.Loader(graph, seed=3, **options)
    return [digest(batch) for _ in range(epochs) for batch in loader]


def files(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.rglob(f"*.{suffix}"))


def records(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder, "index")) // 64


def halve(folder: Path) -> None:
    """Lose the end of each file, as a machine that lost its power does."""
    for path in [*files(folder, "index"), *files(folder, "data")]:
        os.truncate(path, path.stat().st_size // 2 - 3)


@pytest.mark.parametrize("fields", [None, ["feat"]])
def test_full_empty_and_half_gone_resume_to_the_same_bits(corpus: Corpus, tmp_path: Path, fields: Any) -> None:
    folder = tmp_path / "cache"
    case = Case(batched(features(corpus).cache(folder, fields)), {"lanes": 3, "seed": 3})
    cold = record(case)
    assert cold.digests == batches(batched(features(corpus)), lanes=3)
    kept = records(folder)
    warm = record(case)
    assert (warm.digests, warm.after) == (cold.digests, cold.after)
    check_cuts(cold, range(len(cold.digests)))
    assert records(folder) == kept > 0, "nothing is computed twice"
    halve(folder)
    _shelves.clear()
    check_cuts(cold, range(len(cold.digests)))
    assert records(folder) > kept // 2


def test_other_ranks_and_a_fresh_process_find_what_is_kept(corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    case = Case(batched(features(corpus).cache(folder)), {"lanes": 2, "seed": 3})
    cold = record(case)
    kept = records(folder)
    assert in_fresh_process([(case, cold.states[0])], tmp_path) == [cold.digests]
    ranks = [batches(case.pipeline, lanes=2, rank=rank, world_size=2, uneven="join") for rank in range(2)]
    assert sorted(ranks[0] + ranks[1]) == sorted(cold.digests)
    assert records(folder) == kept
    assert batches(features(corpus).cache(folder).batch(4).pad(), num_workers=1)
    assert records(folder) == 15 > kept, "another pipeline finds what this one has not left out"


def test_a_hit_reads_nothing_of_the_audio(tmp_path: Path) -> None:
    corpus = raw_list(tmp_path / "data", 8)
    graph = batched(uio.from_raw_list(corpus.list).decode_audio().fbank(num_mel_bins=8).cache(tmp_path / "cache"))
    cold = batches(graph)
    for path in (tmp_path / "data").rglob("*.wav"):
        status = path.stat()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert batches(graph) == cold


def test_a_changed_file_is_computed_again(tmp_path: Path) -> None:
    corpus = raw_list(tmp_path / "data", 4)
    plain = uio.from_raw_list(corpus.list).decode_audio().fbank(num_mel_bins=8)
    cached = plain.cache(tmp_path / "cache").batch(2).pad()
    cold = batches(cached)
    one, other, *_ = sorted((tmp_path / "data").rglob("*.wav"))
    one.write_bytes(other.read_bytes())
    assert batches(cached) == batches(plain.batch(2).pad()) != cold


def scaled(by: float, text: str = "sample['wav'] * by") -> Any:
    made: dict[str, Any] = {"by": by, "__name__": "made"}
    exec(f"def scale(sample):\n    sample['wav'] = {text}\n    return sample", made)
    return made["scale"]


def test_a_changed_stage_is_computed_again(corpus: Corpus, tmp_path: Path) -> None:
    start, folder = uio.from_shard_list(corpus.list).decode_audio(), tmp_path / "cache"

    def outer(by: float) -> Any:
        def scale(sample: uio.Sample) -> uio.Sample:
            sample["wav"] = sample["wav"] * by
            return sample

        return scale

    graphs = [start.fbank(num_mel_bins=8), start.fbank(num_mel_bins=9)]
    graphs += [start.map(outer(by), length="same").fbank(num_mel_bins=8) for by in (0.5, 2.0)]
    graphs += [start.map(scaled(0.5, text), length="same") for text in ("sample['wav'] + 1", "sample['wav'] - 1")]
    for graph in graphs:
        assert batches(graph.cache(folder).batch(4).pad()) == batches(graph.batch(4).pad())
    assert len(list(folder.iterdir())) == len(graphs)


def test_random_stages_are_those_of_the_epoch_and_warned_about(corpus: Corpus, tmp_path: Path, caplog: Any) -> None:
    plain = uio.from_shard_list(corpus.list).decode_audio().speed_perturb([0.9, 1.1]).fbank(num_mel_bins=8)
    cached = batched(plain.cache(tmp_path / "cache", ["feat"]))
    assert batches(cached, epochs=2) == batches(batched(plain), epochs=2)
    kept = records(tmp_path / "cache")
    assert batches(cached, epochs=2) == batches(batched(plain), epochs=2)
    assert records(tmp_path / "cache") == kept, "the same epochs find it"
    assert "random draws of this epoch" in caplog.text


def test_a_stage_that_draws_for_some_keeps_the_others_for_every_epoch(corpus: Corpus, tmp_path: Path) -> None:
    plain = uio.from_shard_list(corpus.list).decode_audio().random_crop(max_seconds=0.8)
    cached = plain.cache(tmp_path / "cache").batch(4).pad()
    assert batches(cached, epochs=2) == batches(plain.batch(4).pad(), epochs=2)
    assert 15 < records(tmp_path / "cache") < 30


CALLED: list[str] = []


def _codes(sample: uio.Sample) -> uio.Sample:
    CALLED.append(sample.key)
    sample["codes"] = (sample["wav"][0, ::320] * 100).to(torch.int32)
    return sample


def test_a_map_before_it_runs_once(corpus: Corpus, tmp_path: Path) -> None:
    CALLED.clear()
    graph = uio.from_shard_list(corpus.list).decode_audio().map(_codes)
    plain = batches(graph.shuffle(4).batch(4).pad(keep=["codes"]))
    CALLED.clear()
    cached = graph.cache(tmp_path / "cache").shuffle(4).batch(4).pad(keep=["codes"])
    assert batches(cached) == plain
    assert len(CALLED) == 15
    assert batches(cached, epochs=2)[: len(plain)] == plain
    assert len(CALLED) == 15


def test_damaged_records_are_counted_and_computed_again_once(corpus: Corpus, tmp_path: Path) -> None:
    graph, folder = features(corpus).cache(tmp_path / "cache", ["feat"]).batch(4).pad(), tmp_path / "cache"
    cold = batches(graph)
    (data,) = files(folder, "data")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    _shelves.clear()
    loader = uio.Loader(graph, seed=3)
    assert [digest(batch) for batch in loader] == cold
    assert loader.stats().skipped == {"damaged_cache": 1}
    assert loader.stats().failures == 0
    assert [digest(batch) for batch in loader] != []
    assert loader.stats().skipped == {}


def test_a_damaged_row_is_no_row(corpus: Corpus, tmp_path: Path) -> None:
    """Else a planned length would be wrong, and the batches with it."""
    graph = batched(features(corpus).cache(tmp_path / "cache"))
    cold = batches(graph)
    (index,) = files(tmp_path / "cache", "index")
    content = bytearray(index.read_bytes())
    for row in range(0, len(content), 128):
        content[row + 45] ^= 4
    index.write_bytes(content)
    _shelves.clear()
    assert batches(graph) == cold


def test_a_full_disk_stops_writing_and_nothing_else(corpus: Corpus, tmp_path: Path, caplog: Any) -> None:
    graph = features(corpus).cache(tmp_path / "cache").batch(4).pad()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        first = batches(graph, epochs=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caplog.text.count("cannot be written") == 2, "once in each epoch"
    assert records(tmp_path / "cache") < 15
    assert batches(graph, epochs=2) == first == batches(features(corpus).batch(4).pad(), epochs=2)
    assert records(tmp_path / "cache") == 15, "there is room again, without a new process"


@pytest.mark.parametrize(
    "forged",
    [
        {"": ["feat"], "wav": "/etc/passwd"},
        {"": [], "wav": ["/etc/passwd"]},
        {"feat": torch.ones(3, 8)},
        {"": 3},
        b"{" * 100,
    ],
)
def test_a_forged_record_is_computed_again(corpus: Corpus, tmp_path: Path, forged: Any) -> None:
    """Its sums are right, but no cache would have made it."""
    graph, folder = features(corpus).cache(tmp_path / "cache").batch(4).pad(), tmp_path / "cache"
    cold = batches(graph)
    (mark,) = folder.iterdir()
    row = rows_of(files(folder, "index")[0].read_bytes())[0].tolist()
    shutil.rmtree(mark)
    data = forged if isinstance(forged, bytes) else dumps(forged)
    Shelf(str(folder), mark.name, 1 << 30, "", True).add((row[0], row[1]), data, entry_of(row, "").lengths)
    _shelves.clear()
    loader = uio.Loader(graph, seed=3)
    assert [digest(batch) for batch in loader] == cold
    assert (loader.stats().skipped, loader.stats().failures) == ({"damaged_cache": 1}, 0)


def test_nothing_is_added_above_the_size(corpus: Corpus, tmp_path: Path, caplog: Any) -> None:
    graph = features(corpus).cache(tmp_path / "cache", size=100_000).batch(4).pad()
    assert batches(graph) == batches(features(corpus).batch(4).pad())
    assert sum(path.stat().st_size for path in files(tmp_path / "cache", "data")) <= 100_000
    assert caplog.text.count("has reached its size") == 1


def test_read_only_finds_and_adds_nothing(corpus: Corpus, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    plain = batches(features(corpus).batch(4).pad())
    assert batches(features(corpus).cache(folder, read_only=True).batch(4).pad()) == plain
    assert not folder.exists()
    batches(features(corpus).cache(folder).batch(4).pad())
    kept = records(folder)
    assert batches(features(corpus).cache(folder, read_only=True).batch(4).pad()) == plain
    assert records(folder) == kept


def test_by_url_whole_files_are_uploaded(corpus: Corpus) -> None:
    import fsspec

    graph = batched(features(corpus).cache("memory://test_cache/cache"))
    memory = fsspec.filesystem("memory")
    try:
        cold = batches(graph, epochs=2)
        assert [name for name in memory.find("/test_cache") if name.endswith(".index")]
        _shelves.clear()
        assert batches(graph, epochs=2) == cold == batches(batched(features(corpus)), epochs=2)
    finally:
        memory.rm("/test_cache", recursive=True)


@pytest.mark.parametrize(("field", "told"), [("odd", "a builtins.set"), ("wav", "a path (wav)")])
def test_what_cannot_be_kept_is_said(field: str, told: str, corpus: Corpus, tmp_path: Path, caplog: Any) -> None:
    """The file of a path may be another one later."""
    values = {"odd": {1, 2}, "wav": str(tmp_path / "a.wav")}
    soundfile.write(values["wav"], np.zeros(8_000), 16_000)
    graph = uio.from_shard_list(corpus.list).map(lambda sample: sample.replaced({**sample, field: values[field]}))
    assert batches(graph.cache(tmp_path / "cache").decode_audio().batch(4)) == batches(graph.decode_audio().batch(4))
    assert not records(tmp_path / "cache")
    assert f"{told} cannot be cached" in caplog.text


def _turned(sample: uio.Sample) -> uio.Sample:
    """As features that are computed as (bins, frames): (frames, bins) by a view, and another view of its beginning."""
    sample["turned"] = sample.pop("feat").T.contiguous().T
    sample["begin"] = sample["turned"][:9]
    return sample


def _centred(sample: uio.Sample) -> uio.Sample:
    sample["turned"] -= sample["turned"].mean(0)  # its bits depend on the strides, and it changes what shares memory
    return sample


def test_strides_and_shared_memory_are_the_same_from_the_cache(corpus: Corpus, tmp_path: Path) -> None:
    fields = ["turned", "begin"]
    graph = features(corpus).map(_turned, length="same").cache(tmp_path / "cache", fields).map(_centred).batch(4)
    cold = batches(graph.pad(keep=fields))
    _shelves.clear()
    assert records(tmp_path / "cache") == 15
    assert batches(graph.pad(keep=fields)) == cold


def test_a_cache_before_another_one_draws_nothing(corpus: Corpus, tmp_path: Path, caplog: Any) -> None:
    audio = uio.from_shard_list(corpus.list).decode_audio()
    first = audio.map(_codes, length="same").cache(tmp_path / "first")
    graph = first.map(_codes, length="same").cache(tmp_path / "second", ["codes"]).batch(4)
    batches(graph)
    assert "random draws" not in caplog.text
    first = audio.speed_perturb([0.9, 1.1]).cache(tmp_path / "drawn")
    batches(first.map(_codes, length="same").cache(tmp_path / "of drawn", ["codes"]).batch(4))
    assert caplog.text.count("15 of 15 utterances were computed with random draws") == 2, "both of them do"
    kept = records(tmp_path / "of drawn")
    batches(first.map(_codes, length="same").cache(tmp_path / "of drawn", ["codes"]).batch(4))
    assert records(tmp_path / "of drawn") == kept == 15


def test_what_a_cache_before_it_keeps_is_part_of_the_key(corpus: Corpus, tmp_path: Path) -> None:
    def names(sample: uio.Sample) -> uio.Sample:
        sample["found"] = torch.tensor(["wav" in sample])
        return sample

    found = []
    for fields in (["codes"], None):
        graph = uio.from_shard_list(corpus.list).decode_audio().map(_codes, length="same")
        graph = graph.cache(tmp_path / "one", fields).map(names, length="same").cache(tmp_path / "other", ["found"])
        found.append([bool(sample["found"]) for sample in uio.Loader(graph)])
    assert found == [[False] * 15, [True] * 15]


def test_what_a_worker_has_kept_is_uploaded_before_it_ends(corpus: Corpus, tmp_path: Path, monkeypatch: Any) -> None:
    """However long that takes; torch kills a worker that goes on for 5 s."""
    from fsspec.implementations.local import LocalFileSystem

    def slow(self: Any, here: str, there: str, **_: Any) -> None:
        time.sleep(7 * there.endswith(".data"))
        Path(there).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(here, there)

    monkeypatch.setattr(LocalFileSystem, "put_file", slow)
    batches(features(corpus).cache(f"local://{tmp_path}/cache").batch(4), num_workers=1)
    assert records(tmp_path / "cache") == 15


def test_fields_that_are_not_kept_are_gone(corpus: Corpus, tmp_path: Path) -> None:
    graph = uio.from_shard_list(corpus.list).decode_audio().map(_codes, length="same")
    for ending in (graph, uio.Pipeline((*graph.stages[:-1], Map(_codes)))):
        kept = ending.cache(tmp_path / "cache", ["codes"]).sort(5)
        first, again = list(uio.Loader(kept)), list(uio.Loader(kept))
        assert {name for sample in first for name in sample} == {"key", "txt", "codes"}
        assert list(map(digest, first)) == list(map(digest, again))


def test_where_it_cannot_stand(corpus: Corpus, tmp_path: Path) -> None:
    start = uio.from_shard_list(corpus.list)
    with pytest.raises(PipelineError, match=r"stream 'prompt' cannot be cached: put .cache\(…\) before decode_audio"):
        start.decode_audio(of="prompt").cache(tmp_path)
    with pytest.raises(PipelineError, match=r"put .cache\(…\) before concat"):
        start.decode_audio().concat(max_seconds=3).cache(tmp_path)
    loudest = start.decode_audio().fbank(num_mel_bins=8).then(_Loudest())
    with pytest.raises(PipelineError, match="loudest before it needs wav, which is not cached"):
        batches(loudest.cache(tmp_path, ["feat"]).batch(2).pad())
    assert batches(loudest.cache(tmp_path, ["feat", "loudest"]).batch(4).pad()) == batches(loudest.batch(4).pad())


@dataclass(frozen=True)
class _Loudest(Op):
    name: ClassVar[str] = "loudest"
    reads = ("wav",)
    writes = ("loudest",)

    def apply(self, sample: uio.Sample, draws: Draws) -> None:
        sample.fields["loudest"] = float(sample.fields["wav"].max())


def test_a_length_that_only_decoding_shows_is_the_same_from_the_cache(corpus: Corpus, tmp_path: Path) -> None:
    graph = uio.from_shard_list(corpus.list).map(_as_mp3).decode_audio().speed_perturb([0.9]).fbank(num_mel_bins=8)
    cached = batched(graph.cache(tmp_path / "cache"))
    assert batches(cached) == batches(batched(graph)) == batches(cached)
    assert records(tmp_path / "cache") == 15


def _as_mp3(sample: uio.Sample) -> uio.Sample:
    import io

    import soundfile

    data, rate = soundfile.read(io.BytesIO(bytes(sample.fields["wav"].read())), dtype="float32")
    out = io.BytesIO()
    soundfile.write(out, data, rate, format="MP3")
    sample["wav"] = out.getvalue()
    return sample


def test_labels_and_features_are_kept_apart(corpus: Corpus, tmp_path: Path) -> None:
    plain = features(corpus).tokenize(_code_points)
    both = plain.cache(tmp_path / "one", ["feat"]).cache(tmp_path / "other", ["label"])
    for _ in range(2):
        assert batches(batched(both.filter(token_max_length=3))) == batches(batched(plain.filter(token_max_length=3)))
    assert (records(tmp_path / "one"), records(tmp_path / "other")) == (13, 15)


def _code_points(text: str) -> list[int]:
    return list(map(ord, text))
