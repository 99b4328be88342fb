"""A catalogue tells what the indexes would, until one of them changes."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from contract import digest
from corpus import Corpus
from fault_server import FaultServer
from helpers_bad import run

import uio_pipes as uio
from uio_pipes.formats.tar import catalogue
from uio_pipes.formats.tar.checks import sidecar_path
from uio_pipes.sources.tar_index import TarIndex, open_indexes
from uio_pipes.tools.data.index import index_lists, index_shard


@pytest.fixture
def listed(plain_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of shards of its own, for which a catalogue is kept."""
    monkeypatch.setattr(catalogue, "MANY", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shards = [line for line in plain_corpus.list.read_text().split() if line.endswith(".tar")]
    names = [shutil.copy(shard, tmp_path / Path(shard).name) for shard in shards]
    path = tmp_path / "own.list"
    path.write_text("\n".join(map(str, names)))
    index_lists([str(path)])
    return path


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards whose indexes are read from now on."""
    read, names = catalogue.open_sidecar, list[str]()
    monkeypatch.setattr(catalogue, "open_sidecar", lambda url, *how: names.append(url) or read(url, *how))
    return names


def epoch(path: Path, **options: Any) -> list[str]:
    return [digest(sample) for sample in run(uio.from_tar_index(path, shuffle=True), **options)[0]]


def test_after_indexing_the_first_start_opens_no_index(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = opened(monkeypatch)
    monkeypatch.chdir("/")
    assert len(TarIndex(open_indexes((str(listed),)))) > 0
    assert not names


def test_the_second_start_reads_an_index_when_its_shard_is_reached(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = opened(monkeypatch)
    shutil.rmtree(tmp_path / "cache")
    whole, fresh = epoch(listed, lanes=1), TarIndex(open_indexes((str(listed),)))
    state = uio.Loader(uio.from_tar_index(listed, shuffle=True), seed=3).state_dict()
    assert len(names) == len(set(names)) == len(fresh.shards)
    assert fresh.weights.tolist() == [w for s in fresh.shards for w in s.lengths(catalogue.RATE).tolist()]
    del names[:]
    again = TarIndex(open_indexes((str(listed),)))
    assert (again.digest, again.firsts, again.failures) == (fresh.digest, fresh.firsts, fresh.failures)
    assert again.weights.tolist() == fresh.weights.tolist()
    assert not names
    assert again.fields(len(again) - 1)["key"] == fresh.key(len(fresh) - 1)
    assert len(names) == 1
    assert epoch(listed, lanes=1) == whole
    uio.Loader(uio.from_tar_index(listed, shuffle=True), seed=3).load_state_dict(state)


def test_an_index_that_is_written_anew_is_read_anew(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = epoch(listed)
    first = listed.read_text().split()[0]
    os.utime(first, ns=(1, 1))
    index_shard(first, force=True)
    names = opened(monkeypatch)
    assert epoch(listed) == whole
    assert first in names


def test_of_folders_at_rest_no_index_is_looked_at(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = epoch(listed)
    (tmp_path / "another.file").write_text("which came later")
    assert epoch(listed) == whole  # looks at the size and time of each index once more
    monkeypatch.setattr(catalogue.Catalogue, "_identities", lambda self: pytest.fail("it looks at each index"))
    assert epoch(listed) == whole


def test_an_index_that_is_written_over_in_its_place_is_found_when_it_is_reached(
    listed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = epoch(listed)
    first = listed.read_text().split()[0]
    index, times = Path(sidecar_path(first)), os.stat(listed.parent)
    os.utime(first, ns=(1, 1))
    index_shard(first, force=True)
    fresh = index.read_bytes()
    index.write_bytes(fresh[:-1] + b"x")
    os.utime(listed.parent, ns=(times.st_atime_ns, times.st_mtime_ns))
    samples, loader = run(uio.from_tar_index(listed, shuffle=True))
    lost = len(whole) - len(samples)
    assert loader.stats().skipped == {"changed_file": lost}
    assert 0 < lost < len(whole)
    index.write_bytes(fresh)
    names = opened(monkeypatch)
    assert epoch(listed) == whole  # the catalogue was dropped, and is made anew
    assert first in names


@pytest.mark.parametrize(
    ("replaced", "said"),
    [(True, "is newer than the catalogue; then start again"), (False, "is stale.*uio index.*then start")],
)
def test_another_index_is_found_when_its_shard_is_reached(listed: Path, replaced: bool, said: str) -> None:
    whole = epoch(listed)
    first, second = listed.read_text().split()[:2]
    times, stat = os.stat(listed.parent), os.stat(second)
    if replaced:
        for name in (sidecar_path(""), ""):
            Path(first + name).write_bytes(Path(second + name).read_bytes())
    os.utime(first, ns=(stat.st_mtime_ns, stat.st_mtime_ns) if replaced else (1, 1))
    os.utime(listed.parent, ns=(times.st_atime_ns, times.st_mtime_ns))
    table = TarIndex(open_indexes((str(listed),)))
    assert len(table) == len(whole)
    with pytest.raises(uio.DataError, match=said) as error:
        table.fields(0)
    assert error.value.reason == "changed_file"
    assert table.fields(len(table) - 1)["key"]


def test_a_damaged_catalogue_is_made_anew(listed: Path, tmp_path: Path) -> None:
    whole = epoch(listed)
    (path,) = (tmp_path / "cache" / "uio_pipes").glob("*.catalogue")
    sound = path.read_bytes()
    for data in (b"", sound[:-1], sound[:40] + bytes([sound[40] ^ 1]) + sound[41:]):
        path.write_bytes(data)
        assert epoch(listed) == whole
        assert path.read_bytes() == sound


def test_a_folder_that_cannot_be_written_is_done_without(listed: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("a file")
    assert epoch(listed) == epoch(listed)
    assert not Path(sidecar_path(str(listed))).exists()


def test_no_more_than_some_indexes_are_kept_by_a_process(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = epoch(listed)
    monkeypatch.setattr(catalogue, "KEPT", 1)
    names = opened(monkeypatch)
    assert epoch(listed) == whole
    assert len(names) > len(set(names)), "they are read again"


# Indexes on a server


@pytest.fixture
def far(listed: Path, server: FaultServer) -> Path:
    names = [Path(name) for name in listed.read_text().split()]
    urls = [server.add(name.name, name.read_bytes()) for name in names]
    for name in names:
        server.add(sidecar_path(name.name), Path(sidecar_path(str(name))).read_bytes())
    path = listed.with_name("far.list")
    path.write_text("\n".join(urls))
    return path


def test_a_few_of_the_indexes_on_a_server_are_asked_for(
    far: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, names = epoch(far), opened(monkeypatch)
    assert len(TarIndex(open_indexes((str(far),)))) == len(whole)
    assert not names
    first = sidecar_path(far.read_text().split()[0].rpartition("/")[2])
    server.files[first].etag = '"two"'
    assert epoch(far) == whole
    assert len(set(names)) == len(far.read_text().split()), "all of them were read anew"


def test_a_fault_of_the_server_leaves_the_catalogue_as_it_is(far: Path, server: FaultServer, tmp_path: Path) -> None:
    whole = epoch(far)
    kept = {path: path.read_bytes() for path in (tmp_path / "cache" / "uio_pipes").glob("*.catalogue")}
    table = TarIndex(open_indexes((str(far),)))
    first = server.files[sidecar_path(far.read_text().split()[0].rpartition("/")[2])]
    first.faults.extend(["403"] * 4)
    with pytest.raises(uio.DataError, match="cannot read the index") as error:
        table.fields(0)
    assert error.value.reason == "unreadable_file"
    assert {path: path.read_bytes() for path in kept} == kept
    first.faults.clear()
    assert table.fields(0)["key"]
    assert epoch(far) == whole
