"""Decoding and probing of real files of every encoding, whole, cut and damaged."""

import io
import struct
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from failing import fails_as
from hypothesis import given, settings
from hypothesis import strategies as st

from uio_pipes.audio.decode import decode, decode_file, probe, probe_file
from uio_pipes.base.errors import DataError
from uio_pipes.io.references import AudioInfo
from uio_pipes.tools.data.reading import Utterance
from uio_pipes.tools.data.writing import cutting
from uio_pipes.tools.data.writing.cutting import Audio, cut_recording

SAMPLES, RATE = 24000, 16000
KINDS = {
    "pcm16": ("WAV", "PCM_16"),
    "pcm16_extensible": ("WAVEX", "PCM_16"),
    "pcm8": ("WAV", "PCM_U8"),
    "pcm24": ("WAV", "PCM_24"),
    "pcm32": ("WAV", "PCM_32"),
    "float": ("WAV", "FLOAT"),
    "float_extensible": ("WAVEX", "FLOAT"),
    "ulaw": ("WAV", "ULAW"),
    "flac": ("FLAC", "PCM_16"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
BY_HEADER = ["pcm16", "pcm16_extensible", "pcm8", "pcm24", "pcm32", "float", "float_extensible", "flac"]


@lru_cache
def encoded(kind: str, channels: int = 1, samples: int = SAMPLES) -> bytes:
    rng = np.random.default_rng(7)
    signal = np.sin(np.arange(samples)[:, None] * (0.1 + np.arange(channels) * 0.05)) * 0.4
    buffer = io.BytesIO()
    container, subtype = KINDS[kind]
    noise = 0.05 * rng.standard_normal(signal.shape)
    soundfile.write(buffer, signal + noise, RATE, format=container, subtype=subtype)
    return buffer.getvalue()


def by_soundfile(data: bytes) -> torch.Tensor:
    return torch.from_numpy(soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)[0].T.copy())


def same(kind: str, got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Bit for bit, but for MP3, whose rounding moves with any seek, and Opus, which converges after one."""
    tolerance = {"mp3": 1e-6, "opus": 0.01}.get(kind, 0.0)
    return got.shape == expected.shape and torch.allclose(got, expected, rtol=0, atol=tolerance)


def outcome(call: Callable[[], object]) -> str:
    """The reason of the DataError that the call raises, or nothing."""
    try:
        call()
    except DataError as error:
        return error.reason
    return ""


def wav(data: bytes, *, size: int | None = None, extra: bytes = b"", tag: int = 1, align: int = 2) -> bytes:
    """A mono 16-bit wav with a chosen data size in its header and chunks between header and data."""
    fmt = b"fmt " + struct.pack("<IHHIIHH", 16, tag, 1, RATE, RATE * 2, align, 16)
    body = b"WAVE" + fmt + extra + b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_decode_equals_soundfile(kind: str, channels: int, tmp_path: Path) -> None:
    data = encoded(kind, channels)
    path = tmp_path / "audio.raw"  # the name must not matter
    path.write_bytes(data)
    expected = by_soundfile(data)
    for function, source in ((decode, data), (decode_file, path)):
        whole, rate = function(source, None)  # type: ignore[operator]
        assert rate == RATE
        assert whole.dtype == torch.float32
        assert same(kind, whole, expected)
        assert torch.equal(whole, function(source, None)[0])  # type: ignore[operator]
        last = channels - 1
        assert same(kind, function(source, last)[0], expected[last:])  # type: ignore[operator]
        part, _ = function(source, last, 0.25, 1.00003)  # type: ignore[operator]
        assert part.is_contiguous()
        assert same(kind, part, expected[last:, 4000:16000])
        assert same(kind, function(source, None, 1.0)[0], expected[:, 16000:])  # type: ignore[operator]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_probes_tell_what_decode_gives(kind: str, channels: int, tmp_path: Path) -> None:
    data = encoded(kind, channels)
    path = tmp_path / "audio"
    path.write_bytes(data)
    info = AudioInfo(SAMPLES, RATE, channels)
    for head in (data[:512], data[:4096], data):
        assert probe(head, len(data)) == (info if kind in BY_HEADER else None)
    for source in (data, path, str(path)):
        assert probe_file(source) == (None if kind == "mp3" else info)


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFF000])
def test_streamed_wav_reaches_to_the_end(size: int) -> None:
    data = wav(b"\1\0" * 1000, size=size)
    assert probe(data[:512], len(data)) == AudioInfo(1000, RATE, 1)
    assert decode(data, 0)[0].tolist() == [[1 / 32768] * 1000]


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT", "ULAW", "GSM610"])
def test_a_wav_that_says_it_holds_nothing_reaches_to_the_end(subtype: str, tmp_path: Path) -> None:
    """As of a program that could not seek back."""
    buffer = io.BytesIO()
    soundfile.write(buffer, np.sin(np.arange(SAMPLES) / 9) / 2, RATE, format="WAV", subtype=subtype)
    sound = buffer.getvalue()
    data = sound.replace(sound[(at := sound.index(b"data")) : at + 8], b"data" + bytes(4))
    expected = decode(sound, 0)[0]
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    for got in (decode(data, 0)[0], decode_file(path, 0)[0]):
        assert torch.equal(got, expected)
    assert torch.equal(decode_file(path, 0, 0.5, 1.0)[0], expected[:, RATE // 2 : RATE])
    planned = probe(data[:4096], len(data)) or probe_file(path)
    assert planned is None or planned.samples == SAMPLES
    (cut,) = cut_recording(str(path), [Utterance("a", str(path), "")], None, "flac")
    assert isinstance(cut, Audio)
    assert decode(cut.data, 0)[0].shape == expected.shape


@pytest.mark.parametrize(
    ("form", "subtype"), [("WAV", "GSM610"), ("WAV", "G721_32"), ("WAV", "NMS_ADPCM_24"), ("AU", "G723_24")]
)
def test_what_cannot_be_sought_is_read_in_order(
    form: str, subtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.sin(np.arange(SAMPLES) / 9) / 2, RATE, format=form, subtype=subtype)
    data, path = buffer.getvalue(), tmp_path / "a"
    path.write_bytes(data)
    expected = by_soundfile(data)
    assert expected.shape[1] >= SAMPLES
    for function, source in ((decode, data), (decode_file, path)):
        assert torch.equal(function(source, 0)[0], expected)  # type: ignore[operator]
        assert torch.equal(function(source, 0, 0.25, 1.0)[0], expected[:, 4_000:16_000])  # type: ignore[operator]
    monkeypatch.setattr(cutting, "BLOCK", 1_000)
    (cut,) = cut_recording(str(path), [Utterance("a", str(path), "", 0.25, 1.0)], None, "flac")
    assert isinstance(cut, Audio)
    assert torch.allclose(decode(cut.data, 0)[0], expected[:, 4_000:16_000], rtol=0, atol=1e-4)


def test_chunks_before_the_data_with_odd_sizes() -> None:
    data = wav(b"\1\0" * 10, extra=b"LIST" + struct.pack("<I", 5) + b"abcde\0")
    assert probe(data, len(data)) == AudioInfo(10, RATE, 1)
    assert torch.equal(decode(data, 0)[0], by_soundfile(data))


def test_header_longer_than_the_head(tmp_path: Path) -> None:
    data = wav(b"\1\0" * 10000, extra=b"LIST" + struct.pack("<I", 6000) + bytes(6000))
    path = tmp_path / "long.wav"
    path.write_bytes(data)
    assert probe(data[:4096], len(data)) is None
    assert probe_file(data) == AudioInfo(10000, RATE, 1)
    assert decode_file(path, 0, 0.1, 0.2)[0].shape == (1, 1600)


def test_odd_byte_at_the_end_is_left_out() -> None:
    data = wav(b"\1\0" * 10 + b"\1")
    assert probe(data, len(data)) == AudioInfo(10, RATE, 1)
    assert decode(data, 0)[0].shape == (1, 10)


def test_flac_of_unknown_length_is_refused() -> None:
    data = bytearray(encoded("flac"))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    assert probe(bytes(data), len(data)) is None
    assert probe_file(bytes(data)) is None
    assert reason(bytes(data)) == "bad_audio"


def reason(data: bytes, channel: int | None = 0, start: float | None = None, end: float | None = None) -> str:
    with pytest.raises(DataError) as caught:
        decode(data, channel, start, end)
    assert caught.value.url == caught.value.member == ""
    return caught.value.reason


@pytest.mark.parametrize("kind", ["pcm16", "float", "flac", "mp3"])
def test_a_file_cut_off(kind: str, tmp_path: Path) -> None:
    data = encoded(kind)
    half = data[: len(data) // 2]
    assert reason(half) in ("truncated_audio", "bad_audio")
    path = tmp_path / "half"
    path.write_bytes(half)
    with pytest.raises(DataError):
        decode_file(path, 0)
    if kind in ("pcm16", "float"):
        assert reason(half) == "truncated_audio"
        with fails_as("truncated_audio"):
            probe(half[:512], len(half))


def test_not_audio(tmp_path: Path) -> None:
    assert reason(b"") == reason(encoded("pcm16", samples=0)) == reason(encoded("flac", samples=0)) == "empty_audio"
    assert reason(b"<html>404</html>" * 50) == "bad_audio"
    assert probe(wav(bytes(100), align=0), 144) is None
    with pytest.raises(DataError, match=r"Format not recognised.*bad_audio"):
        probe_file(b"<html>404</html>")
    path = tmp_path / "page.raw"
    path.write_bytes(b"<html>404</html>")
    with fails_as("bad_audio"):
        probe_file(path)
    with fails_as("missing_file"):
        decode_file(tmp_path / "absent.wav", 0)
    path.write_bytes(b"")
    with fails_as("empty_audio"):
        decode_file(path, 0)


@pytest.mark.parametrize("kind", ["pcm16", "flac"])
def test_segments_and_channels(kind: str) -> None:
    data = encoded(kind)
    assert reason(data, 1) == reason(data, -1) == "no_such_channel"
    for start, end in [(1.0, 1.0), (1.0, 0.5), (-0.1, 1.0), (1.5, None), (1.0, 1.56), (2.0, 3.0), (0.5, 0.50001)]:
        assert reason(data, 0, start, end) == "bad_segment"
    for odd in (float("nan"), float("inf")):
        assert reason(data, 0, 0.0, odd) == reason(data, 0, odd, None) == "bad_segment"
    assert decode(data, 0, 1.0, 1.549)[0].shape == (1, 8000)


@pytest.mark.parametrize("rate", [16_000, 24_000])
def test_a_segment_of_mp3_is_the_same_as_in_the_whole(rate: int) -> None:
    """At a low bit rate, frames use bits of many before them."""
    out, noise = io.BytesIO(), np.random.default_rng(0).normal(0, 0.1, 20 * rate).astype(np.float32)
    with soundfile.SoundFile(
        out, "w", rate, 1, format="MP3", subtype="MPEG_LAYER_III", compression_level=0.9, bitrate_mode="VARIABLE"
    ) as file:
        file.write(noise)
    whole = decode(out.getvalue(), 0)[0]
    for start in np.linspace(0.01, 18, 40):
        segment, first = decode(out.getvalue(), 0, start, start + 1)[0], round(start * rate)
        assert float((segment - whole[:, first : first + segment.shape[1]]).abs().max()) < 1e-6


@settings(deadline=None, max_examples=300)
@given(
    data=st.binary(max_size=300),
    start=st.sampled_from([b"", b"RIFF", b"fLaC\0\0\0\x22", b"OggS", b"ID3", b"\xff\xfb", wav(b"")[:20], wav(b"")]),
    size=st.integers(0, 2**40),
)
def test_any_bytes_raise_nothing_but_data_errors(data: bytes, start: bytes, size: int) -> None:
    bad = ("", "truncated_audio", "bad_audio")  # bad_audio: an absurd rate, too
    assert outcome(lambda: probe(start + data, size)) in bad
    assert outcome(lambda: probe_file(start + data)) in bad
    assert outcome(lambda: decode(start + data, 0)) in (
        "",
        "bad_audio",
        "empty_audio",
        "truncated_audio",
        "too_long_to_decode",
    )


@settings(deadline=None, max_examples=200)
@given(
    kind=st.sampled_from(sorted(KINDS)), at=st.integers(0, 400), value=st.integers(0, 255), keep=st.integers(1, 4000)
)
def test_damaged_files_raise_nothing_but_data_errors(kind: str, at: int, value: int, keep: int) -> None:
    data = bytearray(encoded(kind, samples=1500)[:keep])
    data[at % len(data)] = value
    outcome(lambda: probe(bytes(data), len(data)))
    outcome(lambda: probe_file(bytes(data)))
    outcome(lambda: decode(bytes(data), None, 0.01, 0.05))
