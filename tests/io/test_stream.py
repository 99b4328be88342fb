"""Byte sources: the same bytes from a file and from every kind of stream, and every way a stream can break."""

import bz2
import gzip
import io
import lzma
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest
import zstandard
from failing import fails_as
from fault_server import FaultServer

from uio_pipes.base.errors import DataError
from uio_pipes.io import compression, stream
from uio_pipes.io.local import LocalFile
from uio_pipes.io.references import Ref
from uio_pipes.io.stream import ByteSource, LocalBytes, RemoteBytes, StreamBytes, open_source

DATA = random.Random(1).randbytes(300_000) + bytes(400_000) + random.Random(2).randbytes(100_000)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstd,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def read_all(source: ByteSource, step: int = 5000) -> bytes:
    pieces, offset = [], 0
    while piece := source.read_upto(offset, step):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("suffix", ["tar", *COMPRESS])
@pytest.mark.parametrize("place", ["local", "memory", "http", "http without ranges"])
def test_the_same_bytes_from_everywhere(tmp_path: Path, server: FaultServer, suffix: str, place: str) -> None:
    stored = COMPRESS.get(suffix, bytes)(DATA)
    (tmp_path / "a").write_bytes(stored)
    with fsspec.open("memory://stream/a", "wb") as fileobj:
        fileobj.write(stored)
    served = server.add("a", stored, ranges=place == "http")
    url = {"local": str(tmp_path / "a"), "memory": "memory://stream/a"}.get(place, served)
    source = open_source(url)
    plain = LocalBytes if place == "local" else RemoteBytes
    assert isinstance(source, plain if suffix == "tar" else StreamBytes)
    assert read_all(source) == DATA
    assert source.failure is None
    source = open_source(url)
    for offset, size in [(3, 10), (100, 1024), (5000, 200_000), (650_000, 1000), (799_990, 100)]:
        assert source.read_upto(offset, size) == DATA[offset : offset + size]
    assert source.payload(799_990, 11) is None
    assert source.read_upto(900_000, 5) == b""


def test_payloads_over_a_kilobyte_are_references_with_a_head(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    source = LocalBytes(LocalFile(str(tmp_path / "a")))
    source.read_upto(0, 512)
    assert source.payload(512, 1024) == DATA[512:1536]
    payload = source.payload(2048, 100_000)
    assert isinstance(payload, Ref)
    assert (payload.head, payload.read()) == (DATA[2048:2304], DATA[2048:102_048])
    far = source.payload(200_000, 2000)
    assert isinstance(far, Ref)
    assert (far.head, far.read()) == (b"", DATA[200_000:202_000])
    assert source.payload(799_990, 2000) is None


def test_an_utterance_costs_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(DATA)
    file = LocalFile(str(tmp_path / "a"))
    source = LocalBytes(file)
    monkeypatch.setattr(LocalFile, "read_upto", lambda *_: calls.append(1) or LocalFile_read_upto(*_))
    calls: list[int] = []
    source.read_upto(10_240, 512)  # txt header, txt, wav header, wav
    source.payload(10_752, 40)
    source.read_upto(11_264, 512)
    source.payload(11_776, 150_000)
    assert len(calls) == 1


LocalFile_read_upto = LocalFile.read_upto


@pytest.mark.parametrize("suffix", COMPRESS)
def test_several_frames_and_padding(suffix: str) -> None:
    compress = COMPRESS[suffix]
    stored = compress(DATA[:1000]) + compress(b"") + compress(DATA[1000:]) + bytes(512)
    assert read_all(StreamBytes(io.BytesIO(stored), "a.tar")) == DATA


def test_skippable_zstd_frames() -> None:
    skip = bytes.fromhex("502a4d18") + (4).to_bytes(4, "little") + b"abcd"
    assert read_all(StreamBytes(io.BytesIO(skip + zstd(DATA) + skip), "a.tar.zst")) == DATA


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_stream_cut_off_anywhere_is_noticed(suffix: str) -> None:
    stored = COMPRESS[suffix](DATA[295_000:310_000])
    for cut in range(1, len(stored)):
        source = StreamBytes(io.BytesIO(stored[:cut]), f"a.tar.{suffix}")
        assert DATA[295_000:310_000].startswith(read_all(source))
        assert source.failure is not None
        assert (source.failure.reason, source.failure.url) == ("truncated", f"a.tar.{suffix}")
        assert f"stream is cut off after {cut} bytes" in str(source.failure)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_flipped_byte_is_noticed(suffix: str) -> None:
    data = DATA[295_000:310_000]
    stored = COMPRESS[suffix](data)
    magic = {"gz": 2, "zst": 4, "bz2": 3, "xz": 6}[suffix]
    for place in range(len(stored)):
        flipped = bytearray(stored)
        flipped[place] ^= 0xFF
        if place < magic:
            with fails_as("corrupt_stream"):
                StreamBytes(io.BytesIO(flipped), f"a.tar.{suffix}")
            continue
        source = StreamBytes(io.BytesIO(flipped), f"a.tar.{suffix}")
        got = read_all(source)
        if source.failure is None:
            assert (got, place < 10) == (data, True)  # gzip's time and system are of no consequence
        else:
            assert source.failure.reason in ("corrupt_stream", "truncated")


@pytest.mark.parametrize("suffix", COMPRESS)
def test_garbage_after_the_end_is_noticed(suffix: str) -> None:
    source = StreamBytes(io.BytesIO(COMPRESS[suffix](DATA) + b"garbage"), "a.tar")
    assert read_all(source) == DATA
    assert source.failure is not None
    assert source.failure.reason == "corrupt_stream"
    assert "b'garbage' follows the end of a frame" in str(source.failure)


def test_without_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "fast_zlib", zlib)
    stored = gzip.compress(DATA)
    assert read_all(StreamBytes(io.BytesIO(stored), "a.tar.gz")) == DATA
    source = StreamBytes(io.BytesIO(stored[:-9] + bytes([stored[-9] ^ 1]) + stored[-8:]), "a.tar.gz")
    read_all(source)
    assert source.failure is not None
    assert source.failure.reason == "corrupt_stream"


