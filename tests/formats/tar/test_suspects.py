"""Damaged compressed streams: what came out before the damage showed is named; streams without checksums are noted."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from contract import Case, check_cuts, record
from helpers_bad import audio, keys, run, tar

import uio_pipes as uio
from uio_pipes.formats.lists.quarantine import read_quarantine
from uio_pipes.tools.data.index import index_lists
from uio_pipes.tools.data.verify import verify

COUNT = 24


def plain(count: int = COUNT) -> bytes:
    """A tar of 40 kB utterances."""
    parts = [(f"K{i:03d}.txt", b"t", f"K{i:03d}.wav", audio(20_000, i)) for i in range(count)]
    return tar([pair for a, b, c, d in parts for pair in ((a, b), (c, d))])


def stored(compress: Callable[[bytes], bytes], data: bytes, size: int | None = None) -> bytes:
    """``data`` compressed as a whole, or in members of ``size`` bytes."""
    size = size or len(data)
    return b"".join(compress(data[at : at + size]) for at in range(0, len(data), size))


def with_wrong_crc(data: bytes, member: int = 0) -> bytes:
    """gzip members, one of which ends with the CRC of other content: what a flipped bit amounts to."""
    ends = [at for at in range(1, len(data)) if data[at : at + 4] == b"\x1f\x8b\x08\x00"] + [len(data)]
    changed = bytearray(data)
    changed[ends[member] - 6] ^= 1
    return bytes(changed)


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_what_came_out_of_a_damaged_member_is_suspect_and_excluded_later(tmp_path: Path) -> None:
    path = written(tmp_path / "s.tar.gz", with_wrong_crc(gzip.compress(plain(), mtime=0)))
    found = tmp_path / "bad.jsonl"
    batches, loader = run(uio.from_shard_list(path).decode_audio(), failures=uio.Failures(quarantine=str(found)))
    counted = loader.stats().skipped
    assert counted == {"corrupt_stream": 1, "suspect": len(keys(batches))}
    assert loader.stats().failures == 1
    assert len(batches) > COUNT // 2
    assert {e["key"] for e in read_quarantine(found) if e["reason"] == "suspect"} == set(keys(batches))
    batches, loader = run(uio.from_shard_list(path).exclude(found).decode_audio())
    assert (batches, loader.stats().failures, loader.stats().skipped) == ([], 0, {"excluded": counted["suspect"] + 1})


def test_suspects_are_counted_once_whenever_the_run_was_resumed(tmp_path: Path) -> None:
    path = written(tmp_path / "s.tar.gz", with_wrong_crc(gzip.compress(plain(), mtime=0)))
    recorded = record(Case(uio.from_shard_list(path).decode_audio().shuffle(5).batch(4)))
    assert set(recorded.stats.skipped) == {"corrupt_stream", "suspect"}
    check_cuts(recorded, range(len(recorded.digests) + 1))


def test_only_the_damaged_member_is_suspect(tmp_path: Path) -> None:
    """Of four large members the second is damaged: what ends within the first is known to be good."""
    data = plain()
    size = len(data) // 4
    path = written(tmp_path / "s.tar.gz", with_wrong_crc(stored(lambda d: gzip.compress(d, mtime=0), data, 300_000), 1))
    batches, loader = run(uio.from_shard_list(path).decode_audio())
    sound = 300_000 // (len(data) // COUNT)  # utterances that end within the first
    assert len(batches) > sound
    assert size < 300_000
    assert loader.stats().skipped == {"corrupt_stream": 1, "suspect": len(batches) - sound}


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_nothing_comes_out_of_small_members_that_are_damaged(tmp_path: Path, suffix: str) -> None:
    compress: dict[str, Callable[[bytes], bytes]] = {
        "gz": lambda data: gzip.compress(data, mtime=0),
        "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
    }
    data = plain(8)
    sound = {x["key"]: x["wav"] for x in run(uio.from_shard_list(written(tmp_path / "s.tar", data)))[0]}
    members = [compress[suffix](data[at : at + 90_000]) for at in range(0, len(data), 90_000)]
    for number in range(len(members)):
        for part in (0.3, 0.6, 0.9):
            damaged = bytearray(members[number])
            damaged[int(part * len(damaged))] ^= 8
            shard = b"".join([*members[:number], bytes(damaged), *members[number + 1 :]])
            batches, loader = run(uio.from_shard_list(written(tmp_path / f"d.tar.{suffix}", shard)))
            assert all(x["wav"] == sound[x["key"]] for x in batches)
            assert loader.stats().skipped == {"corrupt_stream": 1}


def test_what_an_index_checked_is_not_suspect(tmp_path: Path) -> None:
    data = gzip.compress(plain(), mtime=0)
    path = written(tmp_path / "s.tar.gz", data)
    index_lists([path])
    status = Path(path).stat()
    written(tmp_path / "s.tar.gz", with_wrong_crc(data))
    __import__("os").utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    batches, loader = run(uio.from_shard_list(path, verify="crc"))
    assert len(batches) > COUNT // 2
    assert loader.stats().skipped == {"corrupt_stream": 1}


def test_verify_and_index_name_suspects(tmp_path: Path) -> None:
    path = written(tmp_path / "s.tar.gz", with_wrong_crc(gzip.compress(plain(), mtime=0)))
    delivered = keys(run(uio.from_shard_list(path))[0])
    *_, report = verify([path])
    assert report.reasons == {"corrupt_stream": 1, "suspect": len(delivered)}
    assert [e.key for e in report.findings if e.reason == "suspect"] == delivered
    assert [e.key for e in index_lists([path]).problems if e.reason == "suspect"] == delivered


UNCHECKED: dict[str, Callable[[bytes], bytes]] = {
    "zst": zstandard.ZstdCompressor().compress,
    "xz": lambda data: lzma.compress(data, check=lzma.CHECK_NONE),
}
CHECKED: dict[str, Callable[[bytes], bytes]] = {
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    "xz": lzma.compress,
    "gz": gzip.compress,
    "bz2": bz2.compress,
}


@pytest.mark.parametrize("suffix", UNCHECKED)
def test_a_stream_without_checksums_is_noted_once(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, size = plain(6), len(plain(6)) // 3
    path = written(tmp_path / f"s.tar.{suffix}", stored(UNCHECKED[suffix], data, size))
    recorded = record(Case(uio.from_shard_list(path).decode_audio().batch(2)))
    assert (len(recorded.keys), recorded.stats.skipped, recorded.stats.failures) == (6, {"unchecked_stream": 1}, 0)
    assert "the compressed stream has no checksum of its content" in caplog.text
    check_cuts(recorded, range(len(recorded.digests) + 1))
    assert len(run(uio.from_shard_list(path), failures="raise")[0]) == 6
    *_, report = verify([path])
    assert report.reasons == {"unchecked_stream": 1}


@pytest.mark.parametrize("suffix", CHECKED)
def test_a_stream_with_checksums_is_not(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"s.tar.{suffix}", CHECKED[suffix](plain(3)))
    assert run(uio.from_shard_list(path))[1].stats().skipped == {}


def test_one_frame_of_several_without_a_checksum_is_enough(tmp_path: Path) -> None:
    data = plain(4)
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"none"
    frames = CHECKED["zst"](data[:50_000]) + skippable + UNCHECKED["zst"](data[50_000:])
    path = written(tmp_path / "s.tar.zst", frames)
    batches, loader = run(uio.from_shard_list(path))
    assert (len(batches), loader.stats().skipped) == (4, {"unchecked_stream": 1})
    checked = CHECKED["zst"](data[:50_000]) + skippable + CHECKED["zst"](data[50_000:])
    assert run(uio.from_shard_list(written(tmp_path / "s.tar.zst", checked)))[1].stats().skipped == {}
