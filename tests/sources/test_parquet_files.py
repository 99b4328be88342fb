"""Footers: those of one writer's files are read without being parsed, and tell the same."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fault_server import FaultServer
from hypothesis import given, settings
from hypothesis import strategies as st
from parquet_corpus import rows, write

import uio_pipes as uio
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.parquet import files
from uio_pipes.sources.parquet.files import ParquetFile, opened

OPTIONS: list[dict[str, Any]] = [{}, {"use_dictionary": False}, {"store_schema": False}, {"version": "1.0"}]


@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(1, 300), min_size=2, max_size=5), options=st.sampled_from(OPTIONS), group=st.data())
def test_what_is_read_of_a_footer_is_what_parsing_says(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], options: dict[str, Any], group: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("footers")
    urls = []
    for number, count in enumerate(counts):
        table = pa.table({"text": [f"t{i}" for i in range(count)], "n": list(range(count)), "b": [b"x"] * count})
        urls.append(str(folder / f"{number}.parquet"))
        pq.write_table(table, urls[-1], row_group_size=group.draw(st.sampled_from([100, 1000])), **options)
    found = opened(urls, PLAIN)
    for url, file in zip(urls, found, strict=True):
        alone = ParquetFile(url, PLAIN)
        metadata = pq.read_metadata(url)
        assert file.rows == alone.rows == [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        assert file.digest == alone.digest
        assert file.form.schema is found[0].form.schema
        assert file.form.schema.equals(metadata.schema.to_arrow_schema())
        assert file.metadata().equals(metadata)


def test_files_of_one_writer_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [str(write(tmp_path / f"{i}.parquet", rows(3 + i, 10 * i), group=50)) for i in range(9)]
    parsed, parse = list[str](), ParquetFile._parsed
    monkeypatch.setattr(ParquetFile, "_parsed", lambda file, footer: parsed.append(file.url) or parse(file, footer))
    assert sum(file.rows[0] for file in opened(urls, PLAIN)) == sum(range(3, 12))
    assert parsed == urls[:1]


def test_slow_disks_are_asked_by_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [str(write(tmp_path / f"{i}.parquet", rows(2, 10 * i))) for i in range(7)]
    quick = [file.digest for file in opened(urls, PLAIN)]
    monkeypatch.setattr(files, "_SLOW", 0.0)
    monkeypatch.setattr(files, "_FIRST", 2)
    assert [file.digest for file in opened(urls, PLAIN)] == quick


def test_a_remote_footer_takes_one_request(server: FaultServer, tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.parquet", rows(2, 10 * i)) for i in range(3)]
    urls = [server.add(path.name, path.read_bytes()) for path in paths]
    found = opened(urls, PLAIN)
    assert [len(server.offsets(path.name)) for path in paths] == [1, 1, 1]
    assert [file.file.size for file in found] == [path.stat().st_size for path in paths]


@pytest.mark.parametrize("how", [{"ranges": False}, {"cap": 5000}, {"etag": ""}])
def test_a_server_that_cannot_send_the_end_is_asked_otherwise(server: FaultServer, tmp_path: Path, how: Any) -> None:
    path = write(tmp_path / "a.parquet", rows(4))
    found = ParquetFile(server.add("a.parquet", path.read_bytes(), **how), PLAIN)
    assert found.rows == ParquetFile(str(path), PLAIN).rows


def test_a_footer_that_is_found_damaged_when_its_file_is_reached_costs_its_rows(tmp_path: Path) -> None:
    """Its head and end are those of its neighbour's; what lies between is not looked at before."""
    for number in range(2):
        write(tmp_path / f"{number}.parquet", rows(3, 10 * number), group=50)
    path = tmp_path / "1.parquet"
    data = bytearray(path.read_bytes())
    form = ParquetFile(str(tmp_path / "0.parquet"), PLAIN).form
    begin = len(data) - int.from_bytes(data[-8:-4], "little") - 8 + len(form.before)
    data[begin + 6 : begin + 30] = bytes(24)
    path.write_bytes(data)
    loader = uio.Loader(uio.from_parquet(str(tmp_path / "*.parquet")))
    assert [sample["key"] for sample in loader] == ["P0000", "P0001", "P0002"]
    assert loader.stats().skipped == {"bad_page": 3}
