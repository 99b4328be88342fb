"""Tables of audio within archives, as they were downloaded: at random, or in the order of the archives."""

import io
import json
import os
import tarfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_files import heard, tar_bytes, tone, write_archive, write_table, zip_bytes
from contract import Case, check_cuts, record
from tones import wav_bytes

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead
from uio_pipes.formats.archives.directory import match_of
from uio_pipes.tools.data.index import index_archives

NAMES = {"key": "id", "wav": "path", "txt": "text"}
KINDS = ["a.tar", "a.tar.gz", "a.tgz", "a.tar.zst", "a.tar.bz2", "a.tar.xz", "a.zip"]
MEMBERS = [(f"./train/{number}/u{number}.wav", tone(number)) for number in range(6)]
ROWS = [
    ("id", "path", "text"),
    *((f"k{number}", f"train/{number}/u{number}.wav", f"文{number}") for number in range(6)),
]


def check_everywhere(pipeline: uio.Pipeline) -> None:
    whole = record(Case(pipeline, {}))
    check_cuts(whole, range(len(whole.states)))


def read(table: Any, lanes: int = 1, **options: Any) -> tuple[dict[str, int], Counter[str]]:
    """The tones heard by keys, and what was counted."""
    pipeline = uio.from_table(table, **{"fields": NAMES, **options}).decode_audio().batch(2)
    loader = uio.Loader(pipeline, lanes=lanes)
    found = {sample["key"]: heard(sample["wav"]) for batch in loader for sample in batch}
    return found, Counter(loader.stats().skipped)


TONES = {f"k{number}": number for number in range(6)}


