"""One kind of damage, made byte by byte, after the other: each has its own reason, and the rest goes on."""

import gzip
import io
import json
import logging
import lzma
import os
import pickle
import re
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import corpus
import numpy as np
import pytest
import soundfile
import zstandard
from contract import Case, check_cuts, record
from helpers_bad import END, Members, audio, keys, members, noise, run, shard, shard_list, tar
from integrity_rows import ROWS
from ogg_files import ogg

import uio_pipes as uio
from uio_pipes.base.errors import DataError
from uio_pipes.formats.tar.members import BadHeader, parse_pax
from uio_pipes.io import compression
from uio_pipes.io.compression import Decompressed, detect
from uio_pipes.tools.data.checks import WantedChecks
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.data.verify import verify

DOCS = Path(__file__).parents[1] / "docs" / "integrity.md"
COUNT = 6


def swapped(name: str, data: bytes | None, new: str = "") -> Members:
    """``K000`` … ``K005`` with one member of other data (None: left out), or name."""
    parts = [(new or n if n == name else n, data if n == name else d) for n, d in members(COUNT)]
    return [(n, d) for n, d in parts if d is not None]


def delivered(
    root: Path, data: bytes | Members, caplog: pytest.LogCaptureFixture | None = None, **options: object
) -> tuple[list[str], dict[str, int]]:
    """Keys of what comes out of one shard, and what was counted."""
    path = root / "s.tar"
    path.write_bytes(data if isinstance(data, bytes) else tar(data))
    pipeline = uio.from_shard_list(str(path)).decode_audio()
    batches, loader = run(pipeline, **options)
    return keys(batches), dict(loader.stats().skipped)


def all_but(*lost: int) -> list[str]:
    return [f"K{i:03d}" for i in range(COUNT) if i not in lost]


def nan_wav() -> bytes:
    samples = noise(1600).astype(np.float32)
    samples[700] = np.nan
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 8000, format="WAV", subtype="FLOAT")
    return buffer.getvalue()


def infinite_wav() -> bytes:
    data = bytearray(nan_wav())
    at = data.index(b"data") + 8 + 700 * 4
    data[at : at + 4] = struct.pack("<f", float("inf"))
    return bytes(data)


AUDIO = {
    "0 bytes": (b"", "empty_audio"),
    "0 samples": (audio(0), "empty_audio"),
    "NaN": (nan_wav(), "nan_audio"),
    "infinite": (infinite_wav(), "nan_audio"),
    "header cut off": (audio()[:30], "bad_audio"),
    "header overwritten": (b"\0" * 44 + audio()[44:], "bad_audio"),
    "cut off": (audio()[:-500], "truncated_audio"),
    "HTML": (b"<html>404</html>" * 20, "bad_audio"),
}


OGG = {
    "opus cut off": ("opus", ogg(1, "OPUS")[:-300], "truncated_audio"),
    "opus flipped": ("opus", ogg(1, "OPUS")[:-300] + b"\0" + ogg(1, "OPUS")[-299:], "bad_audio"),
    "vorbis cut off": ("ogg", ogg(1, "VORBIS")[:-300], "truncated_audio"),
}