@pytest.mark.parametrize("url", ["a.tar.gz", "a.tgz", "http://host/a.tar.zst?page=1", "a.tar.bz2", "a.tar.xz"])
def test_wrong_content(url: str) -> None:
    with pytest.raises(DataError, match=r"named like (gzip|zstd|bzip2|xz), but it begins with b'<html>") as caught:
        StreamBytes(io.BytesIO(b"<html>not found</html>"), url)
    assert (caught.value.reason, caught.value.url) == ("corrupt_stream", url)


def test_the_name_need_not_tell_the_format(tmp_path: Path) -> None:
    tar = bytearray(1024)
    tar[:10], tar[257:262] = b"BZh9.wav\0\0", b"ustar"
    assert read_all(StreamBytes(io.BytesIO(tar), "plain.tar.gz")) == tar
    (tmp_path / "BZh.tar").write_bytes(tar)
    assert isinstance(open_source(str(tmp_path / "BZh.tar")), LocalBytes)
    (tmp_path / "gzipped.tar").write_bytes(gzip.compress(tar))
    assert read_all(open_source(str(tmp_path / "gzipped.tar"))) == tar


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()
    (tmp_path / "a.tar.gz").touch()
    with fsspec.open("memory://stream/empty.tar.gz", "wb"):
        pass
    for url in (str(tmp_path / "a.tar"), str(tmp_path / "a.tar.gz"), "memory://stream/empty.tar.gz"):
        with pytest.raises(DataError, match="0 bytes") as caught:
            open_source(url)
        assert (caught.value.reason, caught.value.url) == ("empty_file", url)


def test_a_connection_that_breaks_is_unreadable() -> None:
    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 400_000:
                raise ConnectionResetError("peer went away")
            return super().read(min(size or 0, 60_000))  # as networks do

    source = StreamBytes(Breaking(DATA), "http://host/a.tar")
    assert DATA.startswith(read_all(source))
    assert source.failure is not None
    assert source.failure.reason == "unreadable_file"
    assert "peer went away" in str(source.failure)


def test_a_stream_does_not_go_back_and_closes_at_its_end() -> None:
    fileobj = io.BytesIO(DATA)
    source = StreamBytes(fileobj, "a.tar")
    source.read_upto(2 * stream.CHUNK, 10)
    with pytest.raises(ValueError, match="cannot go back"):
        source.read_upto(0, 10)
    source.read_upto(len(DATA), 10)
    assert fileobj.closed
