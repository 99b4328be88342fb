"""``fields={"wav": "audio"}`` in every source: the user's names count before the source looks at what is there."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import corpus
import numpy as np
import parquet_corpus
import pytest
import touchdataset
from command import uio as command
from contract import Case, check_cuts, record
from corpus import wav_bytes
from cuts_corpus import cut_of, write_cuts

import uio_pipes as uio
from uio_pipes.formats.naming import names_of, renamed
from uio_pipes.formats.tar.checks import open_sidecar
from uio_pipes.tools.data.index import index_lists

COUNT = 5


def raw(root: Path) -> dict[str, Any]:
    lines = []
    for i in range(COUNT):
        (root / f"{i}.wav").write_bytes(wav_bytes(i))
        lines.append({"id": i, "audio": str(root / f"{i}.wav"), "text": f"t{i}", "wav": "another"})
    (root / "raw.list").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return {"paths": root / "raw.list", "fields": {"key": "id", "wav": "audio", "txt": "text"}}


def shard(root: Path) -> Path:
    with tarfile.open(root / "s.tar", "w") as tar:
        for i in range(COUNT):
            for suffix, data in {
                "txt": b"not this",
                "trans": b"t%d" % i,
                "wav": wav_bytes(50 + i),
                "far": wav_bytes(i),
                "cls": b"s%d" % i,
            }.items():
                info = tarfile.TarInfo(f"{i}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return root / "s.tar"


TAR_NAMES = {"wav": "far", "txt": "trans", "speaker": "cls"}


def shards(root: Path) -> dict[str, Any]:
    return {"paths": shard(root), "fields": TAR_NAMES, "grouping": "webdataset"}


def indexed_shards(root: Path) -> dict[str, Any]:
    path = shard(root)
    index_lists([str(path)], grouping="webdataset")
    return {"paths": path, "fields": TAR_NAMES}


def touch(root: Path) -> dict[str, Any]:
    given = []
    for i in range(COUNT):
        pcm = np.frombuffer(wav_bytes(i)[44:], "<i2")
        given.append((pcm, {"id": i, "text": f"t{i}", "rate": 8000, "wav": "", "who": f"s{i}"}))
    names = {"key": "id", "txt": "text", "sample_rate": "rate", "speaker": "who"}
    return {"dirs": touchdataset.write(root / "touch", given), "fields": names}


def kaldi(root: Path) -> dict[str, Any]:
    for i in range(COUNT):
        (root / f"{i}.wav").write_bytes(wav_bytes(i))
    (root / "wav.scp").write_text("".join(f"{i} {root / f'{i}.wav'}\n" for i in range(COUNT)))
    (root / "text").write_text("".join(f"{i} t{i}\n" for i in range(COUNT)))
    (root / "utt2spk").write_text("".join(f"{i} s{i}\n" for i in range(COUNT)))
    return {"scp": root, "fields": {"who": "speaker"}}


def iterable(root: Path) -> dict[str, Any]:
    items = [{"id": i, "audio": wav_bytes(i), "text": f"t{i}", "wav": 7} for i in range(COUNT)]
    return {"items": items, "fields": {"key": "id", "wav": "audio", "txt": "text"}}


SOURCES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "from_raw_list": raw,
    "from_shard_list": shards,
    "from_tar_index": indexed_shards,
    "from_indexed": touch,
    "from_kaldi": kaldi,
    "from_iterable": iterable,
}
START = {"from_kaldi": "scp", "from_indexed": "dirs", "from_iterable": "items"}


def begun(name: str, given: dict[str, Any]) -> uio.Pipeline:
    rest = dict(given)
    start: uio.Pipeline = getattr(uio, name)(rest.pop(START.get(name, "paths")), **rest)
    return start if name != "from_iterable" else start.sharding_filter()


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_takes_the_users_names(name: str, tmp_path: Path) -> None:
    pipeline = begun(name, SOURCES[name](tmp_path)).decode_audio()
    got = list(uio.Loader(pipeline))
    assert [s["key"] for s in got] == [str(i) for i in range(COUNT)]
    assert [s["txt"] for s in got] == [f"t{i}" for i in range(COUNT)]
    assert [s["wav"].shape[1] for s in got] == [(len(wav_bytes(i)) - 44) // 2 for i in range(COUNT)]
    if name not in ("from_raw_list", "from_iterable"):
        assert [s["who" if name == "from_kaldi" else "speaker"] for s in got] == [f"s{i}" for i in range(COUNT)]
    recorded = record(Case(pipeline.shuffle(3).batch(2).pad(), {"lanes": 2}))
    check_cuts(recorded, range(len(recorded.digests) + 1))


@pytest.mark.parametrize("name", SOURCES)
def test_names_are_in_the_fingerprint(name: str, tmp_path: Path) -> None:
    given = SOURCES[name](tmp_path)
    named = begun(name, given)
    plain = begun(name, {**given, "fields": None})
    assert "fields=None" in "".join(plain.fingerprint())
    assert "fields={" in "".join(named.fingerprint())
    assert str(given["fields"]) in str(named)
    assert name == "from_iterable" or hash(named.stages)
    with pytest.raises(uio.PipelineError, match=r'as in {"wav": "audio"'):
        begun(name, {**given, "fields": {"wav": 3}})


def test_a_state_of_other_names_is_refused(tmp_path: Path) -> None:
    given = raw(tmp_path)
    state = uio.Loader(begun("from_raw_list", given)).state_dict()
    with pytest.raises(uio.StateError, match="fields="):
        uio.Loader(begun("from_raw_list", {**given, "fields": {"key": "text", "wav": "audio"}})).load_state_dict(state)


def test_one_utterance_of_an_index_under_our_names(tmp_path: Path) -> None:
    given = indexed_shards(tmp_path)
    index = uio.open_index(given["paths"], fields=TAR_NAMES)
    assert (index["3"]["txt"], index["3"]["speaker"], index["3"]["wav"]) == ("t3", "s3", wav_bytes(3))


def test_two_names_for_the_transcript_are_refused(tmp_path: Path) -> None:
    with pytest.raises(uio.PipelineError, match="both name the transcript"):
        uio.from_shard_list("a.tar", text="json:text", fields={"txt": "trans"})
    plain = uio.from_shard_list(shard(tmp_path), grouping="webdataset", fields={"wav": "far", "txt": "cls"})
    assert [s["txt"] for s in uio.Loader(plain)] == [f"s{i}" for i in range(COUNT)]


def lacking(name: str, root: Path) -> uio.Pipeline:
    """Three utterances, of which the one of number 1 has no ``said``, for which the source is asked."""
    rows = [{"key": str(i), "wav": str(root / f"{i}.wav"), "said": f"t{i}", "text": "other"} for i in range(3)]
    rows[1]["said"] = None  # type: ignore[assignment]
    for i in range(3):
        (root / f"{i}.wav").write_bytes(wav_bytes(i))
    fields = {"txt": "said"}
    if name == "from_parquet":
        return uio.from_parquet(parquet_corpus.write(root / "a.parquet", rows), fields=fields)
    if name == "from_lhotse_cuts":
        cuts = [cut_of(root, i) for i in range(3)]
        for cut, row in zip(cuts, rows, strict=True):
            cut.update(id=row["key"], custom={"said": row["said"]} if row["said"] else {})
        return uio.from_lhotse_cuts(write_cuts(root / "cuts.jsonl", cuts), fields=fields)
    if name == "from_iterable":
        return uio.from_iterable([{**row, "wav": wav_bytes(0)} for row in rows], fields=fields)
    lines = [{n: v for n, v in {**row, "audio_filepath": row["wav"]}.items() if v is not None} for row in rows]
    (root / "list.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return getattr(uio, name)(root / "list.json", fields=fields)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["from_parquet", "from_lhotse_cuts", "from_iterable", "from_nemo", "from_raw_list"])
def test_an_utterance_without_the_named_text_is_counted(name: str, tmp_path: Path) -> None:
    loader = uio.Loader(lacking(name, tmp_path))
    assert [s["txt"] for s in loader] == ["t0", "t2"]
    assert loader.stats().skipped == {"missing_text": 1}
    graph = lacking(name, tmp_path)
    with pytest.raises(uio.DataError, match="said") as caught:
        list(uio.Loader(graph, failures="raise"))
    assert (caught.value.reason, caught.value.member) == ("missing_text", "1")


def test_a_shard_without_the_named_audio_says_so(tmp_path: Path) -> None:
    loader = uio.Loader(uio.from_shard_list(shard(tmp_path), grouping="webdataset", fields={"wav": "close"}))
    with pytest.raises(uio.TooManyFailures, match="missing_audio"):
        list(loader)


def with_json(root: Path, objects: list[bytes]) -> Path:
    with tarfile.open(root / "j.tar", "w") as tar:
        for i, data in enumerate(objects):
            for suffix, member in {"json": data, "txt": b"t%d" % i, "wav": wav_bytes(i)}.items():
                info = tarfile.TarInfo(f"{i}.{suffix}")
                info.size = len(member)
                tar.addfile(info, io.BytesIO(member))
    return root / "j.tar"


IN_JSON = {"speaker": "json:who", "lang": "json:custom.lang", "key": "json:id", "txt": "json:said"}


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
    got = [(s["key"], s["speaker"], s["lang"], s["txt"]) for s in uio.Loader(graph)]
    assert got == [(str(i), f"s{i}", "zh", f"j{i}") for i in range(COUNT)]
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


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"speaker": "json:"}, "must name suffixes"),
        ({"speaker": ":who"}, "must name suffixes"),
        ({"speaker": "CLS"}, "lower case"),
        ({"wav": "far.flac"}, 'try grouping="webdataset"'),
        ({"wav": "json:path"}, "must be a member itself"),
        ({"feat": "json:path"}, "must be a member itself"),
        ({"key": "cls"}, r'\{"key": "json:id"\}'),
    ],
)
def test_a_member_that_cannot_be_there_is_refused(fields: dict[str, str], rule: str) -> None:
    with pytest.raises(uio.PipelineError, match=rule):
        uio.from_shard_list("a.tar", fields=fields)
    assert uio.from_shard_list("a.tar", grouping="webdataset", fields={"wav": "far.flac"})
    if "grouping" not in rule:  # that of an index shows when it is opened
        with pytest.raises(uio.PipelineError, match=rule):
            uio.from_tar_index("a.tar", fields=fields)


STARTS: dict[str, Callable[[dict[str, str]], Any]] = {
    "raw": lambda fields: uio.from_raw_list("a.list", fields=fields),
    "jsonl": lambda fields: uio.from_jsonl("a.jsonl", fields=fields),
    "cuts": lambda fields: uio.from_lhotse_cuts("a.jsonl", fields=fields),
    "shar": lambda fields: uio.from_lhotse_shar("shar", fields=fields),
    "nemo": lambda fields: uio.from_nemo("a.json", fields=fields),
    "conversations": lambda fields: uio.from_conversations("a.json", fields=fields),
    "parquet": lambda fields: uio.from_parquet("a.parquet", fields=fields),
    "touch": lambda fields: uio.from_indexed("folder", fields=fields),
    "kaldi": lambda fields: uio.from_kaldi("wav.scp", fields=fields),
    "iterable": lambda fields: uio.from_iterable([], fields=fields),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_json_member_is_refused_where_there_are_none(name: str) -> None:
    with pytest.raises(uio.PipelineError, match="name the field itself, 'who'"):
        STARTS[name]({"speaker": "json:who"})


def test_another_name_for_a_modality(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path / "a", touchdataset.speech(3))
    touchdataset.write_pair(folder / "depth", [np.zeros(2, np.float32)] * 3)
    named = uio.from_indexed(f"{folder} audio+depth+metainfo", fields={"map": "depth"})
    assert [(len(s["map"]), "depth" in s) for s in uio.Loader(named)] == [(8, False)] * 3


@pytest.mark.parametrize("name", ["from_shard_list", "from_tar_index"])
def test_a_named_transcript_is_tokenized(name: str, tmp_path: Path) -> None:
    given = (shards if name == "from_shard_list" else indexed_shards)(tmp_path)
    labels = [s["label"] for s in uio.Loader(begun(name, given).tokenize(lambda text: [int(text[1:])]))]
    assert labels == [[i] for i in range(COUNT)]


def test_renaming() -> None:
    fields = {"audio": 1, "wav": 2, "age": 3}
    assert renamed(fields, {"wav": "none"}) == {"audio": 1, "age": 3}
    assert renamed(fields, {"wav": "audio"}) == {"wav": 1, "age": 3}
    assert renamed(fields, names_of("x", {"a": "audio", "b": "audio", "c": "none"})) == {
        "wav": 2,
        "age": 3,
        "a": 1,
        "b": 1,
    }
    assert renamed({"a": 1, "b": 2}, {"a": "b", "b": "a"}) == {"a": 2, "b": 1}
    assert renamed(fields, None) == fields


def test_an_array_beside_the_audio_that_is_no_features_is_told_how_to_be_named(tmp_path: Path) -> None:
    """A speaker's embedding as KEY.npy: the message has the line to write, and that works."""
    embedding = io.BytesIO()
    np.save(embedding, np.arange(4.0))
    members = [(f"{i}.{n}", data) for i in range(3) for n, data in
               (("txt", b"t"), ("wav", wav_bytes(i)), ("npy", embedding.getvalue()))]  # fmt: skip
    (tmp_path / "a.tar").write_bytes(corpus._tar(members))
    graph = uio.from_shard_list(tmp_path / "a.tar").decode_audio().fbank().batch(3).pad()
    with pytest.raises(uio.DataError, match="bad_features") as caught:
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


