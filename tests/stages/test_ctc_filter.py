"""No label longer than CTC can align: against torch's own loss and convolutions, by plan and as realized."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers_bad import code_points, keys, raw_items, run
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.length import Plan
from uio_pipes.stages.text.tokenize import CtcFilter, needed

LAYERS = {4: ((3, 2), (3, 2)), 6: ((3, 2), (5, 3)), 8: ((3, 2), (3, 2), (3, 2))}  # of WeNet's conv2d front ends


@settings(max_examples=200, deadline=None)
@given(label=st.lists(st.integers(1, 3), max_size=12), steps=st.integers(1, 24))
def test_what_is_needed_is_where_torch_s_loss_becomes_finite(label: list[int], steps: int) -> None:
    scores = torch.full((steps, 1, 4), 0.25).log()
    target, lengths = torch.tensor([label], dtype=torch.long), (torch.tensor([steps]), torch.tensor([len(label)]))
    loss = torch.nn.functional.ctc_loss(scores, target, *lengths, reduction="sum")
    assert math.isfinite(loss) == (needed(label) <= steps)


@pytest.mark.parametrize("factor", LAYERS)
def test_steps_are_the_convolutions_output(factor: int) -> None:
    convolutions = torch.nn.Sequential(*[torch.nn.Conv1d(1, 1, kernel, stride) for kernel, stride in LAYERS[factor]])
    stage = CtcFilter(factor)
    for frames in range(20, 300):
        assert stage.steps(Plan(0, 100, frames)) == convolutions(torch.zeros(1, 1, frames)).shape[-1]
    assert [stage.steps(Plan(0, 100, frames)) for frames in range(3)] == [0, 0, 0]
    assert CtcFilter(4).steps(Plan(0, 100, 101)) == ((101 - 1) // 2 - 1) // 2


def labelled(items: list[dict[str, Any]], label: str) -> uio.Pipeline:
    items = [{**item, "txt": label} for item in items]
    return uio.from_raw_list(items).decode_audio().fbank(8).tokenize(code_points)


@pytest.mark.parametrize(("label", "steps"), [("abcdefg", 7), ("aabcde", 7), ("aaaa", 7), ("ab" * 4, 8)])
def test_utterances_with_too_few_frames_are_left_out_and_counted(tmp_path: Path, label: str, steps: int) -> None:
    """Ten utterances of 18 to 27 frames (8 kHz, each 80 samples longer), of which a third each is a step."""
    items = raw_items(tmp_path, 10)
    batches, loader = run(labelled(items, label).ctc_filter(lambda frames: frames // 3).batch(4).pad())
    frames = [1 + (1600 + 80 * i - 200) // 80 for i in range(10)]
    assert sorted(keys(batches)) == [f"R{i:03d}" for i in range(10) if frames[i] // 3 >= steps]
    assert loader.stats().skipped == {"ctc_too_short": sum(n // 3 < steps for n in frames)}
    assert loader.stats().failures == 0


def test_loss_is_finite_for_what_is_left(tmp_path: Path) -> None:
    """Batches that a model with conv2d (4 times fewer frames) trains on, with random labels."""
    items = raw_items(tmp_path, 40, samples=2000)
    for i, item in enumerate(items):
        item["txt"] = "abc"[: 1 + i % 3] * (1 + i % 5)
    graph = uio.from_raw_list(items).decode_audio().speed_perturb([0.5, 1.0, 2.0]).fbank(8)
    graph = graph.tokenize(code_points).ctc_filter(4).bucket_batch([20], max_frames=200).pad()
    batches, loader = run(graph)
    assert loader.stats().skipped["ctc_too_short"] == 40 - loader.stats().utterances > 0
    assert loader.stats().utterances > 10
    for batch in batches:
        steps = ((batch["feats_lengths"].long() - 1) // 2 - 1) // 2
        scores = torch.zeros(int(steps.max()), len(steps), 128).log_softmax(-1)
        target = batch["target"].clamp(min=0)
        loss = torch.nn.functional.ctc_loss(scores, target, steps, batch["target_lengths"].long(), reduction="none")
        assert bool(loss.isfinite().all())


def test_it_decodes_nothing(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 3)
    touched = labelled(items, "ab").ctc_filter(4).map(lambda sample: {"key": sample["key"], "is": str(sample.fields)})
    batches, _ = run(touched)
    assert len(batches) == 3
    assert all("tensor" not in sample["is"] for sample in batches)


def test_one_that_turns_out_shorter_than_planned_is_left_out_under_the_same_name(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 4, samples=1600)
    items[1]["duration"] = 9.0  # it has 0.21 s
    graph = labelled(items, "abcdefghij").ctc_filter(lambda frames: frames // 2 + 1).batch(4).pad()
    _, loader = run(graph)
    assert loader.stats().skipped == {}
    graph = labelled(items, "abcdefghijklmnop").ctc_filter(lambda frames: frames // 2 + 1).batch(4).pad()
    batches, loader = run(graph)
    assert (batches, loader.stats().skipped, loader.stats().failures) == ([], {"ctc_too_short": 4}, 0)
    run(graph, failures="raise")  # not wanted, but nothing is bad


def test_frames_trimmed_behind_the_plan_are_no_failures(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 9) * 9).decode_audio().fbank(4).spec_trim().tokenize(code_points)
    _, loader = run(graph.map(lambda s: {**s, "label": [1, 2] * 2}, length="same").ctc_filter(4), failures="raise")
    assert loader.stats().failures == 0


def test_precomputed_features(tmp_path: Path) -> None:
    items = [{"key": str(n), "wav": "none", "txt": "abcd"} for n in range(1, 30)]
    graph = uio.from_raw_list(items).map(with_features).tokenize(code_points).ctc_filter(4).batch(9).pad()
    assert sorted(map(int, keys(run(graph)[0]))) == [n for n in range(1, 30) if ((n - 1) // 2 - 1) // 2 >= 4]


def with_features(sample: Any) -> dict[str, Any]:
    return {"key": sample["key"], "txt": sample["txt"], "feat": torch.zeros(int(sample["key"]), 2)}


def test_waveforms_by_a_function_of_samples(tmp_path: Path) -> None:
    """As models on waveforms have it: one step for 320 samples."""
    items = raw_items(tmp_path, 10)
    graph = uio.from_raw_list([{**item, "txt": "abcdef"} for item in items]).decode_audio().tokenize(code_points)
    batches, _ = run(graph.ctc_filter(lambda samples: samples // 320).batch(3).pad())
    assert sorted(keys(batches)) == [f"R{i:03d}" for i in range(10) if (1600 + 80 * i) // 320 >= 6]
    with pytest.raises(uio.PipelineError, match=r"subsampling=4 counts feature frames.*after .fbank"):
        run(graph.ctc_filter(4).batch(3).pad())


def test_without_labels_it_says_what_is_missing(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 1)).decode_audio().fbank(8).ctc_filter().batch(3).pad()
    with pytest.raises(uio.DataError, match=r"tokenize.* missing before ctc_filter"):
        run(graph, failures="raise")
