"""``fields={"wav": "audio"}`` in every source: the user's names count before the source looks at what is there."""

import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import corpus
import numpy as np
import parquet_corpus
import pytest
import touchdataset
from archive_files import write_archive
from command import uio as command
from contract import Case, check_cuts, record
from corpus import wav_bytes
from cuts_corpus import cut_of, write_cuts
from every_source import SOURCES, speech
from failing import fails_as

import uio_pipes as uio
from uio_pipes.formats.tar.checks import open_sidecar
from uio_pipes.tools.data.index import index_lists

COUNT = 5


def shard(root: Path) -> Path:
    audio = {i: {"wav": wav_bytes(50 + i), "far": wav_bytes(i)} for i in range(COUNT)}
    texts = {i: {"txt": b"not this", "trans": b"t%d" % i, "cls": b"s%d" % i} for i in range(COUNT)}
    members = [(f"{i}.{name}", data) for i in audio for name, data in {**texts[i], **audio[i]}.items()]
    return write_archive(root / "s.tar", members)


def test_an_index_under_our_names(tmp_path: Path) -> None:
    path, names = shard(tmp_path), {"wav": "far", "txt": "trans", "speaker": "cls"}
    index_lists([str(path)], grouping="webdataset")
    read = [(s["txt"], s["speaker"], s["wav"]) for s in uio.Loader(uio.from_tar_index(path, fields=names))]
    assert read == [(f"t{i}", f"s{i}", wav_bytes(i)) for i in range(COUNT)]
    with pytest.raises(uio.ListError, match=r"'other', which none of the first 5 records has"):
        list(uio.Loader(uio.from_tar_index(path, fields={"txt": "other"})))


def test_names_within_columns_and_custom_fields(tmp_path: Path) -> None:
    inner = [{"said": [f" t{i} "], "ms": 1000 * (i + 1)} for i in range(3)]
    file = parquet_corpus.write(tmp_path / "a.parquet", [{"audio": wav_bytes(0), "info": one} for one in inner])
    cuts = [cut_of(tmp_path, i) | {"custom": one} for i, one in enumerate(inner)]
    listed = write_cuts(tmp_path / "cuts.jsonl", cuts)
    for start, path, names in ((uio.from_parquet, file, "info"), (uio.from_lhotse_cuts, listed, "custom")):
        fields = {"txt": f"{names}.said.0 | strip", "age": f"{names}.ms | ms"}
        graph = start(path, fields=fields | ({"wav": "audio"} if path is file else {}))  # type: ignore[operator]
        assert [(s["txt"], s["age"]) for s in uio.Loader(graph)] == [(f"t{i}", i + 1.0) for i in range(3)]


def test_names_over_kaldis_tables(tmp_path: Path) -> None:
    fields = {"who": "{speaker}-{key | [1:]}", "lang": "'en'"}
    graph = SOURCES["kaldi"].pipeline(tmp_path, speech(3), fields=fields)
    assert [(s["who"], s["lang"]) for s in uio.Loader(graph)] == [(f"s{i}-{i}", "en") for i in range(3)]


def with_json(root: Path, objects: list[bytes]) -> Path:
    parts = [{"json": data, "txt": b"t%d" % i, "wav": wav_bytes(i)} for i, data in enumerate(objects)]
    return write_archive(
        root / "j.tar", [(f"{i}.{name}", m) for i, part in enumerate(parts) for name, m in part.items()]
    )


IN_JSON = {"speaker": "json:who", "lang": "json:custom.lang", "key": "json:id", "txt": "json:said", "own": "k{key}"}


def packed(path: Path) -> Path:
    path.with_suffix(".tar.gz").write_bytes(gzip.compress(path.read_bytes()))
    return path.with_suffix(".tar.gz")


READERS: dict[str, Callable[[Path, dict[str, str]], uio.Pipeline]] = {
    "seekable": lambda path, fields: uio.from_shard_list(path, fields=fields),
    "stream": lambda path, fields: uio.from_shard_list(packed(path), fields=fields),
    "index": lambda path, fields: uio.from_tar_index(path, fields=fields),
}


@pytest.mark.parametrize("reader", READERS)
def test_fields_of_a_json_member(tmp_path: Path, reader: str) -> None:
    said = [{"id": i, "who": f"s{i}", "said": f" j{i} ", "custom": {"lang": "zh"}} for i in range(COUNT)]
    path = with_json(tmp_path, [json.dumps(one).encode() for one in said])
    index_lists([str(path)])
    graph = READERS[reader](path, IN_JSON).decode_audio()
    got = [(s["key"], s["speaker"], s["lang"], s["txt"], s["own"]) for s in uio.Loader(graph)]
    assert got == [(str(i), f"s{i}", "zh", f"j{i}", f"k{i}") for i in range(COUNT)]
    assert [s["txt"] for s in uio.Loader(READERS[reader](path, {"speaker": "json:who"}))] == [
        f"t{i}" for i in range(COUNT)
    ]
    recorded = record(Case(graph.tokenize(lambda text: [len(text)]).shuffle(3).batch(2).pad(), {"lanes": 1}))
    check_cuts(recorded, range(len(recorded.digests) + 1))


