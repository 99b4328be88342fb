"""A recording of many hours in few bytes fills no memory; parts of it can be decoded as ever."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import touchdataset
from encoded import encode

import uio_pipes as uio
from uio_pipes.base.errors import DataError, PipelineError

RATE = 16_000


def audio(form: str, seconds: float = 3.0) -> bytes:
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
    data: Any = audio(form)
    if stored == "file":
        (tmp_path / f"a.{form}").write_bytes(data)
        data = str(tmp_path / f"a.{form}")
    with pytest.raises(DataError, match=r"3 s would be decoded.* the bound is 2 s.*too_long_to_decode|"
                                        r"2 s would be decoded.* the bound is 2 s.*too_long_to_decode"):  # fmt: skip
        decoded({"wav": data}, 2.0)
    assert decoded({"wav": data}, None) == decoded({"wav": data}, 3.5) >= 2.9 * RATE
    assert decoded({"wav": data, "start": 0.5, "end": 2.0}, 2.0) == 1.5 * RATE
    with pytest.raises(DataError, match="too_long_to_decode"):
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
