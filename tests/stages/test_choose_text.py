"""One transcript of several: chosen, the first that is there, or drawn, for any source and after ``segments``."""

import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import touchdataset

import uio_pipes as uio

SEGMENTS = [
    {"start": 0.1, "end": 0.4, "txt": "a", "whisper": "wa", "paraformer": "pa"},
    {"start": "0.5", "end": "0.8", "txt": "b", "whisper": "wb"},
    {"start": 0.9, "end": 1.2, "whisper": "wc", "paraformer": "pc"},
]


def texts(graph: uio.Pipeline, **options: Any) -> tuple[list[str], dict[str, int]]:
    loader = uio.Loader(graph, **options)
    return [sample["txt"] for sample in loader], loader.stats().skipped


def raw(folder: Path, *utterances: dict[str, Any]) -> Path:
    path = folder / "raw.list"
    lines = [{"key": f"k{i}", "wav": "x.wav", "txt": "", **one} for i, one in enumerate(utterances)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def chosen(pipeline: uio.Pipeline) -> list[str]:
    """Texts without audio, which is not there."""
    return [sample["txt"] for sample in uio.Loader(pipeline.map(_without_audio))]


def _without_audio(sample: uio.Sample) -> dict[str, Any]:
    return {"key": sample["key"], "txt": sample["txt"]}


def test_the_first_that_is_there(tmp_path: Path) -> None:
    path = raw(
        tmp_path, {"txt": "t", "whisper": "w"}, {"txt": "t"}, {"txt": "t", "whisper": ""}, {"info": {"whisper": "i"}}
    )
    graph = uio.from_raw_list(path)
    assert chosen(graph.choose_text(["whisper", "info.whisper", "txt"])) == ["w", "t", "t", "i"]
    assert chosen(graph.choose_text(["txt", "whisper", "info.whisper"])) == ["t", "t", "t", "i"]


def test_empty_texts_are_taken_only_if_there_is_no_other(tmp_path: Path) -> None:
    assert chosen(uio.from_raw_list(raw(tmp_path, {"whisper": ""})).choose_text(["whisper", "txt"])) == [""]


def test_none_is_counted(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path, touchdataset.speech(4))
    assert texts(uio.from_indexed(folder).choose_text(["speaker"])) == (["S0", "S1", "S2", "S0"], {})
    loader = uio.Loader(uio.from_indexed(folder).choose_text(["whisper", "info.whisper"]), failures="raise")
    with pytest.raises(uio.DataError, match=r"has none of whisper, info\.whisper") as raised:
        next(iter(loader))
    assert raised.value.reason == "missing_text"


def test_drawn_by_weights_among_those_that_are_there(tmp_path: Path) -> None:
    some = [{"txt": "t", "whisper": "w", "paraformer": "p"}] * 1200 + [{"txt": "t", "paraformer": "p"}] * 1200
    graph = uio.from_raw_list(raw(tmp_path, *some)).choose_text(["txt", "whisper", "paraformer"], weights=[3, 2, 1])
    made = chosen(graph)
    all_there, two_there = Counter(made[:1200]), Counter(made[1200:])
    assert abs(all_there["t"] - 600) < 90
    assert abs(all_there["w"] - 400) < 90
    assert abs(two_there["t"] - 900) < 90
    assert set(two_there) == {"t", "p"}


def test_a_transcript_of_a_shard_is_a_member_of_its_own(tmp_path: Path) -> None:

    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, data in (("a.txt", b"t"), ("a.whisper", "你好\n".encode()), ("a.bad", b"\xff"), ("a.wav", b"RIFF")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    source = uio.from_shard_list(str(tmp_path / "a.tar"))
    assert chosen(source.choose_text(["whisper", "txt"])) == ["你好"]
    with pytest.raises(uio.DataError, match="bad is not UTF-8"):
        list(uio.Loader(source.choose_text(["bad", "txt"]).map(_without_audio), failures="raise"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (samples, fields), *_ = touchdataset.speech(1, seconds=(2.0, 2.1))
    return touchdataset.write(tmp_path, [(samples, fields | {"whisper": "all", "info": {"segments": SEGMENTS}})])


ALL = ["txt", "whisper", "paraformer"]


def test_of_segments(folder: Path) -> None:
    source = uio.from_indexed(folder)
    assert texts(source.segments()) == (["a", "b"], {"missing_text": 1})
    cut = source.segments(texts=ALL)
    assert texts(cut.choose_text(["paraformer", "txt", "whisper"])) == (["pa", "b", "pc"], {})
    assert texts(cut.choose_text(["paraformer"])) == (["pa", "pc"], {"missing_text": 1})
    assert texts(cut.choose_text(["txt", "whisper"])) == (["a", "b", "wc"], {}), "not the recording's own"


def test_of_joined_segments_each_transcript_is_joined_by_itself(folder: Path) -> None:
    joined = uio.from_indexed(folder).segments(texts=ALL, merge_seconds=0.8)
    (first, last) = [dict(sample) for sample in uio.Loader(joined)]
    assert (first["txt"], first["whisper"], first["start"], first["end"]) == ("a b", "wa wb", 0.1, 0.8)
    assert "paraformer" not in first, "the second segment has none"
    assert (last["whisper"], last["paraformer"]) == ("wc", "pc")
    assert "txt" not in last
    all_of_it = uio.from_indexed(folder).segments(texts=ALL, merge_seconds=5)
    assert texts(all_of_it.choose_text(ALL)) == (["wa wb wc"], {})


def test_segments_without_a_transcript_in_common_are_not_joined(tmp_path: Path) -> None:
    (samples, fields), *_ = touchdataset.speech(1, seconds=(2.0, 2.1))
    listed = [{"start": i / 2, "end": i / 2 + 0.4, name: name} for i, name in enumerate(["txt", "txt", "whisper"])]
    touchdataset.write(tmp_path, [(samples, fields | {"info": {"segments": listed}})])
    joined = uio.from_indexed(tmp_path).segments(texts=ALL, merge_seconds=5).choose_text(ALL)
    assert texts(joined) == (["txt txt", "whisper"], {})


def test_of_pieces_no_transcript_is_known(folder: Path) -> None:
    cut = uio.from_indexed(folder).segments(texts=ALL, cut_seconds=(0.1, 0.15))
    made = [dict(sample) for sample in uio.Loader(cut)]
    assert made
    assert all(sample[name] == "" for sample in made for name in ALL if name in sample)
    whole = uio.from_indexed(folder).segments(texts=ALL, of="recording", cut_seconds=(1.0, 9.0))
    assert texts(whole.choose_text(["whisper"])) == (["all"], {})
