"""From WenetSpeech.json to raw lists of segments."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import uio_pipes as uio

pytest.importorskip("ijson")

from recipes.common.lists import read_lines
from recipes.wenetspeech.layout import metadata_path
from recipes.wenetspeech.pack import pack_all, selected
from recipes.wenetspeech.prepare import normalize, prepare
from uio_pipes.tools.data.placement import LengthGroup

RATE = 16_000
SECONDS = 20.0
# sid's end, begin, end, text, confidence, subsets
GOOD: list[tuple[str, float, float, str, float, list[str]]] = [
    ("S0", 0.5, 1.25, "今天 很热", 1.0, ["L", "M", "S"]),
    ("S1", 1.5, 3.0, "明天", 1.0, ["L", "M"]),
    ("S2", 3.2, 5.2, "下雨", 0.97, ["L"]),
    ("S3", 5.3, 6.0, "下雪", 0.7, ["W"]),
    ("S4", 6.0, 19.995, "公园", 0.95, ["L"]),
]
BAD: list[tuple[str, Any, Any, str, float, list[str]]] = [
    ("B0", 19.0, 20.5, "晚", 1.0, ["L"]),
    ("B1", 8.0, 9.0, " 　", 1.0, ["L"]),
    ("B2", 9.0, 9.0, "空", 1.0, ["L"]),
    ("B3", None, 9.0, "缺", 1.0, ["L"]),
    ("B4", 9.0, 10.0, "低", 0.9, ["L"]),
]


def entry(aid: str, part: str, segments: list[tuple[str, Any, Any, str, float, list[str]]]) -> dict[str, Any]:
    names = ("begin_time", "end_time", "text", "confidence", "subsets")
    lines = [{"sid": f"{aid}_{sid}", **dict(zip(names, rest, strict=True))} for sid, *rest in segments]
    return {"aid": aid, "path": f"audio/{part}/B00000/{aid}.flac", "duration": 99.0, "segments": lines}


def held_out(subset: str) -> list[tuple[str, float, float, str, float, list[str]]]:
    return [("S0", 1.0, 2.0, "书", 1.0, [subset]), ("S1", 2.0, 14.5, "苹果", 1.0, [subset])]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    parts = {"dev": "DEV", "test_net": "TEST_NET", "test_meeting": "TEST_MEETING"}
    audios = [
        entry("Y0", "train", [*GOOD, *BAD]),
        entry("Y1", "train", []),
        entry("Y2", "train", [("S0", 0.0, 1.0, "零", 1.0, ["L", "M", "S"])]),
        entry("Y3", "train", [("S0", 0.0, 1.0, "一", 1.0, ["L"]), ("S1", 1.0, 2.0, "二", 1.0, ["L"])]),
        *(entry(subset, part, held_out(subset)) for part, subset in parts.items()),
    ]
    rng = np.random.default_rng(1)
    for one in audios:
        path = root / one["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if one["aid"] == "Y2":
            path.write_bytes(b"no audio")
        elif one["aid"] != "Y3":
            soundfile.write(path, (rng.standard_normal(int(RATE * SECONDS)) * 2000).astype(np.int16), RATE)
    metadata_path(root).write_text(json.dumps({"audios": audios}, ensure_ascii=False, indent=4))
    return root


def keys(folder: Path) -> list[str]:
    return [json.loads(line)["key"] for line in read_lines(folder / "data.list")]


@pytest.mark.parametrize(
    ("subset", "expected"),
    [("L", ["S0", "S1", "S2", "S4"]), ("M", ["S0", "S1"]), ("S", ["S0"]), ("W", ["S3"])],
)
def test_a_subset_is_chosen_by_name_and_confidence(
    corpus: Path, tmp_path: Path, subset: str, expected: list[str]
) -> None:
    prepare(corpus, tmp_path, subset)
    assert keys(tmp_path / "train") == [f"Y0_{sid}" for sid in expected]
    assert keys(tmp_path / "test_net") == ["TEST_NET_S0", "TEST_NET_S1"]


def test_bad_entries_are_counted_and_listed(corpus: Path, tmp_path: Path) -> None:
    result = prepare(corpus, tmp_path, "L")
    expected = {"past_the_end": 1, "empty_text": 1, "bad_segment": 1, "incomplete_entry": 1, "bad_audio": 1,
                "missing_file": 2}  # fmt: skip
    assert dict(result.left_out) == expected
    assert result.not_chosen == 2  # the weakly labelled one, and one whose confidence is too low for its subset
    assert result.utterances == {"train": 4, "dev": 2, "test_net": 2, "test_meeting": 2}
    listed = [json.loads(line) for line in read_lines(tmp_path / "left_out.jsonl")]
    assert {one["key"]: one["reason"] for one in listed}["Y0_B0"] == "past_the_end"
    assert len(listed) == sum(expected.values())
    assert "left out: 1 bad_audio, 1 bad_segment, 1 empty_text" in str(result)


def test_lists_are_wenets_and_kaldis(corpus: Path, tmp_path: Path) -> None:
    prepare(corpus, tmp_path, "M")
    wav = str(corpus.resolve() / "audio/train/B00000/Y0.flac")
    first = {"key": "Y0_S0", "wav": wav, "txt": "今天很热", "start": 0.5, "end": 1.25, "duration": 0.75}
    train = tmp_path / "train"
    assert json.loads(read_lines(train / "data.list")[0]) == first
    assert read_lines(train / "wav.scp") == [f"Y0 {wav}"]
    assert read_lines(train / "segments") == ["Y0_S0 Y0 0.5 1.25", "Y0_S1 Y0 1.5 3.0"]
    assert read_lines(train / "text") == ["Y0_S0 今天很热", "Y0_S1 明天"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("今天 很　热", "今天很热"),
        ("\ufeff我 用 iphone 打 电话", "我用IPHONE打电话"),
        ("ok let us go 吧", "OK LET US GO吧"),
        ("第 10 个", "第10个"),
        ("  ", ""),
    ],
)
def test_texts_are_normalized_as_the_fields_recipes_do(text: str, expected: str) -> None:
    assert normalize(text) == expected


def test_shards_hold_the_samples_that_raw_mode_cuts(corpus: Path, tmp_path: Path) -> None:
    prepare(corpus, tmp_path, "L")
    groups = (LengthGroup(10, 160), LengthGroup(160, 1200))
    packed = pack_all(tmp_path, groups, size=2, form="wav", jobs=1)
    assert packed["train"].left_out == {"too_long": 1}
    assert packed["dev"].utterances == 2, "held-out sets are packed whole, 12.5 s included"
    for name, count in (("train", 3), ("dev", 2)):
        raw, shards = (waveforms(source) for source in (
            uio.from_raw_list(str(tmp_path / name / "data.list")),
            uio.from_shard_list(str(tmp_path / name / "shards.list")),
        ))  # fmt: skip
        assert len(shards) == count
        assert all(pcm.equal(raw[key]) for key, pcm in shards.items())
    chosen = waveforms(uio.from_shard_list(selected(str(tmp_path), groups[:1])))
    both = waveforms(uio.from_shard_list(selected(str(tmp_path), groups)))
    assert sorted(chosen) == ["Y0_S0", "Y0_S1"]
    assert sorted(both) == ["Y0_S0", "Y0_S1", "Y0_S2"]


def waveforms(source: uio.Pipeline) -> dict[str, Any]:
    loader = uio.Loader(source.decode_audio().batch(1).pad(), failures="raise")
    return {batch["keys"][0]: batch["pcm"] for batch in loader}
