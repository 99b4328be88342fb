"""Downloads from a real HTTP server: killed, cut off, refused, damaged."""

import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fault_server import FaultServer

from recipes.common import fetch as module
from recipes.common.fetch import FetchFailed, Remote, fetch

DATA = random.Random(1).randbytes(400_000)
FETCH = "import sys; from pathlib import Path; from recipes.common.fetch import Remote, fetch;"
FETCH += "fetch(Remote(sys.argv[1], int(sys.argv[2]), sys.argv[3]), Path(sys.argv[4]))"


def remote_of(server: FaultServer, *faults: str, data: bytes = DATA, **how: object) -> Remote:
    """The file, on a server that fails in these ways."""
    return Remote(server.add("data.tgz", DATA, *faults, **how), len(data), hashlib.md5(data).hexdigest())


def test_brings_the_file_and_only_once(server: FaultServer, tmp_path: Path) -> None:
    target = tmp_path / "in" / "data.tgz"
    assert fetch(remote_of(server), target)
    assert target.read_bytes() == DATA
    assert not fetch(remote_of(server), target)
    assert server.offsets("data.tgz") == [0]
    assert [path.name for path in target.parent.iterdir()] == ["data.tgz"]


def test_goes_on_after_sigkill(server: FaultServer, tmp_path: Path) -> None:
    target, remote = tmp_path / "data.tgz", remote_of(server, "stall 100000")
    partial = tmp_path / "data.tgz.partial"
    killed = subprocess.Popen([sys.executable, "-c", FETCH, remote.url, str(remote.size), remote.md5, str(target)])
    end = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size > 50_000) and time.monotonic() < end:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    have = partial.stat().st_size
    assert 50_000 < have < len(DATA)
    assert not target.exists()
    assert fetch(remote, target)
    assert target.read_bytes() == DATA
    assert server.offsets("data.tgz") == [0, have]


@pytest.mark.parametrize(
    ("faults", "offsets"),
    [(["short 150000", "short 150000"], [0, 150_000, 300_000]), (["503", "429", "500"], [0] * 4)],
)
def test_goes_on_when_the_connection_ends_or_the_server_is_busy(
    server: FaultServer, tmp_path: Path, faults: list[str], offsets: list[int]
) -> None:
    fetch(remote_of(server, *faults), tmp_path / "data.tgz", pause=0.01)
    assert server.offsets("data.tgz") == offsets
    assert (tmp_path / "data.tgz").read_bytes() == DATA


def test_a_server_without_ranges_begins_again(server: FaultServer, tmp_path: Path) -> None:
    (tmp_path / "data.tgz.partial").write_bytes(DATA[:1000])
    fetch(remote_of(server, ranges=False), tmp_path / "data.tgz")
    assert (tmp_path / "data.tgz").read_bytes() == DATA


def test_gives_up_and_says_how_to_go_on(server: FaultServer, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match=r"cannot be fetched.*same command goes on after 0 bytes.*put the file into"):
        fetch(remote_of(server, *["503"] * 20), tmp_path / "data.tgz", pause=0.001)
    with pytest.raises(FetchFailed, match="cannot be fetched"):
        fetch(Remote("http://127.0.0.1:1/data.tgz", 10, ""), tmp_path / "other.tgz", pause=0.001)


def test_what_is_not_there_is_not_asked_for_again(server: FaultServer, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match=r"says 404.*try another mirror"):
        fetch(Remote(f"{server.url}/nothing.tgz", 10, ""), tmp_path / "data.tgz")


def test_another_file_is_refused_before_it_is_fetched(server: FaultServer, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match=r"400000 bytes long instead of 7"):
        fetch(remote_of(server, data=b"another"), tmp_path / "data.tgz")


def test_a_damaged_file_gets_no_name(server: FaultServer, tmp_path: Path) -> None:
    (tmp_path / "data.tgz.partial").write_bytes(b"x" * 1000)
    with pytest.raises(FetchFailed, match=r"damaged, or not the file at.*the same command fetches it again"):
        fetch(remote_of(server), tmp_path / "data.tgz")
    assert not (tmp_path / "data.tgz").exists()
    fetch(remote_of(server), tmp_path / "data.tgz")
    assert server.offsets("data.tgz") == [1000, 0]


def test_two_processes_do_not_write_one_file(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second(*_: object) -> None:
        fetch(remote_of(server), tmp_path / "data.tgz")

    monkeypatch.setattr(module, "_bring", second)
    with pytest.raises(FetchFailed, match="another process is downloading"):
        fetch(remote_of(server), tmp_path / "data.tgz")


def test_no_room_is_told_at_once(server: FaultServer, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="GB left"):
        fetch(Remote(f"{server.url}/data.tgz", 10**18, ""), tmp_path / "data.tgz")
    assert server.asked == []
