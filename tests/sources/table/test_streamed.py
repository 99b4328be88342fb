"""Archives that are streamed and joined to rows: what is found out of several, of wrong names, and of damage."""

import gzip
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from archive_files import heard, tar_bytes, tone, write_archive, write_table
from contract import Case, check_cuts, record
from tones import wav_bytes

import uio_pipes as uio
from uio_pipes.base.errors import ListError, NothingRead
from uio_pipes.formats.lists.quarantine import read_quarantine
from uio_pipes.sources.table.archives import ArchiveTable
from uio_pipes.tools.data.index import index_archives

NAMES = {"key": "id", "wav": "path", "txt": "text"}
ARCHIVES = 3
TONES = {f"{n}-{i}": 5 * n + i for n in range(ARCHIVES) for i in range(3)}


def read(table: Any, lanes: int = 1, workers: int = 0, **options: Any) -> tuple[Counter[str], Counter[str]]:
    """How often each key came with its tone, and what was counted."""
    pipeline = uio.from_table(table, **{"fields": NAMES, "archives": "*.tar.gz", **options}).decode_audio().batch(2)
    loader = uio.Loader(pipeline, lanes=lanes, num_workers=workers)
    keys = Counter[str]()
    for sample in (sample for batch in loader for sample in batch):
        assert heard(sample["wav"]) == TONES[sample["key"]]
        keys[sample["key"]] += 1
    return keys, Counter(loader.stats().skipped)


def several(root: Path) -> Path:
    """Archives 0 to 2 with 3 utterances each; 2 also has one of 0, and one row has no audio."""
    for number in range(ARCHIVES):
        more = [("0/0.wav", tone(0))] if number == 2 else []
        own = [(f"{number}/{i}.wav", tone(5 * number + i)) for i in range(3)]
        write_archive(root / f"{number}.tar.gz", own + more)
    rows = [(key, f"{key.replace('-', '/')}.wav", "文") for key in TONES]
    return write_table(root / "t.tsv", [("id", "path", "text"), *rows, ("x", "nowhere.wav", "文")])


# Several archives, of which no row says which is its own


@pytest.mark.parametrize(("lanes", "workers"), [(1, 0), (3, 0), (2, 2)])
def test_what_no_archive_has_and_what_two_have_is_said_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lanes: int, workers: int
) -> None:
    keys, counts = read(several(tmp_path), lanes, workers)
    assert keys == Counter([*TONES, "0-0"])
    assert not counts
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 1
    assert told[0].startswith("join_rows: of 10 rows 1 has no audio in any of 3 archives, and 1 came once more")
    assert "uio index --members" in told[0]


def test_a_rank_that_reads_some_of_the_archives_says_that_it_cannot_tell(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = uio.from_table(several(tmp_path), fields=NAMES, archives="*.tar.gz").decode_audio().batch(1)
    for rank in range(2):
        caplog.clear()
        assert list(uio.Loader(pipeline, lanes=2, rank=rank, world_size=2))
        told = [record.message for record in caplog.records if "archives" in record.message]
        assert len(told) == 1
        assert f"this process read {2 - rank} of 3 archives from beginning to end" in told[0]
        assert "uio index --members" in told[0]


def test_nothing_is_said_where_all_is_there_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = several(tmp_path)
    write_archive(tmp_path / "2.tar.gz", [(f"2/{i}.wav", tone(10 + i)) for i in range(3)])
    table.write_text(table.read_text().removesuffix("x\tnowhere.wav\t文\n"))
    assert read(table, 2) == (Counter([*TONES]), Counter())
    assert not caplog.records


@pytest.mark.parametrize("indexed", [[0, 1, 2], [0, 2], [1, 2]])
@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_with_indexes_all_is_counted_in_any_lanes(tmp_path: Path, lanes: int, indexed: list[int]) -> None:
    """All but one suffice: what is in none of the others may only be there."""
    table = several(tmp_path)
    assert not index_archives([str(tmp_path / f"{number}.tar.gz") for number in indexed]).problems
    keys, counts = read(table, lanes, stream=True)
    assert keys == Counter([*TONES])
    assert counts == {"no_audio": 1, "duplicate_member": 1}
    if len(indexed) == ARCHIVES:
        assert read(table, lanes, shuffle=True) == (keys, counts)  # at random


def test_an_index_of_archives_within_an_archive_does_not_hide_what_is_in_them(tmp_path: Path) -> None:
    inner = tar_bytes([(f"{i}.wav", tone(i)) for i in range(3)])
    write_archive(tmp_path / "0.tar.gz", [("0/inner.tar", inner)])
    write_archive(tmp_path / "1.tar.gz", [(f"1/{i}.wav", tone(5 + i)) for i in range(3)])
    rows = [(key, f"{key.replace('-', '/')}.wav", "文") for key in TONES if key[0] != "2"]
    table = write_table(tmp_path / "t.tsv", [("id", "path", "text"), *rows])
    index_archives([str(tmp_path / "*.tar.gz")])
    assert read(table, stream=True) == (Counter(row[0] for row in rows), Counter())


def test_archives_may_be_nested_deeper(tmp_path: Path) -> None:
    innermost = gzip.compress(tar_bytes([(f"{i}.wav", tone(i)) for i in range(3)]))
    inner = tar_bytes([("c/inmost.tar.gz", innermost), ("x.txt", b"x")])
    write_archive(tmp_path / "a.tar.gz", [("b/inner.tar", inner), ("a/1.wav", tone(6))])
    rows = [*((f"0-{i}", f"b/c/{i}.wav", "文") for i in range(3)), ("1-1", "a/1.wav", "文")]
    table = write_table(tmp_path / "t.tsv", [("id", "path", "text"), *rows])
    assert read(table, archives="a.tar.gz") == (Counter(row[0] for row in rows), Counter())
    whole = record(Case(uio.from_table(table, fields=NAMES, archives="a.tar.gz").decode_audio().batch(1)))
    check_cuts(whole, range(len(whole.states)))


# Names that fit nothing


@pytest.mark.parametrize("archives", ["0.tar.gz", "*.tar.gz", "{id | [0]}.tar.gz"])
def test_a_wrong_match_is_said_with_names_of_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, archives: str
) -> None:
    table = several(tmp_path)
    table.write_text(table.read_text().removesuffix("x\tnowhere.wav\t文\n"))
    said = r"by match='path \| stem' it has '0', '1', '2', …; rows name '0/0.wav', '0/1.wav', '0/2.wav', …; say how mem"
    with pytest.raises(NothingRead, match=f"unmatched_archive.*{said}bers match rows"):
        read(table, archives=archives, match="path | stem")
    told = [record.message for record in caplog.records if "[unmatched_archive]" in record.message]
    assert len(told) == (1 if archives[0] == "0" else 3)


