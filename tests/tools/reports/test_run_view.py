"""The view of a running training, from records whose numbers are known."""

from pathlib import Path
from typing import Any

import pytest
from page_reader import Page

import uio_pipes as uio
from uio_pipes.core.statistics import NodeStats, RunRecord, Waits, append
from uio_pipes.tools.reports.page import Alarm, html
from uio_pipes.tools.reports.run_view import RankRecords, charts, ranks_in, tables

HOUR = 360_000  # frames
RANKS = "Ranks in epoch 0, first those that do not run or wait most"


def record(time: float, rank: int = 0, **given: Any) -> RunRecord:
    """Ten batches, half an hour of audio and 2 s of waiting in every 10 s."""
    about = {name: given.pop(name) for name in ("pid", "epoch", "state", "peer", "world_size") if name in given}
    n = round(time / 10)
    counts = {"batches": 10 * n, "utterances": 90 * n, "frames": n * HOUR // 2, "padded": n * HOUR, "waited": 2.0 * n}
    fixed = {"every": 10.0, "host": "h", "pid": 1, "peer": 0, "rank": rank, "world_size": 2, "epoch": 0}
    stats = uio.Stats(**{**counts, "skipped": {"too_long": 10 * n}, **given})  # type: ignore[arg-type]
    return RunRecord(**{"time": time, **fixed, "state": "running", "memory": 2 * 10**9, "stats": stats, **about})


def rank(number: int = 0, end: int = 10, **given: Any) -> RankRecords:
    return RankRecords([record(10.0 * i, number, **given) for i in range(end + 1)])


def shown(ranks: list[RankRecords], now: float) -> dict[str, list[dict[str, Any]]]:
    return {
        title: [dict(zip(headings, row, strict=True)) for row in rows] for title, headings, rows in tables(ranks, now)
    }


def test_figures_of_each_rank_and_of_all() -> None:
    all_, first, second = shown([rank(0), rank(1)], 101)[RANKS]
    assert (first["speed"], second["waiting"], first["padding"], first["is"]) == ("0.05 h/s", "20%", "50.0%", "running")
    assert (all_["speed"], all_["waiting"], all_["batches"], all_["GB"]) == ("0.1 h/s", "20%", "100", "4.00")
    (left,) = shown([rank(0), rank(1)], 101)["Left out in this epoch"]
    assert left == {"reason": "too_long", "count": "200", "of the utterances": "10.00%"}


def test_waits_are_those_of_the_last_records_and_of_all_ranks() -> None:
    def waiting(number: int, place: int) -> RankRecords:
        stats = [Waits({-50: 1_000}), Waits({-50: 1_000, place: 10})]
        return RankRecords([record(100.0 + 10 * i, number, waits=waits) for i, waits in enumerate(stats)])

    all_, first, second = shown([waiting(0, -40), waiting(1, -20)], 111)[RANKS]
    assert (first["p50/p95/p99"], second["p50/p95/p99"]) == ("11/11/11 ms", "106/106/106 ms")
    assert all_["p50/p95/p99"] == "11/106/106 ms"
    assert shown([rank(0)], 101)[RANKS][0]["p50/p95/p99"] == "", "nothing came lately"


def test_a_rank_that_says_nothing_for_long_is_marked() -> None:
    all_, first, second = shown([rank(0), rank(1, end=4)], 105)[RANKS]
    assert (all_["is"], first["is"], second["is"]) == ("1 of 2 running", "no record for 65 s", "running")
    assert (isinstance(all_["is"], Alarm), isinstance(first["is"], Alarm), first["rank"]) == (True, True, 1)
    over = RankRecords([*rank(0).records, record(101.0, 0, state="over", world_size=1)])
    assert [row["is"] for row in shown([over], 9_999)[RANKS]] == ["epoch over", "epoch over"]


def test_a_rank_that_left_is_marked_unless_all_did() -> None:
    left = RankRecords([*rank(1).records, record(101.0, 1, state="left")])
    all_, first, second = shown([rank(0), left], 105)[RANKS]
    assert (all_["is"], first["is"], second["is"]) == ("1 of 2 running", "left 4 s ago", "running")
    assert isinstance(first["is"], Alarm)
    alone = RankRecords([*rank(0).records, record(101.0, 0, state="left", world_size=1)])
    all_, only = shown([alone], 105)[RANKS]
    assert (all_["is"], only["is"], isinstance(only["is"], Alarm)) == ("left", "left 4 s ago", False)


def test_ranks_that_do_not_run_count_in_totals_but_not_at_present() -> None:
    left = RankRecords([*rank(2).records, record(101.0, 2, state="left", failures=3)])
    all_, *_ = shown([rank(0), rank(1, end=4), left], 105)[RANKS]
    assert (all_["speed"], all_["waiting"], all_["GB"], all_["failures"]) == ("0.05 h/s", "20%", "2.00", "3")
    all_, *_ = shown([rank(0), rank(1)], 9_999)[RANKS]
    assert (all_["is"], all_["speed"], all_["waiting"], all_["GB"]) == ("0 of 2 running", "0 h/s", "", "0.00")


def test_ranks_that_have_written_nothing_are_told() -> None:
    all_, missing, _ = shown([rank(1)], 101)[RANKS]
    assert (all_["is"], missing["rank"], missing["is"]) == ("1 of 2 running", "0", "has written nothing")
    assert isinstance(missing["is"], Alarm)
    _, missing, _ = shown([rank(1, world_size=64)], 101)[RANKS]
    assert (missing["rank"], missing["is"]) == ("0, 2, 3, …", "63 have written nothing")


def test_ranks_that_need_attention_come_first() -> None:
    many = [rank(n, world_size=40) for n in range(38)] + [rank(38, world_size=40, waited=5.0), rank(39, end=2)]
    many[38] = RankRecords([record(90.0, 38, world_size=40), record(100.0, 38, waited=25.0, world_size=40)])
    assert [row[0] for row in tables(many, 105)[0][2]] == ["all", 39, 38, *range(38)]


def test_sources_tokens_nodes_and_processes_that_get_the_same_batches() -> None:
    node = {"node1": NodeStats(utterances=30, seconds=1.5, restarts=1)}
    given: dict[str, Any] = {
        "sources": {"read": 30, "heard": 10},
        "nodes": node,
        "workers": 3,
        "frames": 0,
        "padded": 0,
    }
    first = RankRecords([record(90.0, **given, tokens=0), record(100.0, **given, tokens=500, padded_tokens=1_000)])
    peer = RankRecords([r.__class__(**{**vars(r), "rank": 1, "peer": 1}) for r in first.records])
    found = shown([first, peer], 101)
    assert [(row["source"], row["share"]) for row in found["Shares of the sources"]] == [
        ("read", "75.0%"),
        ("heard", "25.0%"),
    ]
    all_ = found[RANKS][0]
    assert (all_["speed"], all_["padding"], all_["workers"]) == ("50 tokens/s", "50.0%", 3)
    assert found["Nodes"] == [{"node": "node1", "utterances": "30", "utterances/s of an actor": "20", "restarts": 1}]


def test_curves_go_over_restarts_and_epochs_and_add_up() -> None:
    again = [record(10.0 * i + 200, pid=2, frames=i * HOUR, sources={"a": i, "b": i}) for i in range(11)]
    next_epoch = [record(10.0 * i + 310, pid=2, epoch=1, frames=i * HOUR, sources={"a": i}) for i in range(11)]
    one = RankRecords([*rank(0).records, *again, *next_epoch])
    drawn = {chart.title: chart for chart in charts([one])}
    speed = dict(zip(drawn["Throughput"].x, drawn["Throughput"].series["all ranks"], strict=True))
    near = {minute: value for minute in (1, 4, 6) for x, value in speed.items() if abs(float(x) - minute) < 0.03}
    assert near == pytest.approx({1: 0.05, 4: 0.1, 6: 0.1})
    assert any(value != value for value in speed.values()), "nothing is known between the two runs"
    mix = drawn["Shares of the sources"].series
    assert (list(mix), mix["a"][-1], mix["b"][-1], mix["a"][85]) == (["a", "b"], 1.0, 0.0, 0.5)
    assert max(drawn["Failures"].series["all ranks"]) == 0
    both = {chart.title: chart for chart in charts([one, RankRecords([*rank(1).records, *again])])}
    assert both["Throughput"].series["all ranks"][5] == pytest.approx(0.1)
    Page(html("run", tables([one], 0), list(drawn.values()))).check()


def test_a_new_run_on_fewer_ranks_hides_the_others(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path / "watch", record(10.0, number, world_size=3))
    append(tmp_path / "watch", record(20.0, 0, world_size=2))
    assert [one.last.rank for one in ranks_in(str(tmp_path))] == [0, 1]
    assert charts(ranks_in(str(tmp_path))) != charts([]) == []
    with pytest.raises(uio.ListError, match=r"uio\.watch"):
        ranks_in(str(tmp_path / "none"))
