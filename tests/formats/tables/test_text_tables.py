"""Rows of text tables by number, against Python's csv module; a table is looked through once."""

import codecs
import csv
import gzip
import io
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.base.errors import DataError
from uio_pipes.formats.rows import content, numbered
from uio_pipes.formats.rows.content import Content
from uio_pipes.formats.tables import rows
from uio_pipes.formats.tables.rows import Row, RowIndex
from uio_pipes.formats.tables.text import TextFile, TextForm, TextRows

# A cell of these, in any order, holds all that can go wrong: quotes, separators, line ends, comments, blanks.
PIECES = st.sampled_from(['"', ",", "\n", "\r\n", "#", " ", "a", "bc", "ä", "文字", "\t", "\\", "", "\x0b", "\u2028"])
CELLS = st.lists(PIECES, max_size=6).map("".join)
PLAIN = st.text(st.characters(exclude_characters="\n\r\t\0", exclude_categories=["Cs"]), max_size=8)


@contextmanager
def small(chunk: int, longest: int) -> Iterator[None]:
    with mock.patch.object(content, "CHUNK", chunk), mock.patch.object(numbered, "LONGEST", longest):
        yield


def read(data: bytes, form: TextForm) -> TextRows:
    return TextRows([Content("a.csv", "the table", data)], form)


def of(rows: TextRows) -> list[Row]:
    """All rows, by number and by scan, which must be the same."""
    by_number = [rows.row(number) for number in range(len(rows))]
    assert list(rows.scan()) == by_number
    return by_number


def by_csv(data: str, **options: Any) -> list[dict[str, str]]:
    """The rows as Python's own module reads them, without those that have nothing in them."""
    names, *rows = csv.reader(io.StringIO(data, newline=""), **options)
    return [dict(zip(names, row, strict=True)) for row in rows]


TABLES = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=60))


