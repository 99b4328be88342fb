"""Requests to HTTP servers, and their answers: none takes for ever, and every error is the package's own."""

import random
import time
from pathlib import Path

import pytest
from corpus import shards
from fault_server import FaultServer, Lie, Served, serving
from lies import LIES, first_times, head, part, sound, wire

import uio_pipes as uio
from uio_pipes.base.errors import DataError
from uio_pipes.io import connections, readahead, retry
from uio_pipes.io.access import Access
from uio_pipes.io.ranged import RemoteFile

DATA = random.Random(1).randbytes(20_000)
SECRET = "s3cr3t-Word"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 3)
    monkeypatch.setattr(retry, "FIRST", 0.01)
    monkeypatch.setattr(retry, "TOTAL", 2.0)
    monkeypatch.setattr(connections, "STALL", 0.3)


OTHER_FILE = {"sends a page instead, with status 200"}  # as far as bytes can tell
COMPRESSED = ["compresses it unasked", "compresses each part unasked", "sends parts of it compressed"]
ENDLESS = {  # and what is said of it
    "drips headers": "before the body",
    "drips a status line without an end": "before the body",
    "says 100 Continue now and then": "before the body",
    "says 100 Continue for ever": "before the body",
    "says 103 Early Hints for ever": "before the body",
    "sends 5,000 headers": "got more than 100 headers",
    "drips the body": "bytes of the body",
}


@pytest.mark.parametrize("lie", [name for name in LIES if name not in OTHER_FILE | {*ENDLESS}])
def test_every_lie_ends_as_data_or_as_an_error_of_data(server: FaultServer, lie: str) -> None:
    url = server.add("a", DATA, lie=LIES[lie])
    said, got = None, DATA[5:15_005]
    try:
        got = RemoteFile(url).read_upto(5, 15_000)
    except DataError as error:
        said = error
    assert got == DATA[5:15_005]
    assert said is None or said.reason in ("unreadable_file", "unopenable", "missing_file", "changed_file")
    assert said is None or said.url == url


@pytest.mark.parametrize("lie", COMPRESSED)
@pytest.mark.parametrize("options", [{}, {"block_size": 1000}], ids=["our own", "fsspec's"])
def test_compressed_bytes_are_not_taken_for_the_file_s(server: FaultServer, lie: str, options: dict[str, int]) -> None:
    url = server.add("a.tar", DATA, lie=LIES[lie])
    with pytest.raises(DataError, match=r"compressed, .*\(Content-Encoding: 'gzip'\): switch that off") as caught:
        RemoteFile(url, Access(options)).read_upto(5, 15_000)
    assert (caught.value.reason, caught.value.url) == ("unreadable_file", url)
    assert server.headers["Accept-Encoding"] == "identity"


def test_a_file_that_is_compressed_itself_may_be_said_to_be(server: FaultServer) -> None:
    def labelled(handler: object, file: Served, first: int, last: int | None) -> bool:
        return wire(handler, sound(file, first, last, "Content-Encoding: x-gzip"), part(file, first, last))

    assert RemoteFile(server.add("a.tar.gz", DATA, lie=labelled)).read(5, 15_000) == DATA[5:15_005]


PASSING = [
    name for name in LIES if name not in OTHER_FILE and not name.startswith(("redirects", "answers 4", "answers 3"))
]


@pytest.mark.parametrize("lie", [*(name for name in PASSING if name != "answers 204"), "answers 416", "answers 429"])
def test_a_lie_that_passes_is_not_noticed(server: FaultServer, lie: str) -> None:
    url = server.add("a", DATA)
    file = RemoteFile(url)
    assert file.size == len(DATA)
    server.add("a", DATA, lie=first_times(2, LIES[lie]))
    assert file.read(5, 15_000) == DATA[5:15_005]


@pytest.mark.parametrize("lie", ENDLESS)
def test_nothing_outlasts_the_limits(server: FaultServer, lie: str) -> None:
    url = server.add("a", DATA, lie=LIES[lie])
    with pytest.raises(DataError, match=rf"given up after \d+ attempts.*{ENDLESS[lie]}") as caught:
        RemoteFile(url).read_upto(5, 15_000)
    assert (caught.value.reason, caught.value.url) == ("unreadable_file", url)


def test_hints_before_the_answer_are_passed_over(server: FaultServer) -> None:
    for hint in ("says 100 Continue, then answers", "says 103 Early Hints, then answers"):
        assert RemoteFile(server.add("a", DATA, lie=LIES[hint])).read(5, 50) == DATA[5:55]


def test_a_slow_reader_is_no_slow_server(server: FaultServer) -> None:
    file = RemoteFile(server.add("a", DATA * 100, ranges=False))
    stream = file.transport.stream()
    got = bytearray(1000)
    for at in range(0, 3000, 1000):
        assert stream.fill(memoryview(got)) == 1000
        assert got == DATA[at : at + 1000]
        time.sleep(0.5)
    stream.close()


@pytest.mark.parametrize(
    "location",
    ["http://[::1", "http://h:port/", "http://h:99999/", "file:///etc/passwd", "gopher://h/", ""],
)
def test_a_malformed_redirect_is_said_at_once(server: FaultServer, location: str) -> None:
    url = server.add("a", b"", lie=lambda handler, *_: wire(handler, head("302 Found", f"Location: {location}")))
    with pytest.raises(DataError, match="redirects") as caught:
        RemoteFile(url).read(0, 5)
    assert (caught.value.reason, caught.value.url, len(server.asked)) == ("unopenable", url, 1)