def expressed(name: str, root: Path, more: Mapping[str, str] = MappingProxyType({})) -> uio.Pipeline:
    """Three utterances whose names, times and constants are expressions over what the data have."""
    for i in range(3):
        (root / f"spk{i}-{i}.wav").write_bytes(wav_bytes(i))
    paths = [str(root / f"spk{i}-{i}.wav") for i in range(3)]
    inner = [{"said": [f" t{i} "], "ms": 1000 * (i + 1), "id": f"{i}.x"} for i in range(3)]
    fields = {"txt": "info.said.0 | strip", "age": "info.ms | ms", "lang": "'en'", "key": "{info.id | stem}", **more}
    speaker = {"speaker": r"PATH | stem | m/(.*)-/"}
    if name in ("seekable", "stream", "index"):
        path = with_json(root, [json.dumps(one).encode() for one in inner])
        index_lists([str(path)])
        names = {"txt": "json:said.0 | strip", "age": "json:ms | ms", "lang": "'en'", "speaker": "spk{key | [:1]}"}
        return READERS[name](path, {**names, "key": "json:id | stem", **more})
    if name == "from_parquet":
        rows = [{"audio": wav_bytes(i), "info": inner[i], "path": paths[i]} for i in range(3)]
        return uio.from_parquet(
            parquet_corpus.write(root / "a.parquet", rows),
            fields={**fields, "wav": "audio", "speaker": speaker["speaker"].replace("PATH", "path")},
        )
    if name == "from_lhotse_cuts":
        cuts = [cut_of(root, i) for i in range(3)]
        for i, cut in enumerate(cuts):
            cut["id"] = f"{i}.x"
            cut["supervisions"][0].update(custom={"said": [f" t{i} "], "ms": 1000 * (i + 1)}, speaker=f"spk{i}")
        names = {"txt": "custom.said.0 | strip", "age": "custom.ms | ms", "lang": "'en'", "key": "id | stem"}
        return uio.from_lhotse_cuts(write_cuts(root / "cuts.jsonl", cuts), fields={**names, **more})
    lines = [{"audio_filepath": paths[i], "wav": paths[i], "info": inner[i]} for i in range(3)]
    speaker = {"speaker": speaker["speaker"].replace("PATH", "audio_filepath")}
    if name == "from_iterable":
        return uio.from_iterable([{**line, "wav": wav_bytes(0)} for line in lines], fields={**fields, **speaker})
    (root / "list.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return getattr(uio, name)(root / "list.json", fields={**fields, **speaker})  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "name",
    ["from_raw_list", "from_nemo", "from_iterable", "from_parquet", "from_lhotse_cuts", "seekable", "stream", "index"],
)
def test_expressions_make_fields(name: str, tmp_path: Path) -> None:
    graph = expressed(name, tmp_path)
    assert [(s["key"], s["txt"], s["age"], s["lang"], s["speaker"]) for s in uio.Loader(graph)] == [
        (str(i), f"t{i}", i + 1.0, "en", f"spk{i}") for i in range(3)
    ]
    with pytest.raises(uio.PipelineError, match=r"fields: 'a \| no' is not an expression: there is no filter 'no'"):
        START_OF[name]({"speaker": "a | no"})


