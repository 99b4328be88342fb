"""Shards that the real webdataset wrote are read, and webdataset reads shards of ours."""

import io
import json
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
import soundfile
from helpers_bad import each_alone

import uio_pipes as uio
from uio_pipes.base.errors import ListError, PipelineError

webdataset = pytest.importorskip("webdataset")


def write(path: Path, samples: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with webdataset.TarWriter(str(path)) as sink:
        for sample in samples:
            sink.write(sample)
    return path


def spoken(i: int, **more: Any) -> dict[str, Any]:
    return {"__key__": f"K{i:03d}", "wav": corpus.wav_bytes(i), **more}


# What webdataset wrote


def test_audio_text_and_other_members(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", [spoken(i, txt=f"文{i}", cls=i, **{"mask.npy": np.arange(i)}) for i in range(5)])
    samples, skipped = each_alone(uio.from_shard_list(str(path), grouping="webdataset").decode_audio())
    assert skipped == {}
    for i, (sample, own) in enumerate(zip(samples, webdataset.WebDataset(str(path), shardshuffle=False), strict=True)):
        assert sample["key"] == own["__key__"] == f"K{i:03d}"
        assert sample["txt"] == own["txt"].decode()
        assert sample["cls"] == own["cls"]
        assert sample["mask.npy"] == own["mask.npy"]
        wanted, _ = soundfile.read(io.BytesIO(own["wav"]), dtype="float32")
        np.testing.assert_array_equal(sample["wav"][0], wanted)


def test_text_in_json(tmp_path: Path) -> None:
    texts: list[Any] = [{"text": f"文{i}", "speaker": i} for i in range(6)]
    texts[2], texts[4] = {"words": "x"}, ["text"]
    path = write(tmp_path / "a.tar", [spoken(i, json=text) for i, text in enumerate(texts)])
    samples, skipped = each_alone(uio.from_shard_list(str(path), grouping="webdataset", text="json:text"))
    assert [s["txt"] for s in samples] == ["文0", "文1", "文3", "文5"]
    assert json.loads(samples[1]["json"])["speaker"] == 1
    assert skipped == {"missing_text": 1, "bad_text": 1}
    assert each_alone(uio.from_shard_list(str(path)))[1] == {"missing_text": 6}
    with pytest.raises(PipelineError, match="text must be a suffix"):
        uio.from_shard_list(str(path), text="a/b")


def test_text_under_another_suffix_and_members_of_webdatasets_own(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [spoken(i, transcript=f"文{i}".encode()) for i in range(3)])
    own = [("__index__", b"{}"), ("__meta__/a.json", b"{}")]
    spoken_of = [("K9.wav", corpus.wav_bytes(9)), ("K9.transcript", b"nine")]
    (tmp_path / "b.tar").write_bytes(corpus._tar([*own, *spoken_of]))
    assert [s["__key__"] for s in webdataset.WebDataset(str(tmp_path / "b.tar"), shardshuffle=False)] == ["K9"]
    pipeline = uio.from_shard_list(str(tmp_path / "*.tar"), grouping="webdataset", text="transcript")
    samples, skipped = each_alone(pipeline)
    assert [s["txt"] for s in samples] == ["文0", "文1", "文2", "nine"]
    assert skipped == {}


# CAT's feature shards, in folders by length


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As CAT's prep_wds writes them: ``{10_100,100_200}/data-*.tar`` of KEY.npy and KEY.txt."""
    root = tmp_path_factory.mktemp("cat")
    for low, high in ((10, 100), (100, 200)):
        (root / f"{low}_{high}").mkdir()
        with webdataset.ShardWriter(str(root / f"{low}_{high}" / "data-%05d.tar"), maxcount=4, verbose=0) as sink:
            for i in range(11):
                rng = np.random.default_rng(low + i)
                frames = int(rng.integers(low, high))
                feats = rng.standard_normal((frames, 8)).astype(np.float32)
                sink.write({"__key__": f"G{low}_{i:02d}", "npy": feats, "txt": f"文{i}"})
    return root


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("10_100/data-*.tar", 11), ("{10_100,100_200}/data-*.tar", 22), ("10_100/data-0000{0..1}.tar", 8)],
)
def test_groups_of_lengths_are_chosen_by_braces_and_globs(pattern: str, count: int, groups: Path) -> None:
    pipeline = uio.from_shard_list(f"{groups}/{pattern}", shuffle=True)
    batched = pipeline.tokenize(lambda text: [len(text)]).spec_aug().shuffle(8).sort(6).dynamic_batch(max_frames=500)
    loader = uio.Loader(batched.pad())
    keys = []
    for batch in loader:
        keys += batch["keys"]
        assert batch["feats"].shape[2] == 8
        assert batch["feats"].shape[0] * int(batch["feats_lengths"].max()) <= 500
    assert len(set(keys)) == count
    assert loader.stats().failures == 0


def test_a_group_that_is_not_there_is_named(groups: Path) -> None:
    with pytest.raises(ListError, match=r"500_800/data-\*\.tar"):
        list(uio.Loader(uio.from_shard_list(f"{groups}/{{10_100,500_800}}/data-*.tar").batch(1)))


def test_features_are_bit_for_bit_what_webdataset_reads(groups: Path) -> None:
    shards = sorted(map(str, groups.glob("*/data-*.tar")))
    own = {s["__key__"]: s["npy"] for s in webdataset.WebDataset(shards, shardshuffle=False).decode()}
    samples, _ = each_alone(uio.from_shard_list(shards).sort(4))
    assert len(samples) == len(own) == 22
    for sample in samples:
        np.testing.assert_array_equal(sample["feat"], own[sample["key"]])
