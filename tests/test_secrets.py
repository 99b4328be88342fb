"""No password gets out: not by an argument that takes a path, nor into anything that is written."""

import inspect
import json
import logging
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from command import uio as command
from corpus import shards, wav_bytes
from fault_server import FaultServer, serving

import uio_pipes as uio
from uio_pipes.io import retry

SECRET = "s3cr3tWord"
SCRIPT = 'pipeline = uio.from_raw_list(environ["DATA"]).decode_audio().fbank().batch(2).pad()\n'
# Arguments that take paths, too, beside those whose annotation says so
ALSO = {"paths", "noises", "impulse_responses", "indexes", "data_list", "pipelines"}
# What else these functions want
GIVEN: dict[str, Any] = {
    "by": "codec", "fields": ["codes"], "table": "a.tsv", "scp": "wav.scp", "manifest": "a.json", "snr": (5, 10),
    "corpus": "librispeech", "data_type": "shard", "tokenizer": len, "conf": {}, "partition": True, "epoch": 0,
}  # fmt: skip


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setattr(retry, "ATTEMPTS", 2)
    with serving() as made:
        yield made


@pytest.fixture(params=["http", "s3"])
def url(server: FaultServer, request: pytest.FixtureRequest) -> str:
    """Of a file that is not there, and of a bucket whose name botocore refuses by naming it."""
    return {"http": with_secrets(f"{server.url}/none.tar"), "s3": f"s3://user:{SECRET}@bucket/none.tar"}[request.param]


def with_secrets(url: str) -> str:
    return url.replace("://", f"://user:{SECRET}@") + f"?sig={SECRET}"


def arguments() -> Iterator[tuple[str, str]]:
    for owner, prefix in ((uio, ""), (uio.Pipeline, ".")):
        for name in sorted(vars(owner) if prefix else uio.__all__):
            one = getattr(owner, name)
            if name.startswith("_") or not callable(one):
                continue
            try:
                parameters = inspect.signature(one).parameters.values()
            except ValueError:
                continue
            for p in parameters:
                if "Path" in str(p.annotation) or p.name in ALSO:
                    yield prefix + name, p.name


def said_of(name: str, parameter: str, url: str) -> Iterator[str]:
    audio = uio.from_iterable([{"key": "a", "txt": "b"}])
    function = getattr(audio, name[1:]) if name.startswith(".") else getattr(uio, name)
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.name != "self"]
    given = {p.name: GIVEN.get(p.name) for p in required if p.kind.name == "POSITIONAL_OR_KEYWORD"}
    made = function(**given | {parameter: {url: audio, "other": audio} if parameter == "pipelines" else url})
    yield from (repr(made), str(made))
    if isinstance(made, uio.Failures):
        uio.Loader(audio.batch(1), failures=made)
    if isinstance(made, uio.Table):
        made = uio.from_table(made)
    if isinstance(made, uio.Pipeline):
        yield str(made.fingerprint())
        loader = uio.Loader(made, failures="raise")
        yield repr(loader)
        for _ in loader:
            yield str(loader.state_dict())


@pytest.mark.parametrize(("name", "parameter"), [*arguments()])
def test_no_argument_that_takes_a_path_tells_its_password(
    name: str, parameter: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "uio_pipes")
    said = []
    try:
        said += said_of(name, parameter, url)
    except Exception as error:
        said += [repr(error), *traceback.format_exception(error)]
    told = "\n".join([*said, caplog.text])
    assert SECRET not in told, next(line for line in told.splitlines() if SECRET in line)


def wav_list(server: FaultServer) -> str:
    """A list of audio with a password in each URL, one of which is damaged, one gone, and one without text."""
    files = {"a": wav_bytes(0), "b": wav_bytes(1), "c": wav_bytes(2)[:30], "d": wav_bytes(3)}
    urls = {key: server.add(f"{key}.wav", data) for key, data in files.items()} | {"e": f"{server.url}/e.wav"}
    lines: list[dict[str, Any]] = [{"key": key, "wav": with_secrets(url), "txt": "今天"} for key, url in urls.items()]
    del lines[3]["txt"]
    return with_secrets(server.add("raw.list", "\n".join(map(json.dumps, lines)).encode()))


def shard_list(server: FaultServer, root: Path) -> str:
    made = shards(root / "data", [2, 3], seconds=(0.3, 0.5))
    lines = [line for line in made.list.read_text().splitlines() if line.startswith("/")]
    urls = [with_secrets(server.add(Path(line).name, Path(line).read_bytes())) for line in lines]
    damaged = with_secrets(server.add("bad.tar", Path(lines[0]).read_bytes()[:700]))
    return with_secrets(server.add("shards.list", "\n".join([*urls, damaged]).encode()))


def content_of(path: Path) -> str:
    if path.suffix == ".parquet":
        return str(pyarrow.parquet.read_table(path).to_pydict())
    return path.read_bytes().decode("latin-1")


@pytest.mark.slow
def test_nothing_that_is_written_holds_a_password(
    server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "uio_pipes")
    raw, listed, out = wav_list(server), shard_list(server, tmp_path), tmp_path / "out"
    out.mkdir()
    shutil.rmtree(tmp_path / "data")
    script = out / "train.py"
    script.write_text("from os import environ\nimport uio_pipes as uio\n" + SCRIPT)
    for name, graph in (("raw", uio.from_raw_list(raw)), ("shards", uio.from_shard_list(listed, cache=out / "copies"))):
        graph = graph.decode_audio().fbank(num_mel_bins=8).cache(out / "cache").batch(2).pad()
        loader = uio.Loader(graph, failures=uio.Failures(quarantine=out / f"{name}.bad"))
        with uio.Recorder(out / f"{name}.record", loader) as record:
            for number, batch in enumerate(uio.watch(loader, to=out / f"{name}.watch")):
                record.log(batch, loss=1.0)
                (out / f"{name}.{number}.json").write_text(json.dumps(loader.state_dict()))
    said = ""
    for arguments in (
        ("pack", raw, "packed", "--list", "packed.list"),
        ("pack", raw, "touch", "--to", "indexed"),
        ("convert", listed, "converted"),
        ("verify", raw, "--decode", "--quarantine", "raw.found"),
        ("cmvn", raw, "cmvn"),
        ("simulate", "train.py:pipeline", "--out", "simulate.html"),
        ("bench", "train.py:pipeline", "--seconds", "0.1", "--out", "bench.html"),
        ("worst", "raw.record", "--exclude", "worst.jsonl", "--html", "worst.html"),
        ("state", "raw.0.json"),
    ):
        done = command(*arguments, cwd=out, DATA=raw, UIO_DEBUG="1")
        assert done.returncode < 2, done.stderr
        said += done.stdout + done.stderr
    shutil.rmtree(out / "copies")  # the list itself
    assert [path for path in out.rglob("*") if path.is_file() and SECRET in content_of(path)] == []
    assert SECRET not in said + caplog.text


def test_the_document_of_an_error_is_not_searched_for_secrets() -> None:
    """It would take a minute for a JSON of 16 MB, and no traceback shows it."""
    document = "[" + f"http://user:{SECRET}@h/a.wav, " * 4_000
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads(document)
    try:
        raise raised.value
    except ValueError as error:
        said = uio.UioError(str(error))
    assert raised.value.doc is document
    assert SECRET not in str(said) + "".join(traceback.format_exception(raised.value))
