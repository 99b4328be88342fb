"""Compressed archives at random: what is read from any point is what is there."""

import gzip
import os
import random
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zstandard
from archive_files import tar_bytes, tone, write_archive, write_table
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.archives.archive import Archive
from uio_pipes.formats.tar.checks import open_sidecar, sidecar_path
from uio_pipes.formats.tar.index import ArchiveIndex
from uio_pipes.io import compression
from uio_pipes.io.references import RandomFile, Ref
from uio_pipes.tools.data import points
from uio_pipes.tools.data.index import index_shard

WHOLE = [("a.bin", 300_000), ("empty.bin", 0), ("b.bin", 90_000), ("c/d.bin", 700_000), ("é.bin", 1)]


def content(seed: int, size: int) -> bytes:
    """Bytes that compress a little, as audio does."""
    return np.random.default_rng(seed).integers(0, 60, size, np.uint8).tobytes()


MEMBERS = [(name, content(seed, size)) for seed, (name, size) in enumerate(WHOLE)]
TAR = tar_bytes(MEMBERS)


def in_frames(form: str, lengths: list[int]) -> bytes:
    """The tar in frames of these lengths, the last one as long as there is something left."""
    compress = gzip.compress if form == "gz" else zstandard.ZstdCompressor(write_checksum=True).compress
    bounds = [0, *np.cumsum(lengths).tolist(), len(TAR)]
    return b"".join(compress(TAR[a:b]) for a, b in pairwise(bounds) if a < len(TAR))


def indexed(path: Path, data: bytes) -> RandomFile:
    path.write_bytes(data)
    assert index_shard(str(path), members=True).problems == ()
    return Archive(str(path)).file


def index_of(path: Path) -> ArchiveIndex:
    return open_sidecar(str(path), members=True)


