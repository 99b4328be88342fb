"""TouchDatasets: the layout byte for byte, in true random order, and what is wrong with damaged ones."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import touchdataset
from contract import keys_of
from converting import convert
from helpers_bad import counted as run

import uio_pipes as uio
from uio_pipes.formats.touchdataset import IndexedFile
from uio_pipes.io.local import LocalFile

COUNT = 37


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return touchdataset.write(tmp_path_factory.mktemp("touch") / "a", touchdataset.speech(COUNT))


@pytest.fixture(scope="module")
def two_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data list of two folders."""
    root = tmp_path_factory.mktemp("two")
    utterances = touchdataset.speech(30, seed=1)
    touchdataset.write(root / "000000000", utterances[:11])
    touchdataset.write(root / "000000001", utterances[11:])
    path = root / "data.list"
    path.write_text(f"# two\n{root}/000000000 audio+metainfo\n\n{root}/000000001 audio+metainfo\n")
    return path


def _cut(sample: uio.Sample) -> uio.Sample:
    sample["start"], sample["end"] = 0.05, 0.15
    return sample


def test_samples_and_metadata_are_those_of_the_layout(folder: Path) -> None:
    made, _ = run(uio.from_indexed(folder).decode_audio())
    assert len(made) == COUNT
    for (samples, fields), sample in zip(touchdataset.speech(COUNT), made, strict=True):
        assert torch.equal(sample["wav"], torch.from_numpy(samples.astype(np.float32) / 32768)[None])
        assert {k: v for k, v in sample.items() if k != "wav"} == {k: v for k, v in fields.items() if k != "wav"}


@pytest.mark.parametrize("name", list(touchdataset.CODES))
def test_every_dtype_is_read(name: str, tmp_path: Path) -> None:
    (samples, fields), dtype = touchdataset.speech(1)[0], np.dtype(name)
    scale = samples.astype(np.float64) / 32768
    if dtype.kind in "iu":
        half = 2.0 ** (8 * dtype.itemsize - 1)
        stored = np.round(scale * half + (half if dtype.kind == "u" else 0)).astype(dtype)
        expected = (stored.astype(np.float64) - (half if dtype.kind == "u" else 0)) / half
    else:
        stored = expected = scale.astype(dtype)
    touchdataset.write(tmp_path, [(stored, fields)])
    (sample,), _ = run(uio.from_indexed(tmp_path).decode_audio())
    assert sample["wav"].dtype == torch.float32
    np.testing.assert_allclose(sample["wav"][0].numpy(), expected, rtol=0, atol=1e-7)
    (as_file,), _ = run(uio.from_indexed(tmp_path).map(lambda s: dict(s)).decode_audio())
    assert torch.equal(as_file["wav"], sample["wav"]), "a function that wants a file gets a wav file"


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_samples_that_are_no_numbers_are_counted_and_not_converted(name: str, tmp_path: Path) -> None:
    utterances = [((samples / 32768).astype(name), fields) for samples, fields in touchdataset.speech(3)]
    utterances[1][0][5] = np.nan
    folder = touchdataset.write(tmp_path / "a", utterances)
    made, stats = run(uio.from_indexed(folder).decode_audio())
    assert (len(made), stats.skipped) == (2, {"nan_audio": 1})
    assert convert(str(folder), str(tmp_path / "out")).failed == {"nan_audio": 1}


def test_items_in_any_order_and_documents_of_several(tmp_path: Path) -> None:
    utterances = touchdataset.speech(5)
    touchdataset.write(tmp_path, utterances)
    items = [samples for samples, _ in utterances]
    offsets = np.cumsum([0, *(i.nbytes for i in reversed(items))])[:-1][::-1].tolist()
    touchdataset.write_pair(tmp_path / "audio", items, offsets, bounds=3)
    made, _ = run(uio.from_indexed(tmp_path).decode_audio())
    for (samples, _), sample in zip(utterances, made, strict=True):
        assert torch.equal(sample["wav"][0], torch.from_numpy(samples.astype(np.float32) / 32768))


