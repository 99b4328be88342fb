"""The local cache: right, bounded, shared, and safe under kill -9, damage and a full disk."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_server import FaultServer, serving

from uio_pipes.base.errors import PipelineError
from uio_pipes.io import cache as cache_io
from uio_pipes.io import readahead
from uio_pipes.io.access import Access
from uio_pipes.io.cache import FileCache
from uio_pipes.io.opening import CachedFile, is_far, open_ahead, open_binary, open_file
from uio_pipes.io.readahead import ReadAhead
from uio_pipes.io.references import Ref
from uio_pipes.io.retry import Identity

DATA = [random.Random(i).randbytes(1_000_000 + i) for i in range(5)]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_io, "_off", set())
    monkeypatch.setattr(cache_io, "_verified", {})


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with serving() as made:
        for i, data in enumerate(DATA):
            made.add(f"{i}.tar", data)
        yield made


def access(folder: Path, size: int = 10**9) -> Access:
    return Access({}, str(folder), size)


def read(url: str, how: Access) -> bytes:
    with open_binary(url, how) as file:
        return file.read()


def entries(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / "uio-cache").glob("??/*") if not p.name.startswith("."))


def settled(folder: Path, count: int) -> list[Path]:
    """The entries, once the threads in the background have made so many."""
    for _ in range(200):
        if len(entries(folder)) == count:
            break
        time.sleep(0.01)
    return entries(folder)


def test_the_second_time_nothing_is_fetched(server: FaultServer, tmp_path: Path) -> None:
    url = f"{server.url}/0.tar"
    assert read(url, access(tmp_path)) == DATA[0]
    (entry,) = settled(tmp_path, 1)
    assert entry.read_bytes() == DATA[0]
    server.asked.clear()
    assert read(url, access(tmp_path)) == DATA[0]
    assert len(server.asked) == 1  # what it is now: size and ETag
    assert isinstance(open_ahead(url, access(tmp_path)), CachedFile)


def test_small_files_read_by_position_are_kept_whole_and_read_like_local_files(
    server: FaultServer, tmp_path: Path
) -> None:
    """Not ahead of time, in other threads, as what is fetched."""
    file = open_file(f"{server.url}/1.tar", access(tmp_path))
    assert is_far(Ref(file, 500, 10))
    assert file.read(500, 10) == DATA[1][500:510]
    assert not is_far(Ref(file, 500, 10))
    assert settled(tmp_path, 1)[0].read_bytes() == DATA[1]
    assert (file.size, file.stamp) == (len(DATA[1]), 'etag:"one"')


def test_a_file_that_changed_is_another_entry(server: FaultServer, tmp_path: Path) -> None:
    url = f"{server.url}/0.tar"
    read(url, access(tmp_path))
    settled(tmp_path, 1)
    server.add("0.tar", DATA[1], etag='"two"')
    assert read(url, access(tmp_path)) == DATA[1]
    assert len(settled(tmp_path, 2)) == 2


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_entry_is_noticed_and_fetched_again(
    server: FaultServer, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{server.url}/0.tar"
    read(url, access(tmp_path))
    (entry,) = settled(tmp_path, 1)
    bad = {"flip": DATA[0][:99] + b"?" + DATA[0][100:], "cut": DATA[0][:-1], "empty": b""}[damage]
    entry.write_bytes(bad)
    assert read(url, access(tmp_path)) == DATA[0]
    assert "is damaged" in caplog.text
    assert settled(tmp_path, 1)[0].read_bytes() == DATA[0]


def test_what_was_used_longest_ago_makes_room(server: FaultServer, tmp_path: Path) -> None:
    how = access(tmp_path, 3_100_000)
    for i in (0, 1, 2):
        read(f"{server.url}/{i}.tar", how)
        settled(tmp_path, i + 1)
    read(f"{server.url}/0.tar", how)  # used again
    read(f"{server.url}/3.tar", how)
    time.sleep(0.3)
    kept = {p.read_bytes()[:50] for p in entries(tmp_path)}
    assert kept == {DATA[i][:50] for i in (0, 2, 3)}
    assert sum(p.stat().st_size for p in entries(tmp_path)) <= 3_100_000


def test_an_entry_that_had_to_go_is_read_from_afar(server: FaultServer, tmp_path: Path) -> None:
    file = open_file(f"{server.url}/0.tar", access(tmp_path))
    assert file.read(0, 5) == DATA[0][:5]
    settled(tmp_path, 1)[0].unlink()
    from uio_pipes.io import local

    local._forget()  # as if its descriptor had been closed for others
    assert file.read(7, 5) == DATA[0][7:12]


def test_a_file_larger_than_the_cache_is_not_cached(server: FaultServer, tmp_path: Path) -> None:
    assert read(f"{server.url}/0.tar", access(tmp_path, 1000)) == DATA[0]
    assert entries(tmp_path) == []


def test_what_is_not_its_own_stays(server: FaultServer, tmp_path: Path) -> None:
    folder = tmp_path / "uio-cache" / "ab"
    folder.mkdir(parents=True)
    others = [tmp_path / "mine", folder / "notes.txt", folder / ".part-mine", tmp_path / "uio-cache" / "x"]
    for other in others:
        other.write_bytes(b"1" * 10_000_000)
    for i in range(4):
        read(f"{server.url}/{i}.tar", access(tmp_path, 2_100_000))
    assert all(other.stat().st_size == 10_000_000 for other in others)


def test_one_fetches_the_others_stream(server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = access(tmp_path)
    monkeypatch.setattr(readahead, "DEPTH", 1)  # no more than is asked for
    first, second = (open_ahead(f"{server.url}/0.tar", how) for _ in range(2))
    assert isinstance(first, ReadAhead)
    assert isinstance(second, ReadAhead)
    for reader in (second, first):
        assert reader.read_upto(0, 600_000) + reader.read_upto(600_000, 900_000) == DATA[0]
        reader.close()
    assert len(settled(tmp_path, 1)) == 1


def test_what_is_given_up_leaves_nothing(server: FaultServer, tmp_path: Path) -> None:
    server.files["0.tar"].latency = 0.05
    reader = open_ahead(f"{server.url}/0.tar", access(tmp_path))
    assert isinstance(reader, ReadAhead)
    reader.close()
    assert list((tmp_path / "uio-cache").glob("??/*")) == []
    assert int((tmp_path / "uio-cache" / "taken").read_text()) == 0


def test_a_full_disk_is_said_once_and_gone_on_without(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    monkeypatch.setattr(cache_io, "_write", lambda descriptor, number: None)
    for i in range(3):
        assert read(f"{server.url}/{i}.tar", access(tmp_path)) == DATA[i]
    assert caplog.text.count("continuing without it") == 1
    assert "No space left" in caplog.text
    assert entries(tmp_path) == []


def test_a_small_disk(server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1500k", "none", disk]).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        for i in range(3):
            assert read(f"{server.url}/{i}.tar", access(disk)) == DATA[i]
        assert caplog.text.count("continuing without it") == 1
        assert len(entries(disk)) == 1
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


FILL = """
import sys
from uio_pipes.io.access import Access
from uio_pipes.io.opening import open_ahead
reader = open_ahead(sys.argv[1], Access({}, sys.argv[2], 10**9))
at = 0
while piece := reader.read_upto(at, 1000):
    at += len(piece)
