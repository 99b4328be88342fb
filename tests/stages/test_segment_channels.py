"""Segments, and utterances, of one channel: a tone in each channel of a recording shows which of them was cut out."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import fsspec
import numpy as np
import parquet_corpus
import pytest
import soundfile
import touchdataset

import uio_pipes as uio

RATE = 16_000
HZ = (440, 1300)
SAID = [
    {"id": "left", "start": 0.1, "duration": 0.5, "channel": 0, "text": "l"},
    {"id": "right", "start": 0.6, "duration": 0.5, "channel": 1, "text": "r"},
    {"id": "both", "start": 1.2, "duration": 0.5, "channel": [1, 0], "text": "b"},
    {"id": "any", "start": 1.8, "duration": 0.5, "text": "a"},
    {"id": "eighth", "start": 2.4, "duration": 0.4, "channel": 7, "text": "x"},
]
LINE = {"key": "call", "supervisions": SAID}


def audio(form: str = "WAV", subtype: str | None = None) -> bytes:
    """Three seconds with a tone of ``HZ`` in each channel."""
    times = np.arange(3 * RATE) / RATE
    out = io.BytesIO()
    tones = np.stack([0.3 * np.sin(2 * np.pi * hz * times) for hz in HZ], 1)
    soundfile.write(out, tones, RATE, format=form, subtype=subtype)
    return out.getvalue()


def heard(waveform: Any) -> list[int]:
    """The loudest frequency in each channel."""
    spectrum = np.abs(np.fft.rfft(waveform.numpy()))
    return [min(HZ, key=lambda hz: abs(peak * RATE / waveform.shape[1] - hz)) for peak in spectrum.argmax(1)]


def raw(root: Path, data: bytes, said: Any = SAID) -> uio.Pipeline:
    (root / "call").write_bytes(data)
    (root / "raw.list").write_text(json.dumps({"key": "call", "wav": f"{root}/call", "supervisions": said}))
    return uio.from_raw_list(root / "raw.list")


def remote(root: Path) -> uio.Pipeline:
    fsspec.filesystem("memory").pipe("/channels/call.wav", audio())
    (root / "raw.list").write_text(json.dumps({**LINE, "wav": "memory://channels/call.wav"}))
    return uio.from_raw_list(root / "raw.list")


def tar(root: Path, packed: bool = False) -> uio.Pipeline:
    data = corpus._tar([("call.txt", b"x"), ("call.wav", audio())])
    path = root / ("a.tar.gz" if packed else "a.tar")
    path.write_bytes(gzip.compress(data) if packed else data)
    (root / "said.jsonl").write_text(json.dumps(LINE))
    return uio.from_shard_list(path).overlay(root / "said.jsonl")


def parquet(root: Path) -> uio.Pipeline:
    said = [{**one, "channel": one.get("channel")} for one in SAID if one["id"] != "both"]  # one type in a column
    return uio.from_parquet(
        parquet_corpus.write(root / "a.parquet", [{"id": "call", "audio": audio(), "supervisions": said}])
    )


def nemo(root: Path) -> uio.Pipeline:
    (root / "call.wav").write_bytes(audio())
    (root / "a.json").write_text(json.dumps({**LINE, "audio_filepath": "call.wav", "duration": 3.0, "text": "x"}))
    return uio.from_nemo(root / "a.json")


def piped(root: Path, timed: bool = False) -> uio.Pipeline:
    (root / "call.wav").write_bytes(audio())
    if timed:
        (root / "utt2dur").write_text("call 3.0\n")
    (root / "wav.scp").write_text(f"call cat {root}/call.wav |\n")
    (root / "said.jsonl").write_text(json.dumps(LINE))
    return uio.from_kaldi(root, allow_pipes=True).overlay(root / "said.jsonl")


KINDS: dict[str, Callable[[Path], uio.Pipeline]] = {
    "wav": lambda root: raw(root, audio()),
    "float": lambda root: raw(root, audio(subtype="FLOAT")),
    "flac": lambda root: raw(root, audio("FLAC")),
    "opus": lambda root: raw(root, audio("OGG", "OPUS")),
    "mp3": lambda root: raw(root, audio("MP3")),
    "remote": remote,
    "tar": tar,
    "tar.gz": lambda root: tar(root, packed=True),
    "parquet": parquet,
    "nemo": nemo,
    "pipe": piped,
    "pipe of known length": lambda root: piped(root, timed=True),
    "iterable": lambda root: uio.from_iterable([{**LINE, "wav": audio()}]),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_segment_is_cut_out_of_its_channel(kind: str, tmp_path: Path) -> None:
    graph = KINDS[kind](tmp_path).segments(field="supervisions").decode_audio(channel=None)
    loader = uio.Loader(graph)
    samples = {sample["key"]: sample["wav"] for sample in loader}
    wanted = {"left": [HZ[0]], "right": [HZ[1]], "both": [*HZ], "any": [*HZ]}
    if kind == "parquet":
        del wanted["both"]
    assert {key: heard(waveform) for key, waveform in samples.items()} == wanted
    assert {waveform.shape[1] for waveform in samples.values()} == {RATE // 2}
    assert loader.stats().skipped == {"no_such_channel": 1}, "the file has no channel 7"


def test_the_first_of_the_chosen_channels_is_decoded(tmp_path: Path) -> None:
    samples = uio.Loader(raw(tmp_path, audio()).segments(field="supervisions").decode_audio())
    assert [heard(s["wav"]) for s in samples] == [[HZ[0]], [HZ[1]], [HZ[0]], [HZ[0]]]


def test_the_bits_are_those_of_the_whole(tmp_path: Path) -> None:
    whole, _ = soundfile.read(io.BytesIO(audio()), dtype="float32", always_2d=True)
    found = {
        s["key"]: s["wav"].numpy()
        for s in uio.Loader(raw(tmp_path, audio()).segments(field="supervisions").decode_audio(channel=None))
    }
    np.testing.assert_array_equal(found["right"][0], whole[round(0.6 * RATE) : round(1.1 * RATE), 1])
    np.testing.assert_array_equal(found["both"], whole[round(1.2 * RATE) : round(1.7 * RATE)].T)


def test_a_function_gets_a_file_of_that_channel(tmp_path: Path) -> None:
    """Whoever reads ``wav`` before it is decoded, too, must not get the other speaker."""
    graph = raw(tmp_path, audio()).segments(field="supervisions")
    for sample in uio.Loader(graph):
        read, _ = soundfile.read(
            io.BytesIO(sample["wav"]) if isinstance(sample["wav"], bytes) else sample["wav"], always_2d=True
        )
        assert read.shape[1] == {"left": 1, "right": 1}.get(sample["key"], 2)


def test_segments_of_ones_own_name_a_channel_too(tmp_path: Path) -> None:
    said = [{"end": 1.1, "txt": "r"}, {"duration": 0.5, "text": "r"}, {"end": 1.1, "txt": "r", "channel": "phone"}]
    graph = raw(tmp_path, audio(), [{"start": 0.6, "channel": 1, **one} for one in said]).segments(field="supervisions")
    *numbered, named = uio.Loader(graph.decode_audio())
    assert [heard(sample["wav"]) for sample in numbered] == [[HZ[1]]] * 2
    assert named["channel"] == "phone", "a name is a field"


def test_a_touchdataset_has_no_second_channel(tmp_path: Path) -> None:
    """``uio pack`` keeps the first channel of a telephone call: it must not pass for the second."""
    (samples, fields), *_ = touchdataset.speech(1, RATE, (3.0, 3.0))
    folder = touchdataset.write(tmp_path, [(samples, {**fields, "supervisions": SAID})])
    loader = uio.Loader(uio.from_indexed(folder).segments(field="supervisions").decode_audio())
    assert sorted(s["key"] for s in loader) == ["any", "left"]
    assert loader.stats().skipped == {"no_such_channel": 3}


def test_recordings_need_no_text_if_their_segments_have_one(tmp_path: Path) -> None:
    (samples, fields), *_ = touchdataset.speech(1, RATE, (3.0, 3.0))
    del fields["txt"]
    fields["supervisions"] = SAID[3:4]
    touch = uio.from_indexed(touchdataset.write(tmp_path / "t", [(samples, fields)]))
    (tmp_path / "a.tar").write_bytes(corpus._tar([("call.wav", audio())]))
    (tmp_path / "said.jsonl").write_text(json.dumps(LINE | {"supervisions": SAID[3:4]}))
    shard = uio.from_shard_list(tmp_path / "a.tar").overlay(tmp_path / "said.jsonl")
    for source in (touch, shard, raw(tmp_path, audio(), SAID[3:4])):
        loader = uio.Loader(uio.mix({"only": source.segments(field="supervisions")}))
        assert [s["txt"] for s in loader] == ["a"]
        assert loader.stats().skipped == {}
        loader = uio.Loader(uio.mix({"only": source}).segments(field="supervisions"))
        assert [s["txt"] for s in loader] == ["a"], "the lane tells it through a mix"
        loader = uio.Loader(source)
        with pytest.raises(uio.TooManyFailures):
            list(loader)
        assert loader.stats().skipped == {"missing_text": 1}, "without segments they need one"


# Whole utterances, whose channel a field of each names

SIDES: dict[str, Any] = {"left": 0, "right": "1", "last": 1.0}
ROWS = [{"key": key, "side": side, "txt": "x"} for key, side in SIDES.items()]
NAMED = {"channel": "side"}


def raw_sides(root: Path, fields: dict[str, str] | None) -> uio.Pipeline:
    (root / "call").write_bytes(audio())
    (root / "a.list").write_text("\n".join(json.dumps({**row, "wav": f"{root}/call"}) for row in ROWS))
    return uio.from_raw_list(root / "a.list", fields=fields)


def shard_sides(root: Path, fields: dict[str, str] | None, form: str = "json") -> uio.Pipeline:
    named = [(row["key"], json.dumps(row) if form == "json" else str(row["side"])) for row in ROWS]
    members = [
        (f"{key}.{suffix}", data)
        for key, said in named
        for suffix, data in [("txt", b"x"), ("json" if form == "json" else "side", said.encode()), ("wav", audio())]
    ]
    (root / "a.tar").write_bytes(corpus._tar(members))
    given = {ours: f"json:{theirs}" if form == "json" else theirs for ours, theirs in (fields or {}).items()}
    return uio.from_shard_list(root / "a.tar", fields=given or None)


def parquet_sides(root: Path, fields: dict[str, str] | None) -> uio.Pipeline:
    given = [{**row, "side": str(row["side"]), "wav": audio()} for row in ROWS]
    return uio.from_parquet(parquet_corpus.write(root / "a.parquet", given), fields=fields)


def nemo_sides(root: Path, fields: dict[str, str] | None) -> uio.Pipeline:
    (root / "call.wav").write_bytes(audio())
    rows = [{**row, "audio_filepath": "call.wav", "duration": 3.0, "text": "x"} for row in ROWS]
    (root / "a.json").write_text("\n".join(map(json.dumps, rows)))
    return uio.from_nemo(root / "a.json", fields={"key": "key", **(fields or {})})


SOURCES: dict[str, Callable[[Path, dict[str, str] | None], uio.Pipeline]] = {
    "raw": raw_sides,
    "shard, JSON": shard_sides,
    "shard, a member": lambda root, fields: shard_sides(root, fields, "text"),
    "parquet": parquet_sides,
    "nemo": nemo_sides,
    "iterable": lambda root, fields: uio.from_iterable([{**row, "wav": audio()} for row in ROWS], fields=fields),
}


@pytest.mark.parametrize("kind", list(SOURCES))
def test_a_field_names_the_channel_of_an_utterance(kind: str, tmp_path: Path) -> None:
    graph = SOURCES[kind](tmp_path, NAMED).decode_audio(channel="channel")
    assert {s["key"]: heard(s["wav"]) for s in uio.Loader(graph)} == {
        "left": [HZ[0]],
        "right": [HZ[1]],
        "last": [HZ[1]],
    }


@pytest.mark.parametrize("kind", list(SOURCES))
def test_a_channel_that_fields_names_is_not_passed_over(kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind](tmp_path, NAMED)
    with pytest.raises(uio.PipelineError, match=r'names a channel, .*; say decode_audio\(channel="channel"\)'):
        source.decode_audio()
    with pytest.raises(uio.PipelineError, match="names a channel"):
        uio.mix({"a": source, "b": source}, weights=[1, 1]).decode_audio()
    source.decode_audio(channel=1)


def test_a_table_has_chosen_already(tmp_path: Path) -> None:
    (tmp_path / "call").write_bytes(audio())
    rows = [{**row, "wav": str(tmp_path / "call")} for row in ROWS]
    table = uio.from_table(rows, fields={"key": "key", "wav": "wav", "channel": "side"})
    assert [heard(s["wav"]) for s in uio.Loader(table.decode_audio())] == [[HZ[0]], [HZ[1]], [HZ[1]]]
    with pytest.raises(uio.PipelineError, match=r"list_table takes the channel that a row names.*; leave channel out"):
        table.decode_audio(channel="channel")
    by_side = uio.from_table(rows, fields={"key": "key", "wav": "wav", "side": "side"}).decode_audio(channel="side")
    assert [heard(s["wav"]) for s in uio.Loader(by_side)] == [[HZ[0]], [HZ[1]], [HZ[1]]]


@pytest.mark.parametrize(
    ("side", "reason"),
    [(7, "no_such_channel"), ("left", "bad_value"), (None, "bad_value"), ([0, 7], "no_such_channel")],
)
@pytest.mark.parametrize("samples", [False, True])
def test_a_channel_that_is_none_is_counted(side: Any, reason: str, samples: bool) -> None:
    wav = np.zeros((2, 400), np.float32) if samples else audio()
    more = {"sample_rate": RATE} if samples else {}
    graph = uio.from_iterable([{"key": "a", "wav": wav, "side": one, **more} for one in (side, [1, 0])])
    loader = uio.Loader(graph.decode_audio(channel="side"))
    assert [len(s["wav"]) for s in loader] == [2]
    assert loader.stats().skipped == {reason: 1}


def test_several_channels_that_a_field_names_can_be_averaged() -> None:
    graph = uio.from_iterable([{"key": "a", "wav": audio(), "side": [0, 1]}]).decode_audio(channel="side")
    (both,), (mean,) = uio.Loader(graph), uio.Loader(graph.mono())
    np.testing.assert_allclose(mean["wav"].numpy(), both["wav"].numpy().mean(0, keepdims=True), atol=1e-6)
