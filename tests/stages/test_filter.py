"""Filters: inclusive bounds, WeNet's defaults, by the plan alone; no label longer than CTC can align."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_source import COUNT, SOURCES, decoded, speech
from helpers_bad import Given, audio, code_points, keys, raw_items, run, shard, texts
from hypothesis import given, settings
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.audio.length import Plan
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.stages.text.tokenize import CtcFilter, needed
from uio_pipes.stages.utterances.filter import Filter


def left(lengths: list[int], labels: list[int] | None = None, **bounds: Any) -> tuple[list[int], dict[str, int]]:
    """Lengths of those that stay, and why the others do not. ``labels``: number of labels of each."""
    ledger = Ledger()
    lane = Lane(ledger)
    graph: Any = Given(lengths, lane)
    if labels is not None:
        given = graph.next

        def labelled() -> Any:
            sample = given()
            sample.fields["label"] = [1] * labels[int(sample["key"])]
            return sample

        graph.next = labelled
    stage = Filter(**bounds)
    node = stage.build(graph, lane, Site("filter", 0))
    node.reset(None)
    return [len(sample["feat"]) for sample in node], ledger.skipped


@pytest.mark.parametrize(
    ("lengths", "labels", "bounds", "kept", "why"),
    [
        ([9, 10, 20, 21], None, {"min_frames": 10, "max_frames": 20}, [10, 20], {"too_short": 1, "too_long": 1}),
        ([9, 10, 10_240, 10_241], None, {}, [10, 10_240], {"too_short": 1, "too_long": 1}),
        ([1000] * 4, [0, 1, 200, 201], {}, [1000] * 2, {"too_few_tokens": 1, "too_many_tokens": 1}),
        ([2000, 2001, 10, 10], [1, 1, 10, 11], {}, [2000, 10], {"bad_output_input_ratio": 2}),
        (
            [100] * 4,
            [9, 10, 50, 51],
            {"min_output_input_ratio": 0.1, "max_output_input_ratio": 0.5},
            [100] * 2,
            {"bad_output_input_ratio": 2},
        ),
    ],
)
def test_bounds_are_inclusive_and_by_default_wenet_s(
    lengths: list[int], labels: list[int] | None, bounds: dict[str, float], kept: list[int], why: dict[str, int]
) -> None:
    assert left(lengths, labels, **bounds) == (kept, why)


def test_frames_are_of_10_ms_or_of_the_features(tmp_path: Path) -> None:
    items = raw_items(tmp_path, 2, samples=1600)  # 200 and 210 ms; a frame of features takes 25 ms
    audio = uio.from_raw_list(items).decode_audio()
    for graph, frames in ((audio, (20, 21)), (audio.resample(16_000), (20, 21)), (audio.fbank(20), (18, 19))):
        for at in range(2):
            found, _ = run(graph.filter(min_frames=frames[at], max_frames=frames[at]))
            assert keys(found) == [items[at]["key"]]


@pytest.mark.parametrize("truth", [True, 1, "yes", np.bool_(True), False, None, 0, "", np.bool_(False)])
def test_any_true_value_keeps_and_any_false_one_leaves_out(tmp_path: Path, truth: Any) -> None:
    found, loader = run(uio.from_raw_list(raw_items(tmp_path, 2)).filter(lambda s: truth))
    assert (len(found), loader.stats().skipped) == ((2, {}) if truth else (0, {"filter": 2}))


def test_labels_are_not_looked_at_where_there_are_none(tmp_path: Path) -> None:
    graph = uio.from_raw_list(raw_items(tmp_path, 3)).decode_audio()
    assert len(run(graph.filter(token_min_length=5))[0]) == 3
    assert len(run(graph.tokenize(lambda t: [1]).filter(token_min_length=5))[0]) == 0


def test_each_utterance_is_kept_with_its_own_probability_in_each_epoch_anew(tmp_path: Path) -> None:
    graph = texts("U", 400)
    table = {f"U{i}": (0.0, 1.0, 0.25)[i % 3] for i in range(300)}  # the others are not in it
    (tmp_path / "table").write_text("".join(f"{key} {p}\n" for key, p in table.items()))
    by_dict, by_file = graph.keep(table, otherwise=0.5), graph.keep(tmp_path / "table", otherwise=0.5)
    assert by_dict.fingerprint() == by_file.fingerprint() != graph.keep(table | {"U0": 0.5}, 0.5).fingerprint()
    loader, kept = uio.Loader(by_file, seed=3), list[set[str]]()
    for _ in range(20):
        kept.append(set(keys(loader)))
        assert loader.stats().skipped == {"keep": 400 - len(kept[-1])}
        assert loader.stats().failures == 0
    assert kept[0] == set(keys(uio.Loader(by_dict, seed=3, num_workers=2, lanes=3)))
    assert len({frozenset(one) for one in kept}) == len(kept)
    often = {f"U{i}": sum(f"U{i}" in one for one in kept) for i in range(400)}
    assert {often[key] for key, p in table.items() if p in (0, 1)} == {0, 20}
    for p, group in (
        (0.25, [often[key] for key, one in table.items() if one == 0.25]),
        (0.5, list(often.values())[300:]),
    ):
        assert abs(np.mean(group) / 20 - p) < 4 * (p * (1 - p) / (20 * len(group))) ** 0.5  # standard deviations


@pytest.mark.parametrize(("text", "told"), [("a 0.5\nb 2\n", "line 2: 'b 2"), ("a\n", "line 1"), ("", "")])
def test_a_table_of_probabilities_that_cannot_be_read_names_its_line(tmp_path: Path, text: str, told: str) -> None:
    if text:
        (tmp_path / "table").write_text(text)
    expected = f"{told}.*is not KEY PROBABILITY" if text else "keep: cannot read .*No such file"
    with pytest.raises(uio.ListError, match=expected):
        list(uio.Loader(texts("U", 4).keep(tmp_path / "table")))


# What is left out costs nothing


def test_filtering_on_labels_decodes_nothing(tmp_path: Path) -> None:
    """The audio has a sound header and damaged content: decoding it would fail, and be counted."""
    damaged = bytearray(audio(4000, form="FLAC"))
    damaged[300:-300] = bytes(len(damaged) - 600)
    parts = []
    for i in range(4):
        parts += [(f"K{i}.txt", b"x" * i), (f"K{i}.flac", audio(4000, form="FLAC") if i == 2 else bytes(damaged))]
    graph = uio.from_shard_list(shard(tmp_path / "x.tar", parts)).decode_audio().fbank(20).tokenize(code_points)
    kept = graph.filter(min_frames=1, token_min_length=2, token_max_length=2)
    batches, loader = run(kept.batch(4).pad())
    assert keys(batches) == ["K2"]
    assert loader.stats().skipped == {"too_few_tokens": 2, "too_many_tokens": 1}
    assert loader.stats().failures == 0
    batches, loader = run(graph.batch(4).pad())
    assert loader.stats().failures == 3, "the damage was none"


def test_bounds_on_frames_need_no_labels_and_no_audio_behind_a_map_that_may_write_anything(tmp_path: Path) -> None:
    touched: list[str] = []

    def mapped(sample: Any) -> Any:
        touched.append(sample["key"])
        return sample

    listed = uio.from_raw_list(raw_items(tmp_path, 3, samples=8000)).decode_audio().map(mapped, length="same")
    assert len(run(listed.filter())[0]) == 3
    touched.clear()
    assert run(listed.filter(min_frames=120))[1].stats().skipped == {"too_short": 3}
    assert not touched


def test_labels_behind_such_a_map_are_counted_where_a_tokenizer_stands_before(tmp_path: Path) -> None:
    listed = uio.from_raw_list(raw_items(tmp_path, 3, samples=8000)).decode_audio().tokenize(code_points)
    mapped = listed.map(lambda sample: {**sample, "label": []}, length="same")
    assert run(mapped.filter())[1].stats().skipped == {"too_few_tokens": 3}


# Shares


def chosen(graph: uio.Pipeline, **options: Any) -> list[str]:
    return [sample["key"] for sample in uio.Loader(graph, **options)]


def test_a_share_is_chosen_by_the_keys_alone() -> None:
    items = [{"key": f"utterance-{i}", "txt": "t"} for i in range(5_000)]
    everything = uio.from_iterable(items).sharding_filter()
    tenth = chosen(everything.filter(share=0.1))
    assert abs(len(tenth) / len(items) - 0.1) < 0.01
    assert set(chosen(everything.filter(share=0.05))) < set(tenth)
    rest = chosen(everything.filter(share=(0.1, 1)))
    assert sorted(tenth + rest) == sorted(item["key"] for item in items)
    other = set(chosen(everything.filter(share=0.1, salt="a")))
    assert abs(len(other & set(tenth)) / len(items) - 0.01) < 0.005
    assert sorted(chosen(everything.filter(share=0.1), lanes=4, seed=9)) == sorted(tenth)
    backwards = uio.from_iterable([{"key": item["key"], "txt": "other"} for item in reversed(items)])
    assert chosen(backwards.filter(share=0.1)) == tenth[::-1]


def test_a_share_stays_the_same_for_ever() -> None:
    items = [{"key": f"U{i}", "txt": "t"} for i in range(30)]
    assert chosen(uio.from_iterable(items).filter(share=0.2, salt="held out")) == ["U10", "U11", "U17", "U23", "U29"]
    loader = uio.Loader(uio.from_iterable(items).filter(share=0.2))
    list(loader)
    assert loader.stats().skipped["other_share"] + loader.stats().utterances == 30


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=40, unique=True),
    fraction=st.floats(0.001, 0.999),
    lanes=st.integers(1, 3),
    data=st.data(),
)
def test_the_parts_of_a_split_are_disjoint_whole_and_stable(
    keys: list[str], fraction: float, lanes: int, data: st.DataObject
) -> None:
    def kept(part: uio.Pipeline, options: dict[str, Any]) -> list[str]:
        try:
            return chosen(part, **options)
        except uio.UioError as error:
            return [] if "nothing is left" in str(error) else [str(error)]  # of so few, none may be there

    def parts(keys: list[str], **options: Any) -> list[set[str]]:
        source = uio.from_iterable([{"key": key, "txt": "t"} for key in keys]).sharding_filter()
        found = [kept(part, options) for part in source.split(fraction)]
        assert sorted(found[0] + found[1]) == sorted(keys)
        return [set(part) for part in found]

    train, valid = parts(keys)
    assert train | valid == {*keys}
    assert not train & valid
    fewer = data.draw(st.permutations(keys))[1:]
    for part, smaller in zip((train, valid), parts(fewer, lanes=lanes, seed=lanes), strict=True):
        assert smaller == part & {*fewer}, "data that are added move nobody, in any order and lanes"


def test_a_part_is_split_again_in_the_same_proportion() -> None:
    rows = uio.from_iterable([{"key": f"U{i}", "txt": "t"} for i in range(4_000)]).sharding_filter()
    rest, test = rows.split(0.5)
    train, valid = rest.split(0.5)
    half, _ = train.split(0.5)
    sets = [set(chosen(part)) for part in (train, valid, test)]
    assert len(set.union(*sets)) == sum(map(len, sets)) == 4_000
    assert [round(len(part) / 1_000, 1) for part in sets] == [1.0, 1.0, 2.0]
    assert 450 < len(chosen(half)) < 550
    mixed, _ = uio.mix({"a": train, "b": valid.map(lambda s: {**s, "key": f"b{s['key']}"})}).split(0.5)
    assert 900 < len(chosen(mixed)) < 1_100


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "conversations"])
def test_a_split_goes_by_the_keys_of_any_source_before_and_after_other_stages(name: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    corpus = source.pipeline(tmp_path, speech())
    keys = sorted(chosen(corpus))
    sides = [sorted(chosen(part)) for part in corpus.split(0.6)]
    assert sorted(sides[0] + sides[1]) == keys
    assert len(keys) == COUNT
    late = [chosen(part, seed=3) for part in decoded(source, corpus).shuffle(5).split(0.6)]
    assert [sorted(part) for part in late] == sides
    batched = [uio.Loader(part.batch(2)) for part in corpus.split(0.6)]
    assert [sorted(sample["key"] for batch in part for sample in batch) for part in batched] == sides


def test_a_split_takes_a_fraction_of_utterances() -> None:
    rows = uio.from_iterable([{"key": "a", "txt": "t"}])
    for wrong in (0, 1, 1.5, -0.1, True, None, "0.9", math.nan):
        with pytest.raises(uio.PipelineError, match="split: fraction must be above 0 and below 1"):
            rows.split(wrong)  # type: ignore[arg-type]
    for late in (rows.batch(2), uio.list_files("none.list")):
        with pytest.raises(uio.PipelineError, match="filter works on samples"):
            late.split(0.9)


# ctc_filter: against torch's own loss and convolutions, by plan and as realized


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
