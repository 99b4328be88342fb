"""Shares of the utterances that settings, or damage, may lose: beyond them the run stops, wherever it was resumed."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from command import ranks
from contract import carried, keys_of
from corpus import wav_bytes
from helpers_bad import code_points
from processes import raises
from torch.utils.data import DataLoader

import uio_pipes as uio
from uio_pipes.tokenizers import CharTokenizer
from uio_pipes.tools.data.cmvn import compute_cmvn
from uio_pipes.tools.reports.bench import bench
from uio_pipes.tools.reports.simulate import simulate


def texts(count: int, long: Callable[[int], bool]) -> uio.Pipeline:
    """Texts of 10 letters, or of 90: those are above the budget of :func:`batched`."""
    rows = [{"key": f"u{i}", "txt": "a" * (90 if long(i) else 10 + i % 3)} for i in range(count)]
    return uio.from_iterable(rows).sharding_filter().tokenize(code_points)


def batched(graph: uio.Pipeline) -> uio.Pipeline:
    return graph.shuffle(100).dynamic_batch(max_tokens=60)


# Settings


def dictionary(folder: Path) -> CharTokenizer:
    (folder / "units.txt").write_text("<blank> 0\n<unk> 1\nx 2\n<sos/eos> 3\n")
    return uio.CharTokenizer(folder / "units.txt")


RECORDINGS = [{"key": f"u{i}", "wav": wav_bytes(i, 8000 if i % 3 else 16000), "txt": "abx"} for i in range(60)]
LOSING: dict[str, tuple[Callable[[Path], uio.Pipeline], str]] = {
    "a budget": (lambda _: batched(texts(60, lambda i: i > 0)), r"59 as over_budget by dynamic_batch\(max_tokens=60\)"),
    "rates": (
        lambda _: uio.from_iterable(RECORDINGS).sharding_filter().decode_audio().fbank(8).batch(30).pad(),
        r"as mixed_rates by pad\(\) \(for example .* put \.resample\(16_000\)",
    ),
    "a field": (
        lambda _: uio.from_iterable([{"key": f"u{i}", **({"txt": "a"} if i % 9 else {})} for i in range(90)])
        .sharding_filter()
        .tokenize(code_points)
        .filter(token_min_length=0)
        .batch(4),
        r"as missing_text by tokenize\(code_points .*has no text",
    ),
    "a dictionary": (
        lambda folder: uio.from_iterable(RECORDINGS).sharding_filter().tokenize(dictionary(folder)).batch(4),
        r"60 of 60 .* as mostly_unknown by tokenize\(CharTokenizer\(.*\)\) \(more than half of their labels are <unk>",
    ),
    "a function": (
        lambda _: texts(60, lambda i: i % 5 == 0).map(lambda sample: sample["txt"][60] and sample).batch(4),
        r"as map_failed by map\(<lambda>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "lanes": 5}], ids=str)
@pytest.mark.parametrize("name", LOSING)
def test_a_setting_that_loses_much_of_a_short_epoch_is_an_error_that_names_it(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """It used to end as if all was well."""
    made, told = LOSING[name]
    with pytest.raises(uio.TooManyFailures, match=told) as raised:
        list(uio.Loader(made(tmp_path), **options))
    assert "more than max_setting_share=0.05" in str(raised.value)
    assert "allow more with Loader(failures=uio.Failures(max_setting_share=…))" in str(raised.value)
    list(uio.Loader(made(tmp_path), **options, failures=uio.Failures(max_setting_share=1)))


@pytest.mark.parametrize("workers", [0, 2])
def test_it_is_an_error_in_other_loaders(workers: int) -> None:
    loader = DataLoader(batched(texts(60, lambda i: i % 2 > 0)).as_dataset(), batch_size=None, num_workers=workers)
    with raises(uio.TooManyFailures, match="as over_budget by dynamic_batch", loader=loader):
        list(loader)


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        (lambda p: p, {}),
        (lambda p: p, {"num_workers": 2, "lanes": 4}),
        (lambda p: p.repeat(), {"steps_per_epoch": 10_000}),
        (lambda p: uio.mix({"a": p, "b": texts(3_000, lambda i: False)}), {}),
    ],
)  # fmt: skip
def test_a_long_epoch_stops_early(graph: Any, options: dict[str, Any]) -> None:
    loader = uio.Loader(batched(graph(texts(3_000, lambda i: i % 5 == 0))), **options)
    with pytest.raises(uio.TooManyFailures, match="max_setting_share"):
        list(loader)
    assert loader.stats().utterances < 700


def test_a_stream_whose_epochs_are_short_stops_at_the_end_of_one() -> None:
    loader = uio.Loader(batched(texts(60, lambda i: i % 2 > 0).repeat()), steps_per_epoch=4)
    with pytest.raises(uio.TooManyFailures):
        list(loader)
    assert loader.stats().batches == 4


HOLDING: dict[str, Callable[[uio.Pipeline], uio.Pipeline]] = {
    "in order": lambda p: p.dynamic_batch(max_tokens=60),
    "sorted": lambda p: p.shuffle(300).sort(900, length="tokens").dynamic_batch(max_tokens=60),
    "in buckets": lambda p: p.bucket_batch([10, 11], max_tokens=80, max_wait=2_000),
}


@pytest.mark.parametrize("name", HOLDING)
def test_what_is_in_buffers_or_passed_over_counts_as_not_lost(name: str) -> None:
    """One of 25 is lost. Stopped and resumed anywhere, and with batches passed over, that is never more than 5 %."""
    graph = HOLDING[name](texts(4_000, lambda i: i % 25 == 7))
    whole = uio.Loader(graph, lanes=4)
    total = len(list(whole))
    counts, state = whole.stats().skipped, None
    for stop in (*range(3, 40, 9), 200, None):
        loader = uio.Loader(graph, lanes=4, num_workers=2 if stop == 30 else 0)
        if state is not None:
            loader.load_state_dict(state)
        for number, _ in enumerate(loader, 1):
            if number == stop:
                break
        state = carried(loader.state_dict())
    assert loader.stats().skipped == counts
    skipping = uio.Loader(graph, lanes=4)
    skipping.skip(total - 5)
    assert len(list(skipping)) == 5


def test_a_resumed_run_stops_where_an_undisturbed_one_does() -> None:
    graph = batched(texts(3_000, lambda i: i % 5 == 0 if i > 1_000 else False))

    def delivered(stops: list[int]) -> list[list[str]]:
        keys, state = list[list[str]](), None
        for stop in [*stops, 0]:
            loader = uio.Loader(graph, lanes=3, seed=5)
            if state is not None:
                loader.load_state_dict(state)
            try:
                for number, batch in enumerate(loader, 1):
                    keys.append(keys_of(batch))
                    if number == stop:
                        break
            except uio.TooManyFailures:
                return keys
            state = carried(loader.state_dict())
        raise AssertionError("the run went on")

    undisturbed = delivered([])
    assert 0 < len(undisturbed) < 500
    assert delivered([len(undisturbed) // 2, 7, 20]) == undisturbed


def test_a_filter_that_keeps_some_is_no_loss_and_one_odd_utterance_of_a_few_is_none() -> None:
    assert list(uio.Loader(batched(texts(60, lambda i: i > 5).filter(token_max_length=50))))
    assert list(uio.Loader(batched(texts(10, lambda i: i == 3))))


def test_a_simulation_says_that_a_loader_would_stop() -> None:
    losing, fine = (simulate(batched(texts(200, long))) for long in (lambda i: i % 5 == 0, lambda i: i % 50 == 0))
    (note,) = losing.notes
    assert note.startswith("a loader stops here: 40 of 200 utterances (20.0%) are lost by a setting")
    assert "by dynamic_batch(max_tokens=60) (for example dynamic_batch: " in note
    assert fine.notes == []


def test_commands_that_count_failures_go_on(tmp_path: Path) -> None:
    """The remedy, an argument of the loader, is not theirs to take."""
    named = [{"path": str(tmp_path / f"{n % 4}.wav"), "text": "a"} for n in range(60)]
    for n in range(3):
        (tmp_path / f"{n}.wav").write_bytes(wav_bytes(n, 16000))
    fields = {"key": "path", "wav": "path", "txt": "text"}
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in named))
    graph = uio.from_table(tmp_path / "a.jsonl", fields=fields).decode_audio().fbank(8).batch(4).pad()
    with pytest.raises(uio.TooManyFailures, match=r"15 of 60 .* as no_audio .*fetch it"):
        list(uio.Loader(graph))
    sums = compute_cmvn(tmp_path / "a.jsonl", tmp_path / "cmvn", fields=fields)
    assert (sums.utterances, sums.failures) == (45, 15)
    assert bench(graph, seconds=0.2).failures


def test_the_remedy_for_rows_without_audio_or_text_is_right(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": f"u{n}", "path": "", "text": "a"} for n in range(9)] + [
        {"id": "u", "path": None, "text": "a"}
    ]
    fields = {"key": "id", "wav": "path", "txt": "text"}
    with pytest.raises(uio.TooManyFailures, match=r"keep only rows that have one: keep=\{'path': '\.\+'\}"):
        list(uio.Loader(uio.from_table(rows, fields=fields).batch(2)))
    (tmp_path / "v.wav").write_bytes(wav_bytes(1, 8000))
    rows += [{"id": key, "path": str(tmp_path / "v.wav"), **text} for key, text in (("v", {"text": "a"}), ("w", {}))]
    loader = uio.Loader(uio.from_table(rows, fields=fields, keep={"path": ".+"}).batch(2))
    assert [[sample["key"] for sample in batch] for batch in loader] == [["v"]]
    assert loader.stats().skipped == {"not_kept": 10, "missing_text": 1}


# Damage


@pytest.mark.parametrize(("count", "every", "fails"), [(3_000, 8, True), (3_000, 12, False), (900, 8, False)])
def test_damage_has_a_share_from_a_thousand_utterances_on(count: int, every: int, fails: bool) -> None:
    rows = [
        {"key": f"u{i}", "wav": wav_bytes(1, seconds=(0.1, 0.1)) if i % every else b"no audio"} for i in range(count)
    ]
    graph = uio.from_iterable(rows).sharding_filter().decode_audio().batch(10)
    if not fails:
        assert list(uio.Loader(graph))
        return
    with pytest.raises(uio.TooManyFailures, match=r"are lost to damage, more than max_damage_share=0\.1; for example"):
        list(loader := uio.Loader(graph))
    assert loader.stats().utterances < 1_000
    assert list(uio.Loader(graph, failures=uio.Failures(max_damage_share=0.2)))


@pytest.mark.parametrize("value", [-0.1, 1.1, True, "all", float("nan")])
@pytest.mark.parametrize("name", ["max_setting_share", "max_damage_share"])
def test_a_share_is_from_0_to_1(name: str, value: Any) -> None:
    with pytest.raises(uio.PipelineError, match=rf"{name} must be a fraction from 0 to 1"):
        uio.Failures(**{name: value})


# Ranks that step together


def on_each_rank(out: str) -> None:
    dist.init_process_group("gloo")
    here = dist.get_rank() == 1  # only its lane loses anything
    graph = batched(texts(200, lambda i: i % 4 == 1))
    for way in ("stop", "share"):
        try:
            list(uio.Loader(graph, uneven=way))
        except uio.TooManyFailures as error:
            Path(out, f"{way}-{dist.get_rank()}").write_text(f"{here} {error}")
    dist.destroy_process_group()


def test_all_ranks_that_end_together_stop(tmp_path: Path) -> None:
    done = ranks(2, __file__, tmp_path)
    assert done.returncode == 0, done.stderr
    for way in ("stop", "share"):
        idle, losing = ((tmp_path / f"{way}-{rank}").read_text() for rank in (0, 1))
        assert "of 200 utterances" in losing or way == "share"
        assert "as over_budget by dynamic_batch(max_tokens=60)" in losing
        assert "other ranks name it" in idle


if __name__ == "__main__":
    on_each_rank(sys.argv[1])
