"""The tar reader: equal to tarfile on intact archives, never silently short on damaged ones, resumable anywhere."""

import gzip
import io
import itertools
import random
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from archive_files import COMPRESS
from archive_files import tar_bytes as archive
from failing import fails_as
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uio_pipes.base.errors import DataError
from uio_pipes.formats.tar.reader import Grouping, TarReader, TarUtterance, split_name
from uio_pipes.io import local
from uio_pipes.io.local import LocalFile
from uio_pipes.io.references import Ref
from uio_pipes.io.stream import ByteSource, LocalBytes, StreamBytes, open_source

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
Members = list[tuple[str, bytes]]
Open = Callable[[bytes], ByteSource]
# What next() gave: (key, offset, fields) or (reason, offset)
Event = tuple[str, int, dict[str, bytes]] | tuple[str, int | None]


def special(name: str, kind: bytes, form: int = tarfile.GNU_FORMAT) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "elsewhere"
    return member.tobuf(form)


def utterances(count: int, name: str = "utt{}", sizes: tuple[int, ...] = (1500, 200, 3000)) -> Members:
    """``count`` utterances, the txt first in one and the wav first in the next."""
    members = []
    for number in range(count):
        key = name.format(number)
        pair = [
            (f"{key}.txt", f"text {number}".encode()),
            (f"{key}.wav", bytes([number + 1]) * sizes[number % len(sizes)]),
        ]
        members += pair[:: 1 if number % 2 else -1]
    return members


def reader(source: ByteSource, grouping: Grouping = "wenet", at: tuple[int, bool] = (0, False)) -> TarReader:
    return TarReader("s.tar", source, grouping, *at)


def step(tar: TarReader) -> Event:
    try:
        key, offset, fields = tar.next()
    except DataError as error:
        return error.reason, error.offset
    return key, offset, {suffix: data.read() if isinstance(data, Ref) else data for suffix, data in fields.items()}


def rest(tar: TarReader) -> list[Event]:
    events = []
    while True:
        try:
            events.append(step(tar))
        except StopIteration:
            with pytest.raises(StopIteration):
                tar.next()
            return events


def errors(events: list[Event]) -> list[str]:
    return [event[0] for event in events if len(event) == 2]


def delivered(events: list[Event]) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for event in events:
        if len(event) == 3:
            assert event[0] not in found
            found[event[0]] = event[2]
    return found


def grouped(members: Members) -> dict[str, dict[str, bytes]]:
    """Group members by key, as the reader must."""
    found: dict[str, dict[str, bytes]] = {}
    for name, data in members:
        key, suffix = name.rsplit(".", 1)
        found.setdefault(key, {})[suffix] = data
    return found