@pytest.mark.parametrize("reader", READERS)
def test_what_a_json_member_lacks_is_absent_and_damage_is_counted(tmp_path: Path, reader: str) -> None:
    bad = [b"[1]", b"{broken", b"\xff", b'{"who": "\\ud800"}', b'{"who": "b", "start": -1}']
    objects = [b'{"who": "a"}', b'{"who": null}', b"{}", *bad]
    path = with_json(tmp_path, objects)
    index_lists([str(path)])
    loader = uio.Loader(READERS[reader](path, {"speaker": "json:who", "start": "json:start"}))
    assert [s.get("speaker") for s in loader] == ["a", None, None]
    assert loader.stats().skipped == {"bad_text": 4, "bad_segment": 1}


def test_a_named_transcript_in_json_that_is_no_text_is_missing_or_absent(tmp_path: Path) -> None:
    path = with_json(tmp_path, [b'{"said": "a"}', b'{"said": ["b"]}', b'{"said": null}', b"{}"])
    index_lists([str(path)])
    for reader in READERS.values():
        loader = uio.Loader(reader(path, {"txt": "json:said"}))
        assert [s["txt"] for s in loader] == ["a"]
        assert loader.stats().skipped == {"missing_text": 3}
    optional = uio.from_shard_list(path, text=None, fields={"txt": "json:said"})
    assert [s.get("txt") for s in uio.Loader(optional)] == ["a", None, None, None]


def test_another_name_for_a_modality(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path / "a", touchdataset.speech(3))
    touchdataset.write_pair(folder / "depth", [np.zeros(2, np.float32)] * 3)
    named = uio.from_indexed(f"{folder} audio+depth+metainfo", fields={"map": "depth"})
    assert [(len(s["map"]), "depth" in s) for s in uio.Loader(named)] == [(8, False)] * 3


def test_an_array_beside_the_audio_that_is_no_features_is_told_how_to_be_named(tmp_path: Path) -> None:
    """A speaker's embedding as KEY.npy: the message has the line to write, and that works."""
    embedding = io.BytesIO()
    np.save(embedding, np.arange(4.0))
    members = [(f"{i}.{n}", data) for i in range(3) for n, data in
               (("txt", b"t"), ("wav", wav_bytes(i)), ("npy", embedding.getvalue()))]  # fmt: skip
    (tmp_path / "a.tar").write_bytes(corpus._tar(members))
    graph = uio.from_shard_list(tmp_path / "a.tar").decode_audio().fbank().batch(3).pad()
    with fails_as("bad_features") as caught:
        list(uio.Loader(graph, failures="raise"))
    (line,) = re.findall(r"fields=({.*?})", str(caught.value))
    fields = json.loads(line)
    named = uio.from_shard_list(tmp_path / "a.tar", fields=fields)
    (batch,) = uio.Loader(named.decode_audio().fbank().batch(3).pad(keep=[*fields]))
    assert len(batch["feats"]) == len(batch["embedding"]) == 3
    assert np.load(io.BytesIO(batch["embedding"][0])).tolist() == [0, 1, 2, 3]
    with pytest.raises(uio.PipelineError) as refused:
        uio.from_shard_list(tmp_path / "a.tar", fields={"feat": None})  # type: ignore[dict-item]
    assert line in str(refused.value)


@pytest.mark.parametrize("audio", ["wav", "far"])
def test_verify_and_index_look_at_what_the_names_say(audio: str, tmp_path: Path) -> None:
    """Audio of another suffix, and an array beside it that is no features."""
    embedding = io.BytesIO()
    np.save(embedding, np.arange(4.0))
    members = [(f"{i}.{n}", data) for i in range(COUNT) for n, data in
               (("txt", b"t"), (audio, wav_bytes(i)), ("npy", embedding.getvalue()))]  # fmt: skip
    path = tmp_path / "a.tar"
    path.write_bytes(corpus._tar(members))
    names = f"wav={audio},embedding=npy"
    assert "nothing is wrong" in command("verify", path, "--fields", names, "--decode", "--jobs", 1).stdout
    assert f"{COUNT} bad_features" in command("verify", path, "--jobs", 1).stdout
    assert f"{COUNT} wrong_rate" in command("verify", path, "--fields", names, "--rate", 1, "--jobs", 1).stdout
    assert f"{COUNT} missing_audio" in command("verify", path, "--fields", "wav=no,feat=none", "--jobs", 1).stdout
    if audio == "wav":
        assert index_lists([str(path)]).problems == []
        source = uio.from_tar_index(path, fields={"embedding": "npy"})
        assert open_sidecar(str(path)).info(0) == (len(wav_bytes(0)) // 2 - 22, 8000, 1)  # of the audio
        (batch,) = uio.Loader(source.decode_audio().fbank().batch(COUNT).pad())
        assert len(batch["feats"]) == COUNT


@pytest.mark.parametrize("name", ["from_raw_list", "from_parquet"])
def test_a_value_that_an_expression_does_not_fit_is_counted(name: str, tmp_path: Path) -> None:
    rows = [{"key": str(i), "wav": wav_bytes(0), "txt": "a", "t": "1000" if i else "soon"} for i in range(3)]
    if name == "from_parquet":
        graph = uio.from_parquet(parquet_corpus.write(tmp_path / "a.parquet", rows), fields={"age": "t | ms"})
    else:
        (tmp_path / "a.wav").write_bytes(wav_bytes(0))
        graph = uio.from_raw_list([{**row, "wav": str(tmp_path / "a.wav")} for row in rows], fields={"age": "t | ms"})
    loader = uio.Loader(graph)
    assert [s["age"] for s in loader] == [1.0, 1.0]
    assert loader.stats().skipped == {"bad_value": 1}
