"""From AISHELL-1's layout to lists, shards and the dictionary."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from recipes.aishell.layout import SPLITS, CorpusMissing, transcript_path, wav_path
from recipes.aishell.prepare import prepare
from recipes.common.files import read_lines, write_lines


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Five tones for each part, the last without a text."""
    lines = []
    for part, split in enumerate(SPLITS):
        for number in range(5):
            key = f"BAC009S{part:04d}W{number:04d}"
            path = wav_path(tmp_path / "data_aishell", split, key)
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, np.full(1600, number, dtype=np.int16), 16_000)
            lines += [f"{key} 今天 {'很 热' if split == 'train' else '下雨'}"] if number < 4 else []
    write_lines(transcript_path(tmp_path / "data_aishell"), lines)
    return tmp_path


def names_in(shard: Path) -> list[str]:
    with tarfile.open(shard) as tar:
        return tar.getnames()


def test_lists_shards_and_dictionary(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(corpus, out, shard_size=3)
    assert read_lines(out / "dict" / "lang_char.txt") == [
        "<blank> 0",
        "<unk> 1",
        "<sos/eos> 2",
        "今 3",
        "天 4",
        "很 5",
        "热 6",
    ]
    for part, split in enumerate(SPLITS):
        keys = [f"BAC009S{part:04d}W{number:04d}" for number in range(4)]
        raw = [json.loads(line) for line in read_lines(out / split / "data.list")]
        assert [line["key"] for line in raw] == keys
        assert all(Path(line["wav"]).is_file() and " " not in line["txt"] for line in raw)
        assert read_lines(out / split / "wav.scp") == [f"{line['key']} {line['wav']}" for line in raw]
        assert read_lines(out / split / "text") == [f"{line['key']} {line['txt']}" for line in raw]
        shards = [Path(line) for line in read_lines(out / split / "shards.list")]
        assert [shard.name for shard in shards] == ["shards_000000000.tar", "shards_000000001.tar"]
        members = [name for shard in shards for name in names_in(shard)]
        assert members == [f"{key}.{suffix}" for key in keys for suffix in ("txt", "wav")]


def test_equal_input_gives_equal_shards_and_no_leftovers(corpus: Path, tmp_path: Path) -> None:
    prepare(corpus, tmp_path / "a")
    prepare(corpus, tmp_path / "b")
    shard = "train/shards/shards_000000000.tar"
    assert (tmp_path / "a" / shard).read_bytes() == (tmp_path / "b" / shard).read_bytes()
    assert not list((tmp_path / "a").rglob(".*"))


def test_a_recording_that_is_none_is_left_out_and_listed(corpus: Path, tmp_path: Path) -> None:
    next(corpus.rglob("BAC009S0001W0002.wav")).write_bytes(b"no audio")
    prepare(corpus, tmp_path / "out")
    shard = tmp_path / "out/dev/shards/shards_000000000.tar"
    assert [name for name in names_in(shard) if name.endswith("wav")] == [f"BAC009S0001W000{n}.wav" for n in (0, 1, 3)]
    failed = json.loads((tmp_path / "out/dev/shards/failed.jsonl").read_text())
    assert (failed["key"], failed["reason"]) == ("BAC009S0001W0002", "bad_audio")


def test_nothing_is_listed_before_it_is_complete(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr("recipes.common.shard_writer._Shard._member", fail)
    with pytest.raises(OSError, match="disk"):
        prepare(corpus, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.tar*"))
    assert not list((tmp_path / "out").rglob("shards.list"))


def test_a_missing_corpus_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(CorpusMissing, match=r"python -m recipes\.aishell\.mini .*\n.*openslr"):
        prepare(tmp_path, tmp_path / "out")
