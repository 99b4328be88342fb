"""Streams of several recordings: each is worked on by itself, as a stream of its own would be."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from fault_server import serving
from helpers_bad import code_points
from tones import RATE, tone, wav_bytes

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead
from uio_pipes.core.realize import Lengths
from uio_pipes.tools.reports.simulate import simulate

SIZES = [[4000, 9000], [], [12000], [5000, 5000, 8000], [7000]]


def items(sizes: list[list[int]] = SIZES) -> list[dict[str, Any]]:
    """Conversations with none to three recordings."""
    return [
        {"key": f"C{i}", "txt": "abc", "audio": [wav_bytes(tone(size, 10 * i + n)) for n, size in enumerate(each)]}
        for i, each in enumerate(sizes)
    ]


def test_each_becomes_what_a_stream_of_its_own_would() -> None:
    graph = uio.from_iterable(items()).decode_audio(of="audio").resample(8000, of="audio").fbank(20, of="audio")
    alone = uio.from_iterable([{"key": c["key"], "wav": wav} for c in items() for wav in c["audio"]])
    expected = [one["feat"] for one in uio.Loader(alone.decode_audio().resample(8000).fbank(20))]
    made = list(uio.Loader(graph))
    assert [len(one["audio_feat"]) if "audio_feat" in one else 0 for one in made] == [2, 0, 1, 3, 1]
    for ours, theirs in zip((feat for one in made for feat in one.get("audio_feat", [])), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert made[3]["audio_sample_rate"] == [8000, 8000, 8000]


def test_parts_of_recordings_and_one_rate_for_all() -> None:
    given = [*items(), {"key": "P", "audio": [tone(8000, 1), tone(9000, 2)], "audio_sample_rate": RATE}]
    given[0] |= {"audio_start": [0.1, None], "audio_end": [0.2, 0.5]}
    made = list(uio.Loader(uio.from_iterable(given).decode_audio(of="audio")))
    assert [wav.shape[-1] for wav in made[0]["audio"]] == [1600, 8000]
    assert [wav.shape[-1] for wav in made[-1]["audio"]] == [8000, 9000]


def test_planned_lengths_are_those_of_all_and_of_each() -> None:
    seen: list[tuple[int, list[int], float]] = []

    def length(n: Lengths) -> int:
        audio = n["audio"]
        seen.append((audio.frames, [one.frames for one in audio.each], audio.seconds))
        return audio.frames

    graph = uio.from_iterable(items()).decode_audio(of="audio").fbank(8, of="audio")
    batches = graph.filter(length=length, min_length=1).sort(10, length="audio.frames").batch(2).pad()
    made = sum(int(batch["audio_feats_lengths"].sum()) for batch in uio.Loader(batches))
    assert sum(total for total, _, _ in seen) == made
    assert all(total == sum(each) for total, each, _ in seen)
    assert [seconds for _, _, seconds in seen] == [sum(each) / RATE for each in SIZES]


def test_draws_of_each_are_its_own_and_come_again() -> None:
    one = tone(9000, 1)
    given = [{"key": f"C{i}", "audio": [one, one], "audio_sample_rate": RATE} for i in range(6)]
    graph = uio.from_iterable(given).decode_audio(of="audio").speed_perturb([0.9, 1.0, 1.1], of="audio")
    graph = graph.volume_perturb(of="audio")
    gains = [[float(wav.abs().max()) for wav in sample["audio"]] for sample in uio.Loader(graph)]
    assert len({round(gain, 4) for pair in gains for gain in pair}) == 12
    assert [[float(wav.abs().max()) for wav in sample["audio"]] for sample in uio.Loader(graph)] == gains


@pytest.mark.parametrize("count", [1, 3])
def test_waveforms_that_are_decoded_already(count: int) -> None:
    each = [{"audio": [tone(4000, n) for n in range(i)], "audio_sample_rate": [RATE] * i} for i in range(count)]
    given = [{"key": f"K{i}", "label": [1], **one} for i, one in enumerate(each)]
    decoded = uio.from_iterable(given).decode_audio(of="audio")
    for graph in (decoded, decoded.fbank(8, of="audio")):
        batch = next(iter(uio.Loader(graph.batch(3).pad())))
        assert len(batch["keys"]) == count
        assert batch.get("audio_counts", torch.zeros(1)).sum() == sum(range(count))


@pytest.mark.parametrize("layout", ["padded", "ragged"])
def test_rows_of_all_recordings_come_one_after_the_other(layout: str) -> None:
    graph = uio.from_iterable(items()).decode_audio(of="audio").tokenize(code_points)
    for made, name in ((graph, "audio_pcm"), (graph.fbank(8, of="audio"), "audio_feats")):
        batch = next(iter(uio.Loader(made.batch(5).pad(layout=layout))))
        counts = dict(zip(batch["keys"], batch["audio_counts"].tolist(), strict=True))
        assert counts == {f"C{i}": len(each) for i, each in enumerate(SIZES)}
        lengths = batch[f"{name}_lengths"].tolist()
        assert len(lengths) == len(batch[name]) == sum(counts.values())
        assert [len(row) for row in batch["target"]] == [3] * 5
        if name == "audio_pcm":
            assert lengths == [size for key in batch["keys"] for size in SIZES[int(key[1:])]]


def with_places(sample: Any) -> Any:
    sample["label"] = list(range(1, 31))
    sample["audio_places"] = [(3 + 5 * n, 2 + n) for n in range(len(sample["audio"]))]
    return sample


def test_pack_says_where_each_recording_belongs() -> None:
    graph = uio.from_iterable(items()).decode_audio(of="audio").fbank(8, of="audio").map(with_places)
    batch = next(iter(uio.Loader(graph.pack(64, rows=3))))
    assert batch["audio_feats"].shape[0] == batch["audio_feats_lengths"].sum()
    starts = dict(zip(batch["keys"], [0, 30, 64, 94, 128], strict=True))
    expected = [
        [starts[f"C{i}"] + 3 + 5 * n, 2 + n]
        for i in (int(key[1:]) for key in batch["keys"])
        for n in range(len(SIZES[i]))
    ]
    assert batch["audio_feats_places"].tolist() == expected


@pytest.mark.parametrize("extra", [0, 3])
def test_places_are_counted_in_the_tokens_whatever_length_counts(extra: int) -> None:
    graph = uio.from_iterable(items()).decode_audio(of="audio").fbank(8, of="audio").map(with_marks)
    for batch in uio.Loader(graph.pack(70, length=lambda n: n.tokens + extra)):
        tokens = batch["tokens"].reshape(-1)
        marked = torch.zeros_like(tokens)
        for first, count in batch["audio_feats_places"].tolist():
            marked[first : first + count] = 7
        assert torch.equal(marked, torch.where(tokens == 7, 7, 0))


def with_marks(sample: Any) -> Any:
    """As a stage does that leaves places (of 7) for recordings among other tokens."""
    sample["label"], sample["audio_places"] = [1], []
    for n in range(len(sample["audio"])):
        sample["audio_places"].append((len(sample["label"]), 2 + n))
        sample["label"] += [7] * (2 + n) + [1]
    return sample


def test_conversations_without_a_field_of_audio_share_rows_with_others() -> None:
    silent = uio.from_iterable([{"key": "T", "label": [1, 2], "audio_places": []}]).sharding_filter()
    heard = uio.from_iterable(items()).sharding_filter().decode_audio(of="audio").fbank(8, of="audio").map(with_marks)
    batches = list(uio.Loader(uio.mix([heard, silent]).pack(70, rows=2)))
    assert sum(len(batch["audio_feats_places"]) for batch in batches if "audio_feats" in batch) == 7
    assert Counter(key for batch in batches for key in batch["keys"])["T"] == 1


def test_hours_are_those_of_the_recordings() -> None:
    graph = uio.from_iterable(items()).decode_audio(of="audio").map(with_marks)
    loader = uio.Loader(graph.pack(70))
    list(loader)
    hours = sum(map(sum, SIZES)) / RATE / 3600
    assert loader.stats().hours == pytest.approx(hours, rel=0.02)
    assert simulate(graph.pack(70)).hours == pytest.approx(hours, rel=0.02)


def test_places_and_recordings_must_be_equally_many() -> None:
    def less(sample: Any) -> Any:
        sample["label"], sample["audio_places"] = [1, 2, 3], [(0, 1)]
        return sample

    graph = uio.from_iterable(items()[:1]).decode_audio(of="audio").map(less).pack(64)
    with pytest.raises(uio.PipelineError, match="there are 2 recordings of 'audio' and 1 places"):
        next(iter(uio.Loader(graph)))


@pytest.mark.parametrize("when", ["planned", "made"])
def test_a_failure_names_the_recording(when: str, caplog: pytest.LogCaptureFixture) -> None:
    bad = items([[4000, 6000, 5000]])
    whole = bad[0]["audio"][1]
    bad[0]["audio"][1] = b"RIFFnothing at all" if when == "planned" else whole[: len(whole) // 2]
    graph = uio.from_iterable(bad).decode_audio(of="audio").fbank(8, of="audio").batch(1).pad()
    with pytest.raises(NothingRead):
        list(uio.Loader(graph))
    assert caplog.text.count("recording 2 of 'audio'") == 1


def test_a_failure_names_the_file_of_the_recording(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = [tmp_path / f"{n}.wav" for n in range(2)]
    for n, path in enumerate(paths):
        path.write_bytes(wav_bytes(tone(4000, n))[: 8044 - 4000 * n])
    graph = uio.from_iterable([{"key": "C", "audio": [str(path) for path in paths]}]).decode_audio(of="audio")
    with pytest.raises(NothingRead):
        list(uio.Loader(graph.batch(1).pad()))
    assert f"recording 2 of 'audio' ({paths[1]})" in caplog.text
    line = {"messages": [{"role": "user", "content": [{"type": "audio", "path": path.name} for path in paths]}]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(line) + "\n")
    caplog.clear()
    with pytest.raises(NothingRead):  # as a reference, for its path is relative to the manifest
        list(uio.Loader(uio.from_conversations(str(tmp_path / "chat.jsonl")).decode_audio(of="audio")))
    assert str(paths[1]) in caplog.text


def test_rates_of_all_recordings_must_be_one(caplog: pytest.LogCaptureFixture) -> None:
    given = items([[4000, 4000]] * 3)
    given[1]["audio"][1] = wav_bytes(tone(4000, 3), 8000)
    loader = uio.Loader(uio.from_iterable(given).decode_audio(of="audio").fbank(8, of="audio").batch(3).pad())
    assert [batch["keys"] for batch in loader] == [["C0", "C2"]]
    assert "8000 Hz" in caplog.text


def test_remote_recordings_are_fetched_early() -> None:
    with serving() as server:
        given = [
            {**c, "audio": [server.add(f"{c['key']}-{n}", wav) for n, wav in enumerate(c["audio"])]} for c in items()
        ]
        remote, local = (uio.from_iterable(some).decode_audio(of="audio") for some in (given, items()))
        for ours, theirs in zip(uio.Loader(remote), uio.Loader(local), strict=True):
            for one, other in zip(ours["audio"], theirs["audio"], strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=0)