@pytest.mark.parametrize(
    "name",
    ["from_raw_list", "from_nemo", "from_parquet", "from_lhotse_cuts", "from_indexed", "seekable", "stream", "index"],
)
def test_what_no_record_has_is_an_error_before_the_first_one(name: str, tmp_path: Path) -> None:
    """It says which is meant; what only some records have may be missing."""
    inner = "json:" if name in READERS else "custom." if name == "from_lhotse_cuts" else "info."
    theirs, near = ("hoo", "who") if name == "from_indexed" else (f"{inner}sayd", f"{inner}said")

    def pipeline(theirs: str) -> uio.Pipeline:
        if name != "from_indexed":
            return expressed(name, tmp_path, {"what": theirs})
        given = touch(tmp_path)
        return uio.from_indexed(given["dirs"], fields={**given["fields"], "what": theirs})

    with pytest.raises(uio.ListError) as caught:
        pipeline(theirs)._list_fingerprint()
    assert f"fields['what'] asks for {theirs!r}, which " in str(caught.value)
    assert f'if {near} is meant, write fields={{"what": "{near}"}}' in str(caught.value)
    assert len(list(uio.Loader(pipeline(f"{theirs} or ''")))) == (COUNT if name == "from_indexed" else 3)


def test_names_of_members_that_no_shard_has_are_missed(tmp_path: Path) -> None:
    for name, make in {"from_shard_list": shards, "from_tar_index": indexed_shards}.items():
        with pytest.raises(uio.ListError, match=r"'other', which none of the first 5 records has"):
            list(uio.Loader(begun(name, {**make(tmp_path), "fields": {"txt": "other"}})))


