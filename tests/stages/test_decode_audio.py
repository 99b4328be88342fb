"""Decoding through a graph: formats, channels, and plans that equal what is decoded."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from helpers_bad import audio, keys, run, shard

import uio_pipes as uio

FORMATS = {
    "wav": ("WAV", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
SUBTYPES = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"]


def pipeline(root: Path, suffix: str, data: list[bytes]) -> uio.Pipeline:
    parts = [(f"K{i}.{s}", d) for i, x in enumerate(data) for s, d in (("txt", b"t"), (suffix, x))]
    return uio.from_shard_list(shard(root / "x.tar", parts))


def reference(root: Path, data: bytes, suffix: str) -> torch.Tensor:
    path = root / f"reference.{suffix}"
    path.write_bytes(data)
    return torch.from_numpy(soundfile.read(path, dtype="float32", always_2d=True)[0].T.copy())


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("workers", [0, 1])
def test_formats_are_decoded_as_soundfile_does(tmp_path: Path, suffix: str, workers: int) -> None:
    form, subtype = FORMATS[suffix]
    data = [audio(n, i, rate=16_000, form=form, subtype=subtype) for i, n in enumerate((16_000, 5_001))]
    batches, loader = run(pipeline(tmp_path, suffix, data).decode_audio(), failures="raise", num_workers=workers)
    assert keys(batches) == ["K0", "K1"]
    for batch, each in zip(batches, data, strict=True):
        assert batch["wav"].dtype == torch.float32
        assert torch.allclose(batch["wav"], reference(tmp_path, each, suffix), atol=1e-7, rtol=0)
        assert batch["wav"].abs().max() <= 1.5
        assert batch["sample_rate"] == 16_000
    assert loader.stats().utterances == 2


@pytest.mark.parametrize("subtype", SUBTYPES)
@pytest.mark.parametrize("channels", [1, 2])
def test_encodings_of_wav(tmp_path: Path, subtype: str, channels: int) -> None:
    data = audio(1603, 1, channels=channels, subtype=subtype)
    (batch,), _ = run(pipeline(tmp_path, "wav", [data]).decode_audio(), failures="raise")
    assert torch.allclose(batch["wav"], reference(tmp_path, data, "wav")[:1], atol=1e-7)


@pytest.mark.parametrize("suffix", FORMATS)
def test_planned_length_equals_the_real_one(tmp_path: Path, suffix: str) -> None:
    form, subtype = FORMATS[suffix]
    data = [audio(n, rate=16_000, form=form, subtype=subtype) for n in (16_000, 5_001, 9_999)]
    seen: dict[str, Any] = {}

    def look(sample: uio.Sample) -> uio.Sample:
        seen[sample["key"]] = sample.plan
        return sample

    batches, _ = run(pipeline(tmp_path, suffix, data).decode_audio().map(look), failures="raise")
    for batch in batches:
        plan = seen[batch["key"]]
        assert (plan.samples, plan.sample_rate) == (batch["wav"].shape[1], 16_000)


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_can_be_sorted_filtered_and_batched(tmp_path: Path, suffix: str) -> None:
    form, subtype = FORMATS[suffix]
    data = [audio(n, rate=16_000, form=form, subtype=subtype) for n in (16_000, 4_000, 9_000)]
    graph = pipeline(tmp_path, suffix, data).decode_audio().filter(max_frames=90)
    batches, loader = run(graph.sort(3).dynamic_batch(500).pad())
    assert keys(batches) == ["K2", "K1"]
    assert loader.stats().skipped == {"too_long": 1}


def test_what_only_decoding_can_measure_needs_decoding_first(tmp_path: Path) -> None:
    data = [audio(16_000, rate=16_000, form="MP3", subtype="MPEG_LAYER_III")]
    with pytest.raises(uio.PipelineError, match=r"decode_audio\(\) before"):
        run(pipeline(tmp_path, "mp3", data).sort(3).decode_audio())


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg"])
@pytest.mark.parametrize("channel", [0, 1, 2, None])
def test_channel_choice(tmp_path: Path, suffix: str, channel: int | None) -> None:
    form, subtype = FORMATS[suffix]
    data = audio(1600, channels=3, form=form, subtype=subtype)
    (batch,), _ = run(pipeline(tmp_path, suffix, [data]).decode_audio(channel), failures="raise")
    whole = reference(tmp_path, data, suffix)
    assert torch.equal(batch["wav"], whole if channel is None else whole[channel : channel + 1])


def test_missing_channel_is_a_failure_that_says_so(tmp_path: Path) -> None:
    graph = pipeline(tmp_path, "wav", [audio(800), audio(800, channels=2)]).decode_audio(channel=1)
    batches, loader = run(graph)
    assert keys(batches) == ["K1"]
    assert loader.stats().skipped == {"no_such_channel": 1}
    with pytest.raises(uio.DataError, match="channel 1 is wanted, the audio has 1"):
        run(graph, failures="raise")


def test_several_channels_cannot_be_padded_and_the_message_says_what_to_do(tmp_path: Path) -> None:
    graph = pipeline(tmp_path, "wav", [audio(800, channels=2)]).decode_audio(channel=None)
    for stopped in (graph.batch(1).pad(), graph.fbank().batch(1).pad(), graph.resample(16_000).batch(1).pad()):
        with pytest.raises(uio.PipelineError, match="channel"):
            run(stopped)


def test_waveforms_that_a_function_made_pass(tmp_path: Path) -> None:
    def made(sample: uio.Sample) -> dict[str, Any]:
        return {"key": sample["key"], "wav": np.ones((1, 40), np.float32), "sample_rate": 4000}

    batches, _ = run(pipeline(tmp_path, "wav", [audio()]).map(made).decode_audio().batch(1).pad(), failures="raise")
    assert batches[0]["pcm"].tolist() == [[1.0] * 40]


def test_bytes_of_a_waveform_are_decoded_once_where_a_function_touches_it(tmp_path: Path) -> None:
    seen = []

    def touch(sample: uio.Sample) -> uio.Sample:
        seen.append(sample["wav"].shape)
        return sample

    batches, _ = run(pipeline(tmp_path, "wav", [audio(900)]).decode_audio().map(touch).batch(1).pad())
    assert seen == [(1, 900)]
    assert batches[0]["pcm"].shape == (1, 900)
