"""Rows that are written once as lines of JSON: from files, from archives, into the cache."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archive_files import write_archive

import uio_pipes as uio
from uio_pipes.formats.tables import spool
from uio_pipes.formats.tables.spool import Spooling, spooled
from uio_pipes.formats.tables.text import TextForm
from uio_pipes.io.access import PLAIN, Access


@pytest.fixture(autouse=True)
def _nothing_held() -> None:
    spool._held.clear()


def rows_of(what: Spooling, access: Access = PLAIN) -> list[Any]:
    rows = spooled(what, access)
    scanned = list(rows.scan())
    for number, row in enumerate(scanned):
        if isinstance(row, uio.DataError):
            with pytest.raises(uio.DataError) as caught:
                rows.row(number)
            assert (caught.value.reason, caught.value.message) == (row.reason, row.message)
            assert caught.value.url == rows.place(number)
        else:
            assert rows.row(number) == row
    return [row.reason if isinstance(row, uio.DataError) else row for row in scanned]


MEMBERS = [
    ("./c/84/84.trans.txt", b"84-1 HELLO\n84-2 YOU\n"),
    ("c/84/84-1.flac", bytes(3000)),
    ("c/85/._85.trans.txt", b"junk junk\n"),
    ("c/85/85.trans.txt", b"85-1 BYE\n"),
    ("__MACOSX/c/85/x.trans.txt", b"junk junk\n"),
    ("c/86/empty.trans.txt", b""),
]
ARCHIVES = {
    "tar": lambda root: write_archive(root / "a.tar", MEMBERS),
    "tar.gz": lambda root: write_archive(root / "a.tar.gz", MEMBERS),
    "zip": lambda root: write_archive(root / "a.zip", MEMBERS),
}
TRANSCRIPTS = TextForm(None, ("key", "txt"))


@pytest.mark.parametrize("archive", ARCHIVES)
@pytest.mark.parametrize("pattern", ["c/*/*.trans.txt", "*.trans.txt", "**/8?.trans.txt", "c/{84,85,86}/*.txt"])
def test_tables_in_an_archive(tmp_path: Path, archive: str, pattern: str) -> None:
    path = ARCHIVES[archive](tmp_path)
    rows = spooled(Spooling("tsv", (pattern,), (str(path),), text=TRANSCRIPTS), PLAIN)
    assert [(row["key"], row["txt"]) for row in rows.scan()] == [  # type: ignore[index]
        ("84-1", "HELLO"), ("84-2", "YOU"), ("85-1", "BYE"),
    ]  # fmt: skip
    assert [rows.place(number) for number in range(3)] == [
        "c/84/84.trans.txt, row 1", "c/84/84.trans.txt, row 2", "c/85/85.trans.txt, row 1",
    ]  # fmt: skip
    assert [rows.file(number) for number in range(3)] == ["c/84/84.trans.txt"] * 2 + ["c/85/85.trans.txt"]
    assert list(rows.files) == ["c/84/84.trans.txt", "c/85/85.trans.txt"]


@pytest.mark.parametrize("archive", ARCHIVES)
def test_a_pattern_without_members_lists_some(tmp_path: Path, archive: str) -> None:
    path = ARCHIVES[archive](tmp_path)
    with pytest.raises(uio.ListError, match=r"no member of .* matches 'c/\*.tsv'; it has c/84/84.trans.txt, c/84/84-1"):
        spooled(Spooling("tsv", ("c/*.tsv",), (str(path),), text=TRANSCRIPTS), PLAIN)
    texts = write_archive(tmp_path / "texts.tar", [member for member in MEMBERS if member[0].endswith(".txt")])
    with pytest.raises(uio.ListError, match=r"matches 'c/\*.tsv'; it has no files but those that other paths name: "):
        spooled(Spooling("tsv", ("**/*", "c/*.tsv"), (str(texts),), text=TRANSCRIPTS), PLAIN)


@pytest.mark.parametrize("archive", ["tar.gz", "zip"])
def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path, archive: str) -> None:
    path = ARCHIVES[archive](tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(uio.ListError, match=r"a.* cannot be read: .*: fetch it again"):
        spooled(Spooling("tsv", ("*.trans.txt",), (str(path),), text=TRANSCRIPTS), PLAIN)


def test_an_archive_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(uio.ListError, match=r"cannot read the table .*no\.tar"):
        spooled(Spooling("json", ("a.json",), (str(tmp_path / "no.tar"),)), PLAIN)


def test_many_files_of_json_in_a_tar(tmp_path: Path) -> None:
    """As in DuplexConv: one damaged file is one failure, and the others are read."""
    turns = json.dumps({"fs": 8000, "asr": [[{"t": 1}], [{"t": 2}]]}).encode()
    path = write_archive(tmp_path / "j.tar.gz", [("j/a.json", turns), ("j/b.json", turns[:-3]), ("j/c.json", turns)])
    rows = rows_of(Spooling("json", ("*.json",), (str(path),), ("asr",)))
    assert [row if isinstance(row, str) else (row["fs"], row["asr_number"], row["t"]) for row in rows] == [
        (8000, 0, 1), (8000, 1, 2), "bad_table", (8000, 0, 1), (8000, 1, 2),
    ]  # fmt: skip


def test_lines_of_json_with_lists(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"k": 1, "s": [{"x": 1}, {"x": 2}]}\nbroken\n{"k": 2}\n{"k": 3, "s": [{"x": 3}]}\n'
    )
    what = Spooling("jsonl", (str(tmp_path / "a.jsonl"),), (), ("s",), text=TextForm(json=True))
    rows = rows_of(what)
    assert [row if isinstance(row, str) else (row["k"], row["x"]) for row in rows] == [
        (1, 1),
        (1, 2),
        "bad_row",
        (3, 3),
    ]


def test_a_list_that_no_row_has(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"k": 1}]')
    with pytest.raises(uio.ListError, match=r"no rows in .*a.json: no row has a list s.t; correct expand="):
        spooled(Spooling("json", (str(tmp_path / "a.json"),), (), ("s", "t")), PLAIN)


def test_whole_files_in_an_encoding(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_bytes(f"안녕 {name}\n".encode("cp949"))
    (tmp_path / "c.txt").write_bytes(b"\xff\xff\xff")
    names = tuple(str(tmp_path / f"{name}.txt") for name in "abc")
    rows = rows_of(Spooling("whole", names, encoding="cp949"))
    assert rows == [{"path": names[0], "text": "안녕 a\n"}, {"path": names[1], "text": "안녕 b\n"}, "bad_table"]


def test_compressed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.stm.gz"
    path.write_bytes(gzip.compress(b"r 1 s 0 1 <x> hello\n"))
    assert rows_of(Spooling("stm", (str(path),)))[0]["text"] == "hello"
    path.write_bytes(path.read_bytes()[:-6])
    assert rows_of(Spooling("stm", (str(path),))) == ["bad_table"]


def test_parquet_without_its_columns_of_bytes(tmp_path: Path) -> None:
    table = pa.table({"id": ["a", "b"], "audio": [{"bytes": b"x", "path": "p"}] * 2, "s": [[{"t": 1.5}], [{"t": 2.5}]]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    assert rows_of(Spooling("parquet", (str(path),))) == [
        {"id": "a", "s": [{"t": 1.5}]},
        {"id": "b", "s": [{"t": 2.5}]},
    ]
    assert [row["t"] for row in rows_of(Spooling("parquet", (str(path),), (), ("s",)))] == [1.5, 2.5]
    inside = write_archive(tmp_path / "a.tar", [("x/a.parquet", path.read_bytes()), ("x/b.parquet", b"PAR1 no")])
    rows = rows_of(Spooling("parquet", ("*.parquet",), (str(inside),)))
    assert [row if isinstance(row, str) else row["id"] for row in rows] == ["a", "b", "bad_table"]


def test_nxt_finds_words_and_speakers_beside_the_segments(tmp_path: Path) -> None:
    from test_annotations import MEETINGS, SEGMENTS, WORDS

    members = {
        "segments/M.A.segments.xml": SEGMENTS.encode(),
        "words/M.A.words.xml": WORDS.encode("latin-1"),
        "corpusResources/meetings.xml": MEETINGS.encode(),
    }
    for name, data in members.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    folder = rows_of(Spooling("nxt", (str(tmp_path / "segments/M.A.segments.xml"),)))
    zipped = write_archive(tmp_path / "a.zip", [*members.items()])
    assert folder == rows_of(Spooling("nxt", ("segments/*.segments.xml",), (str(zipped),)))
    assert [row if isinstance(row, str) else row["speaker"] for row in folder] == ["FEE005"] * 2 + ["bad_row"] * 3
    (tmp_path / "corpusResources/meetings.xml").unlink()
    spool._held.clear()
    assert rows_of(Spooling("nxt", (str(tmp_path / "segments/M.A.segments.xml"),)))[0]["speaker"] == "M-A"


def test_a_row_of_more_than_4_mib_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"a": "x" * (5 << 20)}, {"a": 1}]))
    assert rows_of(Spooling("json", (str(tmp_path / "a.json"),))) == ["bad_row", {"a": 1}]


def test_half_a_character_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"a": "\\ud800"}, {"a": 1}]')
    assert rows_of(Spooling("json", (str(tmp_path / "a.json"),))) == ["bad_text", {"a": 1}]


def test_rows_are_written_once_for_a_process_and_once_for_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[str]()
    write = spool._write
    monkeypatch.setattr(spool, "_write", lambda what, *args: written.append(what.names[0]) or write(what, *args))
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1}, {"a": 2}]')
    what, cached = Spooling("json", (str(path),)), Access(cache=str(tmp_path / "cache"))
    assert spooled(what, PLAIN) is spooled(what, PLAIN)
    assert len(written) == 1
    spool._held.clear()
    first = spooled(what, cached)
    spool._held.clear()
    second = spooled(what, cached)
    assert len(written) == 2
    assert (first.digest, list(first.scan())) == (second.digest, list(second.scan()))
    assert second.place(1) == f"{path}, row 2"
    path.write_text('[{"a": 3}]')
    assert rows_of(what, cached) == [{"a": 3}]  # another size and time: written anew
    assert len(written) == 3
    spool._held.clear()
    assert spooled(what, PLAIN).digest == spooled(what, cached).digest  # wherever the rows are


def test_a_cache_that_cannot_be_written_is_told_and_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.json").write_text('[{"a": 1}]')
    (tmp_path / "cache").write_text("a file")
    what = Spooling("json", (str(tmp_path / "a.json"),))
    assert rows_of(what, Access(cache=str(tmp_path / "cache"))) == [{"a": 1}]
    assert "cannot be used for tables" in caplog.text


def test_forked_processes_share_the_rows(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"a": i} for i in range(1000)]))
    what = Spooling("json", (str(tmp_path / "a.json"),))
    rows = spooled(what, PLAIN)
    reading, writing = os.pipe()
    if not (child := os.fork()):
        same = spooled(what, PLAIN)
        os.write(writing, json.dumps([same is rows, same.row(999)]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert json.loads(os.read(reading, 1000)) == [True, {"a": 999}]
