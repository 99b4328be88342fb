"""Every fault of a server, over real sockets: what is tried again, from which byte on, and what is said in the end."""

import multiprocessing
import os
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import fsspec
import pytest
from failing import fails_as
from fault_server import FaultServer, read_on, serving

from uio_pipes.base.errors import DataError
from uio_pipes.io import connections, readahead, retry
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.readahead import ReadAhead

DATA = random.Random(1).randbytes(3_000_001)
TRANSIENT = ["500", "502", "503", "504", "429", "503 0", "reset 0", "reset 70000", "short 70000"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Few attempts, and where the server stalls, short ones: elsewhere a busy machine must not look like a stall."""
    monkeypatch.setattr(retry, "ATTEMPTS", 4)
    if "stall" in request.node.name:
        monkeypatch.setattr(connections, "STALL", 0.4)


@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
@pytest.mark.parametrize("fault", [*TRANSIENT, "stall 70000"])
def test_a_fault_that_passes_is_not_noticed(server: FaultServer, fault: str, ranges: bool) -> None:
    url = server.add("a", DATA, fault, ranges=ranges)
    assert RemoteFile(url).read(10, 500_000) == DATA[10:500_010]
    server.add("a", DATA, "", fault, fault, ranges=ranges)
    assert read_on(RemoteFile(url)) == DATA


@pytest.mark.parametrize("kind", ["reset", "short", "stall"])
def test_a_broken_body_is_taken_up_at_the_byte_that_it_broke_at(server: FaultServer, kind: str) -> None:
    url = server.add("a", DATA, f"{kind} 70000", f"{kind} 1", f"{kind} 100000")
    assert RemoteFile(url).read(10, 500_000) == DATA[10:500_010]
    assert server.offsets("a") == [10, 70_010, 70_011, 170_011]


@pytest.mark.parametrize("fault", ["503 1", "429 date"])
def test_the_server_says_when_to_come_back(server: FaultServer, fault: str) -> None:
    url = server.add("a", DATA, fault)
    RemoteFile(url).read(0, 10)
    first, second = (when for _, _, when in server.asked)
    assert second - first >= 0.9  # dates are whole seconds


def test_both_forms_of_retry_after() -> None:
    soon = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=90), usegmt=True)
    assert 85 < retry.retry_after(soon) <= 90
    given = ["7", None, "", "nonsense", "Fri, 31 Dec 1999 23:59:59 GMT"]
    assert [retry.retry_after(value) for value in given] == [7, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("401", "unreadable_file"),
        ("403", "unreadable_file"),
        ("404", "missing_file"),
        ("410", "missing_file"),
        ("400", "unreadable_file"),
    ],
)
def test_what_will_not_pass_fails_at_once(server: FaultServer, status: str, reason: str) -> None:
    url = server.add("a", DATA, *[status] * 9)
    for read in (lambda: RemoteFile(url).read(0, 10), lambda: ReadAhead(RemoteFile(url)).read_upto(0, 10)):
        server.asked.clear()
        with pytest.raises(DataError) as caught:
            read()
        assert (caught.value.reason, caught.value.url, len(server.asked)) == (reason, url, 1)


def test_given_up_with_url_offset_attempts_and_cause(server: FaultServer) -> None:
    url = server.add("a", DATA, "short 1000", *["503"] * 9)
    with pytest.raises(
        DataError, match=r"given up after 4 attempts in .* s, the last one: status 503 .*; check"
    ) as caught:
        RemoteFile(url).read(10, 500_000)
    assert (caught.value.reason, caught.value.url, caught.value.offset) == ("unreadable_file", url, 1010)


@pytest.mark.parametrize("url", ["webhdfs://host:9870/a.tar", "filecache::webhdfs://host:9870/a.tar"])
def test_webhdfs_is_refused_by_name(url: str) -> None:
    with pytest.raises(DataError, match="webhdfs:// is not supported: use hdfs://") as caught:
        RemoteFile(url).read(0, 10)
    assert caught.value.reason == "unopenable"


def test_refused_and_unknown_hosts_are_tried_again_then_given_up() -> None:
    for url, cause in [("http://127.0.0.1:9/a", "cannot connect"), ("http://no-such-host.invalid/a", "gaierror")]:
        with pytest.raises(DataError, match=f"4 attempts.*{cause}"):
            RemoteFile(url).read(0, 10)


def test_a_server_that_comes_up_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as gone:
        port = gone.server_port
    monkeypatch.setattr(retry, "ATTEMPTS", 50)
    late: list[FaultServer] = []

    def begin() -> None:
        server = FaultServer(port)
        server.add("a", DATA)
        late.append(server)
        server.serve_forever(0.02)

    timer = threading.Timer(0.3, begin)
    timer.daemon = True
    timer.start()
    assert RemoteFile(f"http://127.0.0.1:{port}/a").read(5, 50) == DATA[5:55]
    late[0].shutdown()
    late[0].server_close()


@pytest.mark.parametrize("change", ["etag", "size"])
def test_a_changed_object_is_noticed_and_its_return_too(server: FaultServer, change: str) -> None:
    url = server.add("a", DATA)
    file = RemoteFile(url)
    assert (file.size, file.stamp) == (len(DATA), 'etag:"one"')
    new = {"etag": (DATA, '"two"'), "size": (DATA + b"1", '"one"')}[change]
    server.add("a", new[0], etag=new[1])
    with pytest.raises(DataError, match=r"attempts.*changed while in use \((ETag|size) .*no longer change") as caught:
        file.read(100, 50)
    assert (caught.value.reason, caught.value.offset) == ("changed_file", 100)
    server.add("a", DATA)
    assert file.read(100, 50) == DATA[100:150]


def test_a_trickle_is_a_stall(server: FaultServer) -> None:
    url = server.add("a", b"?" * 400_000, "trickle 7000")
    assert RemoteFile(url).read(10, 300_000) == b"?" * 300_000
    first, second = server.offsets("a")
    assert first == 10
    assert 7_010 < second < 8_000


def test_a_file_is_picklable_and_survives_a_fork(server: FaultServer) -> None:
    url = server.add("a", DATA)
    file = RemoteFile(url)
    ahead = ReadAhead(file)
    assert ahead.read_upto(0, 10) == DATA[:10]
    again = pickle.loads(pickle.dumps(file))
    assert again.known
    assert again.read(7, 10) == DATA[7:17]
    child = os.fork()
    if child == 0:
        fine = file.read(9, 9) == DATA[9:18] and ahead.read_upto(10, 300_000) == DATA[10:300_010]
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ahead.read_upto(10, 300_000) == DATA[10:300_010]


def test_threads_share_a_file(server: FaultServer) -> None:
    file = RemoteFile(server.add("a", DATA, "500", "short 5"))
    bad: list[int] = []

    def work(number: int) -> None:
        for i in range(20):
            at = (number * 37 + i) * 1000
            if file.read(at, 999) != DATA[at : at + 999]:
                bad.append(at)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bad == []


@pytest.mark.parametrize("data", [b"", b"x"], ids=["empty", "one byte"])
def test_tiny_files(server: FaultServer, data: bytes) -> None:
    url = server.add("a", data)
    assert RemoteFile(url).size == len(data)
    assert RemoteFile(url).read_upto(0, 100) == data
    assert read_on(RemoteFile(url)) == data
    with fails_as("truncated"):
        RemoteFile(url).read(0, 2)


def test_reading_ahead_keeps_several_blocks_in_flight(server: FaultServer) -> None:
    url = server.add("a", DATA * 4, latency=1.0)
    ahead = ReadAhead(RemoteFile(url))
    assert ahead.read_upto(0, 300_000) == DATA[:300_000]
    starts = sorted(when for _, _, when in server.asked)[1:]
    assert len(starts) >= 3
    assert starts[2] - starts[0] < 1.0  # asked for before the first answer


def test_reading_ahead_begins_where_it_is_asked_to(server: FaultServer) -> None:
    url = server.add("a", DATA)
    ahead = ReadAhead(RemoteFile(url), 2_000_000)
    assert ahead.read_upto(2_000_000, 1000) == DATA[2_000_000:2_001_000]
    assert ahead.read_upto(2_900_000, 1000) == DATA[2_900_000:2_901_000]
    assert min(server.offsets("a")) == 2_000_000


def test_without_ranges_passing_over_a_gap_asks_for_nothing_again(server: FaultServer) -> None:
    url = server.add("a", DATA, ranges=False)
    ahead = ReadAhead(RemoteFile(url))
    assert ahead.read_upto(0, 100) == DATA[:100]
    for at in range(262_144, 2_900_000, 600_001):
        assert ahead.read_upto(at, 1000) == DATA[at : at + 1000]
    assert server.offsets("a") == [0, 0]


def test_many_files_share_the_memory(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readahead, "MAX_ACTIVE", 4)
    monkeypatch.setattr(readahead, "BUDGET", 4 << 20)
    url = server.add("a", DATA)
    readers = [ReadAhead(RemoteFile(url)) for _ in range(10)]
    out = [bytearray() for _ in readers]
    for _ in range(len(DATA) // 300_000 + 1):
        for reader, got in zip(readers, out, strict=True):
            got += reader.read_upto(len(got), 300_000)
            assert sum(block.end - block.offset for r in readers for block in r._blocks) < 12 << 20
    assert all(bytes(got) == DATA for got in out)


def _in_child(url: str) -> None:
    assert RemoteFile(url).read(0, 5) == DATA[:5]


def test_threads_suspend_one_another_only_between_two_reads(
    monkeypatch: pytest.MonkeyPatch, eager_threads: None
) -> None:
    monkeypatch.setattr(readahead, "MAX_ACTIVE", 8)
    for name in ("BEGIN", "SMALLEST", "BUDGET"):
        monkeypatch.setattr(readahead, name, 4096)
    fsspec.filesystem("memory").pipe("/suspended", DATA[:200_000])

    def reads(_: int) -> None:
        files = [ReadAhead(RemoteFile("memory://suspended")) for _ in range(4)]
        for at in range(0, 200_000, 1000):
            assert all(file.read_upto(at, 1000) == DATA[at : at + 1000] for file in files)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(reads, range(6)))


def test_in_a_spawned_process(server: FaultServer) -> None:
    url = server.add("a", DATA)
    process = multiprocessing.get_context("spawn").Process(target=_in_child, args=(url,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a", "http://nowhere.invalid/a"])
def test_hosts_never_reached_are_given_up_soon_by_the_command_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_hasty", False)
    with pytest.raises(DataError, match="after 4 attempts"):
        RemoteFile(url).read(0, 5)
    monkeypatch.setattr(retry, "_hasty", True)
    with pytest.raises(DataError, match="after 3 attempts"):
        RemoteFile(url).read(0, 5)
    monkeypatch.setattr(retry, "_reached", {url.rpartition("/")[0]})
    with pytest.raises(DataError):
        RemoteFile(url).read(0, 5)


def test_a_host_that_has_answered_is_waited_for(server: FaultServer) -> None:
    url = server.add("a", DATA)
    assert RemoteFile(url).read(0, 5) == DATA[:5]
    assert any(url.startswith(host) for host in retry._reached)
