"""States that an earlier version saved (tests/golden) load, and go on with the same batches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden.graphs import AT, EPOCH, FOLDER, GRAPHS, OPTIONS, described, machine, make_data

import uio_pipes as uio


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
    if machine() != golden["machine"]:  # there, bits may differ
        for batch in (*rest, *golden["rest"]):
            del batch["bits"]
    assert rest == golden["rest"]