def test_spans_are_those_of_the_index(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    items = [np.zeros(n, np.int16) for n in rng.integers(0, 9, 300)]
    touchdataset.write_pair(tmp_path / "audio", items)
    starts = np.cumsum([0, *(i.nbytes for i in items)])
    file = IndexedFile(f"{tmp_path}/audio")
    assert [file.span(n) for n in range(300)] == [(int(starts[n]), items[n].nbytes) for n in range(300)]


@pytest.mark.parametrize("form", ["list", "url", "glob", "several", "braces", "no_second_word"])
def test_folders_are_named_in_any_way(form: str, two_folders: Path, tmp_path: Path) -> None:
    root = two_folders.parent
    plain = tmp_path / "plain.list"
    plain.write_text(f"{root}/000000000\t audio+metainfo\n{root}/000000001/\n")
    named: dict[str, Any] = {
        "list": two_folders, "url": f"file://{two_folders}", "glob": f"{root}/0*",
        "several": [root / "000000000", root / "000000001"],
        "braces": f"{root}/00000000{{0,1}}", "no_second_word": plain,
    }  # fmt: skip
    made, _ = run(uio.from_indexed(named[form]))
    assert [s["key"] for s in made] == [f"T{i:04d}" for i in range(30)]


def test_another_metainfo_is_read_where_it_is_named(folder: Path, tmp_path: Path) -> None:
    utterances = touchdataset.speech(4)
    touchdataset.write(tmp_path / "d", utterances)
    touchdataset.write(tmp_path / "d", [(s, f | {"txt": "new"}) for s, f in utterances], "metainfo_v2")
    (tmp_path / "a.list").write_text(f"{tmp_path}/d audio+metainfo_v2\n")
    (tmp_path / "b.list").write_text(f"{tmp_path}/d audio+metainfo\n")
    texts = lambda p: [s["txt"] for s in run(p)[0]]  # noqa: E731
    assert texts(uio.from_indexed(tmp_path / "a.list")) == ["new"] * 4
    assert texts(uio.from_indexed(tmp_path / "b.list")) == [f"文{i}" for i in range(4)]
    for where in (tmp_path / "d", tmp_path / "b.list"):
        assert texts(uio.from_indexed(where, metainfo="metainfo_v2")) == ["new"] * 4


def test_only_the_bytes_of_a_segment_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[str, int]] = []
    read = LocalFile.read_upto

    def spy(self: LocalFile, offset: int, size: int) -> bytes:
        reads.append((os.path.basename(self.path), size))
        return read(self, offset, size)

    monkeypatch.setattr(LocalFile, "read_upto", spy)
    cut = uio.from_indexed(folder).map(_cut).decode_audio()
    made, _ = run(cut)
    assert {size for name, size in reads if name == "audio.bin"} == {1600}
    for (samples, _), sample in zip(touchdataset.speech(COUNT), made, strict=True):
        assert torch.equal(sample["wav"][0], torch.from_numpy(samples[400:1200].astype(np.float32) / 32768))


# Damage


def damaged(tmp_path: Path) -> Path:
    return touchdataset.write(tmp_path / "d", touchdataset.speech(5))


