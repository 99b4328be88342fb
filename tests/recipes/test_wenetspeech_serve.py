"""Shards behind a real S3-compatible server and a real HTTP server with ranges, both on a socket."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec.config
import numpy as np
import pytest
import soundfile

import uio_pipes as uio

pytest.importorskip("ijson")
pytest.importorskip("moto")
pytest.importorskip("s3fs")

from recipes.common.lists import ListWriter
from recipes.wenetspeech.http_ranges import CannotServe, http_server
from recipes.wenetspeech.pack import selected
from recipes.wenetspeech.serve import s3_environment, serve
from uio_pipes.tools.data.pack import PackSettings, pack
from uio_pipes.tools.data.placement import LengthGroup
from uio_pipes.tools.data.reading import Utterance

GROUPS = (LengthGroup(10, 100), LengthGroup(100, 200), LengthGroup(200, 300))
RATE = 16_000
EACH = 30


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with shards of three groups."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(1)
    for name in ("train", "dev"):
        path = root / f"{name}.flac"
        soundfile.write(path, (rng.standard_normal(RATE * EACH * 3) * 3000).astype(np.int16), RATE)
        with ListWriter(root / name) as lists:
            for i in range(EACH):
                end = round(3 * i + float(rng.uniform(0.2, 2.9)), 2)
                lists.write(Utterance(f"{name}{i:03d}", str(path), f"文{i}", 3.0 * i, end, name))
        settings = PackSettings(4, GROUPS if name == "train" else ())
        pack(root / name / "data.list", root / name / "shards", root / name / "shards.list", settings)
    return root


def loader_of(lists: str, workers: int = 0, *, shuffle: bool = False) -> uio.Loader:
    pipeline = uio.list_files(lists, shuffle=shuffle).sharding_filter().open_files().load_from_tar()
    return uio.Loader(pipeline.decode_audio().batch(1).pad(), num_workers=workers)


def waveforms(lists: str, workers: int = 0) -> dict[str, Any]:
    batches = list(loader_of(lists, workers))
    return {key: pcm for batch in batches for key, pcm in zip(batch["keys"], batch["pcm"], strict=True)}


@pytest.fixture(scope="module", params=["s3", "http"])
def served(request: pytest.FixtureRequest, data: Path) -> Iterator[tuple[str, str, dict[str, Path]]]:
    with serve(request.param, data, ["train", "dev"], port=0) as (base, lists):
        yield request.param, base, lists


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_samples_as_from_disk(data: Path, served: tuple[str, str, dict[str, Path]], workers: int) -> None:
    _, _, lists = served
    for name in ("train", "dev"):
        on_disk, remote = waveforms(str(data / name / "shards.list"), workers), waveforms(str(lists[name]), workers)
        assert len(remote) == EACH
        assert list(on_disk) == list(remote)
        assert all(pcm.equal(on_disk[key]) for key, pcm in remote.items())


def test_groups_are_chosen_by_braces_and_globs_in_a_bucket(
    data: Path, served: tuple[str, str, dict[str, Path]]
) -> None:
    kind, base, _ = served
    if kind == "http":
        pytest.skip("HTTP has no globs")
    chosen = GROUPS[:1] + GROUPS[2:]
    on_disk, remote = (waveforms(selected(where, chosen)) for where in (str(data), base))
    assert 0 < len(remote) < EACH
    assert on_disk.keys() == remote.keys()


def test_training_stops_and_goes_on_across_a_restart_of_the_server(data: Path, tmp_path: Path) -> None:
    for kind, port in (("s3", 9391), ("http", 9392)):
        seen: list[str] = []
        with serve(kind, data, ["train"], port) as (_, lists):  # type: ignore[arg-type]
            loader = loader_of(str(lists["train"]), shuffle=True)
            expected = [key for batch in loader for key in batch["keys"]]
            loader = loader_of(str(lists["train"]), shuffle=True)
            for number, batch in enumerate(loader):
                seen += batch["keys"]
                if number == 2:
                    break
            state = loader.state_dict()
        with serve(kind, data, ["train"], port) as (_, lists):  # type: ignore[arg-type]
            loader = loader_of(str(lists["train"]), shuffle=True)
            loader.load_state_dict(state)
            seen += [key for batch in loader for key in batch["keys"]]
        assert seen == expected


def test_other_processes_find_the_bucket_by_their_environment(data: Path) -> None:
    with serve("s3", data, ["dev"], port=0) as (base, _):
        code = f"import fsspec; print(len(fsspec.filesystem('s3').glob('{base}/dev/shards/*.tar')))"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == str(len(list(data.glob("dev/shards/*.tar"))))


def test_nothing_of_the_server_stays_behind(data: Path) -> None:
    before = (dict(os.environ), dict(fsspec.config.conf))
    with serve("s3", data, ["dev"], port=0):
        assert "FSSPEC_S3_ENDPOINT_URL" in os.environ
    assert (dict(os.environ), dict(fsspec.config.conf)) == before
    assert set(s3_environment("x")) == {"FSSPEC_S3_ENDPOINT_URL", "FSSPEC_S3_KEY", "FSSPEC_S3_SECRET"}


@pytest.mark.parametrize(
    ("asked", "status", "first", "last"),
    [("bytes=0-9", 206, 0, 10), ("bytes=90-", 206, 90, 100), ("bytes=95-200", 206, 95, 100), ("", 200, 0, 100)],
)
def test_http_serves_ranges(tmp_path: Path, asked: str, status: int, first: int, last: int) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    with http_server(tmp_path) as base:
        request = urllib.request.Request(f"{base}/a", headers={"Range": asked} if asked else {})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert (answer.status, answer.read()) == (status, bytes(range(first, last)))
            assert answer.headers["Accept-Ranges"] == "bytes"
            if status == 206:
                assert answer.headers["Content-Range"] == f"bytes {first}-{last - 1}/100"


def test_http_refuses_a_range_behind_the_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    with http_server(tmp_path) as base:
        request = urllib.request.Request(f"{base}/a", headers={"Range": "bytes=100-"})
        with pytest.raises(urllib.error.HTTPError, match="416"):
            urllib.request.urlopen(request, timeout=10)


@pytest.mark.parametrize("kind", ["s3", "http"])
def test_a_port_that_is_taken_is_said_to_be(tmp_path: Path, data: Path, kind: Any) -> None:
    with http_server(tmp_path) as base:
        port = int(base.rpartition(":")[2])
        with pytest.raises(CannotServe, match=f"port {port}"), serve(kind, data, ["dev"], port):
            pass
