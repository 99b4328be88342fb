"""Files on HDFS: the same utterances as from local ones, over WebHDFS, in spite of faults; no secret gets out."""

import json
import logging
import random
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from contract import Case, check_cuts, digest, record, some_cuts
from corpus import Corpus
from webhdfs_server import Hdfs, serving_hdfs

import uio_pipes as uio
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.io import readahead, retry
from uio_pipes.io import s3fs_private as webhdfs
from uio_pipes.io.access import Access
from uio_pipes.io.local import Ref
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.transport import transport

USER, TOKEN = "speech-team", "HAAIaGFkb29wLXRva2Vu"
DATA = random.Random(7).randbytes(300_000)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 4)
    monkeypatch.setattr(webhdfs, "SILENCE", 0.5)
    for size, name in ((10_000, "BEGIN"), (30_000, "LARGEST"), (10_000, "SMALLEST")):
        monkeypatch.setattr(readahead, name, size)
    fsspec.filesystem("webhdfs", host="127.0.0.1", port=1).clear_instance_cache()


@pytest.fixture
def hdfs() -> Iterator[Hdfs]:
    with serving_hdfs() as made:
        yield made


def shards(hdfs: Hdfs, corpus: Corpus) -> list[str]:
    """Put the shards and their list on HDFS; their URLs."""
    lines = [Path(line) for line in corpus.list.read_text().split("\n") if line.startswith("/")]
    urls = [hdfs.add(f"/speech/train/{line.name}", line.read_bytes()) for line in lines]
    hdfs.add("/speech/train.list", "\n".join(urls).encode())
    return urls


def batches(source: uio.Pipeline) -> uio.Pipeline:
    return source.decode_audio().resample(8000).fbank().shuffle(6).sort(4).batch(3)


def delivered(source: uio.Pipeline, **options: Any) -> list[str]:
    return [digest(batch) for batch in uio.Loader(batches(source), seed=3, failures="raise", **options)]


# Shards and lists


@pytest.mark.parametrize("direct", [False, True], ids=["namenode", "HttpFS"])
def test_shards_by_a_list_a_glob_and_their_names(plain_corpus: Corpus, direct: bool) -> None:
    local = delivered(uio.from_shard_list(plain_corpus.list))
    with serving_hdfs(direct=direct) as hdfs:
        urls = shards(hdfs, plain_corpus)
        for given in (urls, f"{hdfs.url}/speech/train.list", f"{hdfs.url}/speech/train/*.tar"):
            assert delivered(uio.from_shard_list(given)) == local
        assert delivered(uio.from_shard_list(urls), num_workers=1) == local
        assert ("LISTSTATUS", "/speech/train") in [(op, path.rstrip("/")) for op, path, _ in hdfs.asked]


def test_a_raw_list(hdfs: Hdfs, raw_corpus: Corpus) -> None:
    lines = [json.loads(line) for line in raw_corpus.list.read_text().splitlines()]
    for line in lines:
        line["wav"] = hdfs.add(f"/speech/文/{Path(line['wav']).name}", Path(line["wav"]).read_bytes())
    assert delivered(uio.from_raw_list(lines)) == delivered(uio.from_raw_list(raw_corpus.list))


@pytest.mark.parametrize("lanes", [1, 3])
def test_exact_resume(hdfs: Hdfs, plain_corpus: Corpus, lanes: int) -> None:
    source = uio.from_shard_list(shards(hdfs, plain_corpus), shuffle=True)
    recorded = record(Case(batches(source), {"lanes": lanes}))
    check_cuts(recorded, some_cuts(len(recorded.digests)))


def test_a_cached_shard_that_changes_is_read_again(hdfs: Hdfs, tmp_path: Path) -> None:
    url = hdfs.add("/a", DATA)
    access = Access(cache=str(tmp_path))
    cached = uio.list_files([url]).open_files(cache=tmp_path)
    assert cached
    tags = []
    for data in (DATA, DATA[::-1]):
        hdfs.add("/a", data)  # of the same size, later
        tags.append(transport(url, access).identity())
    assert tags[0].size == tags[1].size
    assert tags[0].tag != tags[1].tag


