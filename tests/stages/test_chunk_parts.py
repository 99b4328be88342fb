"""Chunks of long recordings, which are decoded in parts: the same as if they were decoded whole, on any topology, after
kills, and where a part is damaged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from contract import Case, check_cuts, digest, record, some_cuts
from dialogue_files import RATE, listed

import uio_pipes as uio
from uio_pipes.stages.batches import chunk_rows, chunks


def read(path: Path, **options: Any) -> uio.Pipeline:
    return uio.from_moshi(str(path)).decode_audio(longest=45.0, **options)


STATS = {"mean_stat": [80.0] * 8, "var_stat": [700.0] * 8, "frame_num": 10}
KINDS: dict[str, Callable[[Path], uio.Pipeline]] = {
    "waveforms": lambda path: read(path).chunks(7.0, 0.5, 1.25, rows=2),
    "both channels": lambda path: read(path, channel=[0, 1]).chunks(0.7, 0.5, rows=3),
    "features": lambda path: read(path, channel=None).mono().fbank(8).global_cmvn(STATS).chunks(2.0, 0.3, 0.2, rows=2),
    "mfcc": lambda path: read(path, channel=1).mfcc(8, num_ceps=5, low_freq=20.0).chunks(12.5, rows=2),
    "labels": lambda path: (
        read(path).fbank(8).activity(2).turn_end().chunks(1.3, 0.1, rows=3, along=["activity", "turn_end"])
    ),
    "cut before": lambda path: (
        uio.from_moshi(str(path))
        .segments(of="recording", cut_seconds=44.44, texts=None)
        .decode_audio()
        .fbank(8)
        .turn_end()
        .chunks(3.0, 0.3, 0.7, rows=2, along=["turn_end"])
    ),
}


@pytest.mark.parametrize("form", ["flac", "wav"])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_give_what_the_whole_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, form: str) -> None:
    """At most 45 s may be decoded at once: with recordings of up to 100 s, it is not done whole."""
    path = listed(tmp_path, [71.3, 12.0, 100.017, 30.0, 43.21], form)
    graph = KINDS[kind](path).pad(keep=["timeline"])
    loader = uio.Loader(graph)
    parts = [digest(batch) for batch in loader]
    assert loader.stats().failures == 0
    for module in (chunks, chunk_rows):
        monkeypatch.setattr(module, "PART", 1e9)
    stages = tuple(
        type(stage)(channel=stage.channel, longest=None) if stage.name == "decode_audio" else stage
        for stage in graph.stages
    )
    assert [digest(batch) for batch in uio.Loader(uio.Pipeline(stages))] == parts


WHOLE: dict[str, Callable[[uio.Pipeline], uio.Pipeline]] = {
    "dither": lambda graph: graph.fbank(8, dither=0.5),
    "resampled": lambda graph: graph.resample(1_500).fbank(8),
    "a function": lambda graph: graph.map(lambda sample: sample, length="same").fbank(8),
    "a function of the audio": lambda graph: graph.map(lambda sample: sample["wav"] is not None and sample).fbank(8),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_what_needs_the_whole_is_computed_as_a_whole(tmp_path: Path, kind: str) -> None:
    path = listed(tmp_path, [71.3, 33.0])
    graph = WHOLE[kind](uio.from_moshi(str(path)).decode_audio())
    alone = {one["key"]: one["feat"] for one in uio.Loader(graph)}
    rows = list(uio.Loader(graph.chunks(4.0, rows=2).pad()))
    for row, key in enumerate(("R0", "R1")):
        heard = [batch["feats"][row, : batch["chunk_lengths"][row]] for batch in rows]
        assert torch.equal(torch.cat(heard), alone[key])
    narrow = uio.Loader(WHOLE[kind](read(path)).chunks(4.0, rows=2).pad())
    assert {key for batch in narrow for key in batch["keys"]} == {"", "R1"}
    assert narrow.stats().skipped == {"too_long_to_decode": 1}


@pytest.mark.parametrize("options", [{}, {"snapshot_every": 3}, {"lanes": 2}], ids=str)
def test_it_goes_on_exactly_within_a_recording(tmp_path: Path, options: dict[str, Any]) -> None:
    path = listed(tmp_path, [71.3, 12.0, 100.017, 30.0, 64.0], "wav")
    graph = read(path).fbank(8).turn_end().chunks(6.0, 0.3, 0.2, rows=2, along=["turn_end"]).pad()
    recorded = record(Case(graph, options))
    check_cuts(recorded, some_cuts(len(recorded.digests), 12))


def hurt(file: Path, share: float) -> None:
    """Overwrite 50 bytes at a place of a file."""
    data = bytearray(file.read_bytes())
    at = round(len(data) * share)
    data[at : at + 50] = bytes(50)
    file.write_bytes(data)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("features", [True, False])
def test_a_damaged_part_is_counted_and_masked_and_its_row_is_reset_behind_it(
    tmp_path: Path, features: bool, every: int
) -> None:
    """R0 is damaged at 45 s, in its second part of 30 s; R2 in its first part, and without that nothing is taken."""
    path = listed(tmp_path, [98.0, 209.0, 63.0, 39.0])
    hurt(tmp_path / "R0.flac", 0.45)
    hurt(tmp_path / "R2.flac", 0.2)
    graph = read(path).fbank(8) if features else read(path)
    case = Case(graph.chunks(5.0, 0.5, 0.2, rows=2).pad(), {"snapshot_every": every})
    recorded = record(case)
    assert recorded.stats.skipped == {"bad_audio": 2}
    batches = list(case.loader())
    firsts = [batch["keys"][0] for batch in batches]
    assert firsts[:41] == ["R0"] * 6 + [""] * 6 + ["R0"] * 8 + [""] * 13 + ["R3"] * 8, (
        "R2 is masked for as long as it was"
    )
    assert [n for n, batch in enumerate(batches) if batch["reset"][0]] == [0, 12, 33]
    assert [n for n, batch in enumerate(batches) if batch["reset"][1]] == [0], "the other row goes on"
    assert batches[12]["position"][0] == 60 * (100 if features else RATE)
    whole, _ = soundfile.read(tmp_path / "R0.flac", stop=29_000, dtype="float32")
    if not features:
        heard = [batch["pcm"][0, 500 : 500 + 5_000] for batch in batches[:6]]
        assert np.array_equal(np.concatenate(heard)[:29_000], whole[:, 0])
    for cut in {*some_cuts(len(batches)), 6, 9, 11, 12, 13, 20, 24, 33}:
        loader = case.loader(recorded.states[cut])
        assert [digest(batch) for batch in loader] == recorded.digests[cut:], f"after batch {cut}"
        assert loader.stats().skipped == recorded.stats.skipped
    with pytest.raises(uio.DataError, match="R0"):
        list(uio.Loader(case.pipeline, failures="raise"))


def test_a_recording_that_was_cut_off_is_counted_once(tmp_path: Path) -> None:
    for form in ("flac", "wav"):
        path = listed(tmp_path, [100.0, 31.0], form)
        file = tmp_path / f"R0.{form}"
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        loader = uio.Loader(read(path).fbank(8).chunks(5.0, rows=2).pad())
        batches = list(loader)
        assert loader.stats().skipped == {"truncated_audio": 1}
        assert {batch["keys"][0] for batch in batches} == {""}
        assert [batch["keys"][1] for batch in batches if batch["keys"][1]] == ["R1"] * 7
