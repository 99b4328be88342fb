"""Damaged Parquet files: nothing is silently short, and the rest is delivered."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from corpus import wav_bytes
from parquet_corpus import rows, write

import uio_pipes as uio

LENIENT: dict[str, Any] = {"failures": uio.Failures(max_consecutive_failures=10**6, max_failures=10**6)}
PAGES: dict[str, Any] = {"use_dictionary": False, "data_page_size": 1, "write_batch_size": 1}


def run(path: Path, **arguments: Any) -> tuple[dict[str, bytes], dict[str, int]]:
    """What is delivered, and what is counted."""
    loader = uio.Loader(uio.from_parquet(path, **arguments).batch(1), **LENIENT)
    got = {sample["key"]: sample["wav"] + sample["txt"].encode() for batch in loader for sample in batch}
    return got, dict(loader.stats().skipped)


def flipped(path: Path, at: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def footer(data: bytes) -> int:
    """Its length."""
    return int.from_bytes(data[-8:-4], "little")


def chunk(path: Path, group: int, column: int) -> tuple[int, int]:
    """First and last byte + 1 of a column's pages."""
    meta = pq.ParquetFile(path).metadata.row_group(group).column(column)
    return meta.data_page_offset, meta.data_page_offset + meta.total_compressed_size


@pytest.mark.parametrize(
    ("cut", "says"),
    [
        (lambda data: b"", "it is empty"),
        (lambda data: data[:-1], "does not end in PAR1"),
        (lambda data: data[: len(data) // 2], "does not end in PAR1"),
        (lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1", "footer is damaged .*longer than the file"),
        (lambda data: data[: -8 - footer(data)] + bytes(footer(data)) + data[-8:], "footer is damaged"),
        (lambda data: b"key wav\n" * 9, "does not end in PAR1"),
    ],
    ids=["empty", "a byte short", "half", "footer too long", "zeros in the footer", "text"],
)
def test_a_file_whose_footer_cannot_be_read_is_named(tmp_path: Path, cut: Any, says: str) -> None:
    write(tmp_path / "a.parquet", rows(5))
    bad = write(tmp_path / "b.parquet", rows(5))
    bad.write_bytes(cut(bad.read_bytes()))
    with pytest.raises(uio.ListError, match=f"b.parquet.*{says}.*fetch"):
        list(uio.Loader(uio.from_parquet(str(tmp_path / "*.parquet"))))


def test_a_damaged_page_costs_its_rows_and_those_after_it_in_the_row_group(tmp_path: Path) -> None:
    """Every fault is found, since these pages have checksums."""
    given = rows(15)
    path = write(tmp_path / "a.parquet", given, write_page_checksum=True, **PAGES)
    begin, end = chunk(path, 1, 1)
    flipped(path, (begin + end) // 2)
    got, skipped = run(path)
    lost = skipped.pop("bad_page")
    assert not skipped
    assert 1 <= lost < 5
    assert sorted(got) == [r["id"] for i, r in enumerate(given) if not 10 - lost <= i < 10]


@pytest.mark.parametrize(("group", "column", "name"), [(1, 1, "audio"), (0, 3, "text")])
def test_a_failure_tells_file_row_group_row_and_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, group: int, column: int, name: str
) -> None:
    path = write(tmp_path / "a.parquet", rows(10), write_page_checksum=True, use_dictionary=False)
    begin, end = chunk(path, group, column)
    flipped(path, begin + 100 if name == "audio" else end - 3)
    got, skipped = run(path)
    assert skipped == {"bad_page": 5}
    assert sorted(got) == [f"P{i:04d}" for i in range(10) if i // 5 != group]
    assert f"a.parquet, row group {group}, row 0" in caplog.text
    assert f"the column {name} cannot be read there (could not verify page integrity" in caplog.text
    assert "fetch the file again" in caplog.text
    with pytest.raises(uio.DataError, match=f"row group {group}, row 0"):
        list(uio.Loader(uio.from_parquet(path), failures="raise"))


@pytest.mark.parametrize("checksums", [True, False])
def test_whatever_byte_is_damaged_nothing_is_silently_lost(tmp_path: Path, checksums: bool) -> None:
    """A bit flipped anywhere. With checksums what is delivered is right, too, unless the footer itself was hit: Parquet
    has no checksum of that."""
    path = write(tmp_path / "a.parquet", rows(9, seconds=(0.01, 0.02)), group=4, write_page_checksum=checksums)
    sound, data = run(path)[0], path.read_bytes()
    end = len(data) - 8 - footer(data)
    draw = random.Random(5)
    spots = [*draw.sample(range(4, end), 90), *draw.sample(range(end, len(data)), 60)]
    outcomes = set()
    for at in spots:
        path.write_bytes(data)
        flipped(path, at, 1 << draw.randrange(8))
        try:
            got, skipped = run(path, fields={"key": "id", "wav": "audio", "txt": "text"})
        except uio.ListError as error:
            assert "a.parquet" in str(error)  # noqa: PT017
            outcomes.add("refused")
            continue
        except uio.TooManyFailures:
            outcomes.add("all lost")
            continue
        if checksums and at < end:
            assert all(sound.get(key) == value for key, value in got.items()), at
            assert len(got) + sum(skipped.values()) == 9, at
        outcomes.add("counted" if skipped else "delivered")
    assert {"refused", "counted"} <= outcomes


GOOD = {"array": [0.1] * 800, "sampling_rate": 8000}


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ({"audio": GOOD}, {"audio": None}, "missing_audio"),
        ({"audio": GOOD}, {"audio": {**GOOD, "array": None}}, "missing_audio"),
        ({"audio": GOOD}, {"audio": {**GOOD, "array": [0.1, None]}}, "bad_value"),
        ({"audio": GOOD}, {"audio": {**GOOD, "array": [0.1, float("nan")]}}, "nan_audio"),
        ({"audio": GOOD}, {"audio": {**GOOD, "array": []}}, "empty_audio"),
        ({"audio": GOOD}, {"audio": {**GOOD, "sampling_rate": None}}, "missing_sample_rate"),
        ({"wav": [1, 2], "sample_rate": 8000}, {"wav": None, "sample_rate": 8000}, "missing_audio"),
        ({"wav": [1, 2], "sample_rate": 8000}, {"wav": [1, None], "sample_rate": 8000}, "bad_value"),
        ({"wav": [1, 2], "sample_rate": 8000}, {"wav": [1, 2], "sample_rate": None}, "missing_sample_rate"),
        ({"feat": [[1.0, 2.0]]}, {"feat": None}, "missing_features"),
        ({"feat": [[1.0, 2.0]]}, {"feat": [None, [1.0, 2.0]]}, "bad_value"),
        ({"feat": [[1.0, 2.0]]}, {"feat": [[1.0, None]]}, "bad_value"),
        ({"feat": [[1.0, 2.0]]}, {"feat": [[1.0, float("nan")]]}, "bad_features"),
    ],
    ids=str,
)
def test_a_row_without_usable_numbers_costs_one_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, good: Any, bad: Any, reason: str
) -> None:
    path = write(tmp_path / "a.parquet", [good, bad, good])
    pipeline = uio.from_parquet(path) if "feat" in good else uio.from_parquet(path).decode_audio()
    loader = uio.Loader(pipeline.batch(3).pad())
    (batch,) = loader
    assert batch["keys"] == ["a-000000", "a-000002"]
    assert loader.stats().skipped == {reason: 1}
    assert "a.parquet, row group 0, row 1" in caplog.text


def test_bad_times_cost_one_row(tmp_path: Path) -> None:
    given = [{**r, "start": 0.1, "end": 0.2} for r in rows(4)]
    given[2]["end"] = 0.05
    path = write(tmp_path / "a.parquet", given)
    loader = uio.Loader(uio.from_parquet(path).decode_audio())
    assert [len(s["wav"][0]) for s in loader] == [800] * 3
    assert loader.stats().skipped == {"bad_segment": 1}


@pytest.mark.parametrize(
    ("second", "arguments", "says"),
    [
        ({"audio": wav_bytes(0), "text": "a", "age": 1}, {}, "column for wav is audio .file. in .*a.parquet"),
        ({"audio": {"bytes": b"", "path": ""}, "text": "a"}, {}, "age is age .*no such column here"),
        ({"audio": {"bytes": b"", "path": ""}, "text": "a", "age": 1, "sex": "f"}, {}, "has columns that .*sex"),
        ({"audio": {"bytes": b"", "path": ""}}, {"fields": {"txt": "text"}}, "b.parquet: .* asks for 'text'"),
    ],
    ids=["another kind", "one less", "one more", "a named one less"],
)
def test_files_with_other_columns_are_named(tmp_path: Path, second: Any, arguments: Any, says: str) -> None:
    first = {"audio": {"bytes": wav_bytes(0), "path": "a"}, "text": "a", "age": 1}
    write(tmp_path / "a.parquet", [first])
    write(tmp_path / "b.parquet", [second])
    with pytest.raises(uio.ListError, match=says):
        len(uio.Loader(uio.from_parquet(str(tmp_path / "*.parquet"), **arguments)))


def test_a_column_that_some_files_lack_may_be_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", rows(2))
    write(tmp_path / "b.parquet", [{**r, "age": 5} for r in rows(2, 2)])
    assert len(list(uio.Loader(uio.from_parquet(str(tmp_path / "*.parquet"), columns=["speaker_id"])))) == 4


@pytest.mark.parametrize(
    ("row", "arguments", "says"),
    [
        ({"audio": 5, "text": "a"}, {}, "column audio for wav is int64, but must be bytes"),
        (
            {"speech": b"", "words": "a"},
            {},
            r"no column of audio or text: .*\{\"wav\": \"speech\"\}",
        ),
        ({"audio": b""}, {"fields": {"wav": "speech"}}, "asks for 'speech', .* it has audio"),
        ({"audio": b""}, {"fields": {"audio": "wav"}}, r"it has audio; our name comes first, .*\{\"wav\": \"audio\"\}"),
        ({"audio": b""}, {"columns": ["age"]}, "no column 'age', only audio"),
        ({"audio": b""}, {"fields": {"txt": "audio"}}, "column audio for txt is binary, but must be text"),
        ({"audio": b""}, {"fields": {"key": "audio", "wav": "audio"}}, "column audio for key is binary"),
        ({"audio": b"", "text": ["a"]}, {}, "column text for txt is list<.*>, but must be text"),
    ],
    ids=str,
)
def test_columns_that_cannot_be_used_are_named(tmp_path: Path, row: Any, arguments: Any, says: str) -> None:
    path = write(tmp_path / "a.parquet", [row])
    with pytest.raises(uio.ListError, match=says):
        uio.from_parquet(path, **arguments)