@pytest.fixture(params=["local", "stream"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens bytes as a source, in both ways."""
    count = 0

    def in_file(data: bytes) -> ByteSource:
        nonlocal count
        count += 1
        path = tmp_path / f"{count}.tar"
        path.write_bytes(data)
        return LocalBytes(LocalFile(str(path)))

    return in_file if request.param == "local" else stream


def stream(data: bytes) -> ByteSource:
    return StreamBytes(io.BytesIO(data), "s.tar")


def check_resume(data: bytes, opened: Open = stream, grouping: Grouping = "wenet") -> list[Event]:
    """All events; a new reader at every ``tell()`` on the way must give the same rest."""
    tar = reader(opened(data), grouping)
    events, positions = [], [tar.tell()]
    while True:
        try:
            events.append(step(tar))
        except StopIteration:
            break
        positions.append(tar.tell())
    assert tar.tell() == positions[-1] or rest(reader(opened(data), grouping, tar.tell())) == []
    for number, position in enumerate(positions):
        assert rest(reader(opened(data), grouping, position)) == events[number:]
    return events


NAMES = {
    "short": "utt{}",
    "unicode": "语音/喂{}",
    "prefix": "d" * 90 + "/" + "n" * 60 + "{}",
    "long": "x" * 70 + "/" + "y" * 70 + "{}",
    "very long": "/".join(["directory" * 6] * 6) + "/utt{}",
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_equal_to_tarfile(form: str, name: str, opened: Open) -> None:
    if (form, name) == ("ustar", "very long"):
        pytest.skip("ustar has no room for it")
    members = utterances(7, NAMES[name])
    data = archive(members, FORMATS[form])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        offsets = {info.name.rsplit(".", 1)[0]: info.offset for info in reversed(tar.getmembers())}
    events = check_resume(data, opened)
    assert errors(events) == []
    assert delivered(events) == grouped(members)
    assert {event[0]: event[1] for event in events} == offsets


@pytest.mark.parametrize("suffix", ["gz", "zst", "bz2", "xz"])
def test_compressed(suffix: str, tmp_path: Path) -> None:
    members = utterances(7, sizes=(150_000, 2000))
    path = tmp_path / f"s.tar.{suffix}"
    path.write_bytes(COMPRESS[suffix](archive(members)))
    assert delivered(check_resume(path.read_bytes())) == grouped(members)
    assert delivered(rest(reader(open_source(str(path))))) == grouped(members)


def test_small_payloads_and_txt_are_bytes_large_ones_references(opened: Open) -> None:
    members = [("a.txt", b"t" * 9000), ("a.wav", b"w" * 2000), ("a.json", b"{}")]
    utterance = reader(opened(archive(members))).next()
    assert isinstance(utterance, TarUtterance)
    assert (utterance.fields["txt"], utterance.fields["json"]) == (b"t" * 9000, b"{}")
    wav = utterance.fields["wav"]
    assert isinstance(wav, Ref) or wav == b"w" * 2000
    if isinstance(wav, Ref):
        assert (wav.size, wav.read()) == (2000, b"w" * 2000)


@pytest.mark.parametrize(
    ("name", "wenet", "webdataset"),
    [
        ("a.wav", ("a", "wav"), ("a", "wav")),
        ("d.1/a.b.WAV", ("d.1/a.b", "wav"), ("d.1/a", "b.wav")),
        ("./a.txt", ("./a", "txt"), ("./a", "txt")),
        ("README", None, None),
        ("d.1/README", None, None),
        ("d/.hidden", None, None),
        ("a.", None, None),
    ],
)
def test_names(name: str, wenet: tuple[str, str] | None, webdataset: tuple[str, str] | None) -> None:
    assert (split_name(name, "wenet"), split_name(name, "webdataset")) == (wenet, webdataset)


def test_webdataset_grouping() -> None:
    members = [("d/a.seg.json", b"{}"), ("d/a.txt", b"t"), ("d/a.wav", b"w"), ("d/b.npy", b"n"), ("d/b.txt", b"t")]
    events = check_resume(archive(members), grouping="webdataset")
    assert delivered(events) == {
        "d/a": {"seg.json": b"{}", "txt": b"t", "wav": b"w"},
        "d/b": {"npy": b"n", "txt": b"t"},
    }
    with pytest.raises(ValueError, match="grouping must be 'wenet' or 'webdataset', not 'lhotse'"):
        reader(stream(b"x"), "lhotse")  # type: ignore[arg-type]


def test_a_repeated_suffix_begins_a_new_utterance_of_the_same_key_which_is_skipped(opened: Open) -> None:
    members = [("a.txt", b"1"), ("a.wav", b"1"), *[("a.wav", b"2"), ("a.txt", b"2")] * 2, *utterances(1)]
    events = check_resume(archive(members), opened)
    assert [event[0] for event in events] == ["a", "duplicate_key", "duplicate_key", "utt0"]
    assert delivered(events)["a"] == {"txt": b"1", "wav": b"1"}


def test_the_same_key_further_on_is_delivered() -> None:
    members = [("a.txt", b"1"), ("a.wav", b"1"), *utterances(1), ("a.txt", b"2"), ("a.wav", b"2")]
    assert [event[0] for event in check_resume(archive(members))] == ["a", "utt0", "a"]


def test_an_incomplete_double_is_what_it_was() -> None:
    members = [("a.txt", b"1"), ("a.wav", b"1"), ("a.txt", b"2"), *utterances(1)]
    assert [event[0] for event in check_resume(archive(members))] == ["a", "missing_audio", "utt0"]


def test_incomplete_utterances_are_errors(opened: Open) -> None:
    members = [("a.txt", b""), ("b.wav", b""), ("b.json", b""), ("c.npy", b""), ("c.txt", b""), ("d.json", b"")]
    data = archive(members)
    events = check_resume(data, opened)
    assert [event[:2] for event in events] == [
        ("missing_audio", 0),
        ("missing_text", 512),
        ("c", 1536),
        ("missing_audio", 2560),
    ]
    with pytest.raises(DataError) as caught:
        reader(opened(data), at=(512, False)).next()
    assert str(caught.value).startswith("s.tar, utterance 'b', byte 512: the utterance has no txt: it has wav, json")


def test_directories_and_global_headers_are_passed_over() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "x"}) as tar:
        folder = tarfile.TarInfo("d")
        folder.type = tarfile.DIRTYPE
        for name in ("d/a.txt", "d/a.wav"):
            tar.addfile(folder)
            tar.addfile(tarfile.TarInfo(name))
    assert delivered(check_resume(buffer.getvalue())) == {"d/a": {"txt": b"", "wav": b""}}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
@pytest.mark.parametrize("name", ["b.wav", "l" * 150])
def test_special_members_are_errors(kind: bytes, name: str) -> None:
    first, second = archive(utterances(1))[:3072], archive(utterances(2)[2:])
    data = first + special(name, kind) + second
    assert [event[0] for event in check_resume(data)] == ["utt0", "unsupported_member", "utt1"]
    tar = reader(stream(data))
    tar.next()
    with pytest.raises(DataError, match=f"s.tar, member '{name}', byte 3072: a link, device or other special member"):
        tar.next()


def test_a_special_member_ends_the_utterance_under_way() -> None:
    data = archive([("a.txt", b"")])[:512] + special("a.wav", tarfile.SYMTYPE) + archive(utterances(1))
    assert [event[0] for event in check_resume(data)] == ["missing_audio", "unsupported_member", "utt0"]


def test_sparse_members_are_not_mistaken_for_audio() -> None:
    member = tarfile.TarInfo("a.wav")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    data = member.tobuf(tarfile.PAX_FORMAT) + archive(utterances(1))
    assert [event[0] for event in check_resume(data)] == ["unsupported_member", "utt0"]


def test_names_without_a_suffix_are_errors() -> None:
    events = check_resume(archive([*utterances(1), ("README", b"read me"), *utterances(3)[2:]]))
    assert [event[0] for event in events] == ["utt0", "bad_member_name", "utt1", "utt2"]


def test_concatenated_archives(opened: Open) -> None:
    """Nothing fails, but where one ends and the next begins there could have been more: it is noted."""
    one, two = archive(utterances(2)), archive(utterances(4)[4:])
    ended = one.rstrip(b"\0")
    bare = ended + bytes(-len(ended) % 512 + 1024)  # by a writer that fills up no record
    for data in (one + two, bare + two, two + one + bytes(100)):
        assert errors(check_resume(data, opened)) == ["unclear_end"]
    assert errors(check_resume(two[:-512], opened)) == []
    events = check_resume(bare + two, opened)
    assert list(delivered(events)) == ["utt0", "utt1", "utt2", "utt3"]


def test_large_records(opened: Open) -> None:
    data = archive(utterances(4))
    for record in (64, 2048):
        assert errors(check_resume(data + bytes(-len(data) % (512 * record)), opened)) == ["unclear_end"]


@pytest.mark.parametrize("blocks", [1, 2, 3, 9, 20, 21, 22, 40, 65])
def test_zeros_are_never_passed_in_silence(blocks: int, opened: Open) -> None:
    """Of any length, at the beginning or before a member, wherever in a record; the rest is read."""
    members, found = utterances(2), []
    for before in range(20):
        first = archive([("a.txt", b""), ("a.wav", bytes([1]) * 512 * before)])[: 512 * (before + 2)]
        events = check_resume(first + bytes(512 * blocks) + archive(members), opened)
        assert list(delivered(events)) == ["a", "utt0", "utt1"]
        found += errors(events)
        events = check_resume(bytes(512 * blocks) + first + archive(members), opened)
        assert (list(delivered(events)), errors(events)) == (["a", "utt0", "utt1"], ["zeros"])
    assert len(found) == 20
    assert set(found) <= {"zeros", "unclear_end"}
    assert blocks == 2 or found.count("zeros") >= 17  # what is the end of a record by chance is only noted


def test_an_utterance_that_zeros_begin_in_goes_with_them(opened: Open) -> None:
    members = utterances(5, sizes=(3000,))
    data = archive(members)
    begin = data.index(bytes([2]) * 3000) + 1700
    events = check_resume(data[:begin] + bytes(12_000) + data[begin + 12_000 :], opened)
    assert errors(events) == ["zeros"]
    assert "utt1" not in delivered(events)
    assert all(grouped(members)[key] == fields for key, fields in delivered(events).items())


def test_zeros_where_utterances_were(opened: Open) -> None:
    """Zeros in the place of data lost or never written, whole utterances or parts: one error; the rest is read."""
    members = utterances(5, sizes=(30_000, 24_000))
    data = archive(members)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        starts = [info.offset for info in tar.getmembers()][::2]
    for first, last in itertools.combinations([*starts, len(data)], 2):
        events = check_resume(data[:first] + bytes(last - first) + data[last:], opened)
        assert errors(events) == ["zeros"]
        assert len(delivered(events)) == sum(not first <= start < last for start in starts)
    events = check_resume(data[: starts[1] + 700] + bytes(30_000) + data[starts[1] + 30_700 :], opened)
    assert (list(delivered(events)), errors(events)) == (["utt0", "utt3", "utt4"], ["zeros"])
    with pytest.raises(DataError, match=r"s\.tar, byte 0: 99840 bytes of zeros.*fetch the file again"):
        reader(opened(bytes(100_000))).next()


def test_garbage_between_and_after_archives(opened: Open) -> None:
    one, two = archive(utterances(2)), archive(utterances(4)[4:])
    events = check_resume(one + b"garbage!" * 128 + two, opened)
    assert [event[0] for event in events] == ["utt0", "utt1", "bad_header", "utt2", "utt3"]
    assert [event[0] for event in check_resume(two + b"garbage!" * 128, opened)] == ["utt2", "utt3", "bad_header"]
    assert [event[0] for event in check_resume(two + b"garbage", opened)] == ["utt2", "utt3", "truncated"]


def test_not_a_tar(opened: Open) -> None:
    with pytest.raises(DataError, match=r"s\.tar, byte 0: not a tar header.*begins with b'<html>") as caught:
        reader(opened(b"<html>not found</html>" * 50)).next()
    assert caught.value.reason == "bad_header"


def test_messages_of_damage() -> None:
    members = utterances(2)
    data = bytearray(archive(members))
    data[3072 + 7] ^= 1
    tar = reader(stream(bytes(data)))
    tar.next()
    with pytest.raises(DataError) as caught:
        tar.next()
    assert str(caught.value).startswith("s.tar, member 'utt0.txt', byte 3072: not a tar header, its checksum is wrong")
    for cut, what in [
        (1000, "member 'utt0.wav', byte 0: the archive ends within a payload: fetch or pack"),
        (2100, "member 'utt0.wav', byte 2048: the archive ends within a header: fetch or pack"),
    ]:
        with pytest.raises(DataError, match=f"^s.tar, {what}"):
            reader(stream(archive(members)[:cut])).next()


def check_cut(data: bytes, members: Members, cut: int) -> None:
    events = rest(reader(stream(data[:cut])))
    expected, got = grouped(members), delivered(events)
    assert all(expected[key] == fields for key, fields in got.items())
    assert got == expected or errors(events)
    assert len(errors(events)) <= 1


@cache
def three(form: str, name: str) -> tuple[bytes, Members]:
    members = utterances(3, NAMES[name], (700, 60))
    return archive(members, FORMATS[form]), members


CASES = [("ustar", "short"), ("gnu", "long"), ("pax", "unicode")]


@pytest.mark.parametrize(("form", "name"), CASES)
def test_cut_anywhere(form: str, name: str) -> None:
    data, members = three(form, name)
    for cut in {*range(1, len(data), 7), *(at + near for at in range(512, len(data), 512) for near in (-1, 0, 1))}:
        check_cut(data, members, cut)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_cut_and_resumed(form: str, name: str, opened: Open) -> None:
    data, _ = three(form, name)
    for cut in [*range(256, len(data), 256), *range(511, len(data), 512)]:
        check_resume(data[:cut], opened)


@pytest.mark.parametrize(("form", "name"), CASES)
def test_changed_header_bytes(form: str, name: str) -> None:
    """One error; only the utterance it belongs to is lost."""
    data, members = three(form, name)
    expected = grouped(members)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        owners = [(info.offset, info.offset_data, info.name.rsplit(".", 1)[0]) for info in tar.getmembers()]
    for start, end, owner in owners:
        for place in [*range(start, start + 512, 7), *range(end - 512, end, 7)]:  # each one: test_header.py
            changed = bytearray(data)
            changed[place] ^= 0xFF
            events = rest(reader(stream(bytes(changed))))
            got = delivered(events)
            assert all(expected[key] == fields for key, fields in got.items())
            assert errors(events)[0] == "bad_header"
            assert set(expected) - set(got) == {owner}


@pytest.mark.parametrize(("form", "name"), CASES)
def test_damaged_and_resumed(form: str, name: str, opened: Open) -> None:
    data, _ = three(form, name)
    for place in range(20, len(data), 256):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        check_resume(bytes(changed), opened)


@pytest.mark.parametrize("order", [1, -1])
def test_one_damage_is_one_error(order: int) -> None:
    members = [(f"utt{number}.{suffix}", b"x" * 600) for number in range(3) for suffix in ("txt", "wav")[::order]]
    data = archive(members)
    for number in range(6):
        changed = bytearray(data)
        changed[number * 1536 + 3] ^= 1
        events = check_resume(bytes(changed))
        assert errors(events) == ["bad_header"]
        assert len(delivered(events)) == 2
        changed[number * 1536 + 512 : number * 1536 + 1024] = b"\xa5" * 512  # payload cannot be checked
        assert errors(check_resume(bytes(changed))) == ["bad_header"]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_damage_is_survived(data: st.DataObject) -> None:
    """Blocks lost, doubled, overwritten: whatever is delivered under a good name is intact or damage was reported."""
    form, name = data.draw(st.sampled_from(CASES))
    whole, members = three(form, name)
    blocks = [whole[place : place + 512] for place in range(0, len(whole), 512)]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(blocks) - 1))
        action = data.draw(st.sampled_from(["lose", "double", "garble", "cut"]))
        if action == "lose":
            del blocks[place]
        elif action == "double":
            blocks.insert(place, blocks[place])
        elif action == "garble":
            blocks[place] = data.draw(st.binary(min_size=512, max_size=512))
        else:
            del blocks[place + 1 :]
        if not blocks:
            return
    events = check_resume(b"".join(blocks))
    assert len(events) <= 3 * len(blocks)
    keys = {event[0] for event in events if len(event) == 3}
    assert keys >= set(grouped(members)) or errors(events)


def test_crc_is_checked_at_the_very_end() -> None:
    noise = random.Random(0)
    members = [(f"{key}.{suffix}", noise.randbytes(20_000)) for key in range(20) for suffix in ("txt", "wav")]
    stored = bytearray(gzip.compress(archive(members)))
    stored[-6] ^= 1
    events = check_resume(bytes(stored))
    assert errors(events) == ["corrupt_stream"]
    assert len(delivered(events)) >= 17  # what the last 64 KiB hold is lost
    with pytest.raises(DataError, match=r"^s.tar, member '1\d.\w+', byte \d+: the gzip stream is corrupt within its"):
        rest_or_raise(reader(stream(bytes(stored))))


def rest_or_raise(tar: TarReader) -> None:
    while True:
        tar.next()


def test_a_failing_connection_is_tried_again_on_resume() -> None:
    data = archive(utterances(4, sizes=(200_000,)))

    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 500_000:
                raise ConnectionResetError("peer went away")
            return super().read(size)

    tar = reader(StreamBytes(Breaking(data), "s.tar"))
    before = rest(tar)
    assert errors(before) == ["unreadable_file"]
    after = rest(reader(stream(data), at=tar.tell()))
    assert before[:-1] + after == rest(reader(stream(data)))


def test_a_file_that_changes_while_read_ends_the_shard(tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    path.write_bytes(archive(utterances(6, sizes=(20_000,))))
    tar = reader(LocalBytes(LocalFile(str(path))))
    tar.next()
    path.write_bytes(b"new")
    local._forget()
    with fails_as("changed_file"):
        rest_or_raise(tar)
    with pytest.raises(StopIteration):
        tar.next()
