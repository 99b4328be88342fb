"""Lines of lists: the same by number as by reading, wherever they are kept; what changes underneath is told."""

import gzip
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_server import FaultServer
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.formats.lists.lines import Lines
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.formats.rows import content, numbered

PIECES = [
    "a",
    "/b c.tar",
    "#",
    "# x",
    " ",
    "\t",
    "\r",
    "\n",
    "\n",
    "\n",
    "語",
    "\u3000",
    "\x85",
    '{"k": 1}',
    "\x7f",
    "é#",
]


@pytest.fixture(params=["in memory", "on disk"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every bound of the module is met by lists of some bytes."""
    monkeypatch.setattr(numbered, "STEP", 3)
    monkeypatch.setattr(content, "CHUNK", 16)
    monkeypatch.setattr(content, "IN_MEMORY", 1 << 20 if request.param == "in memory" else 0)
    yield
    numbered._known.cache_clear()
    numbered._block.cache_clear()


def naive(text: str) -> list[tuple[int, str]]:
    lines = enumerate(map(str.strip, text.removeprefix("\ufeff").split("\n")), 1)
    return [(number, line) for number, line in lines if line and not line.startswith("#")]


@pytest.mark.usefixtures("small")
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), st.booleans())
def test_items_are_those_of_reading_the_list(tmp_path_factory: pytest.TempPathFactory, text: str, mark: bool) -> None:
    path = tmp_path_factory.mktemp("list") / "x.list"
    path.write_bytes((("\ufeff" if mark else "") + text).encode())
    lines, expected = Lines(str(path)), naive(text)
    assert list(lines) == [item for _, item in expected]
    assert [(lines.line(i), lines[i]) for i in range(len(lines))] == expected
    assert "\n".join(lines.texts()).replace("\n\n", "\n") == "\n".join(item for _, item in expected)
    with pytest.raises(IndexError):
        lines[len(lines)]


@pytest.mark.usefixtures("small")
def test_the_digest_is_that_of_the_items_however_they_are_written(tmp_path: Path) -> None:
    plain, spaced = tmp_path / "plain.list", tmp_path / "spaced.list"
    plain.write_text("".join(f"/data/{i}.tar\n" for i in range(50)))
    spaced.write_text("# head\n" + "".join(f"  /data/{i}.tar \r\n\n" for i in range(50)))
    assert ItemTable((str(plain),)).digest == ItemTable((str(spaced),)).digest
    assert ItemTable((str(plain),)).digest != ItemTable((str(plain), str(plain))).digest
    assert ItemTable(tuple(f"/data/{i}.tar" for i in range(50))).digest == ItemTable((str(plain),)).digest


@pytest.mark.usefixtures("small")
def test_a_list_is_looked_through_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "x.list"
    path.write_text("a\nb\n")
    first = Lines.known(str(path))
    assert Lines.known(str(path)) is first
    time.sleep(0.02)
    path.write_text("c\nd\n")
    assert list(Lines.known(str(path))) == ["c", "d"]


def test_a_long_list_may_be_replaced_while_in_use_but_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "IN_MEMORY", 100)
    path = tmp_path / "x.list"
    path.write_text("".join(f"/data/{i}.tar\n" for i in range(500)))
    lines = Lines(str(path))
    (tmp_path / "new").write_text("other\n")
    path.rename(tmp_path / "old")
    (tmp_path / "new").rename(path)
    assert lines[499] == "/data/499.tar"
    assert list(Lines.known(str(path))) == ["other"]
    with (tmp_path / "old").open("a") as file:
        file.write("more\n")
    with pytest.raises(uio.ListError, match="changed while it was in use"):
        lines[100]


@pytest.mark.parametrize("limit", [100, 1 << 20])
def test_a_far_list_is_kept_whole(server: FaultServer, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(content, "IN_MEMORY", limit)
    lines = Lines(server.add("x.list", b"".join(b"/data/%d.tar\n" % i for i in range(5000))))
    server.files.clear()
    assert [lines[i] for i in (0, 4999, 2500)] == ["/data/0.tar", "/data/4999.tar", "/data/2500.tar"]
    assert lines.line(4999) == 5000


@pytest.mark.parametrize("limit", [1 << 23, 100])
def test_a_compressed_list_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(content, "IN_MEMORY", limit)
    data = gzip.compress(b"".join(b"/data/%d.tar\n" % i for i in range(300_000)))
    (tmp_path / "x.list.gz").write_bytes(data)
    lines = Lines(str(tmp_path / "x.list.gz"))
    assert len(lines) == 300_000
    assert [lines[i] for i in (0, 299_999, 150_000)] == ["/data/0.tar", "/data/299999.tar", "/data/150000.tar"]
    (tmp_path / "cut.list.gz").write_bytes(data[:-100])
    with pytest.raises(uio.ListError, match=r"cannot read the list .*cut\.list\.gz: the gzip stream is cut off"):
        Lines(str(tmp_path / "cut.list.gz"))


def test_a_pipe_in_place_of_a_list_is_told_with_the_remedy(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        uio.UioError, match="pipe is a pipe or a device, but is read more than once: write it to a file"
    ):
        list(uio.Loader(uio.from_raw_list(str(tmp_path / "pipe"))))


def test_one_endless_line_is_no_list(tmp_path: Path) -> None:
    path = tmp_path / "x.list"
    path.write_bytes(b"a\n" + b"x" * (9 << 20))
    with pytest.raises(uio.ListError, match="is not a list"):
        Lines(str(path))
    path.write_bytes(b"a\n" + b"x" * (5 << 20) + b"\nb\n")
    assert list(map(len, Lines(str(path)))) == [1, 5 << 20, 1]
