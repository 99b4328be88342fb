"""Answers that are shorter than asked: what came is compared with what there is, and the rest asked for."""

import random
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from fault_server import FaultServer, read_on
from fsspec.spec import AbstractFileSystem
from lies import LIES

from uio_pipes.base.errors import DataError
from uio_pipes.io import connections, ranged, readahead, retry
from uio_pipes.io.access import Access
from uio_pipes.io.opening import CachedFile
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.readahead import ReadAhead

DATA = random.Random(1).randbytes(200_000)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 3)
    monkeypatch.setattr(connections, "STALL", 0.4)
    monkeypatch.setattr(readahead, "BEGIN", 60_000)


def ways(file: RemoteFile, tmp_path: Any) -> list[bytes]:
    ahead = read_on(RemoteFile(file.path, file.access))
    cached = CachedFile(RemoteFile(file.path, Access(file.access.storage_options, str(tmp_path))))
    return [file.read(0, len(DATA)), ahead, cached.read(0, len(DATA)), file.read_upto(0, 10 * len(DATA))]


@pytest.mark.parametrize("cap", [5_000, 16_384, 100_000])
def test_a_server_may_send_less_than_it_is_asked_for(server: FaultServer, tmp_path: Any, cap: int) -> None:
    url = server.add("a", DATA, cap=cap)
    assert ways(RemoteFile(url), tmp_path) == [DATA] * 4
    server.asked.clear()
    assert RemoteFile(url).read(10, 150_000) == DATA[10:150_010]
    assert server.offsets("a") == list(range(10, 150_010, cap)), "each time at the byte reached"


def test_it_is_asked_for_the_rest_at_once(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "FIRST", 1000.0)
    url = server.add("a", DATA, cap=5000)
    assert RemoteFile(url).read(0, len(DATA)) == DATA
    assert caplog.text == "", "it is no failure"


@pytest.mark.parametrize("lie", ["sends fewer bytes than asked for, and says so", "sends fewer bytes than it says"])
def test_an_answer_that_is_short_again_and_again(server: FaultServer, lie: str) -> None:
    assert RemoteFile(server.add("a", DATA, lie=LIES[lie])).read(0, 20_000) == DATA[:20_000]


def test_no_progress_is_given_up(server: FaultServer) -> None:
    url = server.add("a", DATA)
    file = RemoteFile(url)
    assert file.size == len(DATA)
    server.add("a", DATA, lie=LIES["answers 416"])
    with pytest.raises(DataError, match=r"given up after 3 attempts.*sent 0 of 500 bytes, and the file does not end"):
        file.read(1000, 500)
    assert len(server.asked) == 4


def test_tiny_progress_is_bounded_by_time(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "TOTAL", 0.3)
    url = server.add("a", DATA, cap=1)
    with pytest.raises(DataError, match="given up after"):
        RemoteFile(url).read(0, len(DATA))
    assert len(server.asked) < 100, "and not by asking as fast as can be"


def test_the_end_of_a_file_of_unknown_size(server: FaultServer, tmp_path: Any) -> None:
    assert RemoteFile(server.add("a", DATA, lie=LIES["answers 200 in chunks"])).read_upto(0, 10**6) == DATA
    unknown = LIES["does not say the size"]
    server.add(
        "a", DATA, lie=lambda handler, file, first, last: first < len(DATA) and unknown(handler, file, first, last)
    )
    assert RemoteFile(f"{server.url}/a").read_upto(0, 10**6) == DATA
    ahead = ReadAhead(RemoteFile(f"{server.url}/a"))
    assert ahead.read_upto(0, 10**6) == DATA


class Reluctant(AbstractFileSystem):  # type: ignore[misc]
    """Sends at most ``most`` bytes at a time; negative: the whole file, whatever is asked for."""

    protocol = "reluctant"
    cachable = False
    most = 7000

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return DATA if self.most < 0 else DATA[start:end][: self.most]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": len(DATA), "type": "file"}


@pytest.fixture
def reluctant() -> Iterator[type[Reluctant]]:
    fsspec.register_implementation("reluctant", Reluctant, clobber=True)
    yield Reluctant
    Reluctant.most = 7000


@pytest.mark.parametrize("most", [7000, 1, -1])
def test_any_file_system_of_fsspec_s(reluctant: type[Reluctant], tmp_path: Any, most: int) -> None:
    reluctant.most = most
    file = RemoteFile("reluctant://a")
    if most == 1:
        assert file.read(100, 20) == DATA[100:120]
    else:
        assert ways(file, tmp_path) == [DATA] * 4


def test_a_file_system_that_sends_nothing_is_given_up(reluctant: type[Reluctant]) -> None:
    reluctant.most = 0
    with pytest.raises(DataError, match=r"given up after 3 attempts.*sent 0 of 100 bytes"):
        RemoteFile("reluctant://a").read(100, 100)


def test_the_cache_keeps_nothing_short(server: FaultServer, tmp_path: Any) -> None:
    url = server.add("a", DATA)
    file = CachedFile(RemoteFile(url, Access(cache=str(tmp_path))))
    assert file.size == len(DATA)
    server.add("a", DATA, lie=LIES["sends an empty 206"])
    with pytest.raises(DataError, match="given up"):
        file.read(0, 100)
    assert not [path for path in tmp_path.glob("uio-cache/*/*") if not path.name.startswith(".")]
    server.add("a", DATA, cap=10_000)
    again = CachedFile(RemoteFile(url, Access(cache=str(tmp_path))))
    assert again.read(0, len(DATA)) == DATA
    (kept,) = tmp_path.glob("uio-cache/*/*")
    assert kept.read_bytes() == DATA


def test_memory_given_back_is_used_for_reads_of_other_sizes(server: FaultServer) -> None:
    ranged._spare.clear()
    file = RemoteFile(server.add("a", DATA))
    first = file.fetch(0, 120_000)
    memory = first.obj
    ranged.give_back(first)
    second = file.fetch(50, 70_000)
    assert second.obj is memory
    assert second == DATA[50:70_050]
    third = file.fetch(0, 120_000)
    assert third.obj is not memory, "it is in use"
    assert (first == DATA[:120_000], third == DATA[:120_000]) == (False, True)


def test_large_reads_do_not_stay_in_memory(server: FaultServer) -> None:
    ranged._spare.clear()
    data = DATA * 50
    assert RemoteFile(server.add("a", data)).read_upto(0, len(data)) == data
    assert RemoteFile(server.add("a", data)).read_upto(0, 10) == data[:10]
    assert [len(buffer) for buffer in ranged._spare] == [1 << 16]
