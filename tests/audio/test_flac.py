"""Whole FLAC files by dr_flac: the very samples of libsndfile, which also speaks for damaged ones."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from uio_pipes.audio import containers
from uio_pipes.audio import decode as decoding
from uio_pipes.audio.decode import decode, decode_file, decode_flac
from uio_pipes.audio.flac import check_flac
from uio_pipes.base.errors import DataError
from uio_pipes.tools.data.checks import check_whole
from uio_pipes.tools.data.reading import Bad, Utterance
from uio_pipes.tools.data.writing.cutting import cut_recording

pytest.importorskip("miniaudio")


def _file(subtype: str, channels: int, samples: int = 20_000, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(channels).standard_normal((samples, channels)) * 0.2
    soundfile.write(file, noise, rate, format="FLAC", subtype=subtype)
    return file.getvalue()


def _outcome(decoded: Callable[[], tuple[torch.Tensor, int]]) -> object:
    """What is decoded, or the reason of the error."""
    try:
        found, rate = decoded()
    except DataError as error:
        return error.reason
    return rate, found.numpy().tobytes()


def _by_libsndfile(data: bytes, channel: int | None, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, int]:
    with monkeypatch.context() as patched:
        patched.setattr(decoding, "decode_flac", lambda *_: None)
        return decode(data, channel)


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_samples_are_those_of_libsndfile_bit_by_bit(
    subtype: str, channels: int, rate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _file(subtype, channels, rate=rate)
    assert decode_flac(data, 20_000, channels) is not None
    for channel in (None, channels - 1):
        waveform, found = decode(data, channel)
        theirs, _ = _by_libsndfile(data, channel, monkeypatch)
        assert found == rate
        assert waveform.is_contiguous()
        assert torch.equal(waveform, theirs)


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_of_16_bits_stay_as_they_are_where_they_may(subtype: str, channels: int) -> None:
    data = _file(subtype, channels)
    with containers.decoding(None, as_stored=True):
        found: Any = decode(data, channels - 1)[0]
        both: Any = decode(data, None)[0]
    whole, _ = decode(data, channels - 1)
    stored = subtype != "PCM_24"
    assert (isinstance(found, containers.Pcm16), isinstance(both, containers.Pcm16)) == (
        stored,
        stored and channels == 1,
    )
    assert np.array_equal(np.asarray(found, np.float32) / (1 << 15 if stored else 1), whole)


def test_a_file_is_decoded_as_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.flac"
    path.write_bytes(_file("PCM_16", 1))
    whole, _ = decode(path.read_bytes(), 0)
    monkeypatch.setattr(decoding, "_by_library", None)
    assert torch.equal(decode_file(path, 0)[0], whole)


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_a_file_cut_off_is_left_to_libsndfile(cut: float) -> None:
    data = _file("PCM_16", 1)
    cut_off = data[: int(len(data) * cut)]
    assert decode_flac(cut_off, 20_000, 1) is None
    with pytest.raises(DataError) as caught:
        decode(cut_off, 0)
    assert caught.value.reason in ("truncated_audio", "bad_audio")


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_file_gives_what_libsndfile_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(_file("PCM_16", 1))
    for at in rng.integers(42, len(data), 3):
        data[at] ^= int(rng.integers(1, 256))

    assert _outcome(lambda: decode(bytes(data), 0)) == _outcome(lambda: _by_libsndfile(bytes(data), 0, monkeypatch))


@pytest.mark.parametrize("bit", range(64))
def test_no_flipped_bit_of_rate_channels_bits_or_length_is_silent(bit: int, tmp_path: Path) -> None:
    data = bytearray(_file("PCM_16", 2, 30_000))
    data[18 + bit // 8] ^= 128 >> bit % 8
    path = tmp_path / "a.flac"
    path.write_bytes(data)
    for decoded in (
        lambda: decode(bytes(data), 0),
        lambda: decode(bytes(data), 0, 0.5, 1.0),
        lambda: decode_file(path, 0),
        lambda: decode_file(path, 0, 0.5, 1.0),
    ):
        assert _outcome(decoded) in ("bad_audio", "truncated_audio")
    (packed,) = cut_recording(str(path), [Utterance("a", str(path), "", 0.5, 1.0)], None, "wav")
    assert isinstance(packed, Bad)


@pytest.mark.parametrize("samples", [1, 4_096, 20_000, 200_000])
@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
@pytest.mark.parametrize("rate", [8_000, 11_025, 12_345, 96_000])
def test_sound_files_agree_with_their_headers(samples: int, subtype: str, rate: int) -> None:
    data = _file(subtype, 2, samples, rate)
    check_flac(lambda offset, count: data[offset : offset + count], len(data))
    assert list(check_whole(data)) == []
    other = bytearray(data)
    other[30] ^= 1
    assert [found.reason for found in check_whole(bytes(other))] == ["bad_audio"], "its MD5"


@pytest.mark.parametrize("samples", [20_000, 19_999, 90_000])
def test_a_file_behind_another_is_not_dropped_in_silence(samples: int, tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    path.write_bytes(_file("PCM_16", 1) + _file("PCM_16", 1, samples))
    for decoded in (lambda: decode(path.read_bytes(), 0), lambda: decode_file(path, 0)):
        with pytest.raises(DataError, match="several recordings joined, split it") as caught:
            decoded()
        assert caught.value.reason == "bad_audio"
    (packed,) = cut_recording(str(path), [Utterance("a", str(path), "")], None, "as-is")
    assert isinstance(packed, Bad)


def test_absurd_counts_are_not_asked_of_it() -> None:
    assert decode_flac(_file("PCM_16", 1), 1 << 35, 2) is None
