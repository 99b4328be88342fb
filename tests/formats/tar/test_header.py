"""Header blocks: what tarfile writes is read, one changed byte is noticed."""

import tarfile

import pytest

from uio_pipes.formats.tar.members import BadHeader, Header, parse_header, parse_pax

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def block(name: str = "a/b.wav", size: int = 150_044, form: int = tarfile.USTAR_FORMAT) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, 1_700_000_000
    return info.tobuf(form)[-512:]


def checked(fields: bytes, signed: bool = False) -> bytes:
    """``fields`` (a whole block) with its checksum written."""
    blank = fields[:148] + b" " * 8 + fields[156:]
    total = sum(byte - 256 if signed and byte > 127 else byte for byte in blank)
    return blank[:148] + b"%06o\0 " % total + blank[156:]


@pytest.mark.parametrize("length", [99, 100])
def test_a_name_may_fill_its_field(length: int) -> None:
    assert parse_header(block("n" * length)).name == "n" * length


def test_ustar_prefix() -> None:
    name = "d" * 120 + "/" + "n" * 99
    assert parse_header(block(name)).name == name
    gnu = block(form=tarfile.GNU_FORMAT)
    assert parse_header(checked(gnu[:345] + b"14723245231\0" + gnu[357:])).name == "a/b.wav"  # there it is a time


def test_v7_and_unicode() -> None:
    assert parse_header(checked(block("语音.wav")[:257] + bytes(255))) == Header("语音.wav", 150_044, b"0")
    assert (
        parse_header(checked(b"\xff\xfe.wav" + block()[6:100].replace(b"v", b"\0") + block()[100:])).name[-4:] == ".wav"
    )


@pytest.mark.parametrize("size", [0, 8 * 2**30, 2**40 + 1])
def test_large_sizes_are_binary(size: int) -> None:
    assert parse_header(block(size=size, form=tarfile.GNU_FORMAT)).size == size


@pytest.mark.parametrize("field", [b"\xff" * 12, b"12345x78901\0", b"-0000000001\0"])
def test_impossible_size(field: bytes) -> None:
    with pytest.raises(BadHeader, match="size field"):
        parse_header(checked(block()[:124] + field + block()[136:]))


def test_blank_size_is_zero() -> None:
    assert parse_header(checked(block()[:124] + bytes(12) + block()[136:])).size == 0


def test_signed_checksum_of_old_tars() -> None:
    assert parse_header(checked(block("语音.wav"), signed=True)).name == "语音.wav"


@pytest.mark.parametrize("form", FORMATS)
def test_any_changed_byte_is_noticed(form: int) -> None:
    good = block("语音.wav", form=form)
    for place in range(512):
        changed = bytearray(good)
        changed[place] ^= 0xFF
        with pytest.raises(BadHeader, match="checksum"):
            parse_header(bytes(changed))


@pytest.mark.parametrize("data", [bytes(512), b"x" * 512, b"\xff" * 512, b"0" * 512, b" " * 512])
def test_other_bytes_are_no_header(data: bytes) -> None:
    with pytest.raises(BadHeader, match="checksum"):
        parse_header(data)


def test_pax_records() -> None:
    assert parse_pax(b"16 path=\xe8\xaf\xad.wav\n21 comment=a=b\nc = d\n" + bytes(5)) == {
        "path": "语.wav",
        "comment": "a=b\nc = d",
    }
    assert parse_pax(b"") == {}


@pytest.mark.parametrize("data", [b"12 path=a.wav\n", b"x path=a\n", b"99 path=a\n", b"9 patha\n\n", b"path", b"0 =\n"])
def test_malformed_pax(data: bytes) -> None:
    with pytest.raises(BadHeader, match="PAX"):
        parse_pax(data)