def rehashed(data: bytes) -> bytes:
    """The archive with its headers' checksums made right."""
    out, at = bytearray(data), 0
    while at + 512 <= len(out) and out[at : at + 512] != bytes(512):
        block = out[at : at + 512]
        size = int(bytes(block[124:136]).strip(b"\0 ") or b"0", 8)
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        out[at : at + 512] = block
        at += 512 + -(-size // 512) * 512
    return bytes(out)


def renamed(prefix: str) -> Members:
    return [(prefix + name if name.startswith("K002") else name, data) for name, data in members(COUNT)]


def special(kind: bytes) -> bytes:
    """A link to, or a device of, what is elsewhere, between two utterances."""
    extra = tarfile.TarInfo("K900.wav")
    extra.type, extra.linkname = kind, "/etc/passwd"
    parts = members(COUNT)
    return tar(parts[:4])[:-END] + extra.tobuf(tarfile.USTAR_FORMAT) + tar(parts[4:])


def huge_metadata() -> bytes:
    info = tarfile.TarInfo("././@LongLink")  # the name of K003.txt was to be here
    info.type, info.size = b"L", 1 << 40
    return tar(members(3))[:-END] + info.tobuf(tarfile.GNU_FORMAT) + tar(members(3, 3))


def zeros() -> bytes:
    data = tar([(name, content * 20) for name, content in members(COUNT)])
    first, end = data.index(b"K002.txt"), data.index(b"K004.txt")
    return data[:first] + bytes(end - first) + data[end:]


def flipped() -> bytes:
    data = bytearray(tar(members(COUNT)))
    data[data.index(b"K002.txt") + 100] ^= 0xFF
    return bytes(data)


WHOLE = tar(members(COUNT))
# One damage of a shard: its bytes or members, the utterances that are lost, and the reason that is counted once
DAMAGED: dict[str, tuple[bytes | Members, tuple[int, ...], str]] = {
    **{kind: (swapped("K002.wav", data), (2,), reason) for kind, (data, reason) in AUDIO.items()},
    **{
        kind: (swapped("K002.wav", data, f"K002.{suffix}"), (2,), reason)
        for kind, (suffix, data, reason) in OGG.items()
    },
    "no text": (swapped("K002.txt", None), (2,), "missing_text"),
    "no audio": (swapped("K002.wav", None), (2,), "missing_audio"),
    "text not UTF-8": (swapped("K002.txt", "文".encode("gbk")), (2,), "bad_text"),
    "name not UTF-8": (rehashed(WHOLE.replace(b"K002.", b"K\xff\xfe2.")), (2,), "bad_member_name"),
    **{
        f"beginning with {prefix}": (renamed(prefix), (2,), "unsafe_name") for prefix in ("/etc/", "../../", "a/../../")
    },
    **{
        kind: (special(number), (), "unsupported_member")
        for kind, number in {
            "link": b"2",
            "hard link": b"1",
            "device": b"3",
            "block device": b"4",
            "fifo": b"6",
        }.items()
    },
    "huge metadata": (huge_metadata(), (3,), "bad_header"),
    "no end": (WHOLE[:-END], (), "missing_end"),
    "zeros": (zeros(), (2, 3), "zeros"),
    "header flipped": (flipped(), (2,), "bad_header"),
    "truncated": (WHOLE[: WHOLE.index(b"K005.wav") + 700], (5,), "truncated"),
    **{f"{size} zeros": (bytes(size), tuple(range(COUNT)), "zeros") for size in (1024, 10_240, 1 << 20)},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damage_is_counted_once_and_the_rest_is_delivered(tmp_path: Path, damage: str) -> None:
    data, lost, reason = DAMAGED[damage]
    assert delivered(tmp_path, data) == (all_but(*lost), {reason: 1})
    *_, report = verify([str(tmp_path / "s.tar")], WantedChecks(decode=True))
    assert report.reasons == {reason: 1}


def test_nan_is_not_looked_for_in_formats_that_cannot_hold_it(tmp_path: Path) -> None:
    got, counted = delivered(tmp_path, swapped("K002.wav", audio(subtype="PCM_24")))
    assert (got, counted) == (all_but(), {})


def test_wrong_rate(tmp_path: Path) -> None:
    """A list states a rate, or the index does, and the audio has another."""
    path = tmp_path / "a.wav"
    path.write_bytes(audio(rate=16_000))
    entries = [{"key": k, "wav": str(path), "txt": "", "sample_rate": r} for k, r in (("a", 8000), ("b", 16_000))]
    batches, loader = run(uio.list_files(entries).sharding_filter().load_from_raw().decode_audio())
    assert (keys(batches), loader.stats().skipped) == (["b"], {"wrong_rate": 1})
    *_, report = verify([shard(tmp_path / "s.tar", members(3))], WantedChecks(rate=16_000))
    assert report.reasons == {"wrong_rate": 3}


def test_wrong_suffix(tmp_path: Path) -> None:
    """It is what it is: decoding goes on, ``uio verify`` reports it."""
    parts = swapped("K002.wav", audio(form="FLAC"))
    assert delivered(tmp_path, parts) == (all_but(), {})
    *_, report = verify([str(tmp_path / "s.tar")])
    assert report.reasons == {"wrong_suffix": 1}
    assert "named .wav, but it is flac" in str(report.findings[0])


def test_dots_in_a_name_are_safe(tmp_path: Path) -> None:
    parts = [(f"a..b/{n}", d) for n, d in members(2)]
    assert delivered(tmp_path, parts) == (["a..b/K000", "a..b/K001"], {})


@pytest.mark.parametrize("form", ["plain", "gz"])
@pytest.mark.parametrize("name", ["K002.wav", "K002.txt"])
def test_huge_member(tmp_path: Path, form: str, name: str) -> None:
    data = tar(swapped(name, bytes(200_000)))
    path = tmp_path / f"s.tar{'.gz' if form == 'gz' else ''}"
    path.write_bytes(gzip.compress(data) if form == "gz" else data)
    files = uio.list_files(str(path)).sharding_filter().open_files()
    for lanes in (1, 2):
        case = Case(files.load_from_tar(max_member=100_000).decode_audio(), {"lanes": lanes})
        recorded = record(case)
        assert recorded.keys == all_but(2)
        assert recorded.stats.skipped == {"huge_member": 1}
        check_cuts(recorded, range(len(recorded.digests) + 1))


def test_huge_member_that_is_not_there(tmp_path: Path) -> None:
    """A header that claims 8 EiB: nothing of that size is read, asked for, or made room for."""
    for size in (2**40, 2**59, 2**62, 2**80):
        info = tarfile.TarInfo("K900.wav")
        info.size = size
        header = info.tobuf(tarfile.GNU_FORMAT)
        got, counted = delivered(tmp_path, tar(members(COUNT))[:-END] + header + bytes(1024))
        assert got == all_but()
        assert set(counted) <= {"huge_member", "bad_header"}
        assert sum(counted.values()) == 1


def test_hostile_pax_records() -> None:
    for payload in (b"99999999999999999999 a=b\n", b"0 a=b\n", b"-5 a=b\n", b"3 a\n", b"\xff", b"7 a=b\nx", b" " * 99):
        with pytest.raises(BadHeader):
            parse_pax(payload)
    many = b"".join(b"%d a%06d=b\n" % (13, i) for i in range(80_000))
    assert len(parse_pax(many)) == 80_000


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "xz": lambda data: lzma.compress(data, preset=0),
}


@pytest.mark.parametrize("suffix", BOMBS)
def test_bomb(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "BOMB_SIZE", 4 << 20)
    parts = [*members(COUNT), ("big.wav", bytes(32 << 20)), ("big.txt", b"")]
    (tmp_path / "s").mkdir()
    path = tmp_path / f"s.tar.{suffix}"
    path.write_bytes(BOMBS[suffix](tar(parts)))
    batches, loader = run(uio.from_shard_list(str(path)).decode_audio())
    assert keys(batches) == all_but()
    assert loader.stats().skipped == {"bomb": 1}


@pytest.mark.parametrize("suffix", BOMBS)
def test_bombs_come_in_small_pieces(suffix: str) -> None:
    data = BOMBS[suffix](bytes(60 << 20))
    form = detect(data[:512], "x")
    assert form is not None
    pieces = [len(piece) for piece in Decompressed(io.BytesIO(data).read, form, "x")]
    assert sum(pieces) == 60 << 20
    assert max(pieces) <= (300 << 20 if suffix == "zst" else compression.PIECE)


def test_an_audio_header_that_claims_years(tmp_path: Path) -> None:
    data = bytearray(audio(1600, form="FLAC"))
    data[21:26] = bytes([data[21] | 0xF, 0xFF, 0xFF, 0xFF, 0xFF])  # 2^36 - 1 samples
    got, counted = delivered(tmp_path, swapped("K002.wav", bytes(data)))
    assert got == all_but(2)
    assert sum(counted.values()) == 1
    assert set(counted) <= {"bomb", "bad_audio", "truncated_audio", "too_long_to_decode"}


def test_duplicate_key(tmp_path: Path) -> None:
    """Neighbours are skipped; further apart, ``uio verify`` and ``uio index`` find them."""
    parts = members(COUNT)
    twice = parts[:6] + parts[4:6] + parts[6:]
    path = shard(tmp_path / "s.tar", twice)
    recorded = record(Case(uio.from_shard_list(path).decode_audio().batch(1)))
    assert (recorded.keys, recorded.stats.skipped) == (all_but(), {"duplicate_key": 1})
    check_cuts(recorded, range(COUNT + 1))


def test_duplicate_key_anywhere(tmp_path: Path) -> None:
    names = [shard(tmp_path / "a.tar", members(4)), shard(tmp_path / "b.tar", members(4, 2))]
    listed = shard_list(tmp_path / "l.list", names)
    *_, report = verify([listed], jobs=2)
    assert [(e.reason, e.key, e.url) for e in report.findings] == [
        ("duplicate_key", key, names[1]) for key in ("K002", "K003")
    ]
    assert [e.key for e in index_lists([listed]).problems] == ["K002", "K003"]


def test_shard_listed_twice(tmp_path: Path) -> None:
    names = [shard(tmp_path / f"{name}.tar", members(2, first)) for name, first in (("a", 0), ("b", 2))]
    listed, other = shard_list(tmp_path / "l.list", [*names, names[0]]), shard_list(tmp_path / "m.list", names)
    *_, report = verify([listed])
    assert [(e.reason, e.url) for e in report.findings] == [("duplicate_shard", names[0])]
    assert f"{listed}, line 3, has it again after {listed}, line 1" in report.findings[0].message
    assert [e.reason for e in index_lists([listed]).problems] == ["duplicate_shard"]
    *_, both = verify([other, shard_list(tmp_path / "part.list", names[:1])])
    assert not both.findings, "lists may share shards"


def with_manifest(root: Path) -> tuple[str, Path]:
    names = [shard(root / "a.tar", members(COUNT)), shard(root / "b.tar", members(COUNT, COUNT))]
    listed = shard_list(root / "l.list", names)
    index_lists([listed])
    return listed, root / "a.tar"


def test_short_shard(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Cut at the end of an utterance and sealed: only the manifest knows. The count holds over a resume."""
    listed, path = with_manifest(tmp_path)
    path.write_bytes(tar(members(4)))
    recorded = record(Case(uio.from_shard_list(listed).decode_audio().batch(1)))
    assert recorded.stats.skipped == {"short_shard": 1}
    assert len(recorded.keys) == 4 + COUNT
    check_cuts(recorded, range(len(recorded.digests) + 1))
    assert "the manifest says 6 utterances, the shard has 4" in caplog.text


def test_long_shard(tmp_path: Path) -> None:
    listed, path = with_manifest(tmp_path)
    path.write_bytes(tar([*members(COUNT), *members(1, 50)]))
    assert run(uio.from_shard_list(listed).decode_audio(), lanes=2)[1].stats().skipped == {"long_shard": 1}


@pytest.mark.parametrize("damage", ["cut out", "put in"])
def test_a_shard_of_another_length(tmp_path: Path, damage: str) -> None:
    """Bytes lost from the last text, and zeros of the end took their place; or zeros too many: as many utterances,
    and nothing else is wrong. Only the manifest's bytes tell; an index made now says it, too."""
    parts = [p for i in range(4) for p in ((f"u{i}.wav", audio(seed=i)), (f"u{i}.txt", b"a long text " * 90))]
    path = tmp_path / "s.tar"
    path.write_bytes(tar(parts) + bytes(4096))
    listed = shard_list(tmp_path / "l.list", [path])
    index_lists([listed])
    assert run(uio.from_shard_list(listed))[1].stats().skipped == {}
    data = path.read_bytes()
    at = data.rindex(b"a long text")
    path.write_bytes(data[: at - 700] + data[at - 188 :] if damage == "cut out" else data + bytes(512))
    recorded = record(Case(uio.from_shard_list(listed).decode_audio().batch(1)))
    assert (len(recorded.keys), recorded.stats.skipped) == (4, {"changed_shard": 1})
    check_cuts(recorded, range(len(recorded.digests) + 1))
    assert [e.reason for e in index_lists([listed]).problems] == ["changed_shard"]
    assert run(uio.from_tar_index(listed))[1].stats().skipped == {"changed_shard": 1}


def test_failures_are_utterances_of_the_manifest(tmp_path: Path) -> None:
    """One utterance damaged, none missing: one failure, not two."""
    listed, path = with_manifest(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"K003.txt") + 120] ^= 0xFF
    path.write_bytes(data)
    assert run(uio.from_shard_list(listed).decode_audio())[1].stats().skipped == {"bad_header": 1}


def test_truncated_and_short(tmp_path: Path) -> None:
    listed, path = with_manifest(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"K003.wav") + 900])
    counted = run(uio.from_shard_list(listed).decode_audio())[1].stats().skipped
    assert counted == {"truncated": 1, "short_shard": 1}