def change(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(bytes(content))


def flip(path: Path, at: int, bits: int) -> None:
    change(path, at, bytes([path.read_bytes()[at] ^ bits]))


def move(path: Path, item: int, by: int | None) -> None:
    """Another offset for one of the five items; None: the offset of the one before it."""
    at = 34 + 5 * 4 + 8 * item
    there = struct.unpack_from("<q", path.read_bytes(), at if by is not None else at - 8)[0]
    change(path, at, struct.pack("<q", there + (by or 0)))


def spread(folder: Path, first: int = 0, gap: int = 0) -> None:
    """The audio again, with bytes between items that belong to none."""
    items = [samples for samples, _ in touchdataset.speech(5)]
    offsets = np.cumsum([first, *(i.nbytes + gap for i in items)])[:-1].tolist()
    touchdataset.write_pair(folder / "audio", items, offsets)


FOLDERS = {
    "bin_cut": (lambda d: os.truncate(d / "audio.bin", 3000), r"audio\.bin ends after 3000 bytes.*fetch it again"),
    "bin_longer": (
        lambda d: (d / "audio.bin").open("ab").write(b"more"), r"audio\.bin has .* do not belong together",
    ),
    "no_bin": (lambda d: (d / "metainfo.bin").unlink(), r"metainfo\.bin: no such file"),
    "no_idx": (lambda d: (d / "audio.idx").unlink(), r"audio\.idx: no such file"),
    "empty_idx": (lambda d: (d / "audio.idx").write_bytes(b""), "not the index of a TouchDataset"),
    "magic": (lambda d: change(d / "audio.idx", 0, b"PK"), "not the index of a TouchDataset"),
    "header_cut": (lambda d: os.truncate(d / "audio.idx", 20), "ends within its header"),
    "version": (lambda d: change(d / "audio.idx", 9, b"\2"), "version 2"),
    "dtype": (lambda d: change(d / "audio.idx", 17, b"\x63"), "dtype code 99"),
    "count_absurd": (lambda d: change(d / "audio.idx", 18, b"\xff" * 8), "declares 18446744073709551615 items"),
    "idx_cut": (lambda d: os.truncate(d / "audio.idx", 60), "declares 5 items"),
    "negative_length": (lambda d: change(d / "audio.idx", 34, struct.pack("<i", -5)), "item 0 has length -5"),
    "negative_offset": (lambda d: change(d / "audio.idx", 34 + 20 + 8, struct.pack("<q", -2)), "item 1 .* offset -2"),
    "offset_overflows": (
        lambda d: change(d / "audio.idx", 34 + 20 + 8, struct.pack("<q", 2**63 - 1)), "audio",
    ),
    "gap_before_all": (lambda d: spread(d, first=7), "item 0 begins at byte 7, and what is before it from byte 0 on"),
    "gaps": (lambda d: spread(d, gap=3), r"audio\.idx: item 1 .* belongs to no item: .*without gaps.*uio convert"),
    "offset_moved": (lambda d: flip(d / "audio.idx", 34 + 20 + 16, 1), "item 2 begins at .* belongs to no item"),
    "overlap": (lambda d: move(d / "audio.idx", 2, -2), r"audio\.idx: item 2 begins at .* item 1 before it ends at"),
    "length_less": (lambda d: change(d / "audio.idx", 34, struct.pack("<i", 1)), "item 1 begins .* from byte 2 on"),
    "twice": (lambda d: move(d / "metainfo.idx", 1, None), r"metainfo\.idx: item [01] begins at byte 0, and item [01]"),
    "first_bound": (lambda d: flip(d / "audio.idx", 34 + 60, 1), r"audio\.idx: bound 0 of 6 .* is item 1, "),
    "bound_back": (lambda d: flip(d / "audio.idx", 34 + 60 + 16, 4), r"bound 3 of 6 .* is item 3, "),
    "last_bound": (lambda d: flip(d / "audio.idx", 34 + 60 + 40, 2), r"bound 5 of 6 .* is item 7, .*of items, 5"),
    "other_count": (
        lambda d: touchdataset.write_pair(d / "metainfo", [np.zeros(9, np.uint8)] * 4), "5 utterances, metainfo.idx 4",
    ),
    "no_utterance": (lambda d: touchdataset.write(d, []), "no utterance"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(FOLDERS))
def test_a_folder_that_cannot_be_used_is_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    folder = damaged(tmp_path)
    hurt, message = FOLDERS[name]
    hurt(folder)
    with pytest.raises(uio.ListError, match=message) as raised:
        run(uio.from_indexed(folder))
    assert str(folder) in str(raised.value)


LISTS = {
    "tokens": ("{d} texttoken", r"texttoken\.idx: no such file"),
    "no_video": ("{d} audio+video+metainfo", r"video\.idx: no such file"),
    "audio_alone": ("{d} audio", "line 1 has 'audio'; exactly one of the names must be metadata"),
    "audio_tokens": ("{d} audio+texttoken", "exactly one of the names must be metadata"),
    "two_metainfo": ("{d} audio+metainfo+metainfo_v2", "exactly one"),
    "none_of_three": ("{d} audio+video+depth", "exactly one"),
    "twice": ("{d} audio+metainfo+audio", "line 1 has .* it must list pairs of files, each once"),
    "no_name": ("{d} audio++metainfo", "it must list"),
    "a_field": ("{d} audio+txt+metainfo", "'txt' is a field of its own"),
    "shards": ("a.tar", "line 1 is not a folder"),
    "raw": ('{{"key": "a"}}', "line 1 is not a folder"),
    "nowhere": ("{d}/nowhere audio+metainfo", "nowhere"),
}


@pytest.mark.parametrize("name", list(LISTS))
def test_a_line_that_names_no_folder_is_an_error(name: str, tmp_path: Path) -> None:
    line, message = LISTS[name]
    (tmp_path / "x.list").write_text(line.format(d=damaged(tmp_path)) + "\n")
    with pytest.raises(uio.ListError, match=message):
        run(uio.from_indexed(tmp_path / "x.list"))


METADATA: dict[str, tuple[Any, str]] = {
    "bad_json": (b"{]", "bad_line"),
    "no_object": (b"[1]", "bad_line"),
    "deep": (b"[" * 100_000, "bad_line"),
    "empty_key": ({"key": ""}, "missing_key"),
    "no_rate": ({"sample_rate": None}, "missing_sample_rate"),
    "text_rate": ({"sample_rate": "16k"}, "missing_sample_rate"),
    "rate_0": ({"sample_rate": 0}, "missing_sample_rate"),
    "bad_segment": ({"start": 3, "end": 1}, "bad_segment"),
}


@pytest.mark.parametrize("rate", ["8000", 8000.0])
def test_a_sample_rate_and_times_may_be_text_and_a_wrong_duration_does_not_matter(rate: Any, tmp_path: Path) -> None:
    ((samples, fields),) = touchdataset.speech(1)
    told = {"sample_rate": rate, "start": "0.05", "end": "0.15", "duration": 0.01}
    folder = touchdataset.write(tmp_path, [(samples, fields | told)])
    (sample,), stats = run(uio.from_indexed(folder).decode_audio())
    assert (sample["sample_rate"], type(sample["sample_rate"])) == (8000, int)
    assert (sample["start"], sample["end"], sample["wav"].shape) == (0.05, 0.15, (1, 800))
    assert stats.failures == 0


@pytest.mark.parametrize("name", list(METADATA))
def test_a_bad_utterance_is_counted_and_the_others_stay(name: str, tmp_path: Path) -> None:
    utterances = touchdataset.speech(4)
    folder = touchdataset.write(tmp_path, utterances)
    bad, reason = METADATA[name]
    data = bad if isinstance(bad, bytes) else json.dumps(utterances[2][1] | bad).encode()
    texts = [json.dumps(fields).encode() for _, fields in utterances]
    texts[2] = data
    touchdataset.write_pair(folder / "metainfo", [np.frombuffer(t, np.uint8) for t in texts])
    made, stats = run(uio.from_indexed(folder))
    assert [s["key"] for s in made] == ["T0000", "T0001", "T0003"]
    assert stats.skipped == {reason: 1}
    with pytest.raises(uio.DataError, match="metainfo") as raised:
        run(uio.from_indexed(folder), failures="raise")
    assert raised.value.offset == len(texts[0]) + len(texts[1]) or name == "bad_segment"


def test_a_channel_that_is_not_there_is_counted(folder: Path) -> None:
    _, stats = run(uio.from_indexed(folder).decode_audio(channel=1))
    assert stats.skipped == {"no_such_channel": COUNT}
    assert keys_of(run(uio.from_indexed(folder).decode_audio(channel=None).batch(2).pad())[0][0])