@pytest.fixture
def close_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points near to each other, so that small files have many."""
    monkeypatch.setattr(points, "SPACING", 1 << 17)
    compression._spans.clear()


@pytest.mark.usefixtures("close_points")
@pytest.mark.parametrize("form", ["gz", "zst"])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_any_frames_read_at_any_place_give_the_content(
    tmp_path_factory: pytest.TempPathFactory, form: str, data: st.DataObject
) -> None:
    lengths = data.draw(st.lists(st.integers(1, 400_000), max_size=8))
    if form == "zst":  # which has no points within frames
        lengths = [100_000] * 11
    file = indexed(tmp_path_factory.mktemp("frames") / f"a.tar.{form}", in_frames(form, lengths))
    assert file.size == len(TAR)
    for offset, size in data.draw(
        st.lists(st.tuples(st.integers(0, len(TAR) + 10), st.integers(0, 500_000)), max_size=9)
    ):
        assert file.read_upto(offset, size) == TAR[offset : offset + size]


@pytest.mark.usefixtures("close_points")
@pytest.mark.parametrize("level", [0, 1, 6, 9])
def test_a_stream_of_one_frame_has_windows_of_its_own(tmp_path: Path, level: int) -> None:
    file = indexed(tmp_path / "a.tar.gz", gzip.compress(TAR, level))
    index = index_of(tmp_path / "a.tar.gz")
    assert len(index.columns["content"]) > 3
    assert (index.columns["bits"] != compression.FRAME).sum() > 2
    places = [(place.name, file.read(place.offset, place.size), place.crc) for place in index.places()]
    assert places == [(name, data, zlib.crc32(data)) for name, data in MEMBERS]
    numbers = random.Random(level)
    for _ in range(60):
        offset, size = numbers.randrange(len(TAR)), numbers.randrange(200_000)
        compression._spans.clear()  # from the point on, each time
        assert file.read_upto(offset, size) == TAR[offset : offset + size]


def test_few_stretches_are_kept(tmp_path: Path, close_points: None) -> None:
    file = indexed(tmp_path / "a.tar.gz", gzip.compress(TAR))
    for offset in range(0, len(TAR), 50_000):
        file.read_upto(offset, 10)
    assert len(compression._spans) <= compression.SPANS


def test_what_cannot_be_begun_in_the_middle_gets_no_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "FARTHEST", 1 << 18)
    write_archive(tmp_path / "a.tar.xz", MEMBERS)
    (problem,) = index_shard(str(tmp_path / "a.tar.xz"), members=True).problems
    assert "xz in one piece has no points to begin at" in problem.message
    index = index_of(tmp_path / "a.tar.xz")
    assert ([place.name for place in index.places()], index.seekable) == ([name for name, _ in MEMBERS], False)
    assert index_shard(str(tmp_path / "a.tar.xz"), members=True).fresh


def test_a_cut_stream_gets_no_points_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(TAR)[:-200_000])
    done, index = index_shard(str(path), members=True), index_of(path)
    assert not index.seekable
    assert [error.reason for error in done.problems] == ["truncated", "compressed_tar"]
    assert [place.name for place in index.places()] == [name for name, _ in MEMBERS[: done.members]]


@pytest.mark.parametrize("at", [-1, -40_000])
def test_a_damaged_window_is_found(tmp_path: Path, close_points: None, at: int) -> None:
    path = tmp_path / "a.tar.gz"
    indexed(path, gzip.compress(TAR))
    sidecar = Path(sidecar_path(str(path)))
    data = bytearray(sidecar.read_bytes())
    data[at] ^= 0x40
    sidecar.write_bytes(data)
    compression._spans.clear()
    file = Archive(str(path)).file
    with pytest.raises(DataError, match="CRC32") as caught:
        file.read(0, file.size)
    assert caught.value.reason == "bad_crc"


@pytest.mark.parametrize("what", ["stale", "damaged"])
def test_an_index_that_does_not_fit_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "a.tar.gz"
    indexed(path, gzip.compress(TAR))
    if what == "stale":
        path.write_bytes(gzip.compress(TAR, 1))
    else:
        Path(sidecar_path(str(path))).write_bytes(b"UIOMEMBR" + bytes(99))
    with pytest.raises(ListError, match=rf"index .*a\.tar\.gz.* is {what}.*uio index --members"):
        Archive(str(path)).file  # noqa: B018


def test_an_index_without_its_package_names_it(
    tmp_path: Path, close_points: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "indexed_gzip", None)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(TAR))
    with pytest.raises(ListError, match="pip install indexed_gzip"):
        index_shard(str(tmp_path / "a.tar.gz"), members=True)


def test_bytes_that_rot_later_are_found(tmp_path: Path, close_points: None) -> None:
    path = tmp_path / "a.tar.gz"
    indexed(path, gzip.compress(TAR))
    times, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    archive, seen = Archive(str(path)), list[str]()
    for place, (_, right) in zip(archive.members(), MEMBERS, strict=True):
        ref = archive.reference(place)
        assert isinstance(ref, Ref)
        try:
            assert ref.read() == right
            seen.append("right")
        except DataError as error:
            seen.append(error.reason)
    assert {"right"} < set(seen) <= {"right", "bad_crc", "corrupt_stream", "truncated"}


# One index for all


def shards(root: Path) -> str:
    """A tar.gz that is a shard, too, with a table of its audio."""
    path = write_archive(
        root / "a.tar.gz", [two for n in range(3) for two in ((f"{n}.txt", b"x"), (f"{n}.wav", tone(n)))]
    )
    write_table(root / "t.tsv", [("id", "path", "text"), *((f"k{n}", f"{n}.wav", "x") for n in range(3))])
    return str(path)


def rows_of(root: Path, **options: bool) -> list[str]:
    fields = {"key": "id", "wav": "path", "txt": "text"}
    return [s["key"] for s in uio.Loader(uio.from_table(root / "t.tsv", fields=fields, archives="a.tar.gz", **options))]


def test_an_index_gains_points_and_utterances_and_keeps_what_it_had(tmp_path: Path, close_points: None) -> None:
    path = shards(tmp_path)
    index_shard(path)
    assert not open_sidecar(path).seekable
    assert rows_of(tmp_path) == ["k0", "k1", "k2"]  # in its order
    with pytest.raises(ListError, match=r"its index has no points to begin at.*uio index --members"):
        rows_of(tmp_path, stream=False)
    for members in (True, False):
        done = index_shard(path, members=members)
        assert (done.fresh, done.utterances, done.members) == (not members, 3, 6)
    assert open_sidecar(path).seekable
    assert rows_of(tmp_path, stream=False) == ["k0", "k1", "k2"]
    assert index_shard(path, text="").fresh is False
    assert open_sidecar(path).seekable


def test_an_index_of_members_only_is_none_of_utterances(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.tar", [("a.wav", tone(1))])
    assert index_shard(str(path), members=True).problems == ()
    with pytest.raises(ListError, match=r"lists the members of .*a\.tar, but no utterances: make it with uio index /"):
        list(uio.Loader(uio.from_tar_index(path)))
    assert index_shard(str(path), text="").utterances == 1
    assert [sample["key"] for sample in uio.Loader(uio.from_tar_index(path))] == ["a"]


def test_members_of_failed_utterances_are_in_the_index(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.tar", [("a.wav", tone(1)), ("b.wav", tone(2)), ("b.txt", b"x"), ("c", b"y")])
    done = index_shard(str(path))
    assert ([e.reason for e in done.problems], done.utterances) == (["missing_text", "bad_member_name"], 1)
    archive = Archive(str(path))
    assert [place.name for place in archive.members()] == ["a.wav", "b.wav", "b.txt", "c"]
    assert not archive.damage
