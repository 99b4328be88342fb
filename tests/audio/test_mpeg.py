"""MP3 files whose header does not tell their length are decoded to their end, and cuts of them are noticed."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from encoded import chirp

from uio_pipes.audio.decode import decode, decode_file
from uio_pipes.audio.lossy import with_length
from uio_pipes.base.errors import DataError
from uio_pipes.tools.data.reading import Utterance
from uio_pipes.tools.data.writing.cutting import cut_recording

RATES = [8_000, 16_000, 22_050, 44_100, 48_000]
SECONDS = 3
ID3 = b"ID3\x04\0\0\0\0\x02\x01" + bytes(257)


def mp3(rate: int, mode: str = "CONSTANT", channels: int = 1, header: bool = True) -> bytes:
    """As libsndfile writes it with LAME, or the same without the first frame, which tells the length."""
    buffer = io.BytesIO()
    samples = np.tile(chirp(rate * SECONDS, rate)[0][:, None], channels)
    loud = np.linspace(0, 1, len(samples))[:, None] ** 4  # so that a variable bitrate varies
    noise = np.random.default_rng(0).standard_normal(samples.shape) * 0.2
    with soundfile.SoundFile(
        buffer, "w", rate, channels, format="MP3", subtype="MPEG_LAYER_III", bitrate_mode=mode, compression_level=0.5
    ) as file:
        file.write(((samples * 0.2 + noise) * loud).astype(np.float32))
    data = buffer.getvalue()
    return data if header else data[first_frame(data) :]


def first_frame(data: bytes) -> int:
    """Return the offset of the first frame of audio: it follows the header's frame, with the same version and rate."""
    same = data[:2] + b"\xff\xff"
    return next(at for at in range(4, len(data)) if data[at : at + 2] == same[:2] and data[at + 2] & 12 == data[2] & 12)


def reason(data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        decode(data, 0)
    return caught.value.reason


@pytest.mark.parametrize("mode", ["CONSTANT", "AVERAGE", "VARIABLE"])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("channels", [1, 2])
def test_a_file_without_a_header_is_decoded_to_its_end(rate: int, mode: str, channels: int, tmp_path: Path) -> None:
    """The samples are those with the header, besides the encoder's padding, of which only the header tells."""
    whole, _ = decode(mp3(rate, mode, channels), None)
    bare = mp3(rate, mode, channels, header=False)
    assert b"Xing" not in bare
    assert b"Info" not in bare
    got, its_rate = decode(bare, None)
    assert its_rate == rate
    assert 0 <= got.shape[1] - whole.shape[1] < 4 * 1152
    half = whole.shape[1] // 2
    shift = next(n for n in range(4 * 1152) if torch.equal(got[:, n + half :][:, :1000], whole[:, half:][:, :1000]))
    assert torch.equal(got[:, shift + half :][:, : half - 1], whole[:, half:][:, : half - 1])
    (tmp_path / "a.mp3").write_bytes(bare)
    assert torch.equal(decode_file(tmp_path / "a.mp3", None)[0], got)


@pytest.mark.parametrize("tagged", [lambda data: ID3 + data, lambda data: data + b"TAG" + bytes(125)])
def test_tags_are_no_audio(tagged: object) -> None:
    bare = mp3(44_100, header=False)
    assert callable(tagged)
    assert torch.equal(decode(tagged(bare), 0)[0], decode(bare, 0)[0])
    assert torch.equal(decode(tagged(mp3(44_100)), 0)[0], decode(mp3(44_100), 0)[0])


def test_segments_are_those_of_the_whole() -> None:
    bare = mp3(44_100, "VARIABLE", header=False)
    whole, _ = decode(bare, 0)
    part, _ = decode(bare, 0, 1.0, 2.5)
    assert torch.allclose(part, whole[:, 44_100:110_250], atol=1e-6)


@pytest.mark.parametrize("form", ["as-is", "wav"])
def test_it_is_packed_whole(form: str, tmp_path: Path) -> None:
    bare = mp3(44_100, "VARIABLE", header=False)
    (tmp_path / "a.mp3").write_bytes(bare)
    (cut,) = cut_recording(str(tmp_path / "a.mp3"), [Utterance("a", str(tmp_path / "a.mp3"), "")], None, form)
    assert abs(cut.frames - 100 * SECONDS) < 12


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("header", [True, False])
def test_a_cut_inside_a_frame_is_truncated(rate: int, header: bool) -> None:
    data = mp3(rate, "VARIABLE", header=header)
    for cut in (len(data) - 1, len(data) - 5, len(data) // 2 + 3):
        if not header and counted_cleanly(data[:cut]):
            cut -= 1  # it was between two frames
        assert reason(data[:cut]) == "truncated_audio"


def counted_cleanly(data: bytes) -> bool:
    try:
        with_length(data)
    except DataError:
        return False
    return True


def test_a_cut_between_two_frames_is_truncated_where_a_header_tells() -> None:
    whole = mp3(16_000, "VARIABLE")
    header, bare = whole[: first_frame(whole)], whole[first_frame(whole) :]
    ends = [at for at in range(100, len(bare)) if counted_cleanly(bare[:at])]
    for end in (ends[-1], ends[40]):
        assert reason(header + bare[:end]) == "truncated_audio"
    vbri = bytearray(len(header))
    vbri[:4], vbri[36:40], vbri[50:54] = header[:4], b"VBRI", (len(ends) + 2).to_bytes(4, "big")
    assert torch.equal(decode(bytes(vbri) + bare, 0)[0], decode(bare, 0)[0])
    assert reason(bytes(vbri) + bare[: ends[40]]) == "truncated_audio"


def test_a_hole_between_frames_is_bad_audio() -> None:
    data = mp3(16_000, header=False)
    half = len(data) // 2
    assert reason(data[:half] + bytes(50) + data[half + 50 :]) == "bad_audio"


def test_recordings_one_behind_another_are_not_dropped_in_silence() -> None:
    data = mp3(16_000)
    assert reason(data + data) == "bad_audio"
    assert reason(data + ID3 + data) == "bad_audio"


def test_what_is_no_mp3_is_left_alone() -> None:
    for data in (b"", b"\xff", b"\xff\xfb", b"RIFF" + bytes(100), b"ID3" + bytes(30), b"\xff\xfb\x00\x00" * 9):
        assert with_length(data) is data


def test_what_is_packed_is_the_same_at_the_borders_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.mp3").write_bytes(mp3(16_000, "VARIABLE"))
    utterances = [Utterance("a", str(tmp_path / "a.mp3"), "x", 0.5, 2.9)]
    (whole,) = cut_recording(str(tmp_path / "a.mp3"), utterances, None, "wav")
    monkeypatch.setattr("uio_pipes.tools.data.writing.cutting.BLOCK", 1000)
    assert cut_recording(str(tmp_path / "a.mp3"), utterances, None, "wav") == [whole]