START_OF: dict[str, Callable[[dict[str, str]], Any]] = {
    "from_raw_list": STARTS["raw"], "from_nemo": STARTS["nemo"], "from_iterable": STARTS["iterable"],
    "from_parquet": STARTS["parquet"], "from_lhotse_cuts": STARTS["cuts"],
    "seekable": lambda fields: uio.from_shard_list("a.tar", fields=fields),
    "stream": lambda fields: uio.from_shard_list("a.tar.gz", fields=fields),
    "index": lambda fields: uio.from_tar_index("a.tar", fields=fields),
}  # fmt: skip


def test_expressions_over_kaldis_tables_and_metadata(tmp_path: Path) -> None:
    given = kaldi(tmp_path)
    graph = uio.from_kaldi(given["scp"], fields={"who": "{speaker}-{key | [:1]}", "lang": "'en'"})
    assert [(s["key"], s["who"], s["lang"]) for s in uio.Loader(graph)] == [
        (str(i), f"s{i}-{i}", "en") for i in range(COUNT)
    ]
    with pytest.raises(uio.PipelineError, match="fields must name fields that there are"):
        uio.from_kaldi(given["scp"], fields={"who": "spk | [:1]"})
    given = touch(tmp_path)
    fields = {**given["fields"], "speaker": "who | upper", "lang": "'en'"}
    assert [(s["speaker"], s["lang"]) for s in uio.Loader(uio.from_indexed(given["dirs"], fields=fields))] == [
        (f"S{i}", "en") for i in range(COUNT)
    ]


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


def test_a_column_that_an_expression_asks_for_must_be_there(tmp_path: Path) -> None:
    rows = [{"key": "a", "wav": wav_bytes(0), "txt": "a"}]
    path = parquet_corpus.write(tmp_path / "a.parquet", rows)
    with pytest.raises(uio.ListError, match=r"asks for 'no\.x' in .*: it has key, wav, txt"):
        uio.from_parquet(path, fields={"age": "{key}-{no.x}"})