@pytest.mark.parametrize("stream", [None, True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_archive_in_both_orders(tmp_path: Path, kind: str, stream: bool | None) -> None:
    archive = write_archive(tmp_path / kind, MEMBERS)
    if stream is False and kind not in ("a.tar", "a.zip"):
        if kind[-2:] in ("z2", "xz"):
            return  # in one piece they can only be read in their order
        assert not index_archives([str(archive)]).problems
    found, counts = read(write_table(tmp_path / "t.tsv", ROWS), archives=kind, stream=stream)
    assert (found, counts) == (TONES, Counter())


def test_what_can_be_reached_is_read_at_random(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.tsv", ROWS)
    stages = {}
    for kind in KINDS:
        write_archive(tmp_path / kind, MEMBERS)
        stages[kind] = uio.from_table(table, fields=NAMES, archives=kind).stages[-1].name
    streamed = dict.fromkeys(KINDS[1:6], "join_rows")
    assert stages == {"a.tar": "load_records", **streamed, "a.zip": "load_records"}
    index_archives([str(tmp_path / "a.tar.gz")])
    assert uio.from_table(table, fields=NAMES, archives="a.tar.gz").stages[-1].name == "load_records"
    assert uio.from_table(table, fields=NAMES, archives=["a.tar.gz", "a.tgz"]).stages[-1].name == "join_rows"
    loader = uio.Loader(uio.from_table(table, fields=NAMES, archives="a.tar.gz", shuffle=True).batch(2))
    assert len(loader) == 3


@pytest.mark.parametrize(("kind", "stream"), [("a.tar", False), ("a.zip", False), ("a.tar.gz", True), ("a.tar", True)])
def test_rows_and_audio_that_miss_each_other_are_counted(tmp_path: Path, kind: str, stream: bool) -> None:
    more = [("train/9/u9.wav", tone(9)), ("README.txt", b"read me"), ("train/._u1.wav", b"of macOS"), MEMBERS[1]]
    write_archive(tmp_path / kind, [*MEMBERS[:4], *more])
    table = write_table(tmp_path / "t.tsv", [*ROWS, ("bad", "train/3/u3.wav")])
    found, counts = read(table, archives=kind, stream=stream)
    assert found == {key: number for key, number in TONES.items() if number < 4}
    assert counts == {"no_row": 1, "no_audio": 2, "duplicate_member": 1, "bad_row": 1}


@pytest.mark.parametrize("archives", ["a.tar", "{shard}.tar", "a.zip", "{shard}.zip"])
def test_an_archive_that_is_replaced_is_read_anew(tmp_path: Path, archives: str) -> None:
    kind = "a.zip" if "zip" in archives else "a.tar"
    table = [{"wav": name, "shard": "a"} for name in ("a.wav", "b.wav")]
    options: dict[str, Any] = {"fields": None, "root": tmp_path, "archives": archives}
    loader = uio.Loader(uio.from_table(table, **options).decode_audio())
    swapped = [("b.wav", tone(2)), ("a.wav", tone(1))]  # of the same size
    for members in [swapped[::-1], swapped, [("c.wav", tone(3)), *swapped]]:
        os.utime(write_archive(tmp_path / kind, members), (1, 1))  # as rsync -t keeps it
        assert {sample["key"]: heard(sample["wav"]) for sample in loader} == {"a": 1, "b": 2}
        assert read(table, **options) == ({"a": 1, "b": 2}, Counter(no_row=len(members) - 2))


@pytest.mark.parametrize("stream", [False, True])
def test_rows_without_audio_may_be_unwanted(tmp_path: Path, stream: bool) -> None:
    write_archive(tmp_path / "a.tar", MEMBERS[:2])
    table = write_table(tmp_path / "t.tsv", ROWS)
    found, counts = read(table, archives="a.tar", stream=stream, absent="not_kept")
    assert (len(found), counts) == (2, {"not_kept": 4})
    _, counts = read(table, archives="a.tar", stream=stream, keep={"id": "k[0-2]"})
    assert counts == {"not_kept": 3, "no_audio": 1}


def test_the_error_names_row_archive_and_remedy(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.tar.gz", MEMBERS[:5])
    pipeline = uio.from_table(write_table(tmp_path / "t.tsv", ROWS), fields=NAMES, archives="a.tar.gz")
    with pytest.raises(uio.DataError) as caught:
        list(uio.Loader(pipeline.batch(2), failures="raise"))
    said = str(caught.value)
    assert "t.tsv, line 7, utterance 'k5': there is no member 'train/5/u5.wav' in" in said
    assert said.endswith("remove the row [no_audio]")
    assert "a.tar.gz; fetch the archive again, set match= to how members match rows" in said


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("match", "wav"),
    [
        ("path | name", "path | name"),
        ("path | stem", "path | stem"),
        (r"path | m/train\/(.*)/", "path | [6:]"),
        ("path", "x/{path}"),
    ],
)
def test_members_are_named_in_many_ways(tmp_path: Path, match: str, wav: str, stream: bool) -> None:
    members = [(f"x/{name[2:]}", data) for name, data in MEMBERS] if match == "path" else MEMBERS
    members = [two for one in members for two in ((one[0].replace(".wav", ".txt"), b"text"), one)]
    write_archive(tmp_path / "a.tar", [*members, ("other/u1.flac", tone(11))] if "train" in match else members)
    table = write_table(tmp_path / "t.tsv", ROWS)
    found, counts = read(table, fields={**NAMES, "wav": wav}, archives="a.tar", match=match, stream=stream)
    assert (found, counts) == (TONES, Counter())  # other/u1.flac is not meant, nor any text


def test_what_is_not_named_as_audio_is_meant_if_the_expression_tells_it_from_audio() -> None:
    names = ["x/a.txt", "x/a.wav", "x/a", "x/a.dat"]
    assert list(map(match_of("path | stem"), names)) == [None, "a", "a", None]
    assert list(map(match_of(r"path | name | s/\.dat$//"), names)) == ["a.txt", "a.wav", "a", "a"]


@pytest.mark.parametrize(("first", "second"), [("0.tar", "1.tar"), ("0.tar.gz", "1.tar.gz"), ("0.zip", "1.tar.gz")])
def test_rows_fill_in_the_names_of_archives(tmp_path: Path, first: str, second: str) -> None:
    """The same names are in both archives, and audio is missing in one of them."""
    for number, name in enumerate((first, second)):
        members = [(f"u{i}.wav", tone(10 * number + i)) for i in range(4 - number)]
        write_archive(tmp_path / "audio" / name, members)
    rows = [("id", "where", "path", "text")]
    rows += [(f"{name}-{i}", name, f"u{i}.wav", "文") for name in (first, second) for i in range(4)]
    table = write_table(tmp_path / "t.tsv", rows)
    expected = {f"{name}-{i}": 10 * n + i for n, name in enumerate((first, second)) for i in range(4 - n)}
    for lanes in (1, 2):
        found, counts = read(table, lanes, archives="audio/{where}")
        assert (found, counts) == (expected, {"no_audio": 1})


@pytest.mark.parametrize("kind", ["a.tar", "a.tar.gz", "a.zip", "a"])
def test_a_member_has_as_many_rows_as_there_are(tmp_path: Path, kind: str) -> None:
    write_archive(tmp_path / kind, [(f"{n}.wav", tone(n, 1.0)) for n in range(4)])
    rows = [("id", "path", "text", "begin", "end")]
    rows += [(f"{n}-{part}", f"{n}.wav", "文", 0.3 * part, 0.3 * part + 0.25) for n in range(4) for part in range(n)]
    names = {**NAMES, "start": "begin", "end": "end"}
    archives = {"archives": "a/*.wav", "match": "path | name"} if kind == "a" else {"archives": kind}
    found, counts = read(write_table(tmp_path / "t.tsv", rows), fields=names, **archives)
    assert found == {f"{n}-{part}": n for n in range(4) for part in range(n)}
    assert counts == {"no_row": 1}


def test_archives_within_an_archive_have_the_paths_of_what_is_unpacked(tmp_path: Path) -> None:
    inner = [
        (f"data/wav/S{n}.tar.gz", write_archive(tmp_path / f"{n}.tar.gz", _speaker(n)).read_bytes()) for n in (1, 2)
    ]
    write_archive(tmp_path / "all.tgz", [("data/transcript/t.txt", b"nothing"), *inner, ("data/x.wav", tone(30))])
    rows = [
        ("id", "path", "text"),
        *((f"{n}-{i}", f"data/wav/train/S{n}/{i}.wav", "文") for n in (1, 2) for i in range(3)),
    ]
    table = write_table(tmp_path / "t.tsv", rows)
    found, counts = read(table, archives="all.tgz")
    assert (found, counts) == ({f"{n}-{i}": 5 * n + i for n in (1, 2) for i in range(3)}, {"no_row": 1})
    pipeline = uio.from_table(table, fields=NAMES, archives="all.tgz").decode_audio().batch(2)
    check_everywhere(pipeline)


def _speaker(number: int) -> list[tuple[str, bytes]]:
    return [(f"train/S{number}/{i}.wav", tone(5 * number + i)) for i in range(3)]


@pytest.mark.parametrize("kind", ["a.tar", "a.tar.gz", "a.zip"])
def test_any_cut_is_found_and_what_is_before_it_is_read(tmp_path: Path, kind: str) -> None:
    """At every 400th byte: all rows are either right or counted."""
    table = write_table(tmp_path / "t.tsv", ROWS)
    whole = write_archive(tmp_path / kind, MEMBERS).read_bytes()
    for end in range(700, len(whole) - 20, max(400, len(whole) // 60)):
        (tmp_path / kind).write_bytes(whole[:end])
        try:
            found, counts = read(table, archives=kind)
        except NothingRead as error:
            assert "6 as no_audio" in str(error) or "truncated" in str(error), error  # noqa: PT017
            continue
        assert found.items() <= TONES.items()
        assert sum(counts.values()) >= 6 - len(found), (end, found, counts)


@pytest.mark.parametrize("kind", ["a.tar", "a.zip"])
def test_any_flipped_bit_costs_what_it_hits(tmp_path: Path, kind: str) -> None:
    table = write_table(tmp_path / "t.tsv", ROWS)
    write = tar_bytes if kind == "a.tar" else zip_bytes
    whole = write(MEMBERS)
    for at in range(5, len(whole), max(1, len(whole) // 90)):
        data = bytearray(whole)
        data[at] ^= 0x10
        (tmp_path / kind).write_bytes(data)
        for stream in (False, True):
            try:
                found, counts = read(table, archives=kind, stream=stream)
            except NothingRead as error:
                assert "bad_zip" in str(error), (at, error)  # noqa: PT017  its directory
                continue
            wrong = {key for key, number in found.items() if TONES.get(key) != number}
            assert not wrong, (at, stream, wrong)
            assert len(found) + sum(counts[r] for r in counts if r not in ("no_row", "bad_header")) >= 6, (at, counts)


def test_a_cut_archive_is_one_failure(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(-3000, 3000, (300, 3000))
    members = [(f"{n}.wav", wav_bytes(samples.astype(np.int16))) for n, samples in enumerate(noise)]
    whole = write_archive(tmp_path / "a.tar.gz", members).read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(whole[: len(whole) // 3])
    table = write_table(tmp_path / "t.tsv", [ROWS[0], *((f"k{n}", f"{n}.wav", "文") for n in range(300))])
    found, counts = read(table, archives="a.tar.gz")
    assert counts["truncated"] == 1
    assert len(found) + counts["no_audio"] == 300
    assert len(found) > 30


@pytest.mark.parametrize("absent", ["no_audio", "not_kept"])
@pytest.mark.parametrize(
    ("damage", "counts"),
    [
        ({3: b"x" * 9}, {"bad_header": 1}),
        ({3: bytes(512)}, {"zeros": 1}),
        ({1: b"x" * 9, 3: bytes(20_000)}, {"bad_header": 1, "zeros": 1}),
    ],
)
def test_damage_to_headers_is_told_in_both_orders(
    tmp_path: Path, damage: dict[int, bytes], counts: dict[str, int], absent: str
) -> None:
    write_archive(tmp_path / "a.tar", MEMBERS)
    with tarfile.open(tmp_path / "a.tar") as tar:
        headers = [member.offset for member in tar]
    with (tmp_path / "a.tar").open("r+b") as file:
        for number, data in damage.items():
            file.seek(headers[number])
            file.write(data)
    table = write_table(tmp_path / "t.tsv", ROWS)
    for stream in (False, True):
        found, told = read(table, archives="a.tar", stream=stream, absent=absent)
        assert found == {key: number for key, number in TONES.items() if number in found.values()}
        assert told == {**counts, absent: 6 - len(found)}, stream


def test_folders_before_a_member_of_several_rows_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "in" / "wav").mkdir(parents=True)
    for number in range(3):
        (tmp_path / "in" / "wav" / f"{number}.wav").write_bytes(tone(number, 1.0))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for number in range(3):
            tar.add(tmp_path / "in" / "wav", "wav", recursive=False)
            tar.add(tmp_path / "in" / "wav" / f"{number}.wav", f"wav/{number}.wav")
    rows = [(f"{n}-{part}", f"wav/{n}.wav", "文", part / 4, part / 4 + 0.2) for n in range(3) for part in range(3)]
    table = write_table(tmp_path / "t.tsv", [("id", "path", "text", "start", "end"), *rows])
    names = {**NAMES, "start": "start", "end": "end"}
    check_everywhere(uio.from_table(table, fields=names, archives="a.tar.gz").decode_audio().batch(1))


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar", "a.zip"])
def test_streams_go_on_exactly_from_anywhere(tmp_path: Path, name: str) -> None:
    more = [("train/9/u9.wav", tone(9)), *MEMBERS[3:], MEMBERS[0]]
    write_archive(tmp_path / name, [*MEMBERS[:3], *more])
    table = write_table(tmp_path / "t.tsv", [*ROWS, ("k7", "train/1/u1.wav", "again"), ("k8", "nothing.wav", "文")])
    pipeline = uio.from_table(table, fields=NAMES, archives=name, stream=True).decode_audio().shuffle(3).batch(2)
    check_everywhere(pipeline)


def test_several_lanes_share_the_archives(tmp_path: Path) -> None:
    for number in range(4):
        write_archive(tmp_path / f"{number}.tar.gz", [(f"{number}/{i}.wav", tone(5 * number + i)) for i in range(5)])
    rows = [ROWS[0], *((f"{n}-{i}", f"{n}/{i}.wav", "文") for n in range(4) for i in range(5))]
    table = write_table(tmp_path / "t.tsv", rows)
    expected = {f"{n}-{i}": 5 * n + i for n in range(4) for i in range(5)}
    for lanes in (1, 3, 7):
        assert read(table, lanes, archives="*.tar.gz") == (expected, Counter())


def test_rows_given_in_python_and_json_lines_name_members_too(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.tar.gz", MEMBERS)
    rows = [dict(zip(ROWS[0], row, strict=True)) for row in ROWS[1:]]
    assert read(rows, archives=str(tmp_path / "a.tar.gz")) == (TONES, Counter())
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(tmp_path / "t.jsonl", archives="a.tar.gz") == (TONES, Counter())


def test_members_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_bytes(MEMBERS, [zipfile.ZIP_BZIP2, zipfile.ZIP_STORED]))
    table = write_table(tmp_path / "t.tsv", ROWS)
    with pytest.raises(uio.DataError, match=r"that can be read; a member is compressed by bzip2, .*: unpack the zip"):
        list(uio.Loader(uio.from_table(table, fields=NAMES, archives="a.zip"), failures="raise", lanes=1))
    found, counts = read(table, archives="a.zip")
    assert (len(found), counts) == (3, {"no_audio": 3})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [("a.zip", b"", "bad_zip"), ("a.tar", b"", "empty_file"), ("a.zip", zip_bytes([]), "there is no member")],
)
def test_an_archive_of_nothing_is_said(tmp_path: Path, name: str, data: bytes, reason: str, stream: bool) -> None:
    (tmp_path / name).write_bytes(data)
    table = write_table(tmp_path / "t.tsv", ROWS)
    with pytest.raises(NothingRead, match=reason) as caught:
        read(table, archives=name, stream=stream)
    assert "6 as no_audio" in str(caught.value)


def test_equal_tables_in_two_folders_are_joined_to_the_archives_of_their_own(tmp_path: Path) -> None:
    audio = {"one": wav_bytes(np.zeros(300)), "two": wav_bytes(np.zeros(600))}
    for part, data in audio.items():
        (tmp_path / part).mkdir()
        (tmp_path / part / "a.tsv").write_text("wav\nu.wav\n")
        with tarfile.open(tmp_path / f"{part}.tar.gz", "w:gz") as archive:
            member = tarfile.TarInfo("u.wav")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    for part, data in audio.items():  # in one process, which keeps what it knows of a table
        archives = str(tmp_path / "{table | folder | name}.tar.gz")
        pipeline = uio.from_table(tmp_path / part / "a.tsv", fields={"wav": "wav"}, archives=archives)
        assert [sample["wav"] for sample in uio.Loader(pipeline)] == [data]
