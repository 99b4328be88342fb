"""One table of first bytes: the format is the same for bytes and for a path, and by it names are checked."""

from pathlib import Path

import pytest

from uio_pipes.audio.containers import belies, sniff, sniff_codec

TAG = b"ID3\x04\0\0\0\0\x01\0" + bytes(128)
AAC = b"\xff\xf1\x50\x80"
ASF = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
HEADS = [
    (b"RIFF\0\0\0\0WAVE", "wav"),
    (b"RIFX\0\0\0\0WAVE", "wav"),
    (b"RF64\xff\xff\xff\xffWAVE", "wav"),
    (b"fLaC\0\0\0\x22", "flac"),
    (b"OggS\0\x02", "ogg"),
    (b"\0\0\0\x20ftypM4A ", "m4a"),
    (ASF, "wma"),
    (ASF[:15], None),
    (b"\x1aE\xdf\xa3", "webm"),
    (b"\xff\xfb\x90", "mp3"),
    (b"\xff\xf3\x90", "mp3"),
    (b"\xff\xe3\x90", "mp3"),
    (AAC, "aac"),
    (b"\xff\xf9", "aac"),
    (TAG + b"\xff\xfb\x90", "mp3"),
    (TAG + AAC, "aac"),
    (TAG + b"\0\0\0\x20ftypM4A ", "m4a"),
    (TAG + b"fLaC", "mp3"),
    (TAG, "mp3"),
    (b"ID3", "mp3"),
    (b"", None),
    (b"\xff", None),
    ("K1 \u4f60\n".encode("utf-16"), None),
    (b"no audio", None),
]


@pytest.mark.parametrize(("head", "form"), HEADS, ids=lambda value: repr(value)[:24])
def test_format_by_the_first_bytes(head: bytes, form: str | None, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(head + bytes(4096))
    assert sniff(head) == form
    assert sniff(tmp_path / "a") == form


def test_opus_is_told_from_other_ogg() -> None:
    head = b"OggS" + bytes(24) + b"OpusHead"
    assert (sniff(head), sniff_codec(head), sniff_codec(b"OggS" + bytes(24) + b"\x01vorbis")) == ("ogg", "opus", "ogg")


def test_a_name_that_the_bytes_belie() -> None:
    assert belies("wav", b"fLaC") == "flac"
    for suffix, head in (("opus", b"OggS"), ("mp4", b"\0\0\0\x20ftyp"), ("aac", TAG), ("raw", b"\0\1\2\3")):
        assert belies(suffix, head) is None
