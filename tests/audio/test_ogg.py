"""An Ogg file that was cut off or damaged is noticed; libsndfile alone would decode what is left of it."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
from ogg_files import END, Page, join, ogg, pages

from uio_pipes.audio.decode import decode, decode_file
from uio_pipes.audio.lossy import check_ogg, check_ogg_segment
from uio_pipes.base.errors import DataError
from uio_pipes.tools.data.checks import check_whole

FORMS = ["VORBIS", "OPUS"]


def verdict(data: bytes) -> str:
    """Return the result of the check: a reason, or "sound"."""
    try:
        check_ogg(lambda offset, count: data[offset : offset + count], len(data))
    except DataError as error:
        return error.reason
    return "sound"


@pytest.fixture(scope="module", params=FORMS)
def whole(request: pytest.FixtureRequest) -> bytes:
    return ogg(3, request.param)


@pytest.fixture(scope="module", params=FORMS)
def long(request: pytest.FixtureRequest) -> bytes:
    return ogg(90, request.param)


def test_a_sound_file_is_sound(whole: bytes) -> None:
    assert join(list(pages(whole))) == whole  # the CRC-32 of RFC 3533, bit by bit
    assert verdict(whole) == "sound"
    assert decode(whole, 0)[0].shape == (1, 48_000)


def test_a_file_cut_anywhere_is_truncated(whole: bytes) -> None:
    cuts = [1, 3, 26, 30, *range(100, len(whole), 397), len(whole) - 1]
    assert {verdict(whole[:cut]) for cut in cuts} == {"truncated_audio"}


def test_an_end_that_nobody_marked_is_delivered_and_suspect(tmp_path: Path) -> None:
    """As some recorders of Vorbis write it; a file that was cut off between two pages looks the same."""
    known = list(pages(whole := ogg(3)))
    unmarked = join([*known[:-1], known[-1]._replace(flags=known[-1].flags & ~END)])
    (tmp_path / "a.ogg").write_bytes(unmarked)
    expected, _ = decode(whole, 0)
    for waveform, _ in (decode(unmarked, 0), decode_file(tmp_path / "a.ogg", 0), decode(unmarked, 0, 0.0, 3.0)):
        assert waveform.shape == expected.shape
    for data, reasons in ((unmarked, ["suspect"]), (join(known[:-1]), ["suspect"]), (whole, [])):
        assert [found.reason for found in check_whole(data)] == reasons


def test_a_file_cut_within_a_packet_or_before_all_audio_is_truncated(whole: bytes) -> None:
    known = list(pages(whole))
    going_on = known[-2]._replace(segments=known[-2].segments[:-1] + b"\xff")
    going_on = going_on._replace(body=going_on.body.ljust(sum(going_on.segments), b"\0"))
    assert verdict(join([*known[:-2], going_on])) == "truncated_audio"
    assert verdict(join(known[:2])) == "truncated_audio"
    if b"OpusHead" in whole:
        assert verdict(join(known[:-1])) == "truncated_audio", "libsndfile reads no end of Opus that is not marked"


def test_a_flipped_bit_anywhere_is_bad(whole: bytes) -> None:
    for at in range(0, len(whole), 211):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << at % 8
        assert verdict(bytes(flipped)) in ("bad_audio", "truncated_audio"), at  # a length may point behind the end


def test_a_page_that_is_missing_is_bad(whole: bytes) -> None:
    known = list(pages(whole))
    assert verdict(join(known[:3] + known[4:])) == "bad_audio"
    assert verdict(join([*known[:3], known[4], known[3], *known[5:]])) == "bad_audio"


def test_a_recording_behind_the_first_is_not_dropped_in_silence(whole: bytes) -> None:
    with soundfile.SoundFile(io.BytesIO(whole + ogg(1, seed=1))) as audio:
        assert audio.frames == 48_000  # libsndfile stops at the first
    with pytest.raises(DataError, match=r"several recordings \(the second starts at byte") as caught:
        decode(whole + ogg(1, seed=1), 0)
    assert caught.value.reason == "bad_audio"


@pytest.mark.parametrize("tail", [b"\0" * 100, b"TAG" + b" " * 125, b"they say OggS"])
def test_other_bytes_behind_the_end_are_no_damage(whole: bytes, tail: bytes) -> None:
    assert verdict(whole + tail) == "sound"


def test_streams_side_by_side_are_checked_each(whole: bytes) -> None:
    other = [Page(2, 0, 7, 0, b"\5", b"\x80demo"), Page(END, 9, 7, 1, b"\4", b"data")]
    known = list(pages(whole))
    both = [known[0], other[0], *known[1:4], other[1], *known[4:]]
    assert verdict(join(both)) == "sound"
    assert decode(join(both), 0)[0].equal(decode(whole, 0)[0])
    assert verdict(join([page for page in both if page is not other[1]])) == "truncated_audio"


def segment_verdict(data: bytes, start: float, end: float) -> str:
    read = 0

    def reading(offset: int, count: int) -> bytes:
        nonlocal read
        read += count
        return data[offset : offset + count]

    try:
        check_ogg_segment(reading, len(data), 16_000, 90 * 16_000, round(start * 16_000), round(end * 16_000))
    except DataError as error:
        return error.reason
    assert end - start > 60 or read < len(data) * 2
    return "sound"


def test_a_segment_is_checked_where_it_lies(long: bytes, tmp_path: Path) -> None:
    flipped = bytearray(long)
    spoiled = list(pages(long))[40]
    at = long.index(spoiled.bytes()) + 100
    flipped[at] ^= 1
    rate = 48_000 if b"OpusHead" in long[:99] else 16_000
    second = spoiled.position / rate
    verdicts = {start: segment_verdict(bytes(flipped), start, start + 3) for start in np.arange(0, 87, 0.5).tolist()}
    assert {v for s, v in verdicts.items() if s < second - 5 or s > second + 2} == {"sound"}
    touching = [v for s, v in verdicts.items() if second - 2.5 <= s <= second - 1]
    assert touching
    assert set(touching) == {"bad_audio"}
    assert {segment_verdict(long, start, start + 3) for start in verdicts} == {"sound"}
    (tmp_path / "long.ogg").write_bytes(flipped)
    with pytest.raises(DataError, match="CRC-32"):
        decode_file(tmp_path / "long.ogg", 0, second - 1.5, second + 1.5)
    with pytest.raises(DataError):
        decode(bytes(flipped), 0, second - 1.5, second + 1.5)


def test_a_segment_behind_a_cut_is_truncated(long: bytes) -> None:
    cut = long[: len(long) * 2 // 3]
    assert decode(cut, 0, 10, 12)[0].shape == (1, 32_000)
    for start, end in ((80, 82), (10, None), (88, None)):
        with pytest.raises(DataError) as caught:
            decode(cut, 0, start, end)
        assert caught.value.reason == "truncated_audio", (start, end)