@settings(max_examples=150, deadline=None)
@given(
    TABLES.map(lambda table: [["x", *row] for row in table]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([",", ";", "|", "\t"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from([None, 30, 200]),
    st.booleans(),
)
def test_what_csv_writes_is_read_as_csv_reads_it(
    table: list[list[str]], end: str, separator: str, quoting: Any, chunk: int | None, ended: bool
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([[f"c{number}" for number in range(len(table[0]))], *table])
    data = out.getvalue() if ended else out.getvalue()[: -len(end)]
    with mock.patch.object(content, "CHUNK", chunk or content.CHUNK):
        rows = of(read(data.encode(), TextForm(separator, quoted=True)))
    assert rows == by_csv(data, delimiter=separator)


# Lines that nobody's writer made: quotes within values, after values, never closed.
LINES = st.lists(
    st.lists(st.sampled_from(['"', '""', ",", "a", "b c", "\\"]), min_size=1, max_size=7).map("".join), max_size=40
)


@settings(max_examples=300, deadline=None)
@example(lines=['""\\,"', '"'], chunk=7, escape="\\")
@given(LINES, st.sampled_from([7, 40, 1 << 22]), st.sampled_from(["", "\\"]))
def test_any_quotes_are_understood_as_by_csv(lines: list[str], chunk: int, escape: str) -> None:
    lines = [line for line in lines if not (escape and line.endswith(escape))]
    data = "\n".join(["n", *lines, ""])
    form = TextForm(",", ("n",), quoted=True, escape=escape)
    with small(chunk, 1 << 20):
        rows = read(data.encode(), form)
        by_number = [part.raw(n) for part in rows._parts for n in range(len(part))]
        assert by_number == [line for part in rows._parts for line in part.rows()]
        wanted = list(csv.reader(io.StringIO(data, newline=""), escapechar=escape or None))
        if not unclosed(data, escape):
            got = [form.cells(line.decode(), 0) for part in rows._parts for line in part.rows()]
            assert got == list(filter(None, wanted))


def unclosed(data: str, escape: str) -> bool:
    """Whether the last value is in quotes that are never closed: csv takes all the rest for it."""
    return list(csv.reader(io.StringIO(f"{data}end", newline=""), escapechar=escape or None))[-1] != ["end"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(PLAIN, min_size=2, max_size=2), min_size=1, max_size=50), st.sampled_from([50, 1 << 22]))
def test_without_quotes_a_line_is_what_is_between_tabs(table: list[list[str]], chunk: int) -> None:
    data = "a\tb\tc\n" + "".join(f"x\t{one}\t{two}\n" for one, two in table)
    with mock.patch.object(content, "CHUNK", chunk):
        assert of(read(data.encode(), TextForm())) == [{"a": "x", "b": one, "c": two} for one, two in table]


@pytest.mark.parametrize("encoding", ["cp949", "gbk", "shift_jis", "utf-16", "utf-8-sig", "iso-8859-1"])
def test_other_encodings_are_read(encoding: str, tmp_path: Path) -> None:
    words = {"cp949": "안녕", "gbk": "你好丨", "shift_jis": "表ソ", "iso-8859-1": "é|"}.get(encoding, "文 é")
    path = tmp_path / "a.txt"
    path.write_bytes(f"key|txt\r\na|{words}\r\n".replace(words, words.replace("|", "")).encode(encoding))
    rows = TextRows([str(path)], TextForm("|", encoding=encoding))
    assert of(rows) == [{"key": "a", "txt": words.replace("|", "")}]
    assert rows.place(0).endswith("a.txt, line 2")


def test_a_row_in_another_encoding_costs_itself() -> None:
    rows = read("key\ttxt\na\tä\nb\tx\n".encode("latin-1"), TextForm())
    with pytest.raises(
        DataError, match=r"a\.csv, line 2.*it is not utf-8 .*name the encoding, as in uio.Tab"
    ) as caught:
        rows.row(0)
    assert caught.value.reason == "bad_text"
    assert rows.row(1) == {"key": "b", "txt": "x"}


def test_blank_lines_and_comments_are_no_rows_and_lines_are_counted() -> None:
    data = '; about\n\nkey,txt\n;"\n  \na,"one\ntwo"\n\nb,;\n'
    rows = read(data.encode(), TextForm(",", quoted=True, comment=";"))
    assert of(rows) == [{"key": "a", "txt": "one\ntwo"}, {"key": "b", "txt": ";"}]
    assert [rows.place(0), rows.place(1)] == ["a.csv, line 6", "a.csv, line 9"]


def test_places_are_those_of_lines_in_later_blocks() -> None:
    data = "k\n" + "".join(f"a{number}\n\n" for number in range(50))
    rows = read(data.encode(), TextForm())
    assert [rows.place(number) for number in (0, 15, 16, 49)] == [f"a.csv, line {n}" for n in (2, 32, 34, 100)]


def test_a_quote_that_is_never_closed_costs_a_row() -> None:
    data = 'k,t\na,"open\n' + "".join(f"b{number},x\n" for number in range(150))
    rows = read(data.encode(), TextForm(",", quoted=True))
    assert len(rows) == 151
    with pytest.raises(DataError, match="line 2: a quote is not closed") as caught:
        rows.row(0)
    assert caught.value.reason == "bad_row"
    assert rows.row(150) == {"k": "b149", "t": "x"}


@pytest.mark.parametrize(
    ("data", "form", "rows"),
    [
        (
            b"k1 two  words \nk2\tone\nk3\n",
            TextForm(None, ("k", "txt")),
            [("k1", "two  words"), ("k2", "one"), ("k3", "")],
        ),
        (b"a\tb\nc\td\n", TextForm(header=False), [("a", "b"), ("c", "d")]),
        (b"a.pcm :: b c\n", TextForm(" :: ", ("path", "txt")), [("a.pcm", "b c")]),
        (b'path\ttxt\na\tb\\\tc "d\n', TextForm(escape="\\"), [("a", 'b\tc "d')]),
        (codecs.BOM_UTF16_LE + "key\ttxt\nä\t文\n".encode("utf-16-le"), TextForm(), [("ä", "文")]),
    ],
    ids=["transcripts", "no header", "long separator", "escaped", "Unicode text of Excel"],
)
def test_forms_of_tables(data: bytes, form: TextForm, rows: list[tuple[str, ...]]) -> None:
    read_ = of(read(data, form))
    assert [tuple(row.values()) for row in read_] == rows
    assert form.header is not False or list(read_[0]) == ["1", "2"]


def test_a_row_with_too_many_values_is_bad_and_says_what_columns_there_are() -> None:
    rows = read(b"a,b\n1,2,3\n1,2\n", TextForm(","))
    with pytest.raises(DataError, match=r"line 2: it has 3 values, and there are 2 columns \(a, b\)") as caught:
        rows.row(0)
    assert caught.value.reason == "bad_row"
    assert isinstance(next(rows.scan()), DataError)


@pytest.mark.parametrize(
    ("line", "why"), [("[1]", "not a JSON object"), ('{"a": 1', "delimiter"), ('"a"', "not a JSON object")]
)
def test_a_line_that_is_no_json_object_is_a_bad_row(line: str, why: str) -> None:
    rows = read(f'{{"a": 1}}\n{line}\n'.encode(), TextForm(json=True))
    assert rows.row(0) == {"a": 1}
    with pytest.raises(DataError, match=why) as caught:
        rows.row(1)
    assert caught.value.reason == "bad_row"


def test_several_files_are_one_table_on_disk_compressed_or_in_memory(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("k\n" + "".join(f"a{number}\n" for number in range(40)))
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"k\tx\nb0\t1\n"))
    with mock.patch.object(content, "IN_MEMORY", 10):
        read_already = Content("c.tsv", "the table", b"k\nc0\n")
        rows = TextRows([str(tmp_path / "a.tsv"), str(tmp_path / "b.tsv.gz"), read_already], TextForm())
    found = of(rows)
    assert [row["k"] for row in found] == [*(f"a{number}" for number in range(40)), "b0", "c0"]
    assert found[40] == {"k": "b0", "x": "1"}
    assert rows.file(40).endswith("b.tsv.gz")
    with pytest.raises(IndexError):
        rows.row(42)


def test_the_digest_is_that_of_the_rows_and_how_they_are_read(tmp_path: Path) -> None:
    same = {read(b"a\n1\n", TextForm()).digest, read(b"a\n1", TextForm()).digest}
    others = {
        read(b"a\n2\n", TextForm()).digest,
        read(b"a\n1\n", TextForm("|")).digest,
        read(b"b\n1\n", TextForm()).digest,
    }
    assert len(same) == 1
    assert len(same | others) == 4


def test_a_table_that_changes_while_in_use_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("k\nlong enough for a file\n")
    with mock.patch.object(content, "IN_MEMORY", 1):
        rows = TextRows([str(path)], TextForm())
    path.write_text("k\nother\nrows\n")
    with pytest.raises(uio.ListError):
        rows.row(0)


@pytest.mark.parametrize(
    ("data", "form", "message"),
    [
        (b"", TextForm(), "is empty: it has no header"),
        (b"a\n", TextForm(), "there are no rows"),
        (b"a\n1\0\n2\n\0\n", TextForm(), "2 of its 3 rows have NULs"),
        (b"\xff\n1\n", TextForm(), "its first row cannot be read"),
        (b'a\n"' + b"x\n" * 50, TextForm(quoted=True), "a row of more than 20 bytes begins at byte 2"),
    ],
)
def test_what_is_no_table_is_an_error(data: bytes, form: TextForm, message: str) -> None:
    with (
        mock.patch.object(content, "CHUNK", 8),
        mock.patch.object(numbered, "LONGEST", 20),
        pytest.raises(uio.ListError, match=message),
    ):
        read(data, form)


def test_a_header_with_one_name_twice_is_an_error() -> None:
    with pytest.raises(uio.ListError, match=r"a.csv: its header has the column 'id' twice; .* header="):
        read(b"id,path,id\n1,2,3\n", TextForm(",", quoted=True))


@pytest.mark.parametrize("chunk", [7, 1 << 22])
def test_a_nul_costs_its_row(chunk: int) -> None:
    with small(chunk, 1 << 20):
        rows = read(b"a\nsound\nto\0rn\nsound\n" + bytes(30) + b"\nsound\n", TextForm())
    assert [row["a"] if isinstance(row, dict) else row.reason for row in rows.scan()] == [  # type: ignore[union-attr]
        "sound", "bad_row", "sound", "bad_row", "sound",
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"line 3: it holds a NUL character: 'to\\x00rn'; correct it"):
        rows.row(1)


def test_a_header_may_have_very_many_columns() -> None:
    """In quadratic time it would take an hour."""
    names = "\t".join(f"c{number}" for number in range(300_000))
    assert read(f"{names}\n{names}\n".encode(), TextForm()).row(0)["c299999"] == "c299999"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("size", [3, 9_000])
def test_lines_that_end_as_on_old_macs(tmp_path: Path, encoding: str, size: int) -> None:
    """A table of 90 kB is longer than what is looked at to see how lines end."""
    lines = ["id\ttxt", *(f"k{number}\tgrün {number}" for number in range(size))]
    (tmp_path / "a.tsv").write_bytes("\r".join(lines).encode(encoding))
    rows = TextRows([str(tmp_path / "a.tsv")], TextForm(encoding="utf-8" if encoding == "utf-16" else encoding))
    assert list(rows.scan()) == [{"id": f"k{number}", "txt": f"grün {number}"} for number in range(size)]
    assert rows.place(1).endswith("a.tsv, line 3")


# What is known of a table


def test_a_table_is_scanned_once_as_long_as_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans, scan = list[str](), TextFile._scan
    monkeypatch.setattr(TextFile, "_scan", lambda part: (scans.append(part.name), scan(part))[1])
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