def test_an_archive_without_a_row_costs_nothing_else(tmp_path: Path) -> None:
    table = several(tmp_path)
    table.write_text("".join(line for line in table.open() if not line.startswith("1-")))
    keys, counts = read(table)
    assert keys == Counter([*(key for key in TONES if key[0] != "1"), "0-0"])
    assert counts == {"no_row": 3, "unmatched_archive": 1}
    loader = uio.Loader(uio.from_table(table, fields=NAMES, archives="*.tar.gz").batch(1), failures="raise")
    with pytest.raises(uio.DataError, match=r"1\.tar\.gz: no row names any of its audio"):
        list(loader)


@pytest.mark.parametrize("kind", ["tar.gz", "tar"])
def test_an_archive_that_need_not_be_there_is_no_failure_and_its_rows_are_counted(tmp_path: Path, kind: str) -> None:
    for number in (0, 2):
        write_archive(tmp_path / f"{number}.{kind}", [(f"{number}/{i}.wav", tone(5 * number + i)) for i in range(3)])
    rows = [(key, f"{key.replace('-', '/')}.wav", "文") for key in TONES]
    table = write_table(tmp_path / "t.tsv", [("id", "path", "text"), *rows])
    wanted = Counter(key for key in TONES if key[0] != "1")
    archives = f"{{id | [0]}}.{kind}"
    assert read(table, archives=archives, absent="not_kept") == (wanted, {"not_kept": 3})


def test_rows_that_are_left_out_on_purpose_are_audio_with_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ArchiveTable, "key", None)  # of rows that are left out none is wanted
    with pytest.raises(NothingRead, match="left out 10 as not_kept"):
        read(several(tmp_path), archives="1.tar.gz", keep={"id": "9"})


# Streams that are damaged, or may be


def long_ones(root: Path, name: str, data: bytes) -> tuple[Path, Path]:
    """An archive of those bytes, and the table of 24 members of 40 kB."""
    (root / name).write_bytes(data)
    rows = [(f"k{i}", f"{i}.wav", "文") for i in range(24)]
    return root / name, write_table(root / "t.tsv", [("id", "path", "text"), *rows])


def noise() -> bytes:
    members = [np.random.default_rng(i).integers(-9000, 9000, 20_000).astype(np.int16) for i in range(24)]
    return tar_bytes([(f"{i}.wav", wav_bytes(samples)) for i, samples in enumerate(members)])


def with_wrong_crc(data: bytes) -> bytes:
    packed = bytearray(gzip.compress(data, mtime=0))
    packed[-6] ^= 1
    return bytes(packed)


