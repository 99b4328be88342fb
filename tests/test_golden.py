"""States that an earlier version saved (tests/golden) load, and go on with the same batches."""

import json
from functools import partial
from pathlib import Path

import pytest
from golden.graphs import AT, EPOCH, FOLDER, GRAPHS, OPTIONS, described, machine, make_data

import uio_pipes as uio
from uio_pipes.base.urls import redact


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_data()
    return folder


@pytest.mark.parametrize("name", GRAPHS)
def test_a_state_of_an_earlier_version_goes_on_bit_by_bit(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    loader = uio.Loader(GRAPHS[name](), **OPTIONS)
    loader.load_state_dict(golden["state"])
    rest = [described(batch) for batch in loader]
    whole = uio.Loader(GRAPHS[name](), **OPTIONS)
    whole.set_epoch(EPOCH)
    assert [described(batch) for batch in whole][AT:] == rest
    bits = [[batch.pop("bits") for batch in batches] for batches in (rest, golden["rest"])]
    assert rest == golden["rest"]
    if machine() != golden["machine"]:
        pytest.skip("only the bits were not compared: this machine's numeric libraries compute others")
    assert bits[0] == bits[1]


def test_a_text_that_looks_like_a_module_is_no_change_of_the_graph() -> None:
    def load(sample: uio.Sample, path: str) -> uio.Sample:
        return sample

    graph = uio.from_iterable([{"key": str(i)} for i in range(4)]).map(partial(load, path="data/uio_pipes.v1.txt"))
    loader = uio.Loader(graph.batch(1))
    loader.load_state_dict(loader.state_dict())


def test_a_fingerprint_does_not_say_where_in_the_package_a_thing_is() -> None:
    graph = uio.from_iterable([{"key": str(i)} for i in range(4)]).map(redact).batch(1)
    loader = uio.Loader(graph)
    state = loader.state_dict()
    assert "map(function=uio_pipes.redact" in state["meta"]
    earlier = state | {"meta": state["meta"].replace("uio_pipes.redact", "uio_pipes.base.urls.redact")}
    loader.load_state_dict(earlier)
    other = state | {"meta": state["meta"].replace("uio_pipes.redact", "uio_pipes.base.urls.hide")}
    with pytest.raises(uio.StateError, match=r"graph changed.*uio_pipes\.hide.*uio_pipes\.redact"):
        loader.load_state_dict(other)
