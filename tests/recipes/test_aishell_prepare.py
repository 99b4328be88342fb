"""From AISHELL-1's layout to lists, statistics, shards and the dictionary."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from recipes.aishell.layout import SPLITS, transcript_path, wav_path
from recipes.aishell.prepare import prepare
from recipes.common.lists import read_lines
from recipes.common.prepare import make_lists, make_shards
from uio_pipes.base.errors import ListError
from uio_pipes.io.files import write_lines


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


def test_statistics_are_of_train(corpus: Path, tmp_path: Path) -> None:
    prepare(corpus, tmp_path / "out", num_mel_bins=20)
    found = json.loads((tmp_path / "out" / "global_cmvn").read_text())
    assert len(found["mean_stat"]) == len(found["var_stat"]) == 20
    assert found["frame_num"] == 4 * 8  # 100 ms each


def test_stages_1_to_3_take_any_kaldi_folder(corpus: Path, tmp_path: Path) -> None:
    wav = next((corpus / "data_aishell" / "wav" / "train").glob("*/*.wav"))
    for split in SPLITS:
        write_lines(tmp_path / "own" / split / "wav.scp", [f"rec {wav}"])
        write_lines(tmp_path / "own" / split / "text", ["a 今天", "b 很热", "c 没有"])
        write_lines(tmp_path / "own" / split / "segments", ["a rec 0 0.04", "b rec 0.05 0.1", "d rec 0 0.1"])
    make_lists(tmp_path / "own", SPLITS)
    make_shards(tmp_path / "own", SPLITS, shard_size=1000)
    raw = [json.loads(line) for line in read_lines(tmp_path / "own" / "dev" / "data.list")]
    assert [(line["key"], line["start"], line["end"]) for line in raw] == [("a", 0, 0.04), ("b", 0.05, 0.1)]
    with tarfile.open(tmp_path / "own/train/shards/shards_000000000.tar") as tar:
        sizes = {info.name: info.size for info in tar}
    assert sizes["a.wav"] == 44 + 2 * 640
    assert sizes["b.wav"] == 44 + 2 * 800


def test_a_missing_list_says_which_stage_makes_it(tmp_path: Path) -> None:
    with pytest.raises(ListError, match="stage 0"):
        make_lists(tmp_path, SPLITS)