"""


def test_kill_9_while_it_is_filled(server: FaultServer, tmp_path: Path) -> None:
    url, begun = f"{server.url}/0.tar", (tmp_path / "uio-cache").glob
    server.files["0.tar"].faults.extend(["", *["stall 1000"] * 30])  # whichever of parallel requests comes first
    process = subprocess.Popen([sys.executable, "-c", FILL, url, str(tmp_path)])
    while not list(begun("??/.part-*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    server.files["0.tar"].faults.clear()
    assert entries(tmp_path) == []
    assert len(list(begun("??/.part-*"))) == 1
    assert read(url, access(tmp_path)) == DATA[0]
    assert settled(tmp_path, 1)[0].read_bytes() == DATA[0]
    assert list(begun("??/.part-*")) == []


def test_what_the_dead_left_makes_room(server: FaultServer, tmp_path: Path) -> None:
    how = access(tmp_path, 2_100_000)
    read(f"{server.url}/0.tar", how)
    (entry,) = settled(tmp_path, 1)
    left = entry.with_name(f".part-{'0' * 32}-{1_500_000}")
    left.write_bytes(b"1" * 1_500_000)
    (tmp_path / "uio-cache" / "taken").write_text("2100000")
    read(f"{server.url}/1.tar", how)
    assert len(settled(tmp_path, 2)) == 2
    assert not left.exists()


def test_an_entry_may_be_discarded_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage collection may do that in the thread that writes; it must neither wait for itself nor close the file."""
    filling = FileCache(str(tmp_path), 1 << 20).begin("http://host/a", Identity(size=2000, tag="1"))
    assert filling is not None
    pwrite, written = os.pwrite, list[int]()

    def collecting(descriptor: int, data: bytes, offset: int) -> int:
        filling.discard()
        written.append(pwrite(descriptor, data, offset))
        return written[-1]

    monkeypatch.setattr(os, "pwrite", collecting)
    filling.write(0, memoryview(bytes(1000)))
    assert written[0] == 1000
    assert not list(tmp_path.rglob(".part-*"))


def test_many_processes_share_it(server: FaultServer, tmp_path: Path) -> None:
    code = FILL + "assert at == int(sys.argv[3]), at\n"
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", code, f"{server.url}/{i % 3}.tar", str(tmp_path), str(len(DATA[i % 3]))]
        )
        for i in range(6)
    ]
    assert [job.wait(60) for job in jobs] == [0] * 6
    for entry in entries(tmp_path):
        assert entry.read_bytes() in DATA[:3]


@pytest.mark.parametrize(("text", "size"), [("200GB", 2 * 10**11), ("1.5 tb", 15 * 10**11), (77, 77), ("9000", 9000)])
def test_sizes(text: str | int, size: int) -> None:
    assert Access.of("list_files", cache="x", cache_size=text).cache_size == size
    with pytest.raises(PipelineError, match="cache_size"):
        Access.of("list_files", cache="x", cache_size="much")


def test_a_copy_is_not_read_again_by_the_process_that_made_it(server: FaultServer, tmp_path: Path) -> None:
    assert read(f"{server.url}/0.tar", access(tmp_path)) == DATA[0]
    (entry,) = settled(tmp_path, 1)
    assert cache_io._verified == {str(entry): entry.stat().st_mtime_ns}
    entry.write_bytes(b"?" * len(DATA[0]))
    os.utime(entry, ns=(1, 1))  # the clock of a disk may be coarse
    assert read(f"{server.url}/0.tar", access(tmp_path)) == DATA[0], "damage after that is noticed"