# Ranges


def test_just_the_wanted_bytes_are_asked_for(hdfs: Hdfs) -> None:
    file = RemoteFile(hdfs.add("/a b/ä=1", DATA))
    assert file.size == len(DATA)
    assert file.read(1000, 500) == DATA[1000:1500]
    assert Ref(file, 200_000, 3000).read_at(10, 20) == DATA[200_010:200_030]
    assert file.read_upto(len(DATA) - 5, 100) == DATA[-5:]
    assert file.read_upto(len(DATA) + 5, 100) == b""
    assert hdfs.opened("/a b/ä=1") == [(1000, 500), (200_010, 20), (len(DATA) - 5, 5)]
    with pytest.raises(DataError, match="truncated"):
        file.read(len(DATA) - 5, 100)


# Faults


@pytest.mark.parametrize("fault", ["500", "503", "IOException", "StandbyException", "cut 20", "silence"])
def test_a_namenode_that_fails_is_asked_again(hdfs: Hdfs, fault: str) -> None:
    url = hdfs.add("/a", DATA)
    hdfs.faults.extend([fault, "", fault])
    assert RemoteFile(url).read(1000, 100_000) == DATA[1000:101_000]
    assert not hdfs.faults


@pytest.mark.parametrize("fault", ["500", "503", "IOException", "cut 70000", "cut 0", "silence"])
def test_a_datanode_that_fails_is_asked_again(hdfs: Hdfs, fault: str) -> None:
    url = hdfs.add("/a", DATA)
    hdfs.datanode_faults.extend([fault, fault])
    assert RemoteFile(url).read(1000, 100_000) == DATA[1000:101_000]
    assert len(hdfs.opened("/a")) == 3


def test_shards_in_spite_of_faults(hdfs: Hdfs, plain_corpus: Corpus) -> None:
    local = delivered(uio.from_shard_list(plain_corpus.list))
    urls = shards(hdfs, plain_corpus)
    hdfs.datanode_faults.extend(["", "cut 5000", "", "IOException", "", "500"])  # fewer than one request is repeated
    assert delivered(uio.from_shard_list(urls)) == local
    assert not hdfs.datanode_faults


def test_a_missing_file_is_counted_and_named(hdfs: Hdfs, plain_corpus: Corpus) -> None:
    urls = shards(hdfs, plain_corpus)
    del hdfs.files[urls[1].removeprefix(hdfs.url)]
    loader = uio.Loader(uio.from_shard_list(urls).batch(4))
    list(loader)
    assert loader.stats().skipped == {"missing_file": 1}
    with pytest.raises(DataError) as caught:
        list(uio.Loader(uio.from_shard_list(urls).batch(4), failures="raise"))
    assert (caught.value.reason, caught.value.url) == ("missing_file", urls[1])
    with pytest.raises(ListError, match="no such file"):
        list(uio.Loader(uio.from_shard_list(f"{hdfs.url}/speech/none.list").batch(4)))
    with pytest.raises(ListError, match="no file matches"):
        list(uio.Loader(uio.from_shard_list(f"{hdfs.url}/speech/train/*.zip").batch(4)))


@pytest.mark.parametrize("node", ["faults", "datanode_faults"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("AccessControlException", "unreadable_file"),
        ("401", "unreadable_file"),
        ("FileNotFoundException", "missing_file"),
    ],
)
def test_what_cannot_pass_fails_at_once(hdfs: Hdfs, node: str, fault: str, reason: str) -> None:
    url = hdfs.add("/a", DATA)
    getattr(hdfs, node).extend([fault] * 9)
    with pytest.raises(DataError) as caught:
        RemoteFile(url).read(0, 10)
    assert caught.value.reason == reason
    assert len(getattr(hdfs, node)) == 8


