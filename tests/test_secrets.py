"""No password gets out: not by an argument that takes a path, nor into anything that is written."""

import inspect
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer, serving

import uio_pipes as uio
from uio_pipes.io import retry

SECRET = "s3cr3tWord"
# Arguments that take paths, too, beside those whose annotation says so
ALSO = {"paths", "noises", "impulse_responses", "indexes", "data_list", "pipelines"}
# What else these functions want
GIVEN: dict[str, Any] = {
    "by": "codec", "fields": ["codes"], "table": "a.tsv", "scp": "wav.scp", "manifest": "a.json", "corpus": "librispeech",
    "snr": (5, 10), "data_type": "shard", "tokenizer": len, "conf": {}, "partition": True, "epoch": 0,
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


@pytest.mark.parametrize(("name", "parameter"), arguments())
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
