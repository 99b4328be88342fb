"""Audio without padding: every utterance once and whole, where ``cu_seqlens`` says, aligned and to a fixed total."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.run.planning import plan_lanes
from uio_pipes.tools.reports.simulate import simulate

RATE = 8_000


def heard(samples: list[int], rate: int = RATE, **fields: Any) -> uio.Pipeline:
    """Utterances of so many samples, none of them 0."""
    draw = np.random.default_rng(1)
    return uio.from_iterable(
        [
            {"key": f"U{i}", "wav": draw.uniform(0.1, 0.5, n).astype(np.float32), "sample_rate": rate, **fields}
            for i, n in enumerate(samples)
        ]
    )


@settings(deadline=None, max_examples=100)
@given(
    samples=st.lists(st.integers(400, 6_000), min_size=1, max_size=40),
    features=st.booleans(),
    step=st.sampled_from([None, 1, 8]),
    fixed=st.booleans(),
    window=st.integers(1, 20),
)
def test_each_utterance_is_once_and_whole_where_it_begins(
    samples: list[int], features: bool, step: int | None, fixed: bool, window: int
) -> None:
    graph = heard(samples).fbank(8) if features else heard(samples)
    name, field, unit = ("feats", "feat", 1) if features else ("pcm", "wav", RATE // 100)
    alone = {sample["key"]: torch.as_tensor(sample[field]) for sample in uio.Loader(graph)}
    packed = graph.pack(max_frames=80, window=window, multiple_of=step, fixed=fixed)
    seen = []
    for batch in uio.Loader(packed):
        rows, lengths, ends = batch[name], batch[f"{name}_lengths"].tolist(), batch["cu_seqlens"].tolist()
        assert (batch["cu_seqlens"].dtype, rows.is_contiguous()) == (torch.int32, True)
        assert (ends[0], ends[-1], ends) == (0, len(rows), sorted(set(ends)))
        assert len(rows) == 80 * unit if fixed else len(rows) <= 80 * unit
        assert batch["max_seqlen"] == max(np.diff(ends)) == max(np.diff(ends[: len(lengths) + 1]))
        rest = rows.clone()
        for key, first, end, length in zip(batch["keys"], ends, ends[1:], lengths, strict=False):
            assert torch.equal(rows[first : first + length], alone[key].reshape(length, *rows.shape[1:]))
            assert end - first == (length if step is None else -(-length // (step * unit)) * step * unit)
            rest[first : first + length] = 0
        assert not rest.any(), "what is between and behind is silence"
        seen += batch["keys"]
    assert sorted(seen) == sorted(alone)


def test_labels_streams_and_fields_come_along() -> None:
    def more(sample: uio.Sample) -> uio.Sample:
        number = int(sample["key"][1:])
        sample["label"], sample["snr"] = [number] * number, number / 2
        sample["prompt"], sample["prompt_sample_rate"] = sample["wav"][:, :600], RATE
        return sample

    graph = heard([1_200, 900, 2_000]).map(more).fbank(8).fbank(4, of="prompt").pack(max_frames=80, keep=["snr"])
    (batch,) = uio.Loader(graph)
    assert batch["keys"] == ["U0", "U1", "U2"]
    assert (batch["target"].tolist(), batch["target_lengths"].tolist()) == ([1, 2, 2], [0, 1, 2])
    assert (batch["snr"].tolist(), batch["prompt_feats"].shape) == ([0.0, 0.5, 1.0], (18, 4))
    assert batch["prompt_feats_lengths"].tolist() == [6, 6, 6]
    (batch,) = uio.Loader(heard([900, 900], label=3).pack(max_frames=80))
    assert (batch["target"].tolist(), "target_lengths" in batch) == ([3, 3], False), "classes"
    assert "target" not in next(iter(uio.Loader(heard([900]).pack(max_frames=80))))


@pytest.mark.parametrize("rates", [[8_000, 16_000, 16_000], [16_000, 8_000, 8_000], [8_000, 8_000, 16_000]])
def test_an_utterance_of_another_rate_leaves_no_trace(rates: list[int]) -> None:
    items = [
        {"key": f"U{i}", "wav": np.full(rate // 10, i + 1, np.float32), "sample_rate": rate}
        for i, rate in enumerate(rates)
    ]
    loader = uio.Loader(uio.from_iterable(items).pack(max_frames=40, multiple_of=4, fixed=True))
    (batch,) = loader
    most = max(rates, key=rates.count)
    kept = [i for i, rate in enumerate(rates) if rate == most]
    assert (batch["keys"], loader.stats().skipped) == ([f"U{i}" for i in kept], {"mixed_rates": 1})
    assert len(batch["pcm"]) == 40 * most // 100
    step = 12 * most // 100
    assert batch["cu_seqlens"].tolist()[:3] == [0, step, 2 * step]
    assert [batch["pcm"][at * step].item() for at in range(2)] == [i + 1 for i in kept]


def test_what_is_wrong_with_an_utterance_is_told() -> None:
    loader = uio.Loader(heard([900, 8_000, 900]).fbank(8).pack(max_frames=60))
    assert [batch["keys"] for batch in loader] == [["U0", "U2"]]
    assert loader.stats().skipped == {"over_budget": 1}
    loader = uio.Loader(heard([900, 8_000, 900]).fbank(8).pack(max_frames=60, overflow="alone"))
    assert sorted(batch["keys"] for batch in loader) == [["U0", "U2"], ["U1"]]
    items: list[dict[str, Any]]
    items = [{"key": "a", "wav": np.ones(900, np.float32), "sample_rate": RATE, "label": label} for label in ("x", [1])]
    loader = uio.Loader(uio.from_iterable(items).pack(max_frames=60))
    assert [batch["target"].tolist() for batch in loader] == [[1]]
    assert loader.stats().skipped == {"bad_label": 1}
    widths: list[dict[str, Any]] = [{"key": str(i), "feat": np.zeros((9, 4 + i), np.float32)} for i in range(2)]
    wrong: list[tuple[list[dict[str, Any]], str]] = [
        (
            widths,
            "1 has features of 5 bins .*, others in its batch have features of 4 bins .*; they cannot share a batch",
        ),
        (
            [{"key": "a", "wav": np.ones((2, 900)), "sample_rate": RATE}],
            r"a has 2 channels; choose one, or put \.mono\(\) before",
        ),
        ([{"key": "a", "wav": np.ones(900), "sample_rate": 11_025}], "no whole number of samples .*multiple of 4, or"),
        ([{"key": "a", "wav": b"RIFF", "sample_rate": RATE, "duration": 0.1}], "put .decode_audio.. before batching"),
    ]
    for items, told in wrong:
        with pytest.raises(uio.PipelineError, match=told):
            list(uio.Loader(uio.from_iterable(items).pack(max_frames=60, multiple_of=3)))


@pytest.mark.parametrize("options", [{}, {"multiple_of": 8}, {"multiple_of": 8, "fixed": True}])
def test_a_simulation_tells_the_padding_that_there_is(options: dict[str, Any]) -> None:
    graph = heard([900 + 77 * i for i in range(50)]).fbank(8).shuffle(9).pack(max_frames=160, **options)
    loader = uio.Loader(graph)
    rows = [len(batch["feats"]) for batch in loader]
    (plan,) = plan_lanes(graph, 1, 0, 0)
    assert [*plan.padded] == rows
    stats = loader.stats()
    assert stats.padded == sum(rows)
    assert simulate(graph).padding[0] == pytest.approx(stats.padding_ratio)
    assert bool(stats.padding_ratio) == bool(options)
    waveforms = heard([900 + 77 * i for i in range(50)]).pack(max_frames=160, **options)
    loader = uio.Loader(waveforms)
    assert len(list(loader)) == len(loader)
    assert simulate(waveforms).padding[0] == pytest.approx(loader.stats().padding_ratio)
