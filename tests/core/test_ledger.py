"""Counts of a lane, and its policy."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from helpers_bad import raw_items, texts
from hypothesis import given
from hypothesis import strategies as st

import uio_pipes as uio
from uio_pipes.base.errors import DataError, LeftOut, ListError, TooManyFailures
from uio_pipes.core.lane import Lane
from uio_pipes.core.ledger import Failures, Ledger
from uio_pipes.run.state import read_lane

# One ledger by itself


def bad(reason: str = "bad_audio", key: str = "") -> DataError:
    error = DataError(reason, "no sound", url="s.tar")
    error.key = key
    return error


def test_a_failure_is_counted_and_reported_with_its_stage() -> None:
    ledger, error = Ledger(), bad()
    ledger.fail(error, "decode_audio")
    assert (ledger.failures, ledger.skipped, ledger.streaks) == (1, {"bad_audio": 1}, {"decode_audio": 1})
    (report,) = ledger.reports
    assert report == "decode_audio: s.tar: no sound [bad_audio]"
    assert (report.error, report.stage) == (error, "decode_audio")


def test_what_is_left_out_or_only_noted_is_no_failure() -> None:
    ledger = Ledger(Failures(on_error="raise", max_failures=0, max_consecutive_failures=0))
    ledger.fail(LeftOut("excluded", "as wished"), "exclude")
    assert ledger.reports == []
    ledger.fail(bad("unclear_end"), "load_from_tar")
    ledger.fail(bad("suspect", key="u1"), "load_from_tar")
    assert ledger.skipped == {"excluded": 1, "unclear_end": 1, "suspect": 1}
    assert [hasattr(report, "error") for report in ledger.reports] == [False, True], "only with a key for quarantine"
    assert (ledger.failures, ledger.streaks) == (0, {})


@given(budget=st.integers(0, 20))
def test_the_failure_above_the_budget_stops_the_run(budget: int) -> None:
    ledger = Ledger(Failures(max_failures=budget))
    for _ in range(budget):
        ledger.fail(bad(), "decode_audio")
    with pytest.raises(TooManyFailures, match=rf"max_failures={budget};"):
        ledger.fail(bad(), "decode_audio")
    assert ledger.failures == budget + 1


def test_a_streak_is_of_one_stage_and_ends_with_a_success() -> None:
    ledger = Ledger(Failures(max_consecutive_failures=2))
    for _ in range(9):
        ledger.fail(bad(), "decode_audio")
        ledger.fail(bad(), "fbank")
        ledger.succeeded("decode_audio")
        ledger.succeeded("fbank")
    ledger.fail(bad(), "decode_audio")
    ledger.fail(bad(), "decode_audio")
    ledger.succeeded("fbank")
    with pytest.raises(TooManyFailures, match="3 failures in a row in decode_audio"):
        ledger.fail(bad(), "decode_audio")


def test_errors_are_raised_where_the_policy_or_their_kind_says_so() -> None:
    ledger, error = Ledger(Failures(on_error="raise")), bad()
    with pytest.raises(DataError) as raised:
        ledger.handle(error, "decode_audio")
    assert raised.value is error
    assert ledger.skipped == {"bad_audio": 1}
    with pytest.raises(ListError):
        Ledger().handle(ListError("no list"), "list_files")


def everything(ledger: Ledger) -> None:
    ledger.count("too_short")
    ledger.delivered([3, 5])
    ledger.fail(bad(), "decode_audio")
    ledger.succeeded("fbank")


def test_a_quiet_ledger_counts_and_raises_nothing() -> None:
    strict = Failures(on_error="raise", max_failures=0, max_consecutive_failures=0)
    for ledger in (Ledger(strict, quiet=True), Ledger(strict).silent()):
        everything(ledger)
        assert ledger.save() == Ledger().save()
        assert ledger.reports == []


def test_a_replay_is_quiet_until_its_end_even_after_an_error() -> None:
    ledger = Ledger()
    lane = Lane(ledger)
    with suppress(ValueError), lane.replay(skimming=True):
        assert (ledger.quiet, lane.mode.skimming) == (True, True)
        everything(ledger)
        raise ValueError
    assert (ledger.quiet, lane.mode.skimming) == (False, False)
    assert ledger.save() == Ledger().save()


def test_tokens_are_counted_beside_frames() -> None:
    ledger = Ledger()
    ledger.delivered([3, 5, 4], [7, 0, 2])
    ledger.delivered([6], [5], padded=0, padded_tokens=8)
    assert (ledger.frames, ledger.padded, ledger.tokens, ledger.padded_tokens) == (18, 15, 14, 29)
    stats = uio.Stats()
    stats.add(ledger.save())
    assert (stats.tokens, stats.padded_tokens, stats.token_padding_ratio) == (14, 29, 1 - 14 / 29)
    again = Ledger()
    again.load(json.loads(json.dumps(ledger.save())))
    assert again.save() == ledger.save()


# Whole runs; those that are stopped and resumed anywhere: tests/test_generated_graphs.py


def test_a_source_of_a_mix_that_does_not_fit_its_state_is_refused_before_the_first_batch() -> None:
    """It used to be restored when its turn came, in the middle of the training."""
    graph = uio.interleave({"a": texts("a", 40).shuffle(9), "b": texts("b", 40).shuffle(9)})
    loader = uio.Loader(graph)
    for sample in loader:
        if sample["key"].startswith("b"):
            break
    state = loader.state_dict()
    lane = read_lane(state, 0)
    nodes = lane.node_states
    nodes["sources"]["1"][2]["check"] ^= 1
    lane.nodes = json.dumps(nodes)
    resumed = uio.Loader(graph)
    resumed.load_state_dict(state | {"lane_000000": lane.text(0)})
    delivered = []
    with pytest.raises(uio.StateError, match="shuffle"):
        delivered += list(resumed)
    assert delivered == []


def test_utterances_are_counted_by_the_source_of_a_mix_also_after_a_resume() -> None:
    def loader() -> uio.Loader:
        mixed = uio.mix({n: texts(n, 40) for n in "ab"}, {"a": 3, "b": 1})
        return uio.Loader(mixed.filter(lambda sample: sample["key"] != "b0").batch(4), lanes=2)

    first, second, keys = loader(), loader(), []
    for step, batch in enumerate(first):
        keys += [sample["key"][0] for sample in batch]
        if step == 5:
            break
    assert first.stats().sources == {n: keys.count(n) for n in "ab"}
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    keys += [sample["key"][0] for batch in second for sample in batch]
    assert second.stats().sources == {n: keys.count(n) for n in "ab"}


@pytest.mark.parametrize(
    "then",
    [
        lambda p: p.dynamic_batch(10_000),
        lambda p: p.sort(5).batch(2),
        lambda p: p.filter(min_frames=1).batch(2),
        lambda p: p.map(_touched).batch(2),
        lambda p: p.concat(max_seconds=9).batch(2),
        lambda p: p.batch(2),
    ],
)
def test_what_is_wrong_with_an_utterance_is_said_as_such_whoever_asked_for_it(
    then: Callable[[uio.Pipeline], uio.Pipeline], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = raw_items(tmp_path, 3)
    Path(items[1]["wav"]).write_bytes(b"no audio")
    list(uio.Loader(then(uio.from_raw_list(items).decode_audio()).pad()))
    (told,) = [record.getMessage() for record in caplog.records if "[bad_audio]" in record.getMessage()]
    assert told.startswith('{"key": "R001"')


def _touched(sample: uio.Sample) -> uio.Sample:
    assert sample["wav"].numel()
    return sample
