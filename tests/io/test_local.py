"""LocalFile, Ref and opening: what is read, what is noticed, how many files stay open."""

import os
import pickle
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random

import fsspec
import pytest

from uio_pipes.base.errors import DataError
from uio_pipes.io import local
from uio_pipes.io.local import LocalFile
from uio_pipes.io.opening import is_local, open_binary, stamp
from uio_pipes.io.references import Ref

DATA = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data.bin").write_bytes(DATA)
    return tmp_path / "data.bin"


def test_reads_by_position(path: Path) -> None:
    file = LocalFile(str(path))
    assert (file.size, file.stamp) == (len(DATA), f"size:{len(DATA)}")
    assert file.read(100, 300) == DATA[100:400]
    assert file.read_upto(len(DATA) - 5, 300) == DATA[-5:]
    assert file.read_upto(len(DATA) + 5, 300) == b""


def test_short_read_is_an_error(path: Path) -> None:
    with pytest.raises(DataError, match=r"ends after 5 of 6 bytes") as caught:
        LocalFile(str(path)).read(len(DATA) - 5, 6)
    error = caught.value
    assert (error.reason, error.url, error.offset) == ("truncated", str(path), len(DATA) - 5)


def test_file_cut_off_while_open(path: Path) -> None:
    file = LocalFile(str(path))
    file.read(0, 10)
    os.truncate(path, 50)
    with pytest.raises(DataError) as caught:
        file.read(0, 100)
    assert caught.value.reason == "changed_file"


@pytest.mark.parametrize("missing", ["nowhere.bin", "data.bin/below.bin"])
def test_missing_file_names_the_remedy(path: Path, missing: str) -> None:
    with pytest.raises(DataError, match=r"nowhere\.bin|below\.bin.*no such file: correct the list") as caught:
        _ = LocalFile(str(path.parent / missing)).size
    assert caught.value.reason == "missing_file"


def test_permission_and_folder_are_unreadable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError) as caught:
        LocalFile(str(path.parent)).read(0, 10)
    assert caught.value.reason == "unreadable_file"

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # root may read everything
    with pytest.raises(DataError, match="permission denied: make the file") as caught:
        LocalFile(str(path)).read(0, 10)
    assert caught.value.reason == "unreadable_file"


def test_at_most_128_files_are_open_and_all_can_be_read(tmp_path: Path) -> None:
    files = []
    for number in range(local.MAX_OPEN + 50):
        (tmp_path / str(number)).write_bytes(b"%04d" % number)
        files.append(LocalFile(str(tmp_path / str(number))))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        assert [int(file.read(0, 4)) for file in files] == list(range(len(files)))
        assert len(os.listdir("/proc/self/fd")) <= before + local.MAX_OPEN


@pytest.fixture
def few_descriptors(tmp_path: Path) -> Iterator[None]:
    """Ten more than are open now, and 200 files."""
    for number in range(200):
        (tmp_path / str(number)).write_bytes(b"%04d" % number)
    local._descriptors.clear()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_are_closed_where_few_may_be_open(tmp_path: Path, few_descriptors: None) -> None:
    files = [LocalFile(str(tmp_path / str(number))) for number in range(200)]
    assert [int(file.read(0, 4)) for file in files] == list(range(200))
    local._descriptors.clear()
    taken = list[int]()  # by others, who cannot be asked for room
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        with pytest.raises(DataError, match=r"Too many open files.*allow more with `ulimit -n 4096`"):
            open_binary(str(tmp_path / "3"))
    finally:
        for number in taken:
            os.close(number)


def test_threads_read_their_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager_threads: None) -> None:
    monkeypatch.setattr(local, "MAX_OPEN", 3)
    files = []
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"%04d" % number * 1000)
        files.append(LocalFile(str(tmp_path / str(number))))
    until = time.monotonic() + 3

    def reads(thread: int) -> int:
        chosen, count = Random(thread), 0
        while time.monotonic() < until:
            number, count = chosen.randrange(5), count + 1
            assert files[number].read(0, 4000) == b"%04d" % number * 1000
        return count

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(reads, range(8)))


@pytest.mark.parametrize("change", ["append", "replace", "touch"])
def test_a_changed_file_is_noticed_on_reopening(path: Path, change: str) -> None:
    file = LocalFile(str(path))
    file.read(0, 10)
    if change == "append":
        path.write_bytes(DATA + b"more")
    elif change == "replace":
        times = path.stat()
        (path.parent / "new").write_bytes(DATA)
        os.utime(path.parent / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
        os.replace(path.parent / "new", path)
    else:
        os.utime(path, ns=(1, 1))
    local._forget()
    what = {"append": "size", "replace": "inode", "touch": "mtime_ns"}[change]
    with pytest.raises(DataError, match=rf"{what} \d+ -> \d+.*start again") as caught:
        file.read(0, 10)
    assert caught.value.reason == "changed_file"


def test_two_generations_of_a_path_are_not_confused(path: Path) -> None:
    old = LocalFile(str(path))
    old.read(0, 10)
    path.with_suffix(".new").write_bytes(DATA[::-1])
    os.replace(path.with_suffix(".new"), path)
    assert LocalFile(str(path)).read(0, 10) == DATA[::-1][:10]
    assert old.read(0, 10) == DATA[:10]


def test_a_forked_child_and_a_pickled_copy_read_on(path: Path) -> None:
    file = LocalFile(str(path))
    ref = Ref(file, 10, 500, file.read(10, 256))
    assert pickle.loads(pickle.dumps(ref)).read() == DATA[10:510]
    with local._lock:  # as if another thread were reading
        child = os.fork()
        if child == 0:
            os._exit(0 if file.read(0, 100) == DATA[:100] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert file.read(0, 100) == DATA[:100]


@pytest.mark.parametrize("head", [0, 100])
def test_ref_reads_slices(path: Path, head: int) -> None:
    payload = DATA[30:530]
    ref = Ref(LocalFile(str(path)), 30, 500, payload[:head])
    assert ref.read() == payload
    for start, size in [(0, 10), (0, 100), (90, 20), (400, 200), (500, 1), (600, 5)]:
        assert ref.read_at(start, size) == payload[start : start + size]


def test_open_binary_and_stamp(path: Path) -> None:
    assert is_local(f"file://{path}") == is_local(str(path)) == str(path)
    assert is_local("memory://a") is is_local("simplecache::s3://a/b") is None
    for url in (str(path), f"file://{path}"):
        with open_binary(url) as fileobj:
            assert fileobj.read() == DATA
        assert stamp(url) == f"size:{len(DATA)}"
    with fsspec.open("memory://opening/data.bin", "wb") as fileobj:
        fileobj.write(DATA)
    with open_binary("memory://opening/data.bin") as fileobj:
        assert fileobj.read() == DATA
    assert stamp("memory://opening/data.bin") == f"size:{len(DATA)}"


@pytest.mark.parametrize("act", [open_binary, stamp])
@pytest.mark.parametrize(
    ("url", "reason", "message"),
    [
        ("memory://opening/nothing", "missing_file", "no such file"),
        ("/nowhere/at/all", "missing_file", "no such file"),
        ("nonsense://a/b", "unopenable", "Protocol not known: nonsense.*install the fsspec package"),
        ("oss://bucket/a.tar", "unopenable", "not installed.*ossfs"),
    ],
)
def test_opening_fails_with_a_remedy(act: object, url: str, reason: str, message: str) -> None:
    assert callable(act)
    with pytest.raises(DataError, match=f"(?s)^{url}: .*{message}") as caught:
        act(url)
    assert (caught.value.reason, caught.value.url) == (reason, url)
