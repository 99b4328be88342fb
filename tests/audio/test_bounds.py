"""Rates, channels and resampling filters have bounds, whatever says that they are larger."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from helpers_bad import audio, run
from ogg_files import join, ogg, pages
from touchdataset import write

import uio_pipes as uio
from uio_pipes.audio.decode import decode, decode_file, probe, probe_file
from uio_pipes.base.errors import DataError
from uio_pipes.dsp.resample import resample
from uio_pipes.tools.data.reading.utterance_lists import Utterance
from uio_pipes.tools.data.writing.cutting import Failure, cut_recording

ABSURD = 4_294_967_291


def wav(rate: int = 16_000, channels: int = 1, samples: int = 32) -> bytes:
    data = b"\1\0" * samples * channels
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * 2 & 0xFFFFFFFF, 2 * channels, 16)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(data))
        + b"WAVEfmt \x10\0\0\0"
        + form
        + b"data"
        + (struct.pack("<I", len(data)) + data)
    )


def flac(rate: int) -> bytes:
    data = bytearray(audio(form="FLAC"))
    (word,) = struct.unpack_from(">Q", data, 18)
    struct.pack_into(">Q", data, 18, word & (1 << 44) - 1 | rate << 44)
    return bytes(data)


def vorbis(rate: int) -> bytes:
    first, *others = pages(ogg(0.5))
    return join([first._replace(body=first.body[:12] + struct.pack("<I", rate) + first.body[16:]), *others])


def of_floats(rate: int) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(100, np.float32), 16_000, format="WAV", subtype="FLOAT")
    data = bytearray(buffer.getvalue())
    struct.pack_into("<I", data, 24, rate)
    return bytes(data)


FILES: dict[str, Callable[[], bytes]] = {
    "wav, 4 GHz": lambda: wav(ABSURD),
    "wav, 0 Hz": lambda: wav(0),
    "wav, 999 Hz": lambda: wav(999),
    "wav, 768,001 Hz": lambda: wav(768_001),
    "wav, 1,025 channels": lambda: wav(channels=1025),
    "float wav, 4 GHz": lambda: of_floats(ABSURD),
    "flac, 1 MHz": lambda: flac(1_000_000),
    "flac, 1 Hz": lambda: flac(1),
    "vorbis, 2 GHz": lambda: vorbis(2_000_000_011),
}


@pytest.mark.parametrize("name", FILES)
def test_absurd_claims_of_a_file_are_bad_audio(name: str, tmp_path: Path) -> None:
    data, path = FILES[name](), tmp_path / "a.bin"
    path.write_bytes(data)
    attempts: list[Callable[[], Any]] = [lambda: decode(data, 0), lambda: decode_file(path, None)]
    for attempt in [*attempts, lambda: probe(data[:4096], len(data)) or probe_file(data)]:
        with pytest.raises(DataError) as caught:
            attempt()
        assert caught.value.reason == "bad_audio"
    for form in ("as-is", "wav"):
        (cut,) = cut_recording(str(path), [Utterance("a", str(path), "")], 8000, form)  # type: ignore[arg-type]
        assert isinstance(cut, Failure)
        assert cut.reason == "bad_audio"
        assert "a.bin" in cut.detail


@pytest.mark.parametrize("rate", [1000, 8000, 768_000])
def test_rates_within_the_bounds_are_fine(rate: int) -> None:
    assert decode(wav(rate), 0)[1] == rate


def test_the_file_and_the_rate_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "fast.wav").write_bytes(wav(ABSURD))
    (tmp_path / "good.wav").write_bytes(wav())
    entries = [{"key": n, "wav": str(tmp_path / f"{n}.wav"), "txt": ""} for n in ("fast", "good")]
    samples, loader = run(uio.from_raw_list(entries).decode_audio().resample(8000))
    assert [s["key"] for s in samples] == ["good"]
    assert loader.stats().skipped == {"bad_audio": 1}
    assert "fast.wav" in caplog.text
    assert "4,294,967,291 Hz" in caplog.text


def test_rates_of_samples_in_memory_and_of_touchdatasets(tmp_path: Path) -> None:
    made = [{"key": f"u{r}", "wav": torch.zeros(1, 400), "sample_rate": r, "txt": ""} for r in (16_000, ABSURD, 5)]
    samples, loader = run(uio.from_iterable(made).decode_audio().resample(8000))
    assert [s["key"] for s in samples] == ["u16000"]
    assert loader.stats().skipped == {"bad_audio": 2}
    write(
        tmp_path / "data",
        [(np.zeros(400, np.int16), {"key": f"u{r}", "txt": "", "sample_rate": r}) for r in (16_000, ABSURD)],
    )
    samples, loader = run(uio.from_indexed(str(tmp_path / "data")).decode_audio().resample(8000))
    assert [s["key"] for s in samples] == ["u16000"]
    assert loader.stats().skipped == {"bad_audio": 1}


@pytest.mark.parametrize(("orig", "new"), [(767_999, 16_001), (16_000, 767_999), (768_000, 767_999), (8000, 192_001)])
def test_a_filter_has_a_bound(orig: int, new: int) -> None:
    with pytest.raises(DataError, match=r"lowest terms needs a filter of .* weights.*ffmpeg") as caught:
        resample(torch.zeros(1, 1000), orig, new)
    assert caught.value.reason == "bad_rate"


@pytest.mark.parametrize(("orig", "new"), [(11_025, 16_000), (44_056, 16_000), (1000, 768_000), (16_001, 16_000)])
def test_odd_rates_that_occur_are_resampled(orig: int, new: int) -> None:
    assert resample(torch.zeros(1, 1000), orig, new).shape[1] == -(-1000 * new // orig)
