"""Features in Kaldi's arks: every form, lengths from headers alone, nothing taken for what it is not."""

import pickle
import struct
from pathlib import Path
from typing import Any

import kaldi_data
import kaldiio
import numpy as np
import pytest
import soundfile
from corpus import wav_bytes
from kaldi_data import write

import uio_pipes as uio
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.io.local import LocalFile
from uio_pipes.sources.kaldi.ark import ArkMatrix, Pointer, ark_audio, parse_pointer

FORMS = [None, 1, 2, 3, 4, 5, 6, 7]  # of kaldiio's compression methods; None: floats


class Counted(LocalFile):
    """A file that remembers how much of it was read."""

    __slots__ = ("bytes",)

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.bytes = 0

    def read_upto(self, offset: int, size: int) -> bytes:
        self.bytes += size
        return super().read_upto(offset, size)


def samples(pipeline: uio.Pipeline) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    loader = uio.Loader(pipeline.batch(1))
    found = {sample["key"]: np.asarray(sample["feat"]) for batch in loader for sample in batch}
    return found, loader.stats().skipped


def ark(path: Path, array: np.ndarray, **options: Any) -> ArkMatrix:
    kaldiio.save_ark(str(path), {"K": array}, **options)
    return ArkMatrix(Counted(str(path)), Pointer(str(path), 2))


@pytest.mark.parametrize("method", FORMS)
def test_every_form_is_what_kaldiio_reads_in_float32(method: int | None, tmp_path: Path) -> None:
    kaldi_data.feats(tmp_path, 5, compression=method)
    found, skipped = samples(uio.from_kaldi(tmp_path))
    assert skipped == {}
    for key, array in kaldiio.load_scp(str(tmp_path / "feats.scp")).items():
        np.testing.assert_array_equal(found[key], array)
        assert found[key].dtype == np.float32


def test_doubles_become_floats(tmp_path: Path) -> None:
    array = np.random.default_rng(0).standard_normal((7, 3))
    np.testing.assert_array_equal(ark(tmp_path / "a.ark", array).load(), array.astype(np.float32))


@pytest.mark.parametrize("method", FORMS)
def test_the_length_takes_a_header_and_no_more(method: int | None, tmp_path: Path) -> None:
    matrix = ark(
        tmp_path / "a.ark", np.random.default_rng(0).random((500, 80)).astype(np.float32), compression_method=method
    )
    assert matrix.frames == 500
    assert matrix.file.bytes <= 32  # type: ignore[attr-defined]


def test_utt2num_frames_spares_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = kaldi_data.feats(tmp_path)
    write(tmp_path / "utt2num_frames", {key: str(len(array)) for key, array in arrays.items()})
    table = uio.from_kaldi(tmp_path).stages[0].table()  # type: ignore[attr-defined]
    assert list(table.weights) == [len(array) for array in arrays.values()]
    monkeypatch.setattr(ArkMatrix, "_header", None)
    assert [table.fields(i)["feat"].frames for i in range(12)] == [len(array) for array in arrays.values()]


@pytest.mark.parametrize("method", FORMS)
@pytest.mark.parametrize(("text", "rows", "columns"), [
    ("[0:9]", slice(0, 10), slice(None)), ("[5:5]", slice(5, 6), slice(None)),
    ("[10:21]", slice(10, 20), slice(None)),
    ("[2:7,1:3]", slice(2, 8), slice(1, 4)), ("[:,0:1]", slice(None), slice(0, 2)),
    ("[,2:2]", slice(None), slice(2, 3)),
])  # fmt: skip
def test_ranges_include_their_last_row(
    method: int | None, text: str, rows: slice, columns: slice, tmp_path: Path
) -> None:
    """And may end up to 3 rows behind the matrix, as in Kaldi."""
    whole = ark(
        tmp_path / "a.ark", np.random.default_rng(0).random((20, 4)).astype(np.float32), compression_method=method
    )
    part = ArkMatrix(whole.file, parse_pointer(f"{tmp_path}/a.ark:2{text}"))
    wanted = whole.load()[rows, columns]
    np.testing.assert_array_equal(part.load(), wanted)
    assert part.frames == len(wanted)


def test_of_a_range_only_its_rows_are_read(tmp_path: Path) -> None:
    whole = ark(tmp_path / "a.ark", np.zeros((100_000, 4), np.float32))
    part = ArkMatrix(Counted(whole.file.path), parse_pointer(f"{tmp_path}/a.ark:2[50000:50009]"))
    assert part.load().shape == (10, 4)
    assert part.file.bytes < 300  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["[20:25]", "[0:23]", "[0:9,0:4]"])
def test_ranges_behind_the_matrix_are_errors(text: str, tmp_path: Path) -> None:
    whole = ark(tmp_path / "a.ark", np.zeros((20, 4), np.float32))
    with pytest.raises(DataError, match="wanted") as caught:
        ArkMatrix(whole.file, parse_pointer(f"{tmp_path}/a.ark:2{text}")).load()
    assert caught.value.reason == "bad_range"


