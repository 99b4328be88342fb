"""Whole pipelines on remote files: the same utterances as from local ones, in spite of faults; no secret gets out."""

import http.server
import inspect
import json
import logging
import random
import shutil
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest
from contract import Case, check_cuts, digest, record, restored, some_cuts
from corpus import Corpus
from corpus import shards as make_shards
from fault_server import FaultServer
from servers import s3_server

import uio_pipes as uio
from uio_pipes.base.errors import DataError, ListError, StateError
from uio_pipes.io import connections, opening, readahead, retry, transport
from uio_pipes.io.access import Access
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.references import Ref

SECRET = "s3cr3t-Word"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 4)
    monkeypatch.setattr(connections, "STALL", 0.4)
    monkeypatch.setattr(readahead, "BEGIN", 10_000)  # many blocks of small shards
    monkeypatch.setattr(readahead, "LARGEST", 30_000)
    monkeypatch.setattr(readahead, "SMALLEST", 10_000)


def shards(corpus: Corpus) -> list[str]:
    lines = (line.strip() for line in corpus.list.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def served(server: FaultServer, corpus: Corpus, *faults: str, query: str = "", **how: Any) -> list[str]:
    """URLs of the corpus's shards; every shard meets ``faults``."""
    names = [Path(line) for line in shards(corpus)]
    return [server.add(name.name, name.read_bytes(), *faults, **how) + query for name in names]


def raw(server: FaultServer, corpus: Corpus, *faults: str, **more: Any) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in corpus.list.read_text().splitlines()]
    for line in lines:
        path = Path(line["wav"])
        line["wav"] = server.add(path.name, path.read_bytes(), *faults, **more)
    return lines


def batches(source: uio.Pipeline) -> uio.Pipeline:
    return source.decode_audio().resample(8000).fbank().shuffle(6).sort(4).batch(3)


def delivered(pipeline: uio.Pipeline, **options: Any) -> list[str]:
    loader = uio.Loader(batches(pipeline), seed=3, failures="raise", **options)
    return [digest(batch) for batch in loader]


ONCE = ["500", "503 0", "429 0", "reset 5000", "short 5000", "stall 5000"]


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
@pytest.mark.parametrize("fault", ["", *ONCE])
def test_shards_in_spite_of_faults(server: FaultServer, plain_corpus: Corpus, fault: str, ranges: bool) -> None:
    local = delivered(uio.from_shard_list(plain_corpus.list))
    urls = served(server, plain_corpus, "", fault, ranges=ranges)
    assert delivered(uio.from_shard_list(urls)) == local


@pytest.mark.parametrize("fault", ["", *ONCE])
def test_raw_lists_in_spite_of_faults(server: FaultServer, raw_corpus: Corpus, fault: str) -> None:
    local = delivered(uio.from_raw_list(raw_corpus.list))
    lines = raw(server, raw_corpus, fault)
    assert delivered(uio.from_raw_list(lines)) == local
    asked = [path for path, _, _ in server.asked]
    assert len(asked) <= len(lines) * (2 if fault else 1), "one request for an utterance, unless it fails"


@pytest.mark.parametrize("kind", ["shards", "gz", "raw"])
def test_exact_resume(
    server: FaultServer, kind: str, plain_corpus: Corpus, gz_corpus: Corpus, raw_corpus: Corpus
) -> None:
    if kind == "raw":
        source = uio.from_raw_list(raw(server, raw_corpus), shuffle=True)
    else:
        source = uio.from_shard_list(served(server, plain_corpus if kind == "shards" else gz_corpus), shuffle=True)
    for lanes in (1, 3):
        recorded = record(Case(batches(source), {"lanes": lanes}))
        check_cuts(recorded, some_cuts(len(recorded.digests)))


def test_the_same_state_as_of_local_files_but_for_what_names_them(server: FaultServer, raw_corpus: Corpus) -> None:
    near, far = (
        record(Case(batches(uio.from_raw_list(given)))) for given in (raw_corpus.list, raw(server, raw_corpus))
    )
    assert near.digests == far.digests
    for a, b in zip(near.states, far.states, strict=True):
        lanes = [json.loads(state["lane_000000"]) for state in (a, b)]
        for lane in lanes:
            lane["counts"].pop("waited_us", None)
            del lane["crc32"]  # which depends on it
        assert lanes[0] == lanes[1]