def test_given_up_after_several_attempts(hdfs: Hdfs) -> None:
    url = hdfs.add("/a", DATA)
    hdfs.datanode_faults.extend(["IOException"] * 9)
    with pytest.raises(DataError, match=r"given up after 4 attempts.*IOException as asked for") as caught:
        RemoteFile(url).read(5, 10)
    assert (caught.value.reason, caught.value.url, caught.value.offset) == ("unreadable_file", url, 5)


def test_an_error_message_is_never_taken_for_data(hdfs: Hdfs) -> None:
    """fsspec's own reader does."""
    fs = fsspec.filesystem("webhdfs", host="127.0.0.1", port=hdfs.namenode.server_port)
    url = hdfs.add("/a", b"0" * 100)
    hdfs.datanode_faults.append("IOException")
    theirs = fs.cat_file("/a", 0, 100)
    hdfs.datanode_faults.append("IOException")
    assert RemoteFile(url).read(0, 100) == b"0" * 100
    assert b"RemoteException" in theirs, "fsspec is mended: io/s3fs_private.py may go"


# Users and tokens


@pytest.mark.parametrize("how", ["user", "token", "url"])
def test_who_asks_is_passed_on_and_told_to_nobody(
    plain_corpus: Corpus, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "uio_pipes")
    with serving_hdfs(token=TOKEN if how == "token" else "") as hdfs:
        urls = shards(hdfs, plain_corpus)
        options = {"user": {"user": USER}, "token": {"webhdfs": {"token": TOKEN}}, "url": None}[how]
        if how == "url":
            urls = [url.replace("//", f"//{USER}@") for url in urls]
        pipeline = uio.from_shard_list(urls, storage_options=options).batch(3)
        hdfs.datanode_faults.extend(["", "cut 100", "", "503"])
        loader = uio.Loader(pipeline)
        said = [repr(pipeline), repr(loader), repr(pipeline.stages)]
        keys = []
        for batch in loader:
            keys += [sample["key"] for sample in batch]
            said += [str(loader.state_dict()), repr(loader.stats())]
        assert sorted(keys) == sorted(plain_corpus.keys)
        sent = [parameters for _, _, parameters in hdfs.asked]
        name, value = ("delegation", TOKEN) if how == "token" else ("user.name", USER)
        assert {parameters.get(name) for parameters in sent} == {value}
        hdfs.datanode_faults.extend(["503"] * 99)
        with pytest.raises(DataError, match="given up") as caught:
            list(uio.Loader(pipeline, failures="raise"))
        said += [repr(caught.value), "".join(traceback.format_exception(caught.value)), caplog.text]
        assert value not in "\n".join(said)


def test_a_namenode_s_own_token_is_not_told(hdfs: Hdfs) -> None:
    """With Kerberos the namenode adds a token of its own to the address of the datanode."""
    text = Access().redact(f"503 for url: http://node:9864/webhdfs/v1/a?op=OPEN&delegation={TOKEN}&offset=0")
    assert text == "503 for url: http://node:9864/webhdfs/v1/a?op=OPEN&delegation=***&offset=0"


def test_a_wrong_token_fails_with_what_the_server_says(plain_corpus: Corpus) -> None:
    with serving_hdfs(token=TOKEN) as hdfs:
        url = hdfs.add("/a", DATA)
        with pytest.raises(DataError, match="InvalidToken as asked for"):
            RemoteFile(url, Access({"token": "another"})).read(0, 10)


@pytest.mark.parametrize(
    ("name", "used_by"),
    [
        ("_call", "range_reader asks the namenode by it"),
        ("_apply_proxy", "range_reader finds datanodes by it (data_proxy)"),
        ("session", "range_reader asks the datanode by it, and bounds how long a server is waited for"),
    ],
)
def test_fsspec_has(name: str, used_by: str) -> None:
    fs = fsspec.filesystem("webhdfs", host="127.0.0.1", port=1)
    assert hasattr(fs, name), f"fsspec {fsspec.__version__} (last good 2026.9.0): no WebHDFS.{name}; {used_by}"
