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
from archive_files import tar_bytes, write_archive
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.archives import scanning
from uio_pipes.formats.archives.archive import Archive
from uio_pipes.formats.archives.index import SUFFIX, dumps, read_index
from uio_pipes.formats.archives.scanning import scan_members
from uio_pipes.io import compression
from uio_pipes.io.local import RandomFile, Ref

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
    index, windows = scan_members(str(path))
    Path(f"{path}{SUFFIX}").write_bytes(dumps(index, windows))
    found = read_index(str(path))
    assert found is not None
    assert found.seekable
    return found.opened(str(path), None)


@pytest.fixture
def close_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points near to each other, so that small files have many."""
    monkeypatch.setattr(scanning, "SPACING", 1 << 17)
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
    index = read_index(str(tmp_path / "a.tar.gz"))
    assert index is not None
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
    monkeypatch.setattr(scanning, "FARTHEST", 1 << 18)
    write_archive(tmp_path / "a.tar.xz", MEMBERS)
    index, windows = scan_members(str(tmp_path / "a.tar.xz"))
    assert (len(index), windows, index.seekable) == (len(MEMBERS), [], False)


def test_a_cut_stream_gets_no_points_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(TAR)[:-200_000])
    index, _ = scan_members(str(path))
    assert not index.seekable
    assert [error.reason for error in index.errors] == ["truncated"]
    assert [place.name for place in index.places()] == [name for name, _ in MEMBERS[: len(index)]]


@pytest.mark.parametrize("at", [0, 9, 21, 300, -1, -40_000])
def test_a_damaged_index_is_refused_or_its_damage_found(tmp_path: Path, close_points: None, at: int) -> None:
    path = tmp_path / "a.tar.gz"
    indexed(path, gzip.compress(TAR))
    sidecar = Path(f"{path}{SUFFIX}")
    data = bytearray(sidecar.read_bytes())
    data[at] ^= 0x40
    sidecar.write_bytes(data)
    compression._spans.clear()
    if at >= 0:
        with pytest.raises(ListError, match=r"index .*a\.tar\.gz\.uiomem is damaged.*uio index --members"):
            read_index(str(path))
        return
    index = read_index(str(path))
    assert index is not None
    file = index.opened(str(path), None)
    with pytest.raises(DataError, match="CRC32") as caught:  # of a window
        file.read(0, file.size)
    assert caught.value.reason == "bad_crc"


def test_a_stale_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    indexed(path, gzip.compress(TAR))
    path.write_bytes(gzip.compress(TAR, 1))
    with pytest.raises(ListError, match=r"index of .*a\.tar\.gz is stale.*uio index --members"):
        read_index(str(path))


def test_an_index_without_its_package_names_it(
    tmp_path: Path, close_points: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "indexed_gzip", None)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(TAR))
    with pytest.raises(ListError, match="pip install indexed_gzip"):
        scan_members(str(tmp_path / "a.tar.gz"))


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