def test_a_resume_begins_at_its_byte(server: FaultServer, tmp_path: Path) -> None:
    big = make_shards(tmp_path, [60], seconds=(0.5, 1.0))
    urls = served(server, big)
    size = len(server.files[Path(urls[0]).name].data)
    loader = uio.Loader(uio.from_shard_list(urls).batch(4))
    batches = iter(loader)
    for _ in range(12):
        next(batches)
    state = loader.state_dict()
    del batches
    server.asked.clear()
    again = restored(uio.from_shard_list(urls).batch(4), state)
    assert len(list(again)) == 3
    offsets = [offset for _, offset, _ in server.asked]
    assert set(offsets) & set(range(1, size // 2)) == set(), "nothing of the first half but its very beginning"


def test_exhausted_retries_are_counted_with_url_offset_and_cause(server: FaultServer, plain_corpus: Corpus) -> None:
    urls = served(server, plain_corpus)
    server.files[Path(urls[1]).name].faults.extend(["", *["reset 0"] * 99])
    loader = uio.Loader(uio.from_shard_list(urls).batch(4))
    keys = [s["key"] for batch in loader for s in batch]
    assert len(keys) < len(plain_corpus.keys)
    assert loader.stats().skipped == {"unreadable_file": 1}
    server.files[Path(urls[1]).name].faults = deque(["", *["reset 0"] * 99])
    again = uio.Loader(uio.from_shard_list(urls).batch(4), failures="raise")
    with pytest.raises(DataError, match=r"given up after 4 attempts.*Connection reset") as caught:
        list(again)
    assert caught.value.url == urls[1]
    assert caught.value.offset


def test_a_shard_that_changes_while_it_is_read(server: FaultServer, tmp_path: Path) -> None:
    urls = served(server, make_shards(tmp_path, [40], seconds=(0.5, 1.0)))
    loader = uio.Loader(uio.from_shard_list(urls[:1]).batch(1))
    it = iter(loader)
    next(it)
    name = Path(urls[0]).name
    server.add(name, server.files[name].data, etag='"two"')
    rest = list(it)
    state = loader.stats()
    assert len(rest) < 35
    assert state.skipped == {"changed_file": 1}


@pytest.mark.parametrize("status", ["403", "404"])
def test_forbidden_and_missing_fail_at_once(server: FaultServer, plain_corpus: Corpus, status: str) -> None:
    urls = served(server, plain_corpus)
    server.files[Path(urls[0]).name].faults.extend([status] * 50)
    loader = uio.Loader(uio.from_shard_list(urls).batch(4))
    list(loader)
    assert loader.stats().skipped == {"missing_file" if status == "404" else "unreadable_file": 1}
    assert len(server.offsets(Path(urls[0]).name)) == 1


def test_the_next_shard_is_begun_before_this_one_ends(server: FaultServer, plain_corpus: Corpus) -> None:
    urls = served(server, plain_corpus)
    loader = uio.Loader(uio.from_shard_list(urls[:2]).batch(1))
    it = iter(loader)
    next(it)
    next(it)
    time.sleep(0.2)
    assert server.offsets(Path(urls[1]).name)
    again = restored(uio.from_shard_list(urls[:2]).batch(1), loader.state_dict())
    assert [b[0]["key"] for b in again] == [b[0]["key"] for b in it]


def test_nothing_is_fetched_early_while_passing_over(server: FaultServer, raw_corpus: Corpus) -> None:
    lines = [{**line, "duration": 30} for line in raw(server, raw_corpus)]
    lines = [{k: v for k, v in line.items() if k not in ("start", "end")} for line in lines]
    pipeline = uio.from_raw_list(lines).decode_audio().batch(1)
    loader = uio.Loader(pipeline, snapshot_every=20)
    it = iter(loader)
    for _ in range(19):
        next(it)
    state = loader.state_dict()
    del it
    server.asked.clear()
    again = restored(pipeline, state, snapshot_every=20)
    assert len(list(again)) == 4
    asked = {path for path, _, _ in server.asked}  # one that the first loader had looked ahead for may come late, too
    assert len(asked) == 4


# Credentials


def everything_said(pipeline: uio.Pipeline, caplog: pytest.LogCaptureFixture, **options: Any) -> str:
    """Whatever is printed, logged, saved or raised along a run and a resume."""
    caplog.set_level(logging.DEBUG, "uio_pipes")
    loader = uio.Loader(pipeline, **options)
    said = [repr(pipeline), str(pipeline), repr(loader), repr(pipeline.stages)]
    it = iter(loader)
    for _ in it:
        said += [str(loader.state_dict()), repr(loader.stats())]
    try:
        list(uio.Loader(pipeline, **options, failures="raise"))
    except uio.UioError as error:
        import traceback

        said += [repr(error), "".join(traceback.format_exception(error))]
    return "\n".join([*said, caplog.text])


def test_a_state_of_signed_urls_is_good_for_new_signatures(server: FaultServer, plain_corpus: Corpus) -> None:
    signed = (served(server, plain_corpus, query=f"?X-Amz-Signature={s}") for s in ("aaaa", "bbbb"))
    first, second = ([url.replace("//", f"//user:{SECRET}@") for url in urls] for urls in signed)
    loader = uio.Loader(uio.from_shard_list(first).batch(2))
    it = iter(loader)
    next(it)
    state = loader.state_dict()
    assert server.headers["Authorization"].startswith("Basic ")
    assert SECRET not in str(state)
    keys = [s["key"] for batch in it for s in batch]
    again = restored(uio.from_shard_list(second).batch(2), state)
    assert [s["key"] for batch in again for s in batch] == keys
    name = Path(first[0].partition("?")[0]).name
    server.add(name, server.files[name].data, etag='"two"')
    with pytest.raises(StateError):
        uio.Loader(uio.from_shard_list(second).batch(2)).load_state_dict(state)
    restarted = restored(uio.from_shard_list(second).batch(2), state, on_change="restart")
    assert len([s for batch in restarted for s in batch]) == len(plain_corpus.keys)


def test_storage_options_reach_everything_and_are_told_to_nobody(
    server: FaultServer, plain_corpus: Corpus, raw_corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"headers": {"Authorization": f"Bearer {SECRET}"}}
    urls = served(server, plain_corpus)
    server.add("my.list", "\n".join(urls).encode())
    given = f"{server.url}/my.list"
    for pipeline in (
        uio.from_shard_list(given, storage_options=options),
        uio.list_files(given, storage_options={"http": options, "s3": {"key": SECRET}}).open_files().load_from_tar(),
        uio.list_files(urls, storage_options=options).sharding_filter().open_files().load_from_tar(),
        uio.from_raw_list(raw(server, raw_corpus), storage_options=options),
    ):
        server.headers = {}
        assert SECRET not in everything_said(pipeline.batch(2), caplog)
        assert server.headers["Authorization"] == f"Bearer {SECRET}"
        plain = uio.from_shard_list(given).batch(2)
        assert plain.fingerprint() == uio.from_shard_list(given, storage_options=options).batch(2).fingerprint()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense://a/b.tar", "Protocol not known: nonsense"),
        ("oss://bucket/a.tar", r"pip install 'uio_pipes\[oss\]'"),
        ("gs://bucket/a.tar", "pip install gcsfs"),
    ],
)
def test_an_unknown_protocol_names_the_package(url: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(uio.Loader(uio.from_shard_list([url]).batch(1), failures="raise"))
    with pytest.raises(ListError, match=message):
        list(uio.Loader(uio.from_shard_list(url.replace(".tar", ".list")).batch(1)))


# Other servers


SOURCES = [name for name in uio.__all__ if name.startswith("from_") and name != "from_iterable"]


@pytest.mark.parametrize("name", [*SOURCES, "list_files"])
def test_every_source_takes_the_same_options(name: str) -> None:
    defaults = {n: p.default for n, p in inspect.signature(getattr(uio, name)).parameters.items()}
    options = {"storage_options": None, "cache": None, "cache_size": "100GB"}
    assert {n: defaults.get(n, "-") for n in options} == options


def test_a_cache_keeps_the_audio_of_kaldi_s_tables(server: FaultServer, raw_corpus: Corpus, tmp_path: Path) -> None:
    lines = raw(server, raw_corpus)
    (tmp_path / "wav.scp").write_text("".join(f"{line['key']} {line['wav']}\n" for line in lines))
    pipeline = uio.from_kaldi(tmp_path / "wav.scp", cache=tmp_path / "cache").decode_audio()
    assert [sample["key"] for sample in uio.Loader(pipeline)] == [line["key"] for line in lines]
    assert sum(path.is_file() for path in (tmp_path / "cache").rglob("*")) >= len(lines)


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        pytest.skip("could not import nginx: it is not installed")
    root = tmp_path_factory.mktemp("nginx")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    root.chmod(0o755)
    (root / "www").mkdir()
    (root / "nginx.conf").write_text(
        f"worker_processes 1; daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;\n"
        f"events {{ worker_connections 128; }}\n"
        f"http {{ access_log {root}/access.log; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n"
        f"  fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n"
        f"  server {{ listen 127.0.0.1:{port}; root {root}/www; }} }}\n"
    )
    process = subprocess.Popen([program, "-p", str(root), "-c", str(root / "nginx.conf")], stderr=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}", root / "www"
    process.terminate()
    process.wait()


def test_nginx(nginx: tuple[str, Path], plain_corpus: Corpus, raw_corpus: Corpus) -> None:
    url, folder = nginx
    urls = []
    for line in shards(plain_corpus):
        shutil.copy(line, folder)
        urls.append(f"{url}/{Path(line).name}")
    local = delivered(uio.from_shard_list(plain_corpus.list))
    assert delivered(uio.from_shard_list(urls)) == local
    assert delivered(uio.from_shard_list(urls), num_workers=1) == local
    lines = [json.loads(line) for line in raw_corpus.list.read_text().splitlines()]
    for line in lines:
        shutil.copy(line["wav"], folder)
        line["wav"] = f"{url}/{Path(line['wav']).name}"
    assert delivered(uio.from_raw_list(lines)) == delivered(uio.from_raw_list(raw_corpus.list))
    recorded = record(Case(batches(uio.from_shard_list(urls))))
    check_cuts(recorded, some_cuts(len(recorded.digests), 3))


def test_python_s_own_server(plain_corpus: Corpus) -> None:
    """It has neither ranges nor ETags."""
    folder = plain_corpus.list.parent
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        urls = [f"http://127.0.0.1:{server.server_port}/{Path(p).name}" for p in shards(plain_corpus)]
        assert delivered(uio.from_shard_list(urls)) == delivered(uio.from_shard_list(plain_corpus.list))
        server.shutdown()


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    with s3_server() as endpoint:
        options = {"key": "an-access-key", "secret": SECRET, "endpoint_url": endpoint}
        fsspec.filesystem("s3", **options).mkdir("speech")
        yield options


@pytest.mark.parametrize("by", ["options", "environment", "s3fs"])
def test_s3(
    s3: dict[str, Any], plain_corpus: Corpus, raw_corpus: Corpus, by: str,
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fs = fsspec.filesystem("s3", **s3)
    for line in shards(plain_corpus):
        fs.put(line, f"speech/{Path(line).name}")
    lines = [json.loads(line) for line in raw_corpus.list.read_text().splitlines()]
    for line in lines:
        fs.put(line["wav"], f"speech/raw/{Path(line['wav']).name}")
        line["wav"] = f"s3://speech/raw/{Path(line['wav']).name}"
    if by == "environment":
        monkeypatch.setitem(fsspec.config.conf, "s3", s3)
    monkeypatch.setattr(transport, "needs_s3fs", lambda *_: by == "s3fs")
    given = None if by == "environment" else s3
    pipeline = uio.from_shard_list("s3://speech/*.tar", storage_options=given)
    assert delivered(pipeline) == delivered(uio.from_shard_list(plain_corpus.list))
    assert delivered(uio.from_raw_list(lines, storage_options=given)) == delivered(uio.from_raw_list(raw_corpus.list))
    recorded = record(Case(batches(pipeline)))
    check_cuts(recorded, some_cuts(len(recorded.digests), 3))
    assert "etag:" in str(record(Case(pipeline.batch(1))).states)
    assert SECRET not in everything_said(pipeline.batch(2), caplog)


@pytest.mark.parametrize("by", ["signed URLs", "s3fs"])
def test_an_s3_object_that_changes(s3: dict[str, Any], by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "needs_s3fs", lambda *_: by == "s3fs")
    fs = fsspec.filesystem("s3", **s3)
    fs.pipe("speech/changing", b"1" * 100)
    file = RemoteFile("s3://speech/changing", Access(s3))
    assert file.read(0, 10) == b"1" * 10
    fs.pipe("speech/changing", b"2" * 100)
    with pytest.raises(DataError, match="changed while in use") as caught:
        file.read(20, 10)
    assert (caught.value.reason, caught.value.offset) == ("changed_file", 20)
    with pytest.raises(DataError) as missing:
        RemoteFile("s3://speech/nothing", Access(s3)).read(0, 1)
    assert missing.value.reason == "missing_file"
    fs.pipe("speech/empty", b"")
    assert RemoteFile("s3://speech/empty", Access(s3)).read_upto(0, 10) == b""
    assert RemoteFile("s3://speech/changing", Access(s3)).read_upto(90, 50) == b"2" * 10


def test_neighbours_are_read_by_one_request(server: FaultServer) -> None:
    data = random.Random(3).randbytes(900_000)
    file = RemoteFile(server.add("a", data))
    assert file.size == len(data)
    server.asked.clear()
    places = [(700_000, 500), (100, 50), (150, 1000), (2000, 10)]
    samples: list[dict[str, Any]] = [{"wav": Ref(file, at, size)} for at, size in places]
    assert opening.fetch_early(samples) == 1910 + 500
    assert [s["wav"].read() for s in samples] == [data[at : at + size] for at, size in places]
    assert [s["wav"].read_at(5, 5) for s in samples] == [data[at + 5 : at + 10] for at, _ in places]
    assert sorted(server.offsets("a")) == [100, 700_000]