def test_a_loop_of_redirects_ends(server: FaultServer) -> None:
    url = server.add("a", b"", redirect="/b")
    server.add("b", b"", redirect="/a")
    with pytest.raises(DataError, match="more than 5 redirects"):
        RemoteFile(url).read(0, 5)
    assert len(server.asked) == 6


def test_a_redirect_may_have_letters_that_are_not_ascii(server: FaultServer) -> None:
    server.add("%E4%B8%AD", DATA)
    to = f"{server.url}/\u4e2d".encode().decode("latin-1")
    url = server.add("a", b"", lie=lambda handler, *_: wire(handler, head("302 Found", f"Location: {to}")))
    assert RemoteFile(url).read(0, 5) == DATA[:5]


@pytest.mark.parametrize(
    "url", ["http://[::1/a", "http://h:port/a", "http://h:99999/a", "http:///a", "http://a b/a", "http://a..b/a"]
)
def test_a_malformed_url_is_data_that_is_bad(url: str) -> None:
    for read in (lambda: RemoteFile(url).read(0, 5), lambda: RemoteFile(url).size):
        with pytest.raises(DataError) as caught:
            read()
        assert (caught.value.reason, caught.value.url) == ("unopenable", url)


@pytest.mark.parametrize("value", [f"{SECRET}\r\nX: y", f"{SECRET}\u4e2d", None])
def test_headers_that_cannot_be_sent_are_not_shown(server: FaultServer, value: str | None) -> None:
    url = server.add("a", DATA)
    with pytest.raises(DataError, match="storage_options") as caught:
        RemoteFile(url, Access({"headers": {"X-Api-Key": value}})).read(0, 5)
    assert caught.value.reason == "unopenable"
    assert SECRET not in str(caught.value)


OWN = {"host", "accept-encoding", "user-agent", "range"}
THEIRS = {"Authorization": f"Bearer {SECRET}", "Cookie": SECRET, "X-Api-Key": SECRET, "User-Agent": f"me {SECRET}"}


def test_no_header_of_the_user_s_follows_a_redirect_to_another_host(server: FaultServer) -> None:
    with serving() as other:
        url = server.add("a", b"", redirect=other.add("real", DATA))
        file = RemoteFile(url, Access({"headers": THEIRS}))
        assert file.read(5, 10) == DATA[5:15]
        assert THEIRS.items() <= server.headers.items()
        assert {name.lower() for name in other.headers} == OWN
        assert SECRET not in str(other.headers)
        assert other.headers["Range"] == "bytes=5-14"
        other.files["real"].faults.append("403")  # the place it led to has expired
        assert file.read(5, 10) == DATA[5:15]
        other.add("back", b"", redirect=server.add("home", DATA))
        server.add("a", b"", redirect=f"{other.url}/back")
        assert RemoteFile(url, Access({"headers": THEIRS})).read(5, 10) == DATA[5:15]
        assert THEIRS.items() <= server.headers.items(), "at home again"


def test_what_another_host_refuses_is_explained(server: FaultServer) -> None:
    with serving() as other:
        url = server.add("a", b"", redirect=other.add("real", DATA, *["401"] * 9))
        with pytest.raises(DataError, match=r"status 401.* where a redirect led: headers and credentials are not sent"):
            RemoteFile(url, Access({"headers": THEIRS})).read(5, 10)


def test_more_than_was_asked_for_is_not_taken_for_the_next_answer(server: FaultServer) -> None:
    def more(handler: object, *_: object) -> bool:
        body = b"1" * 10 + b"HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n"
        start = ("Content-Length: 10", "Content-Range: bytes 0-9/20000", 'ETag: "one"')
        return not wire(handler, head("206 Partial Content", *start), body)

    def lie(handler: object, *rest: object) -> bool:
        more(handler)
        time.sleep(0.05)
        return True

    one_lie: Lie = first_times(1, lie)
    url = server.add("a", DATA, lie=one_lie)
    file = RemoteFile(url)
    assert file.read(0, 10) == b"1" * 10
    assert file.read(0, 100) == DATA[:100]


def test_a_kept_connection_that_the_garbage_collector_has_closed_is_not_used(server: FaultServer) -> None:
    file = RemoteFile(server.add("a", DATA))
    assert file.read(0, 10) == DATA[:10]
    kept = [connection for idle in connections._idle.values() for connection in idle]
    assert kept
    for connection in kept:
        connection.sock.close()
    assert file.read(10, 90) == DATA[10:100]


def test_a_server_that_begins_to_redirect_nowhere_ends_the_shard_once(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BEGIN", "SMALLEST", "LARGEST"):
        monkeypatch.setattr(readahead, name, 8_000)
    shard = Path(shards(tmp_path, [20], seconds=(0.5, 0.8)).list.read_text().split()[-1])
    nowhere = LIES["redirects without saying where to"]

    def beyond_the_middle(handler: object, file: Served, first: int, last: int | None) -> bool:
        return first > len(file.data) // 2 and nowhere(handler, file, first, last)

    url = server.add("s.tar", shard.read_bytes(), lie=beyond_the_middle)
    loader = uio.Loader(uio.from_shard_list([url]).decode_audio().batch(1))
    assert 0 < len(list(loader)) < 20
    assert loader.stats().skipped == {"unopenable": 1}
