"""Records that several processes add to one folder at once, and what a kill leaves."""

import os
import signal
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from uio_pipes.base.errors import DataError
from uio_pipes.io.folders import Folder
from uio_pipes.io.shelf import Shelf, _opened, _shelves, _sums, read_record, rows_of, shelf


def opened(folder: Path) -> Shelf:
    _shelves.clear()
    return shelf(str(folder), "kind", 1 << 30, "about", True)


def content(number: int) -> bytes:
    return number.to_bytes(4, "little") * (number % 2_000 + 1)


def found(one: Shelf, number: int) -> bytearray | None:
    return next((read_record(entry) for entry in one.find((number * 0x9E3779B97F4A7C15 % 2**64, number))), None)


def add(one: Shelf, number: int) -> None:
    key = number * 0x9E3779B97F4A7C15 % 2**64, number
    one.add(key, content(number), (number, 16_000, 3))


def forked(work: Any) -> int:
    """Run ``work`` in a process of its own, and return its number."""
    if child := os.fork():
        return child
    try:
        work()
    finally:
        os._exit(0)


def test_what_one_has_added_others_find(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    add(one, 5)
    assert found(one, 5) == content(5)
    assert found(other, 5) is None
    other.refresh()
    assert found(other, 5) == content(5)
    assert next(other.find((5 * 0x9E3779B97F4A7C15 % 2**64, 5))).lengths == (5, 16_000, 3)
    assert found(other, 6) is None
    one.refresh()
    assert found(one, 5) == content(5)


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    def work(first: int) -> None:
        one = opened(tmp_path)
        for number in range(first, first + 300):
            add(one, number)

    children = [forked(lambda first=first: work(first)) for first in (0, 300, 600)]
    assert {os.waitpid(child, 0)[1] for child in children} == {0}
    one = opened(tmp_path)
    assert all(found(one, number) == content(number) for number in range(900))
    assert len(list(tmp_path.rglob("*.data"))) == 3


def test_a_killed_process_leaves_no_half_record(tmp_path: Path) -> None:
    def work() -> None:
        one, number = opened(tmp_path), 0
        while True:
            add(one, number := number + 1)

    child = forked(work)
    while not (indexes := list(tmp_path.rglob("*.index"))) or indexes[0].stat().st_size < 64 * 50:
        os.sched_yield()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with indexes[0].open("ab") as file:  # as if it had been killed in the middle of a row
        file.write(b"\1" * 30)
    one, count = opened(tmp_path), indexes[0].stat().st_size // 64
    assert count >= 50
    assert all(found(one, number) == content(number) for number in range(1, count + 1))
    assert found(one, count + 1) is None


def test_a_file_that_is_cut_off_or_gone_has_no_records(tmp_path: Path) -> None:
    one = opened(tmp_path)
    for number in range(10):
        add(one, number)
    (data,) = tmp_path.rglob("*.data")
    os.truncate(data, data.stat().st_size - 1)
    one = opened(tmp_path)
    assert found(one, 8) == content(8)
    with pytest.raises(DataError, match="its file ends before"):
        found(one, 9)
    data.unlink()
    _opened.cache_clear()
    assert found(one, 8) is None


@pytest.mark.parametrize("size", [1 << 34, 1 << 40, (1 << 64) - 1])
def test_a_row_that_claims_a_size_takes_no_memory(tmp_path: Path, size: int) -> None:
    add(opened(tmp_path), 7)
    (index,) = tmp_path.rglob("*.index")
    row = np.frombuffer(index.read_bytes(), np.uint64).copy()
    row[3] = size
    row[-1] = _sums(row[None])[0]
    index.write_bytes(row.tobytes())
    tracemalloc.start()
    with pytest.raises(DataError):
        found(opened(tmp_path), 7)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_ctrl_c_anywhere_leaves_a_sound_file(tmp_path: Path) -> None:
    one, number, whole, shelf_file = opened(tmp_path), 0, list[int](), shelf.__code__.co_filename
    one._lock = nullcontext()  # type: ignore[assignment]  # tracing interrupts where Python does not: before a release
    for at in range(1_000):  # lines of shelf.py, one after the other, until all have been run
        lines = iter(range(at))

        def step(frame: Any, event: str, _: Any, lines: Iterator[int] = lines) -> Any:
            if frame.f_code.co_filename == shelf_file:
                if event == "line" and next(lines, None) is None:
                    raise KeyboardInterrupt
                return step
            return None

        number += 1
        sys.settrace(step)
        try:
            add(one, number)
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        add(one, number := number + 1)
        whole.append(number)
    assert len(whole) > 20
    check_sound(tmp_path, whole)


@pytest.mark.parametrize("cut_off_by", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("kind", ["data", "index"])
def test_a_write_that_is_cut_off_leaves_a_sound_file(tmp_path: Path, cut_off_by: Any, kind: str) -> None:
    """By Ctrl-C, or by a full disk, after which there may be room at the next epoch."""
    one, write = opened(tmp_path), os.pwrite
    add(one, 1)
    with mock.patch("os.pwrite") as cut_off, suppress(KeyboardInterrupt):

        def half(number: int, data: bytes, offset: int) -> int:
            if os.readlink(f"/proc/self/fd/{number}").endswith(kind):
                write(number, data[: len(data) // 2], offset)
                raise cut_off_by
            return write(number, data, offset)

        cut_off.side_effect = half
        add(one, 2)
    one.refresh()
    add(one, 3)
    check_sound(tmp_path, [1, 3])


def check_sound(folder: Path, numbers: list[int]) -> None:
    one = opened(folder)
    assert [number for number in numbers if found(one, number) != content(number)] == []
    assert all(len(rows_of(path.read_bytes())) * 64 == path.stat().st_size for path in folder.rglob("*.index"))


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
@pytest.mark.parametrize("suffix", ["data", "index"])
def test_only_plain_files_are_read(tmp_path: Path, kind: str, suffix: str) -> None:
    add(opened(tmp_path), 1)
    (path,) = tmp_path.rglob(f"*.{suffix}")
    path.unlink()
    {"fifo": os.mkfifo, "folder": os.mkdir, "device": lambda one: os.symlink("/dev/zero", one)}[kind](path)
    _opened.cache_clear()
    one = opened(tmp_path)
    assert found(one, 1) is None
    with pytest.raises(OSError, match=r"not a plain file|Is a directory"):
        Folder(path.parent).read([path.name])
    add(one, 2)
    assert found(opened(tmp_path), 2) == content(2)


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x").write_bytes(b"123")
    (tmp_path / "cache" / "back").symlink_to(".")
    (tmp_path / "cache" / "other").symlink_to("../elsewhere")
    assert Folder(tmp_path / "cache").sizes() == {"other/x": 3}


def test_what_comes_after_files_were_removed_is_kept(tmp_path: Path) -> None:
    mine = Shelf(str(tmp_path), "one", 1 << 30, "", True)
    mine.add((1, 2), b"before", (0, 0, 0))
    for path in (tmp_path / "one").iterdir():
        path.unlink()
    mine.refresh()
    mine.add((3, 4), b"after", (0, 0, 0))
    other = Shelf(str(tmp_path), "one", 1 << 30, "", False)
    other.refresh()
    assert [read_record(entry) for entry in other.find((3, 4))] == [b"after"]


def test_a_fault_that_passes_and_a_full_folder_are_not_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, reader = (Shelf(str(tmp_path), "kind", 1_000, "", True) for _ in range(3))
    for number, shelf_ in enumerate((one, other)):
        shelf_.add((number, 2), b"record", (0, 0, 0))
    read, calls = Folder.read, list[str]()

    def fails(self: Folder, names: list[str]) -> list[bytes]:
        calls.extend(names)
        if len(calls) == 2:
            raise OSError("503 slow down")
        return read(self, names)

    monkeypatch.setattr(Folder, "read", fails)
    for _ in range(2):
        reader.refresh()
    assert [list(map(read_record, reader.find((number, 2)))) for number in (0, 1)] == [[b"record"]] * 2
    reader.add((5, 5), bytes(1_000), (0, 0, 0))
    assert not reader.writes
    for path in tmp_path.rglob("*.data"):
        path.unlink()
    reader.refresh()
    reader.add((5, 5), bytes(500), (0, 0, 0))
    assert reader.writes
    assert list(reader.find((5, 5)))


def test_a_file_that_vanishes_while_the_folder_is_measured_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "gone").touch()
    (tmp_path / "there").write_bytes(b"123")
    with os.scandir(tmp_path) as entries:
        listed = list(entries)
    (tmp_path / "gone").unlink()
    with mock.patch("os.scandir", return_value=nullcontext(listed)):
        assert Folder(tmp_path).sizes() == {"there": 3}


def test_a_flipped_byte_is_found(tmp_path: Path) -> None:
    add(opened(tmp_path), 7)
    (data,) = tmp_path.rglob("*.data")
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1, *data.read_bytes()[1:]]))
    with pytest.raises(DataError, match="damaged"):
        found(opened(tmp_path), 7)
