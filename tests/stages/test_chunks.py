"""Chunks: every frame once, in order and in one row, with its context; what a model remembers survives a resume."""

import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from contract import Case, digest, record
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.run.planning import plan_lanes

RATE = 8_000


def recordings(samples: list[int], rate: int = RATE) -> uio.Pipeline:
    """Recordings of so many samples, none of them 0, with a timeline of an event in each 0.1 s."""
    draw = np.random.default_rng(1)
    rows = []
    for i, n in enumerate(samples):
        events = [Event(at / 10, at / 10 + 0.05, f"{i}.{at}") for at in range(n * 10 // rate)]
        wav = draw.uniform(0.1, 0.5, n).astype(np.float32)
        rows.append(
            {"key": f"R{i}", "wav": wav, "sample_rate": rate, "speaker": f"S{i}", "timeline": Timeline.of(events)}
        )
    return uio.from_iterable(rows).sharding_filter()


def numbered(sample: uio.Sample) -> uio.Sample:
    """Labels along the frames: their numbers, and two columns of them."""
    frames = torch.arange(len(sample["feat"]))
    sample["number"], sample["pair"] = frames.tolist(), torch.stack([frames, -frames], 1).float()
    sample["label"] = [1, 2, 3]
    return sample


def flac(samples: int) -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(samples).standard_normal(samples) * 0.1
    soundfile.write(out, noise.astype(np.float32), RATE, format="FLAC")
    return out.getvalue()


Rows = dict[int, list[tuple[str, int, torch.Tensor]]]


def by_row(batches: Iterator[Any], name: str, before: int) -> Rows:
    """What each row had: key, position and frames of its chunks. Checks what must hold of each batch."""
    rows: Rows = {}
    for batch in batches:
        for row, (key, count) in enumerate(zip(batch["keys"], batch["chunk_lengths"].tolist(), strict=True)):
            if not key:
                assert (count, batch["reset"][row], batch["position"][row]) == (0, False, 0)
                assert not batch[name][row].any(), "a masked row"
                continue
            place = (batch["lane"], row)
            assert bool(batch["reset"][row]) == (not batch["position"][row])
            rows.setdefault(hash(place), []).append(
                (key, int(batch["position"][row]), batch[name][row, before : before + count])
            )
    return rows


@settings(deadline=None, max_examples=15)
@given(
    samples=st.lists(st.integers(400, 9_000), min_size=1, max_size=12),
    features=st.booleans(),
    seconds=st.sampled_from([0.1, 0.25, 1.0]),
    context=st.sampled_from([(0.0, 0.0), (0.05, 0.0), (0.3, 0.12)]),
    rows=st.integers(1, 4),
)
def test_each_frame_is_once_in_order_and_in_one_row(
    samples: list[int], features: bool, seconds: float, context: tuple[float, float], rows: int
) -> None:
    whole = recordings(samples).fbank(8) if features else recordings(samples)
    name, rate = ("feats", 100) if features else ("pcm", RATE)
    alone = {
        one["key"]: one["feat"] if features else torch.as_tensor(one["wav"]).flatten() for one in uio.Loader(whole)
    }
    left, size, right = (round(one * rate) for one in (context[0], seconds, context[1]))
    graph = whole.chunks(seconds, *context, rows=rows).pad()
    batches = list(uio.Loader(graph))
    (planned,) = plan_lanes(graph, 1, 0, 0)
    assert len(planned.counts) == len(batches)
    seen: dict[str, torch.Tensor] = {}
    for chunks in by_row(iter(batches), name, left).values():
        for key, position, frames in chunks:
            assert len(seen.get(key, ())) == position, "in order, and in no other row"
            seen[key] = torch.cat([seen[key], frames]) if key in seen else frames
    assert seen.keys() == alone.keys()
    assert all(torch.equal(seen[key], alone[key]) for key in alone)
    for batch in batches:
        assert batch[name].shape[:2] == (rows, left + size + right)
        for key, at, row in zip(batch["keys"], batch["position"].tolist(), batch[name], strict=True):
            if key:  # zeros where the recording has nothing, or the chunk ends with it
                around = torch.zeros(left + size + right, *alone[key].shape[1:])
                there = alone[key][max(0, at - left) : at + size + right]
                around[max(0, left - at) :][: len(there)] = there
                assert torch.equal(row, around)


def test_labels_and_the_timeline_are_cut_along() -> None:
    graph = recordings([8_000, 4_400]).fbank(8).map(numbered)
    chunked = graph.chunks(0.25, 0.1, rows=3, along=["number", "pair"]).pad(keep=["timeline"])
    batches = list(uio.Loader(chunked))
    assert len(batches) == 4
    for number, batch in enumerate(batches):
        first, count = 25 * number, int(batch["chunk_lengths"][0])
        assert batch["number"].shape == (3, 25)
        assert batch["number"][0].tolist() == [*range(first, first + count), *[-1] * (25 - count)]
        assert batch["pair"][0, :count, 1].tolist() == [-float(n) for n in range(first, first + count)]
        assert batch["number_lengths"].tolist() == batch["chunk_lengths"].tolist()
        assert batch["number"][2].tolist() == [-1] * 25, "a row without a recording"
        assert "target" not in batch, "labels of the whole recording"
        assert batch["speaker"][::2] == ["S0", ""]
        timeline = batch["timeline"][0]
        assert timeline.offset == pytest.approx(number * 0.25)
        assert [e.text for e in timeline.events] == [
            f"0.{n}" for n in range(10) if n / 10 < number * 0.25 + 0.25 and n / 10 + 0.05 > number * 0.25
        ]


def test_codes_of_another_rate_lie_along() -> None:
    def coded(sample: uio.Sample) -> uio.Sample:
        sample["codes"] = torch.arange(25).reshape(-1, 1)
        return sample

    batches = [*uio.Loader(recordings([16_000]).map(coded).chunks(0.4, rows=1, along={"codes": 12.5}).pad())]
    assert torch.cat([batch["codes"][0] for batch in batches]).flatten().tolist() == [*range(25)]


class Model(torch.nn.Module):
    """Counts what it has heard, and remembers it in an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(8, 4, batch_first=True)

    def forward(self, feats: torch.Tensor, state: Any, reset: torch.Tensor) -> tuple[torch.Tensor, Any]:
        zeros = torch.zeros(1, len(feats), 4)
        state = (zeros, zeros) if state is None else state
        state = tuple(one.masked_fill(reset[None, :, None], 0.0) for one in state)
        out, state = self.lstm(feats, state)
        return out, state


def run(batches: Iterator[Any], states: dict[int, Any], heard: dict[str, list[torch.Tensor]]) -> None:
    model = Model()
    with torch.no_grad():
        for batch in batches:
            out, states[batch["lane"]] = model(batch["feats"], states.get(batch["lane"]), batch["reset"])
            for key, row, count in zip(batch["keys"], out, batch["chunk_lengths"].tolist(), strict=True):
                heard.setdefault(key, []).append(row[:count])


def test_a_model_with_a_state_hears_the_same_in_chunks_also_when_ranks_change_in_mid_dialogue() -> None:
    samples = [3_000 + 1_700 * (n % 5) for n in range(17)]
    whole = recordings(samples).fbank(8)
    with torch.no_grad():
        alone = {s["key"]: Model()(s["feat"][None], None, torch.tensor([True]))[0][0] for s in uio.Loader(whole)}
    graph, heard, states = whole.chunks(0.2, rows=2).pad(), dict[str, list[torch.Tensor]](), dict[int, Any]()
    loader = uio.Loader(graph, lanes=4)
    run(islice(loader, 9), states, heard)
    state = loader.state_dict()
    for rank in range(2):
        other = uio.Loader(graph, lanes=4, rank=rank, world_size=2, uneven="join")
        other.load_state_dict(state)
        run(iter(other), states, heard)
    heard.pop("", None)
    assert heard.keys() == alone.keys()
    for key, parts in heard.items():
        torch.testing.assert_close(torch.cat(parts), alone[key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("every", [1, 3])
def test_a_damaged_recording_is_counted_once_and_its_row_goes_on_after_it(every: int) -> None:
    names = ["a", "hurt", "b", "c", "d"]
    audio = dict(zip(names, map(flac, [9_000, 6_000, 5_000, 4_000, 8_000]), strict=True))
    audio["hurt"] = audio["hurt"][: len(audio["hurt"]) // 2]
    rows = uio.from_iterable([{"key": key, "wav": audio[key]} for key in names]).decode_audio().fbank(8)
    case = Case(rows.chunks(0.25, rows=2).pad(), {"snapshot_every": every})
    recorded = record(case)
    assert recorded.stats.failures == 1
    assert sum(recorded.stats.skipped.values()) == 1
    batches = list(case.loader())
    assert [batch["keys"][1] for batch in batches[:3]] == ["", "", ""], "as long as was planned"
    assert (batches[3]["keys"], batches[3]["reset"].tolist()) == (["a", "b"], [False, True])
    assert {key for batch in batches for key in batch["keys"]} == {"", "a", "b", "c", "d"}
    for cut, state in enumerate(recorded.states):  # in the damaged one, too
        loader = case.loader(state)
        assert [digest(batch) for batch in loader] == recorded.digests[cut:]
        assert loader.stats().skipped == recorded.stats.skipped
    with pytest.raises(uio.DataError):
        list(uio.Loader(case.pipeline, failures="raise"))


def test_recordings_that_cannot_share_rows_fail_by_name() -> None:
    both = uio.interleave([recordings([8_000, 8_000]), recordings([8_000], rate=16_000)])
    loader = uio.Loader(both.chunks(0.5, rows=2).pad())
    keys = {key for batch in loader for key in batch["keys"]}
    assert (loader.stats().skipped, keys) == ({"mixed_rates": 1}, {"R0", "R1", ""})
    short = recordings([8_000]).fbank(8).map(numbered).chunks(0.5, along=["label"])
    loader = uio.Loader(short.pad())
    with pytest.raises(uio.UioError):
        list(loader)
    assert loader.stats().skipped == {"length_mismatch": 1}


def test_what_cannot_be_is_refused_with_a_remedy() -> None:
    chunks = recordings([8_000]).fbank(8).chunks(0.5)
    with pytest.raises(uio.PipelineError, match="move bucket_batch before"):
        chunks.bucket_batch(max_frames=100)
    with pytest.raises(uio.PipelineError, match="only where there are no features"):
        chunks.pad(pcm=True)
    with pytest.raises(uio.PipelineError, match='choose uneven="stop"'):
        replace(uio.Loader(chunks.pad())._options, uneven="share")  # as of a rank in a process group
    for arguments in (
        {"seconds": 0},
        {"seconds": 1, "left": -1},
        {"seconds": 1, "rows": 0},
        {"seconds": 1, "shift": 0},
    ):
        with pytest.raises(uio.PipelineError):
            recordings([8_000]).chunks(**arguments)
    with pytest.raises(uio.PipelineError, match="give shift"):
        list(uio.Loader(uio.from_iterable([{"key": "a", "feat": np.ones((50, 4), np.float32)}]).chunks(0.1)))


def test_options_of_pad_hold_for_chunks() -> None:
    chunks = recordings([8_000, 6_000]).fbank(8).chunks(0.3, rows=2)
    batch = next(iter(uio.Loader(chunks.pad(mask=True, transpose=True, names={"feats": "x", "keys": None}))))
    assert (batch["x"].shape, batch["feats_mask"].shape, "keys" in batch) == ((2, 8, 30), (2, 30), False)
    made = next(iter(uio.Loader(chunks.pad(collate=lambda samples: {"n": [s["chunk_lengths"] for s in samples]}))))
    assert made == {"n": [30, 30]}
