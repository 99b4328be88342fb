"""Other metadata by key, over every source: what is replaced, what is missing, and what a bad overlay is told."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
import touchdataset
from corpus import Corpus, raw_list, wav_bytes
from helpers_bad import counted

import uio_pipes as uio
from uio_pipes.formats.lists.overlay_table import OverlayTable
from uio_pipes.formats.tables import rows


def write(path: Path, entries: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("form", ["o.jsonl", "o.jsonl.gz", "metainfo", "far", "far.gz", "far_metainfo"])
def test_texts_are_replaced_in_shards_already_packed(form: str, plain_corpus: Corpus, tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [{"key": key, "txt": f"new {key}", "lang": "zh"} for key in plain_corpus.keys]
    path: Any = tmp_path / form
    if "metainfo" in form:
        items = [np.frombuffer(json.dumps(e).encode(), np.uint8) for e in reversed(entries)]
        touchdataset.write_pair(path, items)
    else:
        write(tmp_path / f"o{path.suffix}", entries)
        path = tmp_path / f"o{path.suffix}"
    if form.startswith("far"):
        memory = fsspec.filesystem("memory")
        name = {"far": "o.jsonl", "far.gz": "o.jsonl.gz", "far_metainfo": "metainfo"}[form]
        for suffix in (".bin", ".idx") if form == "far_metainfo" else ("",):
            memory.pipe(f"/overlays/{name}{suffix}", Path(f"{path}{suffix}").read_bytes())
        path = f"memory://overlays/{name}"
    made, stats = counted(uio.from_shard_list(plain_corpus.list).overlay(path).decode_audio())
    assert stats.failures == 0
    assert [(s["key"], s["txt"], s["lang"]) for s in made] == [(k, f"new {k}", "zh") for k in plain_corpus.keys]


def test_entries_may_have_any_order_spacing_and_escapes(plain_corpus: Corpus, tmp_path: Path) -> None:
    first, second, third = plain_corpus.keys[:3]
    path = tmp_path / "o.jsonl"
    path.write_bytes(
        b'{"txt": "c", "key": "%s"}\r\n\n  {"key" : "%s" , "txt":"b"}\n{"key": "\\u004b%s", "txt": "a"}'
        % (third.encode(), second.encode(), first[1:].encode())
    )
    made, _ = counted(uio.from_shard_list(plain_corpus.list).overlay(path, missing="drop"))
    assert [(s["key"], s["txt"]) for s in made] == [(first, "a"), (second, "b"), (third, "c")]


def test_what_is_missing_is_kept_dropped_or_stops_the_run(plain_corpus: Corpus, tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl", [{"key": k, "txt": "new"} for k in plain_corpus.keys[5:9]])
    source = uio.from_shard_list(plain_corpus.list)
    kept, stats = counted(source.overlay(path))
    assert [s["txt"] == "new" for s in kept] == [5 <= i < 9 for i in range(len(plain_corpus.keys))]
    dropped, stats = counted(source.overlay(path, missing="drop"))
    assert [s["key"] for s in dropped] == list(plain_corpus.keys[5:9])
    assert stats.skipped == {"not_in_overlay": len(plain_corpus.keys) - 4}
    assert stats.failures == 0
    with pytest.raises(uio.ListError, match=rf"{plain_corpus.keys[0]}.*is not in the overlay .*o\.jsonl"):
        counted(source.overlay(path, missing="error"))


def test_another_audio_is_measured_anew(tmp_path: Path) -> None:
    raw = raw_list(tmp_path / "raw", 3)
    (tmp_path / "x.wav").write_bytes(wav_bytes(99))
    path = write(
        tmp_path / "o.jsonl", [{"key": "R0000", "wav": f"{tmp_path}/x.wav"}, {"key": "R0001", "start": 0.1, "end": 0.2}]
    )
    plain, _ = counted(uio.from_raw_list(raw.list).decode_audio())
    made, stats = counted(uio.from_raw_list(raw.list).overlay(path).decode_audio().batch(3))
    assert stats.failures == 0
    whole = torch.frombuffer(bytearray(wav_bytes(99)[44:]), dtype=torch.int16).float() / 32768
    assert torch.equal(made[0][0]["wav"][0], whole), "R0000 was a segment of another recording"
    assert torch.equal(made[0][1]["wav"], plain[1]["wav"][:, 800:1600])
    assert torch.equal(made[0][2]["wav"], plain[2]["wav"])


def test_a_wrong_segment_or_duration_is_counted(tmp_path: Path) -> None:
    raw = raw_list(tmp_path / "raw", 3)
    path = write(tmp_path / "o.jsonl", [{"key": "R0001", "duration": 0.01}, {"key": "R0002", "start": 2, "end": 1}])
    _, stats = counted(uio.from_raw_list(raw.list).overlay(path).decode_audio().batch(3))
    assert stats.skipped == {"length_mismatch": 1, "bad_segment": 1}


def test_features_may_be_named(feature_corpus: Corpus, plain_corpus: Corpus, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.full((7, 6), 3, np.float32))
    for corpus in (feature_corpus, plain_corpus):
        path = write(tmp_path / "o.jsonl", [{"key": corpus.keys[1], "feat": f"{tmp_path}/f.npy"}])
        (batch,), stats = counted(uio.from_shard_list(corpus.list).overlay(path, missing="drop").batch(1).pad())
        assert stats.failures == 0
        assert batch["feats"].shape == (1, 7, 6)


def test_a_state_remembers_what_the_overlay_held(plain_corpus: Corpus, tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl", [{"key": "K0000", "txt": "a"}])
    graph = uio.from_shard_list(plain_corpus.list).overlay(path)
    state = uio.Loader(graph).state_dict()
    moved = uio.from_shard_list(plain_corpus.list).overlay(write(tmp_path / "p.jsonl", [{"key": "K0000", "txt": "a"}]))
    uio.Loader(moved).load_state_dict(state)
    write(path, [{"key": "K0000", "txt": "b"}])
    with pytest.raises(uio.StateError, match="list"):
        uio.Loader(graph).load_state_dict(state)
    assert pickle.loads(pickle.dumps(graph)).fingerprint() == graph.fingerprint()
    assert "o.jsonl" in str(graph)
    assert "o.jsonl" not in graph.fingerprint()[-1]


BAD: dict[str, tuple[bytes, str]] = {
    "twice": (b'{"key": "a"}\n{"key": "b"}\n{"key": "a"}\n', r"key 'a' twice: .*line 1 and .*line 3"),
    "no_json": (b'{"txt": "x"\n', r"line 1.*correct it"),
    "no_key": (b'{"key": "a"}\n{"txt": "x"}\n', r"line 2: not a JSON object with a \"key\""),
    "key_no_string": (b'{"key": 3}\n', r"line 1: not a JSON object"),
    "no_object": (b"[]\n", r"line 1"),
    "binary": (bytes(range(256)) * 4, r"line 1"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_an_overlay_that_cannot_be_used_is_an_error(name: str, plain_corpus: Corpus, tmp_path: Path) -> None:
    data, message = BAD[name]
    (tmp_path / "o.jsonl").write_bytes(data)
    with pytest.raises(uio.ListError, match=message):
        counted(uio.from_shard_list(plain_corpus.list).overlay(tmp_path / "o.jsonl"))


def test_a_cut_or_missing_file_is_an_error(plain_corpus: Corpus, tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl.gz", [{"key": f"a{i}", "txt": "x" * 50} for i in range(99)])
    path.write_bytes(path.read_bytes()[:100])
    source = uio.from_shard_list(plain_corpus.list)
    with pytest.raises(uio.ListError, match="gzip stream is cut off"):
        counted(source.overlay(path))
    with pytest.raises(uio.ListError, match=r"cannot read the overlay .*nowhere.*no such file"):
        counted(source.overlay(tmp_path / "nowhere"))


def test_an_entry_that_is_bad_is_counted(plain_corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "o.jsonl").write_text(
        '{"key": "K0001", "txt": {}}\n{"key": "K0002", "txt": }\n{"key": "K0003", "txt": 7}\n'
    )
    made, stats = counted(uio.from_shard_list(plain_corpus.list).overlay(tmp_path / "o.jsonl", missing="drop"))
    assert [s["txt"] for s in made] == ["7"]
    assert stats.skipped["bad_overlay"] == 2


def test_an_empty_overlay_is_told(plain_corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "o.jsonl").touch()
    graph = uio.from_shard_list(plain_corpus.list).overlay(tmp_path / "o.jsonl")
    assert any("is empty" in text for text in graph._warnings(1))
    assert len(counted(graph)[0]) == len(plain_corpus.keys)


def test_keys_of_equal_hashes_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "hash", lambda key: 7, raising=False)
    path = write(tmp_path / "o.jsonl", [{"key": f"k{i}", "txt": str(i)} for i in range(20)])
    table = OverlayTable(str(path))
    assert [table.get(f"k{i}") for i in range(20)] == [{"key": f"k{i}", "txt": str(i)} for i in range(20)]
    assert table.get("k20") is None
    write(path, [{"key": k} for k in ("x", "y", "x")])
    with pytest.raises(uio.ListError, match="'x' twice"):
        OverlayTable(str(path))


def test_stages_of_other_streams_may_come_first(plain_corpus: Corpus, tmp_path: Path) -> None:
    path = write(tmp_path / "o.jsonl", [{"key": key, "txt": f"new {key}"} for key in plain_corpus.keys])
    graph = uio.from_shard_list(plain_corpus.list).map(_with_prompt).decode_audio(of="prompt").fbank(8, of="prompt")
    made, _ = counted(graph.filter(length="prompt.frames", min_length=1).overlay(path).decode_audio())
    alone, _ = counted(graph)
    assert [sample["txt"] for sample in made] == [f"new {key}" for key in plain_corpus.keys]
    assert all(torch.equal(one["prompt_feat"], other["prompt_feat"]) for one, other in zip(made, alone, strict=True))
    write(path, [{"key": plain_corpus.keys[0], "prompt": "other.wav"}])
    with pytest.raises(uio.PipelineError, match="the stream 'prompt', which decode_audio may have worked on: put ove"):
        counted(graph.overlay(path))


def _with_prompt(sample: uio.Sample) -> uio.Sample:
    sample["prompt"] = sample["wav"]
    return sample


def test_long_lines_and_many_keys(tmp_path: Path) -> None:
    entries = [{"key": f"k{i}", "txt": "长" * (i * 37 % 3000)} for i in range(2000)]
    table = OverlayTable(str(write(tmp_path / "o.jsonl", entries)))
    assert all(table.get(e["key"]) == e for e in entries)
