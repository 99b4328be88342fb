"""Of very many files, what their footers tell is kept, until one of them changes."""

import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contract import digest
from helpers_bad import run
from parquet_corpus import rows, write

import uio_pipes as uio
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.parquet import footers
from uio_pipes.sources.parquet.files import ParquetFile


@pytest.fixture
def urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files of two writers, in several row groups, of which footers are kept."""
    monkeypatch.setattr(footers, "MANY", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = [str(write(tmp_path / f"{i}.parquet", rows(3 + i, 10 * i), group=2)) for i in range(5)]
    table = pq.read_table(made[-1])
    pq.write_table(table, made[-1], row_group_size=3, version="1.0", store_schema=False)
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose footers are read from now on."""
    names, read = list[str](), ParquetFile._read
    monkeypatch.setattr(ParquetFile, "_read", lambda file, tail: names.append(file.url) or read(file, tail))
    return names


def told(files: list[ParquetFile]) -> list[object]:
    return [(file.facts, file.form.schema, file.metadata()) for file in files]


def epoch(urls: list[str]) -> list[str]:
    return [digest(sample) for sample in run(uio.from_parquet(urls, shuffle=True), lanes=1)[0]]


def kept(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "uio_pipes").glob("*.footers"))


def test_the_second_start_opens_no_file_and_knows_the_same(urls: list[str], opened: list[str], tmp_path: Path) -> None:
    whole, first = epoch(urls), told(footers.open_files(urls, PLAIN))
    assert first == told([ParquetFile(url, PLAIN) for url in urls])
    assert len(kept(tmp_path)) == 1
    del opened[:]
    assert told(footers.open_files(urls, PLAIN)) == first
    assert epoch(urls) == whole
    assert set(opened) <= {urls[0]}, "its columns are looked at when the source is described"


@pytest.mark.parametrize("how", ["content", "time", "another"])
def test_a_file_that_is_another_one_is_opened(urls: list[str], opened: list[str], how: str) -> None:
    epoch(urls)
    if how == "content":
        write(Path(urls[2]), rows(9, 70), group=4)
    elif how == "time":
        os.utime(urls[2], ns=(5, 5))
    else:
        status = os.stat(urls[2])
        shutil.copy(urls[2], f"{urls[2]}.new")
        os.utime(f"{urls[2]}.new", ns=(status.st_atime_ns, status.st_mtime_ns))
        os.replace(f"{urls[2]}.new", urls[2])
    for expected in ([urls[2]], []):
        del opened[:]
        files = footers.open_files(urls, PLAIN)
        assert opened == expected
        assert told(files) == told([ParquetFile(url, PLAIN) for url in urls])


def test_a_file_that_is_gone_is_named(urls: list[str]) -> None:
    epoch(urls)
    os.remove(urls[3])
    with pytest.raises(uio.ListError, match=r"3\.parquet: no such file"):
        footers.open_files(urls, PLAIN)


def test_what_is_damaged_is_made_anew(urls: list[str], tmp_path: Path) -> None:
    whole = epoch(urls)
    (path,) = kept(tmp_path)
    sound = path.read_bytes()
    for data in (b"", sound[:-1], sound[:50] + bytes([sound[50] ^ 1]) + sound[51:]):
        path.write_bytes(data)
        assert epoch(urls) == whole
        assert path.read_bytes() == sound


def test_what_cannot_be_written_is_done_without(urls: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert epoch(urls) == epoch(urls)


def count(urls: list[str]) -> int:
    footers.MANY, names, read = 2, list[str](), ParquetFile._read
    ParquetFile._read = lambda file, tail: names.append(file.url) or read(file, tail)  # type: ignore[method-assign]
    footers.open_files(urls, PLAIN)
    return len(names)


def test_of_many_processes_one_opens_the_files_for_all(urls: list[str]) -> None:
    with ProcessPoolExecutor(4, get_context("fork")) as pool:
        assert sum(pool.map(count, [urls] * 4)) == len(urls)


def test_files_of_too_many_writers_are_not_kept(
    urls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footers, "FORMS", 1)
    pq.write_table(pa.table({"another": [1]}), urls[1])
    footers.open_files(urls, PLAIN)
    assert not kept(tmp_path)
