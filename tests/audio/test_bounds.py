"""Rates, channels, lengths and resampling filters have bounds, whatever says that they are larger."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import touchdataset
from encoded import encode
from failing import fails_as
from helpers_bad import audio, run
from ogg_files import join, ogg, pages

import uio_pipes as uio
from uio_pipes.audio.decode import decode, decode_file, probe, probe_file
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.dsp.resample import resample
from uio_pipes.tools.data.reading import Bad, Utterance
from uio_pipes.tools.data.writing.cutting import cut_recording

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
        assert isinstance(cut, Bad)
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
    touchdataset.write(
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


# A recording of many hours in few bytes fills no memory; parts of it can be decoded as ever


RATE = 16_000


def stored_as(form: str, seconds: float = 3.0) -> bytes:
    wav = np.linspace(-0.5, 0.5, round(seconds * RATE), dtype=np.float32)
    if form in ("m4a", "aac", "wma"):
        pytest.importorskip("av")
        return encode(wav[None], RATE, form)
    buffer = io.BytesIO()
    kinds: dict[str, Any] = {"float": {"format": "WAV", "subtype": "FLOAT"}, "wav": {"format": "WAV"}}
    soundfile.write(buffer, wav, RATE, **kinds.get(form, {"format": form.upper()}))
    return buffer.getvalue()


def decoded(fields: dict[str, Any], longest: float | None) -> int:
    pipeline = uio.from_iterable([{"key": "a", **fields}]).decode_audio(longest=longest).batch(1)
    (batch,) = uio.Loader(pipeline, failures="raise")
    return int(batch[0]["wav"].shape[1])


@pytest.mark.parametrize("form", ["wav", "float", "flac", "ogg", "mp3", "m4a", "aac", "wma"])
@pytest.mark.parametrize("stored", ["bytes", "file"])
def test_what_is_too_long_is_not_decoded_but_parts_of_it_are(form: str, stored: str, tmp_path: Path) -> None:
    data: Any = stored_as(form)
    if stored == "file":
        (tmp_path / f"a.{form}").write_bytes(data)
        data = str(tmp_path / f"a.{form}")
    with pytest.raises(DataError, match=r"[23] s of audio to decode, above the limit of 2 s.*too_long_to_decode"):
        decoded({"wav": data}, 2.0)
    assert decoded({"wav": data}, None) == decoded({"wav": data}, 3.5) >= 2.9 * RATE
    assert decoded({"wav": data, "start": 0.5, "end": 2.0}, 2.0) == 1.5 * RATE
    with fails_as("too_long_to_decode"):
        decoded({"wav": data, "start": 0.5, "end": 2.9}, 2.0)


def test_samples_of_an_index_have_the_bound_too(tmp_path: Path) -> None:
    folder = touchdataset.write(tmp_path / "touch", touchdataset.speech(3, seconds=(1.5, 1.5)))
    loader = uio.Loader(
        uio.from_indexed(str(folder)).decode_audio(longest=1.0).batch(1), failures=uio.Failures(max_failures=99)
    )
    with pytest.raises(uio.UioError, match="too_long_to_decode"):
        list(loader)


def test_an_hour_is_the_default_bound(tmp_path: Path) -> None:
    rate, path = 1000, tmp_path / "long.flac"
    with soundfile.SoundFile(path, "w", rate, 1, "PCM_16") as file:
        file.write(np.zeros(3601 * rate, np.int16))
    assert path.stat().st_size < 1 << 20
    entries = [{"key": "a", "wav": str(path)}, {"key": "b", "wav": str(path), "start": 10, "end": 11}]
    loader = uio.Loader(uio.from_iterable(entries).decode_audio().batch(2))
    assert [s["key"] for batch in loader for s in batch] == ["b"]
    assert loader.stats().skipped == {"too_long_to_decode": 1}


def test_it_is_in_fingerprints_and_checked() -> None:
    plain = uio.from_iterable([])
    assert plain.decode_audio().fingerprint() == plain.decode_audio(longest=3600.0).fingerprint()
    assert plain.decode_audio().fingerprint() != plain.decode_audio(longest=None).fingerprint()
    with pytest.raises(PipelineError, match="longest must be above 0"):
        plain.decode_audio(longest=0)