def test_corrupt_stream(tmp_path: Path) -> None:
    path = tmp_path / "s.tar.gz"
    data = bytearray(gzip.compress(tar(members(COUNT)), mtime=0))
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    batches, loader = run(uio.from_shard_list(str(path)).decode_audio())
    assert set(keys(batches)) < set(all_but())
    assert loader.stats().skipped == {"corrupt_stream": 1}


def test_changed_shard(tmp_path: Path) -> None:
    """Other bytes of the same length: the manifest's CRC32 finds it, and the index's which utterance it is."""
    listed, path = with_manifest(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"K003.wav") + 700] ^= 1
    path.write_bytes(data)
    *_, report = verify([listed])
    assert report.reasons == {"bad_crc": 1, "changed_shard": 1, "stale_index": 1}
    assert [e.key for e in report.findings if e.reason == "bad_crc"] == ["K003"]


def test_shard_of_the_manifest_that_the_list_lost(tmp_path: Path) -> None:
    listed, _ = with_manifest(tmp_path)
    shard_list(tmp_path / "l.list", [tmp_path / "b.tar"])
    *_, report = verify([listed])
    assert report.reasons == {"missing_shard": 1}


@pytest.mark.parametrize(
    "text", ["{", "[1]", "", '{"manifest": 2}', '{"manifest": true}', '{"manifest": 1}\n{"shard": 3}', "[" * 99_999]
)
def test_damaged_manifest(tmp_path: Path, text: str) -> None:
    listed, _ = with_manifest(tmp_path)
    (tmp_path / "l.list.manifest").write_text(text)
    with pytest.raises(uio.ListError, match=r"l\.list\.manifest is damaged \(line \d: .*uio index --manifest"):
        run(uio.from_shard_list(listed))


