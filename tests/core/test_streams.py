"""Streams: several audio and text fields in an utterance, each with stages, lengths and tensors of its own."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import code_points
from tones import RATE, tone, wav_bytes

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.realize import Lengths, names_of
from uio_pipes.run.planning import plan_lanes


def items(count: int = 12) -> list[dict[str, Any]]:
    """Utterances with a prompt, a question and codes, all of other lengths."""
    return [
        {
            "key": f"U{i}",
            "wav": wav_bytes(tone(8000 + 400 * i, i)),
            "txt": "ab" * (1 + i % 5),
            "prompt": wav_bytes(tone(4000 + 700 * ((5 * i) % 12), 100 + i)),
            "question": "why" * (1 + (7 * i) % 4),
            "codes": np.arange(2 * (3 + i % 4)).reshape(-1, 2),
            "snr": 0.5 * i,
        }
        for i in range(count)
    ]


def only(name: str) -> uio.Pipeline:
    """The stream ``name`` as the usual audio of utterances that have nothing else."""
    return uio.from_iterable([{"key": item["key"], "wav": item[name]} for item in items()])


def test_a_stream_becomes_what_the_usual_one_would() -> None:
    graph = uio.from_iterable(items()).decode_audio().fbank(20)
    both = graph.decode_audio(of="prompt").resample(8000, of="prompt").fbank(30, of="prompt")
    alone = only("prompt").decode_audio().resample(8000).fbank(30)
    plain = uio.from_iterable(items()).decode_audio().fbank(20)
    for one, other, usual in zip(uio.Loader(both), uio.Loader(alone), uio.Loader(plain), strict=True):
        torch.testing.assert_close(one["prompt_feat"], other["feat"], rtol=0, atol=0)
        torch.testing.assert_close(one["feat"], usual["feat"], rtol=0, atol=0)
        assert (one["prompt_sample_rate"], one["sample_rate"]) == (8000, RATE)


def test_a_part_of_a_recording() -> None:
    given = [item | {"prompt_start": 0.1, "prompt_end": 0.2} for item in items()]
    for sample in uio.Loader(uio.from_iterable(given).decode_audio(of="prompt")):
        assert sample["prompt"].shape == (1, 1600)


def test_draws_of_streams_are_their_own() -> None:
    graph = uio.from_iterable([item | {"prompt": item["wav"]} for item in items()]).decode_audio()
    graph = graph.volume_perturb().decode_audio(of="prompt").volume_perturb(of="prompt")
    gains = [float((s["wav"] / s["prompt"])[0, :50].mean()) for s in uio.Loader(graph)]
    assert len({round(gain, 3) for gain in gains}) > 6


def lengths_of(graph: uio.Pipeline) -> list[Lengths]:
    node = graph.build(Lane(Ledger()))
    node.reset()
    return [Lengths(node.next()) for _ in range(12)]


def test_planned_lengths_are_those_that_are_made_and_nothing_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = uio.from_iterable(items()).decode_audio().fbank(20).tokenize(code_points)
    graph = graph.decode_audio(of="prompt").speed_perturb([0.9, 1.1], of="prompt").fbank(30, of="prompt")
    graph = graph.tokenize(code_points, of="question").stack(4, 3, of="prompt")
    made = list(uio.Loader(graph))

    def decode(*arguments: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("uio_pipes.stages.audio.decode.decoded", decode)
    for lengths, sample in zip(lengths_of(graph), made, strict=True):
        assert lengths.frames == len(sample["feat"])
        assert lengths.tokens == len(sample["txt"]) == len(sample["label"])
        assert lengths["question"].tokens == len(sample["question"])
        assert lengths["codes"].tokens == len(sample["codes"])
        assert 0 <= lengths["prompt"].frames - len(sample["prompt_feat"]) <= 1
        assert lengths["prompt"].seconds == pytest.approx(lengths["prompt"].samples / lengths["prompt"].sample_rate)


def test_a_text_is_tokenized_once() -> None:
    calls = []

    def counting(text: str) -> list[int]:
        calls.append(text)
        return code_points(text)

    graph = (
        uio.from_iterable(items()).decode_audio().tokenize(counting, of="question").sort(5, length="question.tokens")
    )
    graph = graph.filter(length="question.tokens", max_length=99).dynamic_batch(max_tokens=30, length="question.tokens")
    assert len([key for batch in uio.Loader(graph.pad()) for key in batch["keys"]]) == 12
    assert sorted(calls) == sorted(item["question"] for item in items())


def test_filters_and_batches_go_by_any_length() -> None:
    graph = uio.from_iterable(items()).decode_audio(of="prompt").tokenize(code_points)
    kept = [sample["key"] for sample in uio.Loader(graph.filter(length="prompt.seconds", min_length=0.4))]
    assert kept == [item["key"] for item in items() if len(item["prompt"]) - 44 >= 2 * 0.4 * RATE]
    assert 0 < len(kept) < 12
    kept = [s["key"] for s in uio.Loader(graph.filter(length=lambda n: n["prompt"].frames + n.tokens, max_length=60))]
    assert kept == [i["key"] for i in items() if -(-(len(i["prompt"]) - 44) // 320) + len(i["txt"]) <= 60]
    ordered = [sample["key"] for sample in uio.Loader(graph.sort(99, length="prompt.samples"))]
    assert ordered == [item["key"] for item in sorted(items(), key=lambda item: len(item["prompt"]))]
    for batch in uio.Loader(graph.dynamic_batch(max_tokens=14)):
        assert len(batch) * max(len(sample["label"]) for sample in batch) <= 14
    buckets = graph.bucket_batch([40], [3, 2], length="prompt.frames")
    for batch in uio.Loader(buckets):
        assert len({sample["prompt"].shape[-1] < 6400 for sample in batch}) == 1
    (plan,) = plan_lanes(graph.dynamic_batch(max_tokens=14), 1, 0, 0)
    assert [*plan.sizes[0].longest] == [
        max(len(s["label"]) for s in b) for b in uio.Loader(graph.dynamic_batch(max_tokens=14))
    ]


def _unknown(sample: uio.Sample) -> uio.Sample:
    sample["prompt"] = b"\0\0\0\x20ftypM4A " + bytes(200)  # only decoding would show it
    return sample


@pytest.mark.parametrize(
    ("graph", "reason", "says"),
    [
        (lambda p: p.decode_audio(of="nothing"), "missing_stream", r"has no 'nothing' \(its fields: key, wav"),
        (lambda p: p.filter(length="tokens", max_length=9), "no_tokens", r"put \.tokenize\(…\) before"),
        (lambda p: p.map(_unknown).sort(5, length="prompt.frames"), "no_length", r"nothing gives a length of 'prompt'"),
        (lambda p: p.sort(5, length=lambda n: "9"), "bad_length", "returned '9', not a number"),
        (lambda p: p.sort(5, length=lambda n: n.nothing), "length_failed", "nothing"),
    ],
)
def test_what_is_not_there_is_counted(graph: Any, reason: str, says: str) -> None:
    with pytest.raises(NothingRead, match=says) as error:
        list(uio.Loader(graph(uio.from_iterable(items()))))
    assert reason in str(error.value)


@pytest.mark.parametrize("way", ["padded", "packed"])
def test_codes_of_no_rows_are_rows_of_length_0(way: str) -> None:
    lists = [[], [[1, 2], [3, 4], [5, 6]], [[7, 8]]]
    given = [{"key": f"U{i}", "label": [i], "codes": codes} for i, codes in enumerate(lists)]
    graph = uio.from_iterable(given).stack(2, 2, of="codes")
    batches = graph.batch(3).pad(keep=["codes"]) if way == "padded" else graph.pack(9, keep=["codes"])
    batch = next(iter(uio.Loader(batches)))
    assert dict(zip(batch["keys"], batch["codes_lengths"].tolist(), strict=True)) == {"U0": 0, "U1": 2, "U2": 1}
    assert batch["codes"].shape == ((3, 2, 4) if way == "padded" else (3, 4))


def test_codes_of_one_codebook_are_stacked() -> None:
    graph = uio.from_iterable([{"key": "U", "codes": [1, 2, 3, 4]}, {"key": "V", "codes": torch.zeros(0, 3)}])
    first, second = uio.Loader(graph.stack(2, 2, of="codes"))
    assert first["codes"].tolist() == [[1, 2], [3, 4]]
    assert second["codes"].shape == (0, 6)


@pytest.mark.parametrize("name", ["feats_lengths", "feats_places", "question_target", "question_target_lengths"])
def test_what_is_kept_replaces_no_tensor_of_the_batch(name: str) -> None:
    graph = uio.from_iterable([item | {name: [1]} for item in items()]).decode_audio().fbank(8)
    graph = graph.tokenize(code_points).tokenize(code_points, of="question")
    batches = [graph.pack(900, length=lambda n: n.frames + n.tokens, keep=[name])]
    batches += [graph.batch(4).pad(keep=[name])] if name.startswith("question") else []
    for made in batches:
        with pytest.raises(uio.PipelineError, match="keep"):
            list(uio.Loader(made))


def test_two_lengths_have_different_names() -> None:
    def places(n: Lengths) -> float:
        return n.frames // 4

    assert names_of(("frames", places)) == ("frames", "places")
    assert names_of((lambda n: n.frames, lambda n: n.tokens)) == ("length 1", "length 2")
    assert names_of((places, places)) == ("places 1", "places 2")
    assert (names_of(None), names_of("prompt.frames"), names_of(partial(places))) == (
        ("frames",),
        ("prompt.frames",),
        ("length",),
    )


def test_a_plan_that_is_too_short_is_noticed_in_streams_too() -> None:
    given = [item | {"prompt_duration": 0.1} for item in items()]
    with pytest.raises(NothingRead, match="length_mismatch"):
        list(uio.Loader(uio.from_iterable(given).decode_audio(of="prompt").fbank(8, of="prompt").batch(2)))


def test_a_batch_has_the_tensors_of_each_stream() -> None:
    graph = uio.from_iterable(items()).decode_audio().tokenize(code_points).decode_audio(of="prompt")
    graph = graph.fbank(30, of="prompt").tokenize(code_points, of="question")
    samples = list(uio.Loader(graph))
    (batch,) = uio.Loader(graph.batch(12).pad(keep=["codes", "snr", "txt"]))
    names = ["keys", "pcm", "pcm_length", "target", "target_lengths", "prompt_feats", "prompt_feats_lengths"]
    names += ["question_target", "question_target_lengths", "codes", "codes_lengths", "snr", "txt"]
    assert list(batch) == names
    by_key = {sample["key"]: sample for sample in samples}
    for row, key in enumerate(batch["keys"]):
        sample = by_key[key]
        for name, field, padding in (
            ("prompt_feats", "prompt_feat", 0),
            ("question_target", "question_label", -1),
            ("codes", "codes", -1),
        ):
            length = int(batch[f"{name}_lengths"][row])
            assert length == len(sample[field])
            assert batch[name][row, :length].tolist() == torch.as_tensor(sample[field]).tolist()
            assert (batch[name][row, length:] == padding).all()
        assert batch["snr"][row] == sample["snr"]
        assert batch["txt"][row] == sample["txt"]
    assert batch["codes"].dtype == torch.int64
    assert batch["codes"].shape[1:] == (6, 2)


def test_ragged_and_nested_rows_are_the_padded_ones_without_their_padding() -> None:
    graph = uio.from_iterable(items()).decode_audio().fbank(8).tokenize(code_points).batch(5)
    for padded, ragged, nested in zip(
        *(uio.Loader(graph.pad(keep=["codes"], layout=layout)) for layout in ("padded", "ragged", "nested")),
        strict=True,
    ):
        for name, lengths in (("feats", "feats_lengths"), ("target", "target_lengths"), ("codes", "codes_lengths")):
            assert ragged[lengths].tolist() == nested[lengths].tolist() == padded[lengths].tolist()
            assert nested[name].is_nested
            for row, length in enumerate(padded[lengths].tolist()):
                expected = padded[name][row, :length]
                assert torch.equal(ragged[name][row], expected)
                assert torch.equal(nested[name].unbind()[row], expected)


def made(samples: list[uio.Sample]) -> dict[str, Any]:
    return {"keys": [sample["key"] for sample in samples], "prompts": [sample["prompt"].shape for sample in samples]}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_may_make_the_batch(workers: int) -> None:
    graph = uio.from_iterable(items()).decode_audio(of="prompt").batch(5).pad(collate=made)
    batches = list(uio.Loader(graph, num_workers=workers))
    assert [len(batch["prompts"]) for batch in batches] == [5, 5, 2]
    assert sorted(key for batch in batches for key in batch["keys"]) == sorted(item["key"] for item in items())
    with pytest.raises(uio.PipelineError, match="collate must return a dict, not list"):
        list(uio.Loader(uio.from_iterable(items()).batch(5).pad(collate=list)))
    with pytest.raises(uio.PipelineError, match="collate must be a function of a list of utterances, not 5"):
        uio.from_iterable(items()).batch(5).pad(collate=5)  # type: ignore[arg-type]
    with pytest.raises(uio.PipelineError, match=r"layout must be 'padded', .*not 'dense'"):
        uio.from_iterable(items()).batch(5).pad(layout="dense")
    with pytest.raises(uio.PipelineError):
        uio.from_iterable(items()).batch(5).pad(collate=made, pcm=True)


def test_rates_of_a_stream_may_not_be_mixed_either() -> None:
    given = [item | {"prompt": wav_bytes(tone(4000, 1), 8000 if i == 3 else RATE)} for i, item in enumerate(items(6))]
    loader = uio.Loader(
        uio.from_iterable(given).decode_audio().decode_audio(of="prompt").fbank(8, of="prompt").batch(6).pad()
    )
    (batch,) = loader
    assert loader.stats().skipped == {"mixed_rates": 1}
    assert "U3" not in batch["keys"]
    assert len(batch["prompt_feats"]) == 5


def test_fields_that_a_stream_has_taken_cannot_be_kept() -> None:
    graph = uio.from_iterable(items()).decode_audio().decode_audio(of="prompt")
    for taken in (graph.batch(2).pad(keep=["prompt"]), graph.fbank(8, of="prompt").batch(2).pad(keep=["prompt_feat"])):
        with pytest.raises(uio.PipelineError, match="must not name the streams"):
            list(uio.Loader(taken))


@pytest.mark.parametrize("kind", ["int64", "int16", "uint16", "lists", "tensor"])
def test_codes_stay_whole_numbers_through_stages_and_batches(kind: str) -> None:
    def of_kind(codes: Any) -> Any:
        given = {"lists": codes.tolist(), "tensor": torch.from_numpy(codes)}
        return given[kind] if kind in given else codes.astype(kind)

    codes = [np.random.default_rng(i).integers(0, 1024, (3 + i % 4, 2)) for i in range(12)]
    given = [{"key": f"U{i}", "txt": "ab", "codes": of_kind(c)} for i, c in enumerate(codes)]
    stacked = [np.concatenate([c[::2], np.concatenate([c[1::2], c[-1:]])[: -(-len(c) // 2)]], 1) for c in codes]
    graph = uio.from_iterable(given).tokenize(code_points).stack(2, 2, of="codes")
    assert [n["codes"].frames for n in lengths_of(graph)] == [n["codes"].tokens for n in lengths_of(graph)]
    assert [n["codes"].frames for n in lengths_of(graph)] == [len(c) for c in stacked]
    ordered = graph.sort(12, length="codes.frames")
    (padded,) = uio.Loader(ordered.batch(12).pad(keep=["codes"]))
    packed = next(iter(uio.Loader(ordered.pack(99, length=lambda n: n["codes"].frames + n.tokens, keep=["codes"]))))
    whole = {f"U{i}": c.tolist() for i, c in enumerate(stacked)}
    rows = [row[:n].tolist() for row, n in zip(padded["codes"], padded["codes_lengths"], strict=True)]
    assert rows == [whole[key] for key in padded["keys"]]
    assert packed["codes"].tolist() == [row for key in packed["keys"] for row in whole[key]]
    assert packed["codes_lengths"].tolist() == [len(whole[key]) for key in packed["keys"]]
    assert padded["codes"].dtype == packed["codes"].dtype == torch.int64
    pieces = uio.from_iterable(given).random_crop(max_frames=3, of="codes").filter(length="codes.frames", max_length=3)
    for sample in uio.Loader(pieces):
        assert len(sample["codes"]) == 3


def test_what_a_stage_made_of_codes_is_what_a_function_gets() -> None:
    graph = uio.from_iterable(items()).stack(3, 3, of="codes").map(_with_length)
    assert [sample["rows"] for sample in uio.Loader(graph)] == [-(-len(item["codes"]) // 3) for item in items()]


def _with_length(sample: uio.Sample) -> uio.Sample:
    sample["rows"] = len(sample["codes"])
    return sample


def _with_prompt(sample: uio.Sample) -> uio.Sample:
    sample["prompt"], sample["prompt_sample_rate"] = sample["wav"], sample["sample_rate"]
    return sample


def test_a_stream_may_be_made_by_a_function_when_the_batch_is_made() -> None:
    graph = uio.from_iterable(items()).decode_audio().map(_with_prompt, length="same").fbank(8)
    for batch in uio.Loader(graph.fbank(10, of="prompt").sort(5, length="prompt.frames").batch(4).pad()):
        assert batch["prompt_feats_lengths"].tolist() == batch["feats_lengths"].tolist()


def test_samples_that_nothing_tells_are_not_made_up() -> None:
    timed = uio.from_iterable([item | {"duration": 0.6} for item in items()]).decode_audio()
    features = uio.from_iterable([{"key": "a", "feat": np.zeros((120, 4), np.float32)}])
    for graph, length in ((timed, "samples"), (features, "seconds")):
        with pytest.raises(NothingRead, match=r"no_length.*are known here: go by frames"):
            list(uio.Loader(graph.filter(length=length, max_length=99)))
    assert len(list(uio.Loader(timed.filter(length="seconds", max_length=0.8)))) > 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([np.int64(3), np.int64(4)], torch.tensor([3, 4])),
        ([torch.tensor(0.5), 2.0], torch.tensor([0.5, 2.0])),
        ([[1, 2], []], torch.tensor([[1, 2], [-1, -1]])),
        ([[1, 2], [0.5]], torch.tensor([[1.0, 2.0], [0.5, 0.0]])),
        ([[1, 2**63], [1]], [[1, 2**63], [1]]),
        ([[1, 2], "a"], [[1, 2], "a"]),
    ],
)
def test_the_kind_of_a_kept_field(values: list[Any], expected: Any) -> None:
    graph = uio.from_iterable([{"key": str(i), "label": [1] * (3 - i), "x": x} for i, x in enumerate(values)])
    (batch,) = uio.Loader(graph.batch(2).pad(keep=["x"]))
    if isinstance(expected, list):
        assert (batch["x"], "x_lengths" in batch) == (expected, False)
    else:
        assert torch.equal(batch["x"], expected)
