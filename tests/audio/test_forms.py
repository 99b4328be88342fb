"""What a row says of its audio: no header, a channel, several intervals; each compared with the samples themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import uio_pipes as uio
from uio_pipes.audio.forms import ENCODINGS, Headerless, with_form
from uio_pipes.audio.length import Plan, measure
from uio_pipes.audio.recording import Recording, decoded
from uio_pipes.io.local import LocalFile
from uio_pipes.io.references import Ref

RATE = 8000
SAMPLES = (np.sin(np.arange(2 * RATE) / 7) * 0.5 + np.arange(2 * RATE) / (4 * RATE)).astype(np.float32)
STEREO = np.stack([SAMPLES, -SAMPLES], axis=1)
DTYPES = {
    "s16le": "<i2", "s16be": ">i2", "s32le": "<i4", "f32le": "<f4", "s8": "i1", "u8": "u1",
}  # fmt: skip


def raw(encoding: str, samples: Any) -> bytes:
    dtype = np.dtype(DTYPES[encoding])
    if dtype.kind == "f":
        return np.asarray(samples, dtype).tobytes()
    scale = 2.0 ** (8 * dtype.itemsize - 1)
    return np.asarray(np.clip(samples, -0.99, 0.99) * scale + (128 if dtype.kind == "u" else 0), dtype).tobytes()


def decode(fields: dict[str, Any], start: float | None = None, end: float | None = None) -> Any:
    waveform, rate = decoded(fields["wav"], None, start, end)
    assert rate == RATE
    return waveform.numpy()


@pytest.mark.parametrize("encoding", DTYPES)
@pytest.mark.parametrize("where", ["path", "bytes", "reference"])
def test_samples_without_a_header(tmp_path: Path, encoding: str, where: str) -> None:
    data = raw(encoding, STEREO)
    (tmp_path / "a.pcm").write_bytes(b"before" + data if where == "reference" else data)
    wav: Any = {
        "path": str(tmp_path / "a.pcm"),
        "bytes": data,
        "reference": Ref(LocalFile(str(tmp_path / "a.pcm")), 6, len(data)),
    }[where]
    given = {"wav": wav, "encoding": encoding, "sample_rate": str(RATE), "channels": 2}
    fields = with_form(dict(given))
    assert "encoding" not in fields
    assert measure(fields) == Plan(2 * RATE, RATE)
    wanted = np.clip(STEREO, -0.99, 0.99).T if encoding != "f32le" else STEREO.T
    close = {"s8": 1 / 64, "u8": 1 / 64}.get(encoding, 1e-4)
    assert np.allclose(decode(fields), wanted, atol=close)
    assert np.array_equal(decode(fields, 0.5, 1.25), decode(fields)[:, RATE // 2 : RATE * 5 // 4])
    second = with_form({**given, "channel": 1})
    assert np.array_equal(decode(second), decode(fields)[1:])
    assert measure(second) == Plan(2 * RATE, RATE)


@pytest.mark.parametrize("where", ["path", "bytes"])
def test_samples_that_end_within_one_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(Headerless, "warned", False)
    path, data = tmp_path / "a.pcm", raw("s16le", STEREO)
    path.write_bytes(data + b"1")
    said = {"encoding": "s16le", "sample_rate": RATE, "channels": 2}
    for _ in range(2):
        fields = with_form({"wav": str(path) if where == "path" else path.read_bytes(), **said})
        assert measure(fields) == Plan(2 * RATE, RATE)
        assert decode(fields).shape == (2, 2 * RATE)
    (told,) = caplog.messages
    assert f"{len(data) + 1} bytes, which is not a whole number of samples" in told
    assert (str(path) in told) == (where == "path")


@pytest.mark.parametrize("encoding", ["mulaw", "alaw", "s24le"])
def test_encodings_of_libsndfile(tmp_path: Path, encoding: str) -> None:
    how = ENCODINGS[encoding]
    path = tmp_path / "a.raw"
    soundfile.write(path, SAMPLES * 0.5, RATE, format="RAW", subtype=how.subtype, endian="LITTLE")
    assert path.stat().st_size == len(SAMPLES) * how.size
    fields = with_form({"wav": str(path), "encoding": encoding, "sample_rate": RATE})
    assert np.allclose(decode(fields)[0], SAMPLES * 0.5, atol=0.02)


@pytest.mark.parametrize("form", ["flac", "wav", "ogg"])
def test_channels_and_intervals(tmp_path: Path, form: str) -> None:
    path = str(tmp_path / f"a.{form}")
    soundfile.write(path, STEREO * 0.5, RATE)
    whole = decode({"wav": path})
    one = with_form({"wav": path, "channel": 1})
    assert np.array_equal(decode(one), whole[1:])
    assert measure(one) == Plan(2 * RATE, RATE)
    for same in ("1", 1.0, "1.0", [1.0]):  # of a column with gaps
        assert np.array_equal(decode(with_form({"wav": path, "channel": same})), decode(one))
    both = with_form({"wav": path, "channel": [1, 0]})
    assert np.array_equal(decode(both), whole)
    joined = with_form({"wav": path, "channel": 1, "intervals": "[[0.25, 0.5], (1, 1.5)]", "start": 0.25, "end": 1.5})
    assert joined.keys() == {"wav", "channel"}
    wanted = np.concatenate([whole[1:, RATE // 4 : RATE // 2], whole[1:, RATE : RATE * 3 // 2]], axis=1)
    assert np.allclose(decode(joined), wanted, atol=1e-4)
    plan = measure(joined)
    assert plan is not None
    assert 0.75 <= plan.samples / plan.sample_rate < 0.751
    assert np.array_equal(decode(joined, 0.25, 0.5), decode(joined)[:, RATE // 4 : RATE // 2])


def test_what_does_not_describe_audio_stays() -> None:
    for fields in (
        {"wav": "a.wav", "encoding": "PCM_S", "channel": None, "intervals": None},
        {"txt": "a", "channel": 1},
    ):
        assert with_form(dict(fields)) == fields


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({"encoding": "s16le"}, "missing_sample_rate", "need their sample_rate, a whole number, not None"),
        ({"encoding": "s16le", "sample_rate": "fast"}, "missing_sample_rate", "not 'fast'"),
        ({"encoding": "s16le", "sample_rate": 8, "channels": 1}, "bad_audio", "a sample rate of 8 Hz"),
        ({"encoding": "s16le", "sample_rate": 8000, "channels": 0}, "bad_value", "need their channels"),
        *(
            ({"channel": wrong}, "bad_value", f"not {wrong!r}: correct")
            for wrong in ("left", "R", -1, True, 0.5, [0, "b"])
        ),
        ({"intervals": "[[1]]"}, "bad_segment", "0 <= start < end, not '[[1]]'"),
        ({"intervals": "__import__('os')"}, "bad_segment", "intervals must be"),
        ({"intervals": [[2, 1]]}, "bad_segment", "intervals must be"),
    ],
)
def test_a_row_that_describes_its_audio_wrongly(fields: dict[str, Any], reason: str, message: str) -> None:
    with pytest.raises(uio.DataError, match=reason) as caught:
        with_form({"wav": "a.wav", **fields})
    assert caught.value.reason == reason
    assert message in caught.value.message


def test_an_encoding_that_there_is_not() -> None:
    with pytest.raises(uio.DataError, match=r"one of s16le, .*, alaw, not 's16lee'.*bad_value"):
        with_form({"wav": b"", "encoding": "s16lee"}, "a.pcm")


def test_nist_sphere_by_its_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "SA1.WAV"
    soundfile.write(path, SAMPLES * 0.5, RATE, format="NIST", subtype="PCM_16")
    assert measure({"wav": str(path)}) == Plan(2 * RATE, RATE)
    assert np.allclose(decode({"wav": str(path)}, 0.5, 1.0)[0], SAMPLES[RATE // 2 : RATE] * 0.5, atol=1e-4)
    path.write_bytes(
        path.read_bytes().replace(b"sample_coding -s3 pcm", b"sample_coding -s26 pcm,embedded-shorten-v2.00")
    )
    for look in (measure, decode):
        with pytest.raises(uio.DataError, match="compressed by shorten: unpack it"):
            look({"wav": str(path)})


class Counted(LocalFile):
    """A file that counts the bytes that are read of it."""

    __slots__ = ("read_bytes",)

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.read_bytes = 0

    def read_upto(self, offset: int, size: int) -> bytes:
        data = super().read_upto(offset, size)
        self.read_bytes += len(data)
        return data


class Packed(Ref):
    """Bytes that are compressed where they are: parts of them cost as much as all."""

    early = False  # type: ignore[misc]


@pytest.mark.parametrize(("form", "kind"), [("flac", Ref), ("mp3", Ref), ("ogg", Ref), ("wav", Packed)])
def test_neighbouring_segments_read_their_recording_once(tmp_path: Path, form: str, kind: type[Ref]) -> None:
    path = tmp_path / f"a.{form}"
    soundfile.write(path, np.tile(STEREO * 0.5, (20, 1)), RATE)
    size, file = path.stat().st_size, Counted(str(path))
    whole = decode({"wav": kind(file, 0, size)})
    before = file.read_bytes
    for start in np.arange(0, 30, 0.5):
        found = decode({"wav": kind(file, 0, size)}, float(start), float(start) + 1)
        first = round(start * RATE)
        late = RATE // 2 if form == "mp3" else 0  # libsndfile's first samples after a seek are others
        assert np.allclose(found[:, late:], whole[:, first + late : first + RATE], atol=1e-5)
    assert file.read_bytes - before < size + 60 * 5000


def test_a_recording_decodes_itself() -> None:
    fields = with_form({"wav": raw("s16le", SAMPLES), "encoding": "s16le", "sample_rate": RATE})
    assert isinstance(fields["wav"], Recording)
    (tmp := fields["wav"]).read()
    assert soundfile.info(__import__("io").BytesIO(tmp.read())).frames == len(SAMPLES)
