"""Formats by their first bytes; m4a, aac and wma: what was encoded comes back, and what was cut off is noticed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from encoded import CODECS, chirp, encode

from uio_pipes.audio.containers import belies, sniff, sniff_codec
from uio_pipes.audio.decode import decode, decode_file, probe_file
from uio_pipes.base.errors import DataError

# Samples by which FFmpeg's decoders are late (aac files tell nothing of the encoder's delay) or early (wma)
DELAY = {("m4a", 16_000): 0, ("alac", 16_000): 0, ("aac", 16_000): 1024, ("wma", 16_000): -512}
DELAY |= {("m4a", 44_100): 0, ("alac", 44_100): 0, ("aac", 44_100): 1024, ("wma", 44_100): -2048}
LEAST = {"m4a": 25.0, "aac": 25.0, "wma": 25.0, "alac": 80.0}  # dB


def snr(clean: np.ndarray, decoded: np.ndarray) -> float:
    n = min(clean.shape[1], decoded.shape[1])
    error = clean[:, :n] - decoded[:, :n]
    return float(10 * np.log10((clean[:, :n] ** 2).sum() / (error**2).sum()))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("suffix", "rate"), DELAY)
def test_what_was_encoded_comes_back_in_its_place(tmp_path: Path, suffix: str, rate: int, channels: int) -> None:
    wav = chirp(3 * rate + 137, rate, channels)
    data = encode(wav, rate, suffix)
    decoded, got = decode(data, None)
    assert got == rate
    assert len(decoded) == channels
    late = DELAY[suffix, rate]
    assert snr(wav[:, max(0, -late) :], decoded.numpy()[:, max(0, late) :]) > LEAST[suffix]
    (tmp_path / "x").write_bytes(data)
    for channel in range(channels):
        one, _ = decode_file(tmp_path / "x", channel)
        assert np.array_equal(one.numpy(), decoded.numpy()[channel : channel + 1])


@pytest.mark.parametrize("samples", [16_000, 15_999, 1024, 1, 5_333])
@pytest.mark.parametrize("suffix", ["m4a", "alac"])
def test_m4a_has_the_very_number_of_samples(suffix: str, samples: int) -> None:
    assert decode(encode(chirp(samples, 16_000), 16_000, suffix), 0)[0].shape == (1, samples)


@pytest.mark.parametrize("suffix", CODECS)
def test_header_tells_no_length(suffix: str, tmp_path: Path) -> None:
    data = encode(chirp(16_000, 16_000), 16_000, suffix)
    (tmp_path / "x").write_bytes(data)
    assert probe_file(data) is None
    assert probe_file(str(tmp_path / "x")) is None


@pytest.mark.parametrize("place", [(0.0, 0.4), (0.3, 1.7), (2.0, 3.0), (4.11, 4.12), (7.5, None), (None, 2.0)])
@pytest.mark.parametrize("suffix", CODECS)
def test_segment_has_the_samples_of_the_whole(
    tmp_path: Path, suffix: str, place: tuple[float | None, float | None]
) -> None:
    data = encode(chirp(8 * 16_000, 16_000), 16_000, suffix)
    (tmp_path / "x").write_bytes(data)
    whole, _ = decode(data, 0)
    start, end = place
    wanted = whole[:, round((start or 0) * 16_000) : round((end or 99) * 16_000)]
    for part in (decode(data, 0, start, end)[0], decode_file(tmp_path / "x", 0, start, end)[0]):
        assert part.shape == wanted.shape
        assert np.abs(part.numpy() - wanted.numpy()).max() < 1e-6


@pytest.mark.parametrize("place", [(1.0, 2.5), (3.0, 4.0), (9.0, 9.5)])
@pytest.mark.parametrize("suffix", CODECS)
def test_segment_outside_of_the_audio_is_an_error(suffix: str, place: tuple[float, float]) -> None:
    data = encode(chirp(2 * 16_000, 16_000), 16_000, suffix)
    with pytest.raises(DataError, match="does not lie inside") as caught:
        decode(data, 0, *place)
    assert caught.value.reason == "bad_segment"


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9, -37])
@pytest.mark.parametrize("suffix", CODECS)
def test_file_that_was_cut_off_is_noticed(tmp_path: Path, suffix: str, cut: float) -> None:
    data = encode(chirp(3 * 16_000, 16_000), 16_000, suffix)
    short = data[: int(cut * len(data)) if cut > 0 else int(cut)]
    (tmp_path / "x").write_bytes(short)
    for read in (lambda: decode(short, 0), lambda: decode_file(tmp_path / "x", 0)):
        with pytest.raises(DataError) as caught:
            read()
        assert caught.value.reason in ("truncated_audio", "bad_audio")


@pytest.mark.parametrize("suffix", ["m4a", "alac"])
def test_titles_may_be_in_any_encoding(suffix: str) -> None:
    data = encode(chirp(16_000, 16_000), 16_000, suffix)
    latin = data.replace(b"Lavf", b"L\xe9vf")  # what FFmpeg calls itself among the titles
    assert latin != data
    assert torch.equal(decode(latin, 0)[0], decode(data, 0)[0])


@pytest.mark.parametrize("cut", [0.3, 0.7, 0.99])
def test_m4a_whose_index_comes_first_is_noticed_by_the_index(cut: float, tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    (tmp_path / "x.m4a").write_bytes(encode(chirp(3 * 16_000, 16_000), 16_000, "m4a"))
    with (
        av.open(str(tmp_path / "x.m4a")) as source,
        av.open(str(tmp_path / "y.m4a"), "w", options={"movflags": "faststart"}) as target,
    ):
        stream = target.add_stream_from_template(source.streams.audio[0])
        for packet in source.demux():
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    data = (tmp_path / "y.m4a").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    assert decode(data, 0)[0].shape == (1, 3 * 16_000)
    with pytest.raises(DataError) as caught:
        decode(data[: int(cut * len(data))], 0)
    assert caught.value.reason == "truncated_audio"


def test_aac_cut_between_two_frames_is_a_sound_shorter_file() -> None:
    """Nothing in the file tells its length: documented, as for mp3."""
    data = encode(chirp(16_000, 16_000), 16_000, "aac")
    starts = [0]
    while starts[-1] < len(data):
        at = starts[-1]
        starts.append(at + ((data[at + 3] & 3) << 11 | data[at + 4] << 3 | data[at + 5] >> 5))
    assert decode(data[: starts[5]], 0)[0].shape == (1, 5 * 1024)


def test_rate_that_changes_within_a_file_is_an_error() -> None:
    data = encode(chirp(16_000, 16_000), 16_000, "aac") + encode(chirp(8_000, 8_000), 8_000, "aac")
    with pytest.raises(DataError, match="changes within the file"):
        decode(data, 0)


def test_aac_behind_an_id3_tag() -> None:
    data = encode(chirp(16_000, 16_000), 16_000, "aac")
    tagged = b"ID3\x04\x00\x00\x00\x00\x01\x00" + bytes(128) + data
    assert sniff(tagged) == "aac"
    assert np.array_equal(decode(tagged, 0)[0].numpy(), decode(data, 0)[0].numpy())


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000])
def test_a_packet_of_zeros_in_wma_is_noticed(rate: int) -> None:
    for seconds in (1, 3):
        data = encode(chirp(seconds * rate, rate), rate, "wma")
        assert decode(data, 0)[0].shape[1] > (seconds - 0.1) * rate
    middle = len(data) // 2
    with pytest.raises(DataError, match=r"its header says 3\.\d+ s, .* could be decoded") as caught:
        decode(data[:middle] + bytes(3_200) + data[middle + 3_200 :], 0)
    assert caught.value.reason == "truncated_audio"


# One table of first bytes, by which names are checked


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