def test_manifest_cut_at_a_line_end(tmp_path: Path) -> None:
    listed, _ = with_manifest(tmp_path)
    manifest = tmp_path / "l.list.manifest"
    lines = manifest.read_text().splitlines(keepends=True)
    for kept in range(1, len(lines)):
        manifest.write_text("".join(lines[:kept]))
        with pytest.raises(uio.ListError, match="cut off, or changed by hand"):
            run(uio.from_shard_list(listed))


def test_a_shard_out_of_reach_is_one_failure_that_says_what_the_manifest_expects(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed, _ = with_manifest(tmp_path)
    for damage, reason in ((Path.unlink, "missing_file"), (Path.touch, "empty_file")):
        damage(tmp_path / "b.tar")
        recorded = run(uio.from_shard_list(listed))[1]
        assert recorded.stats().skipped == {reason: 1}
    assert "b.tar" in caplog.text
    assert "line 2, 6 utterances by its manifest)" in caplog.text


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_flipped_payload_that_no_stage_touches(tmp_path: Path, indexed: bool, batched: bool) -> None:
    path = tmp_path / "s.tar"
    shard(path, [part for i in range(4) for part in ((f"u{i}.txt", b"text"), (f"u{i}.wav", audio(seed=i)))])
    index_lists([str(path)])
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[data.index(audio(seed=2)) + 60] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    pipeline = (uio.from_tar_index if indexed else uio.from_shard_list)(str(path), verify="crc")
    loader = uio.Loader(pipeline.batch(2) if batched else pipeline)
    found = list(loader)
    assert sum(len(x) if batched else 1 for x in found) == 3
    assert loader.stats().skipped == {"bad_crc": 1}


def test_nothing_is_written_under_a_name_from_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    names = ("../evil", "evil", "/tmp/evil")
    parts = [part for name in names for part in ((f"{name}.txt", b""), (f"{name}.wav", audio()))]
    shard(tmp_path / "s.tar", parts)
    before = sorted(tmp_path.rglob("*"))
    run(uio.from_shard_list(str(tmp_path / "s.tar")).decode_audio())
    assert sorted(tmp_path.rglob("*")) == before
    index_lists([str(tmp_path / "s.tar")])
    assert sorted(set(tmp_path.rglob("*")) - set(before)) == [tmp_path / "s.tar.uioidx"]


def test_pickled_features_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([[print, 1]], dtype=object), allow_pickle=True)
    path = shard(tmp_path / "s.tar", [("a.npy", buffer.getvalue()), ("a.txt", b"")])
    batches, loader = run(uio.from_shard_list(path))
    assert (batches, loader.stats().skipped) == ([], {"bad_features": 1})


