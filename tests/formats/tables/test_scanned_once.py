"""What is known of a table is found once in a process, and in those that are forked from it."""

import tracemalloc
from itertools import chain, repeat
from pathlib import Path

import pytest

from uio_pipes.formats.tables import rows, text
from uio_pipes.formats.tables.rows import RowIndex
from uio_pipes.formats.tables.text import TextForm, TextRows


def test_a_table_is_scanned_once_as_long_as_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans, scan = list[str](), text._Part._scan
    monkeypatch.setattr(text._Part, "_scan", lambda part: (scans.append(part.name), scan(part))[1])
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\n1\t2\n")
    first, again = (TextRows([str(path)], TextForm()) for _ in range(2))
    assert (first.digest, len(scans)) == (again.digest, 1)
    assert len(TextRows([str(path)], TextForm(header=("x", "y")))) == 2  # written in another way
    path.write_text("a\tb\n1\t3\n1\t4\n")
    assert [row["b"] for row in TextRows([str(path)], TextForm()).scan()] == ["3", "4"]  # type: ignore[union-attr, index]
    assert len(scans) == 3


def test_an_index_of_rows_takes_no_more_memory_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_PIECE", 1 << 10)
    count = 1 << 16
    tracemalloc.start()
    try:
        index = RowIndex(chain(["first"], repeat("other", count - 2), ["last"]), count)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (index.find("first"), index.find("last")) == ([0], [count - 1])
    assert peak < 1.5 * 8 * count
