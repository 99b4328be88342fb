"""WeNet's reading, by its own rules, of what `uio pack` wrote; and Lhotse's, over webdataset."""

import io
import sys
from pathlib import Path

import corpus
import numpy as np
import pytest
import soundfile

import uio_pipes as uio
from uio_pipes.tools.data.pack import PackSettings, pack

sys.path.insert(0, str(Path(__file__).parents[2]))  # benchmarks/ holds WeNet's reading, written from its description


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, corpus.Corpus]:
    root = tmp_path_factory.mktemp("packed")
    raw = corpus.raw_list(root / "raw", 11)
    pack(raw.list, root / "out", root / "shards.list", PackSettings(size=4, sample_rate=None))
    return root / "shards.list", raw


def test_wenets_tar_file_and_group(packed: tuple[Path, corpus.Corpus]) -> None:
    from benchmarks.peers.wenet import tar_utterances

    shards, raw = packed
    theirs = list(tar_utterances(shards.read_text().split()))
    ours = [s for batch in uio.Loader(uio.from_shard_list(shards).decode_audio().batch(4)) for s in batch]
    assert [s["key"] for s in theirs] == [s["key"] for s in ours] == list(raw.keys)
    for mine, their in zip(ours, theirs, strict=True):
        assert their["txt"] == mine["txt"]
        np.testing.assert_array_equal(soundfile.read(io.BytesIO(their["wav"]), dtype="float32")[0], mine["wav"][0])


def test_lhotse_over_webdataset(packed: tuple[Path, corpus.Corpus]) -> None:
    """As docs/neighbours.md shows it: Lhotse has no reader of its own for such shards."""
    lhotse, webdataset = pytest.importorskip("lhotse"), pytest.importorskip("webdataset")
    shards, raw = packed
    found = {}
    for sample in webdataset.WebDataset(shards.read_text().split(), shardshuffle=False):
        recording = lhotse.Recording.from_bytes(sample["wav"], recording_id=sample["__key__"])
        cut = recording.to_cut()
        cut.supervisions = [
            lhotse.SupervisionSegment(cut.id, cut.id, 0, cut.duration, text=sample["txt"].decode()),
        ]
        found[recording.id] = cut
    ours = [s for batch in uio.Loader(uio.from_shard_list(shards).decode_audio().batch(4)) for s in batch]
    assert list(found) == list(raw.keys)
    for sample in ours:
        cut = found[sample["key"]]
        assert cut.supervisions[0].text == sample["txt"]
        np.testing.assert_array_equal(cut.load_audio(), sample["wav"].numpy())