@pytest.mark.parametrize("shape", [(10**12, 80), (2**70, 3), (-5, 80), (7, 80)])
def test_an_array_that_is_not_there(tmp_path: Path, shape: tuple[int, int]) -> None:
    """Its header tells more than the file holds: said when it is planned, nothing is allocated."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": shape})
    data = head.getvalue() + bytes(6 * 80 * 4)
    path = shard(tmp_path / "s.tar", [("a.npy", data), ("a.txt", b"")])
    (tmp_path / "a.npy").write_bytes(data)
    index_lists([str(shard_list(tmp_path / "s.list", [path]))])
    for graph in (
        uio.from_shard_list(path),
        uio.from_tar_index(tmp_path / "s.list"),
        uio.from_raw_list([{"key": "a", "feat": str(tmp_path / "a.npy"), "txt": ""}]),
    ):
        for used in (graph, graph.filter(max_frames=100), graph.batch(1).pad()):
            batches, loader = run(used)
            assert (batches, loader.stats().skipped) == ([], {"bad_features": 1})
    *_, report = verify([path], WantedChecks(decode=True))
    assert report.reasons == {"bad_features": 1}


@pytest.mark.parametrize("planned", [True, False])
def test_an_empty_local_file(tmp_path: Path, planned: bool) -> None:
    (tmp_path / "a.wav").write_bytes(b"")
    graph = uio.from_raw_list([{"key": "a", "wav": str(tmp_path / "a.wav"), "txt": ""}]).decode_audio()
    batches, loader = run(graph.filter(min_frames=1) if planned else graph)
    assert (batches, loader.stats().skipped) == ([], {"empty_audio": 1})


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x" * (1 << 23), "more than 4194304 bytes begins at byte 0"),
        ("a.tar\nb\0.tar", "a NUL in line 2"),
        ("", "is empty"),
    ],
    ids=["huge line", "NUL", "empty"],
)
def test_hostile_list(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "x.list"
    path.write_text(text)
    with pytest.raises(uio.ListError, match=match):
        run(uio.from_shard_list(path))


def test_hostile_raw_lines(tmp_path: Path) -> None:
    deep = '{"key": ' + "[" * 200_000 + "}"
    huge = '{"key": "a", "wav": "a.wav", "txt": "", "start": 1' + "0" * 4400 + "}"
    path = tmp_path / "raw.list"
    path.write_text("\n".join([deep, huge, '{"key": {}, "wav": [], "txt": 0}']) + "\n")
    _, loader = run(uio.from_raw_list(path))
    assert loader.stats().failures == 3


def test_raw_line_not_utf8(tmp_path: Path) -> None:
    good = corpus.raw_list(tmp_path, 3)
    lines = good.list.read_bytes().splitlines()
    good.list.write_bytes(b"\n".join([lines[0], lines[1].replace(b'"txt": "', b'"txt": "\xff'), lines[2]]))
    batches, loader = run(uio.from_raw_list(good.list, shuffle=True))
    assert (len(keys(batches)), dict(loader.stats().skipped)) == (2, {"bad_line": 1})


def test_every_row_of_the_tables_has_a_test() -> None:
    section = DOCS.read_text().partition("\n## What happens to which damage\n")[2].partition("\n## ")[0]
    tables = dict(table.split("\n", 1) for table in section.split("\n### ")[1:])
    assert len(tables) > 10
    assert list(tables) == list(ROWS)
    for title, tests in ROWS.items():
        assert len(tests) == len(re.findall(r"^\| (?!damage)", tables[title], re.MULTILINE)), title
        for name in (name for names in tests for name in ([names] if isinstance(names, str) else names)):
            file, _, function = name.rpartition("::")
            text = (Path(__file__).parent / (file or Path(__file__).name)).read_text()
            assert f"def {function}(" in text, name


def test_every_reason_of_the_tables_is_one_that_the_code_has() -> None:
    rows = [line.split("|") for line in DOCS.read_text().split("\n") if line.startswith("|")]
    reasons = {r for row in rows for r in re.findall(r"`([a-z]+(?:_[a-z0-9]+)*)`", row[2]) if not r.startswith("test_")}
    package = Path(uio.__file__).parent
    code = "".join(path.read_text() for path in package.rglob("*.py"))
    assert [r for r in sorted(reasons) if f'"{r}"' not in code] == []


def test_failures_are_named_with_shard_member_and_offset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "uio_pipes"):
        delivered(tmp_path, swapped("K002.wav", b""))
    (message,) = [r.getMessage() for r in caplog.records if "[empty_audio]" in r.getMessage()]
    assert re.search(r"s\.tar, utterance 'K002', byte \d+: ", message)


def test_errors_of_data_survive_the_way_between_processes() -> None:

    error = DataError("bad_crc", "other bytes", url="s.tar", member="a.wav", offset=7)
    error.key, error.item = "a", 3
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.key, again.item) == (str(error), "a", 3)
    assert json.dumps(again.args) == json.dumps(error.args)