@pytest.mark.parametrize("within", [False, True])
def test_what_came_out_of_a_damaged_stream_is_suspect_and_excluded_later(tmp_path: Path, within: bool) -> None:
    data = with_wrong_crc(noise())
    data = gzip.compress(tar_bytes([("in.tar.gz", data), ("x.txt", b"x")])) if within else data
    _, table = long_ones(tmp_path, "a.tar.gz", data)
    pipeline = uio.from_table(table, fields=NAMES, archives="a.tar.gz")
    loader = uio.Loader(pipeline.batch(1), failures=uio.Failures(quarantine=tmp_path / "bad.jsonl"))
    keys = {batch[0]["key"] for batch in loader}
    counted = loader.stats().skipped
    assert len(keys) > 12
    assert counted == {"corrupt_stream": 1, "suspect": len(keys), "no_audio": 24 - len(keys)}
    assert loader.stats().failures == 1
    assert {e["key"] for e in read_quarantine(tmp_path / "bad.jsonl") if e["reason"] == "suspect"} == keys
    with pytest.raises(uio.TooManyFailures, match="left out 24 as excluded"):
        list(uio.Loader(pipeline.exclude(tmp_path / "bad.jsonl").batch(1)))


def test_only_what_comes_after_the_sound_part_is_suspect_whenever_it_was_resumed(tmp_path: Path) -> None:
    data = noise()
    packed = gzip.compress(data[:500_000], mtime=0) + with_wrong_crc(data[500_000:])
    _, table = long_ones(tmp_path, "a.tar.gz", packed)
    recorded = record(Case(uio.from_table(table, fields=NAMES, archives="a.tar.gz").shuffle(3).batch(2)))
    sound = 500_000 // (len(data) // 24)
    suspects = recorded.stats.skipped["suspect"]
    assert 0 < suspects <= 24 - sound
    assert recorded.stats.skipped == {"corrupt_stream": 1, "suspect": suspects, "no_audio": 24 - sound - suspects}
    check_cuts(recorded, range(len(recorded.states)))


@pytest.mark.parametrize(("checksum", "notes"), [(False, {"unchecked_stream": 1}), (True, {})])
def test_a_stream_without_checksums_is_noted_once(tmp_path: Path, checksum: bool, notes: dict[str, int]) -> None:
    packed = zstandard.ZstdCompressor(write_checksum=checksum).compress(noise())
    _, table = long_ones(tmp_path, "a.tar.zst", packed)
    loader = uio.Loader(uio.from_table(table, fields=NAMES, archives="a.tar.zst").batch(4))
    assert sum(len(batch) for batch in loader) == 24
    assert (loader.stats().skipped, loader.stats().failures) == (notes, 0)


# Archives that are lost


@pytest.mark.parametrize("kind", ["a.tar", "a.zip", "nothing.tar"])
def test_a_lost_archive_is_one_failure_at_random_too(tmp_path: Path, kind: str) -> None:
    """Of 300 rows, more than may fail in a row are lost."""
    members = [(f"{n}.wav", wav_bytes(np.full(800, n, np.int16))) for n in range(300)]
    table = write_table(
        tmp_path / "t.tsv", [("id", "path", "text"), *((f"k{n}", f"{n}.wav", "文") for n in range(300))]
    )
    write_archive(tmp_path / "other.tar", members[:10])
    if kind[0] == "a":
        whole = write_archive(tmp_path / kind, members).read_bytes()
        (tmp_path / kind).write_bytes(whole[: len(whole) // 3])
    pipeline = uio.from_table(table, fields=NAMES, archives=[kind, "other.tar"], stream=False)
    loader = uio.Loader(pipeline.batch(4))
    found = sum(len(batch) for batch in loader)
    counts = Counter(loader.stats().skipped)
    reason = {"a.tar": "truncated", "a.zip": "bad_zip", "nothing.tar": "missing_file"}[kind]
    assert counts[reason] + counts["missing_end"] in (1, 2)  # the archive, and the member that the cut goes through
    assert found + counts["no_audio"] + (kind == "a.tar") * counts["truncated"] >= 300
    assert loader.stats().failures <= 2
    assert found >= 10


def test_rows_of_a_streamed_archive_that_is_not_there_are_counted(tmp_path: Path) -> None:
    table = several(tmp_path)
    (tmp_path / "1.tar.gz").unlink()
    keys, counts = read(table, archives="{id | m/[012]/}.tar.gz")
    assert keys == Counter(key for key in TONES if key[0] != "1")
    assert counts == {"missing_file": 1, "no_audio": 3, "bad_row": 1} or counts["no_audio"] == 4


def test_an_archive_that_cannot_be_read_at_random_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ListError, match=r"0\.tar\.gz: the archive is compressed, .*stream=True.*uio index --members"):
        read(several(tmp_path), stream=False)