@pytest.mark.parametrize("text", ["a.ark:1[3:2]", "a.ark:1[3]", "a.ark:1[1:2,3:4,5:6]", "a.ark:1[1:2:3]"])
def test_what_is_no_range_is_an_error(text: str) -> None:
    with pytest.raises(DataError, match="range of Kaldi's"):
        parse_pointer(text)


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("/a/b.ark:123", Pointer("/a/b.ark", 123)),
        ("s3://b/a.ark:5", Pointer("s3://b/a.ark", 5)),
        ("http://host:8080/a.wav", Pointer("http://host:8080/a.wav")),
        ("/a/take[old].wav", Pointer("/a/take[old].wav")),
        ("a.mat[0:3]", Pointer("a.mat", None, (0, 3))),
    ],
)
def test_pointers(text: str, pointer: Pointer) -> None:
    assert parse_pointer(text) == pointer


BAD = {
    "text_ark": b" [\n 1 2\n 3 4 ]\n" + b" " * 40,
    "bad_features": b"\0BFV \4" + struct.pack("<i", 9) + bytes(60),
    "truncated": b"\0BFM \4" + struct.pack("<i", 1 << 30) + b"\4" + struct.pack("<i", 1 << 30) + bytes(60),
}


@pytest.mark.parametrize("reason", BAD)
def test_what_is_no_matrix_is_counted_by_reason(reason: str, tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path, 3)
    (tmp_path / "bad.ark").write_bytes(BAD[reason])
    with open(tmp_path / "feats.scp", "a") as scp:
        scp.write(f"Z {tmp_path}/bad.ark:0\n")
    found, skipped = samples(uio.from_kaldi(tmp_path / "feats.scp"))
    assert found.keys() == arrays.keys()
    assert skipped == {reason: 1}


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "exploded",))

    kaldi_data.feats(tmp_path, 1)
    (tmp_path / "bad.ark").write_bytes(b"PKL" + pickle.dumps(Bomb()) + bytes(40))
    with open(tmp_path / "feats.scp", "a") as scp:
        scp.write(f"Z {tmp_path}/bad.ark:0\n")
    assert samples(uio.from_kaldi(tmp_path / "feats.scp"))[1] == {"bad_features": 1}
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("keep", [0, 10, 40, 200])
def test_an_ark_that_is_cut_off_is_counted(keep: int, tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path, 3)
    lines = (tmp_path / "feats.scp").read_text().split()
    last = int(lines[-1].rpartition(":")[2])
    data = (tmp_path / "feats.ark").read_bytes()
    (tmp_path / "feats.ark").write_bytes(data[: last + keep])
    found, skipped = samples(uio.from_kaldi(tmp_path))
    assert list(found) == list(arrays)[:2]
    assert skipped == {"truncated": 1}


def test_a_wrong_utt2num_frames_is_counted(tmp_path: Path) -> None:
    arrays = kaldi_data.feats(tmp_path, 3)
    write(tmp_path / "utt2num_frames", {key: "2" if key == "F001" else "99" for key in arrays})
    assert samples(uio.from_kaldi(tmp_path))[1] == {"length_mismatch": 1}


def test_segments_do_not_go_with_features(tmp_path: Path) -> None:
    kaldi_data.feats(tmp_path, 2)
    write(tmp_path / "segments", {"A": "F000 0 1"})
    assert len(samples(uio.from_kaldi(tmp_path))[0]) == 2  # of a folder: those of the recordings
    with pytest.raises(ListError, match="contains features of utterances"):
        samples(uio.from_kaldi(tmp_path / "feats.scp", segments=tmp_path / "segments"))


def test_kaldiios_audio_arks(tmp_path: Path) -> None:
    rate, pcm = 8000, (np.random.default_rng(0).standard_normal(4000) * 3000).astype(np.int16)
    kaldiio.save_ark(
        str(tmp_path / "a.ark"), {"A": (rate, pcm), "B": (rate, pcm[:999])}, scp=str(tmp_path / "wav.scp"),
        write_function="soundfile", write_kwargs={"format": "flac"},
    )  # fmt: skip
    loader = uio.Loader(uio.from_kaldi(tmp_path).decode_audio().sort(2).batch(2))
    batch = next(iter(loader))
    assert [sample["wav"].shape[1] for sample in batch] == [999, 4000]
    np.testing.assert_array_equal(batch[1]["wav"][0].numpy(), pcm.astype(np.float32) / 32768)


def test_wavs_of_kaldiio_in_one_ark_do_not_run_into_each_other(tmp_path: Path) -> None:
    pcm = np.arange(-500, 500, dtype=np.int16)
    kaldiio.save_ark(str(tmp_path / "a.ark"), {"A": (8000, pcm), "B": (8000, pcm[:7])}, scp=str(tmp_path / "wav.scp"))
    for line, length in zip((tmp_path / "wav.scp").read_text().splitlines(), (1000, 7), strict=True):
        ref = ark_audio(LocalFile(str(tmp_path / "a.ark")), int(line.rpartition(":")[2]))
        import io

        assert len(soundfile.read(io.BytesIO(ref.read()))[0]) == length


def test_audio_without_a_size_in_an_ark_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.ark").write_bytes(b"A " + wav_bytes(0)[:4] + b"\xff" * 4 + wav_bytes(0)[8:])
    with pytest.raises(DataError, match="whose size is given") as caught:
        ark_audio(LocalFile(str(tmp_path / "a.ark")), 2)
    assert caught.value.reason == "bad_ark"
