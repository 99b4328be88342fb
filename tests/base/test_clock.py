"""The clock of a process: which spans it keeps, and whose time is whose."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uio_pipes.base import clock
from uio_pipes.base.clock import HEADERS, READING, Clock, add_own_times
from uio_pipes.io.local import LocalFile

MS = 1_000_000


@pytest.fixture(name="timer")
def _timer() -> Iterator[Clock]:
    yield clock.start()
    clock.stop()


def test_what_is_short_is_a_part_of_what_called_it(timer: Clock) -> None:
    def outer() -> None:
        clock.timed("long")(time.sleep)(0.002)
        clock.timed("short")(int)()

    clock.timed("outer")(outer)()
    (long, began, ended, outer_, first, last) = timer.taken()
    assert (long, outer_) == ("long", "outer"), "in the order of their ends"
    assert first <= began < began + 2 * MS <= ended <= last
    assert timer.taken() == []


def test_time_within_is_counted_once_and_headers_have_the_reading_of_their_bytes() -> None:
    spans = [
        READING,
        1,
        3,
        HEADERS,
        0,
        10,
        READING,
        12,
        15,
        "decode",
        11,
        20,
        "filter",
        0,
        30,
        (READING, "io", 5),
        0,
        99,
    ]
    own: dict[str, int] = {}
    add_own_times(own, spans)
    assert own == {READING: 3, HEADERS: 10, "decode": 6, "filter": 11}
    add_own_times(own, ["filter", 40, 41])
    assert own["filter"] == 12
    assert sum(own.values()) == 31, "the main thread's time, once"


def test_other_threads_have_names(timer: Clock) -> None:
    thread = threading.Thread(target=clock.timed("fetch")(time.sleep), args=(0.001,), name="io-1")
    thread.start()
    thread.join()
    assert timer.taken()[0] == ("fetch", "io-1", thread.native_id)


def test_what_began_before_the_clock_is_no_span(timer: Clock) -> None:
    clock.note("before", clock.now() - 60_000 * MS)
    assert timer.taken() == []


def test_an_error_is_timed_and_nothing_is_kept_once_the_clock_has_stopped(timer: Clock) -> None:
    @clock.timed("fails")
    def fail() -> None:
        time.sleep(0.001)
        raise ValueError("as told")

    for _ in range(2):
        with pytest.raises(ValueError, match="as told"):
            fail()
        clock.stop()
    clock.note("late", 0)
    assert timer.taken()[::3] == ["fails"]


def test_a_node_runs_as_before_when_the_clock_stops(timer: Clock) -> None:
    class Slow:
        def next(self) -> str:
            time.sleep(0.001)
            return "item"

    node = Slow()
    timer.follow(node, "slow", only_link=False)
    assert (node.next(), timer.taken()[0]) == ("item", "slow")
    clock.stop()
    assert "next" not in vars(node)
    assert (node.next(), timer.taken()) == ("item", [])


def test_a_batch_with_many_utterances_is_traced_in_detail_up_to_a_number_of_spans(
    timer: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Node:
        def next(self) -> None:
            timer.keep("within", clock.now(), clock.now())

    monkeypatch.setattr(clock, "MOST", 3 * 10)
    node = Node()
    timer.follow(node, "node", only_link=False)
    assert "next" in vars(node)
    for _ in range(20):
        node.next()
    assert clock.detailed is None, "the rest runs as other batches do"
    assert "next" not in vars(node)
    assert clock.running is timer


def test_outside_of_detail_only_reads_that_waited_are_kept(timer: Clock) -> None:
    ended = clock.now()
    timer._started = 0
    for wanted, names in ((True, ["map", READING, READING]), (False, ["map", READING])):
        clock.detail(wanted)
        for name, microseconds in (("map", 50), (READING, 500), (READING, 50)):
            timer.keep(name, ended - 1000 * microseconds, ended)
        assert timer.taken()[::3] == names


def test_a_read_that_is_not_kept_costs_no_call_of_python(timer: Clock, tmp_path: Path) -> None:
    """There are two of them for an utterance, in all batches: this is most of what a trace costs."""
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    file, calls = LocalFile(str(path)), list[str]()
    file.read_upto(0, 10)

    def called(frame: Any, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    clock.detail(False)
    timer.reads = 60_000 * MS  # the machine may be slow
    sys.setprofile(called)
    file.read_upto(0, 10)
    sys.setprofile(None)
    assert "read_upto" in calls
    assert not {"note", "keep"} & {*calls}


def test_lines_name_their_process_and_each_thread_once(timer: Clock) -> None:
    timer._started = 0
    for began in (3_000, 9_999):
        timer.keep('decode "raw"', began, began + 51_001)
        timer._spans += [("fetch", "io-1", 77), began, began + 60_000]
    named, *events = json.loads("[" + timer.lines()[1:] + "]")
    assert (named["ph"], named["name"], named["args"]) == ("M", "process_name", {"name": "worker"})
    assert [e["args"]["name"] for e in events if e["ph"] == "M"] == ["main", "io-1"]
    spans = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert spans == [('decode "raw"', 3, 51), ("fetch", 3, 60), ('decode "raw"', 9, 52), ("fetch", 9, 60)]
    assert timer.lines() == ""
