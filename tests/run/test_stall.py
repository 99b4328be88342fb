"""What hangs is named, ends, or is passed over: a FIFO, a server that stops answering, stopped workers, and a disk that
hangs so that no process that reads from it can be killed."""

import contextlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
import torch
import torch.distributed as dist
from command import ranks
from contract import carried, digest, keys_of
from hung_disk import can_hang, hung_disk
from processes import children, environment

import uio_pipes as uio
from uio_pipes.run.stall import Stalled
from uio_pipes.tools.reports.run_view import ranks_in, tables

SKIP: dict[str, Any] = {"stall": 0.4, "stall_limit": 0.8, "failures": uio.Failures(hung="skip")}
HANGS = "7"  # the key of the utterance that hangs
needs_disk = pytest.mark.skipif(not can_hang(), reason="only root may mount a disk that hangs (FUSE)")


def texts(hang: Callable[[], object], count: int = 24) -> uio.Pipeline:
    """Utterances of which one hangs in a function of the user's; those before it are made, and others come after."""

    def read(sample: Any) -> Any:
        if sample["key"] == HANGS:
            hang()
        return sample

    return uio.from_iterable([{"key": str(i)} for i in range(count)]).sharding_filter().map(read).batch(2)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A FIFO that nobody writes to."""
    os.mkfifo(path := tmp_path / "fifo")
    return path


@pytest.fixture
def server() -> Iterator[str]:
    """The URL of a server that takes a request, sends the beginning of an answer, and says no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connections = []
            while True:
                try:
                    connections.append(listening.accept()[0])
                    connections[-1].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/a.wav"
        listening.shutdown(socket.SHUT_RDWR)


# What is said, and the error


@pytest.mark.parametrize("workers", [0, 2])
def test_what_hangs_is_named_with_its_calls_and_raises_at_the_limit(workers: int, fifo: Path, caplog: Any) -> None:
    loader = uio.Loader(texts(fifo.read_bytes), num_workers=workers, lanes=2, stall=0.4, stall_limit=1)
    others, began, keys = children(), time.monotonic(), list[str]()
    batches = ((keys.extend(keys_of(batch)), batch) for batch in loader)
    with pytest.raises(Stalled, match=r"stall_limit=1 is over: load the last state to go on"):
        list(batches)
    assert time.monotonic() - began < 60  # as a busy machine may need; it hangs for ever
    assert keys == ["0", "2", "1", "3", "4", "6"]
    (told,) = (r.getMessage() for r in caplog.records if "has done nothing" in r.getMessage())
    who = r"worker process \d+" if workers else "this process"
    what = rf"rank 0: {who} has done nothing for \d s: lane 1, stage map: from_iterable, item 7, utterance '7'"
    assert re.match(what, told), told
    assert "in read\n" in told, "the calls are named"
    assert "in read_bytes\n" in told
    assert not workers or re.search(r"it waits \(state S", told)
    assert children() <= others, "the worker has been killed"
    assert keys_of(next(iter(uio.Loader(texts(list), lanes=2)))) == ["0", "2"], "the next loader works"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_server_that_stops_answering_is_passed_over(workers: int, server: str) -> None:
    loader = uio.Loader(texts(lambda: urllib.request.urlopen(server).read()), num_workers=workers, **SKIP)
    assert [key for batch in loader for key in keys_of(batch)] == [str(i) for i in range(24) if str(i) != HANGS]
    assert loader.stats().skipped == {"hung": 1}
    assert loader.stats().failures == 1


UNINTERRUPTED = """
import ctypes
import uio_pipes as uio
from uio_pipes.run import stall

def wait(sample):
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):  # the second time it waits for itself, whatever signal comes
        ctypes.CDLL(None).pthread_mutex_lock(mutex)

stall.GRACE = 1
graph = uio.from_iterable([{"key": "a"}]).map(wait)
list(uio.Loader(graph, stall=0.4, stall_limit=0.8, failures=uio.Failures(hung="skip")))
"""


def test_a_process_that_nothing_interrupts_ends() -> None:
    done = subprocess.run([sys.executable, "-c", UNINTERRUPTED], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert "it cannot be interrupted: the process ends" in done.stderr


# Passing over, exactly


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("heals", [False, True])
def test_after_what_was_passed_over_every_state_goes_on_alike(
    workers: int, heals: bool, fifo: Path, caplog: Any
) -> None:
    """Also where the state is from before the batch that lacks it, and what hung can be read by then or not."""

    def graph(hang: Callable[[], object]) -> uio.Pipeline:
        def read(sample: Any) -> Any:
            if sample["key"] == HANGS:
                hang()
            return sample

        items = uio.from_iterable([{"key": str(i), "txt": "a" * (1 + i * 7 % 5)} for i in range(40)])
        return items.sharding_filter().map(read).shuffle(6).batch(3)

    options = {**SKIP, "num_workers": workers, "lanes": 2, "seed": 3}
    loader, states, digests = uio.Loader(graph(fifo.read_bytes), **options), [], []
    for batch in loader:
        states.append(loader.state_dict())
        digests.append(digest(batch))
    assert loader.stats().skipped == {"hung": 1}
    first = next(i for i, one in enumerate(states) if any("hung map" in text for text in one.values()))
    assert 0 < first < len(states) - 3
    for cut in [*range(first, len(states), 3)]:
        again = uio.Loader(graph(list if heals else fifo.read_bytes), **options)
        again.load_state_dict(carried(states[cut]))
        caplog.clear()
        assert [digest(batch) for batch in again] == digests[cut + 1 :], f"after batch {cut}"
        assert again.stats().skipped == {"hung": 1}, "what hung is counted once"
        assert "has done nothing" not in caplog.text, "it does not hang again"
    before = uio.Loader(graph(list), **options)
    before.load_state_dict(carried(states[0]))
    assert HANGS in [key for batch in before for key in keys_of(batch)], "a state from before does not know it"


@needs_disk
def test_what_waits_for_a_hung_disk_is_left_behind_and_named(tmp_path: Path, caplog: Any) -> None:
    """A read that neither a signal nor a kill ends: of a header while batches are planned, and of audio."""
    data = corpus.raw_list(tmp_path / "real", 16)
    with hung_disk(tmp_path / "real", tmp_path / "shown"):
        (tmp_path / "shown.list").write_text(data.list.read_text().replace("/real/", "/shown/"))
        (tmp_path / "real/r004.wav.hangs").write_text("0")
        (tmp_path / "real/r010.wav.hangs").write_text("5000")
        graph = uio.from_raw_list(str(tmp_path / "shown.list")).decode_audio().sort(4).dynamic_batch(max_frames=600)
        loader = uio.Loader(graph, num_workers=1, **SKIP)
        keys, states = [], []
        for batch in loader:
            keys.append(keys_of(batch))
            states.append(loader.state_dict())
        assert loader.stats().skipped == {"hung": 2}
        assert sorted(chain(*keys)) == sorted(set(data.keys) - {"R0004", "R0010"})
        text = caplog.text
        assert len(re.findall(r"worker process \d+ cannot be killed: it is left behind", text)) == 2
        assert re.search(r"stage plan: \S+/shown/r004.wav, utterance 'R0004'", text), text
        assert re.search(r"stage decode_audio: \S+/shown/r010.wav, utterance 'R0010'", text), text
        assert "request_wait_answer" in text
        for cut in (3, 6):
            again = uio.Loader(graph, num_workers=1, **SKIP)
            again.load_state_dict(carried(states[cut]))
            assert [keys_of(batch) for batch in again] == keys[cut + 1 :]


@needs_disk
@pytest.mark.parametrize("workers", [1, 2])
def test_of_a_shard_that_hangs_the_rest_is_lost(workers: int, tmp_path: Path) -> None:
    """It is one failure; what came before it is delivered, and every state goes on alike."""
    data = corpus.shards(tmp_path / "real", [6, 6, 6, 6], seconds=(0.3, 0.4))
    with hung_disk(tmp_path / "real", tmp_path / "shown"):
        (tmp_path / "shown.list").write_text(data.list.read_text().replace("/real/", "/shown/"))
        (tmp_path / "real/s001.tar.hangs").write_text("22000")  # in the third utterance
        graph = uio.from_shard_list(str(tmp_path / "shown.list")).decode_audio().sort(4).batch(2)
        loader = uio.Loader(graph, num_workers=workers, lanes=2, **SKIP)
        keys, states = [], []
        for batch in loader:
            keys.append(keys_of(batch))
            states.append(loader.state_dict())
        skipped = loader.stats().skipped["hung"]
        lost = set(data.keys) - set(chain(*keys))
        assert lost <= set(data.keys[6:12])
        assert 1 <= skipped <= 2, "the shard, and perhaps the audio of the last utterance before"
        for cut in range(3, len(states), 2):
            again = uio.Loader(graph, num_workers=workers, lanes=2, **SKIP)
            again.load_state_dict(carried(states[cut]))
            assert [keys_of(batch) for batch in again] == keys[cut + 1 :], f"after batch {cut}"


# Stopped workers, debuggers, slow work


def begun(loader: uio.Loader) -> tuple[Iterator[Any], int]:
    """The batches after the first one, and the worker that makes them."""
    others, batches = children(), iter(loader)
    next(batches)
    (pid,) = children() - others
    return batches, pid


DEBUGGER = """
import ctypes, sys, time
ptrace, pid = ctypes.CDLL(None).ptrace, int(sys.argv[1])
print(ptrace(16, pid, None, None), flush=True)  # PTRACE_ATTACH
time.sleep(2.5)
print(ptrace(17, pid, None, None), flush=True)  # PTRACE_DETACH
"""


def counting(seconds: float, count: int = 12) -> uio.Pipeline:
    """Each utterance takes so long."""

    def slowly(sample: Any) -> Any:
        time.sleep(seconds)
        return sample

    graph = uio.from_iterable([{"key": str(i)} for i in range(count)]).sharding_filter()
    return graph.map(slowly).batch(2)


def test_the_lanes_of_a_stopped_worker_go_to_a_new_one_and_lose_nothing(caplog: Any) -> None:
    batches, pid = begun(uio.Loader(counting(0.05), num_workers=1, prefetch_factor=1, **SKIP))
    os.kill(pid, signal.SIGSTOP)
    keys = [key for batch in batches for key in keys_of(batch)]
    assert keys == [str(i) for i in range(2, 12)]
    assert f"worker process {pid} has done nothing for" in caplog.text
    assert "it is stopped (state T" in caplog.text
    assert "it has no Python stack to show: it does not answer" in caplog.text
    assert pid not in children(), "it has been killed"


def test_a_stopped_worker_ends_the_run_where_nothing_is_passed_over() -> None:
    batches, pid = begun(uio.Loader(counting(0.05), num_workers=1, prefetch_factor=1, stall=0.4, stall_limit=0.8))
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Stalled, match=r"it is stopped \(state T"):
        list(batches)


def test_a_worker_that_a_debugger_holds_is_waited_for(caplog: Any) -> None:
    batches, pid = begun(uio.Loader(counting(0.05), num_workers=1, prefetch_factor=1, stall=0.4, stall_limit=0.8))
    debugger = subprocess.Popen([sys.executable, "-c", DEBUGGER, str(pid)], stdout=subprocess.PIPE)
    assert debugger.stdout is not None
    if not debugger.stdout.readline().startswith(b"0"):
        pytest.skip("this system lets nobody debug")
    began = time.monotonic()
    assert len(list(batches)) == 5
    assert time.monotonic() - began > 1.5
    assert debugger.communicate()[0] == b"0\n"
    assert "has done nothing" not in caplog.text


@pytest.mark.parametrize("workers", [0, 1])
def test_slow_work_is_no_hang(workers: int, caplog: Any) -> None:
    """Neither one that uses the CPU, nor one that goes on to other utterances."""

    def work(sample: Any) -> Any:
        until = time.thread_time() + 2 * (sample["key"] == "3")
        while time.thread_time() < until:
            sum(range(1000))
        time.sleep(0.2)
        return sample

    graph = uio.from_iterable([{"key": str(i)} for i in range(8)]).sharding_filter().map(work).batch(8)
    assert len(list(uio.Loader(graph, num_workers=workers, stall=1, stall_limit=1))) == 1
    assert "has done nothing" not in caplog.text


@pytest.mark.parametrize("workers", [0, 1])
def test_augmenting_long_audio_is_no_hang(workers: int, caplog: Any) -> None:
    """One utterance, with a codec that takes longer than ``stall``."""
    wave = np.random.default_rng(0).standard_normal((1, 60 * 16_000)).astype(np.float32) * 0.1
    graph = uio.from_iterable([{"key": "long", "wav": wave, "sample_rate": 16_000}]).speed_perturb(speeds=[0.9])
    graph = graph.pitch_shift((-2, -2)).reverberate(rt60=(0.5, 0.5)).codec(["opus"], (0.9, 0.9)).fbank(80).batch(1)
    assert len(list(uio.Loader(graph, num_workers=workers, stall=0.5, stall_limit=0.5))) == 1
    assert "has done nothing" not in caplog.text


def test_a_trainer_that_is_in_a_debugger_is_no_hang(caplog: Any) -> None:
    """The lines of a debugger are among the calls where it waits for a command."""
    source = compile("def wait(): time.sleep(1.2)", "pdb.py", "exec")
    space: dict[str, Any] = {"__name__": "pdb", "time": time}
    exec(source, space)
    assert len(list(uio.Loader(texts(space["wait"]), stall=0.4, stall_limit=0.8))) == 12
    assert "has done nothing" not in caplog.text


# Ranks


def of_ranks(mode: str, folder: str) -> None:
    """Rank 1 hangs; what rank 0 learns of it."""
    logging.basicConfig(level=logging.WARNING, filename=f"{folder}/{mode}{os.environ['RANK']}.log")
    dist.init_process_group("gloo")
    failures = uio.Failures(hung="skip" if mode == "skip" else "raise")
    hang = (lambda: Path(folder, "fifo").read_bytes()) if dist.get_rank() else list
    options: dict[str, Any] = {"num_workers": 1, "stall": 0.4, "stall_limit": 1, "failures": failures, "lanes": 2}
    began, keys, error = time.monotonic(), list[str](), ""
    if mode == "torchrun":  # a trainer whose ranks step together, and that handles no error
        for _ in uio.Loader(texts(hang), **options):
            dist.all_reduce(torch.zeros(1))
        return
    try:
        for batch in uio.Loader(texts(hang), **options):
            keys += keys_of(batch)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    report = {"keys": keys, "error": error, "seconds": time.monotonic() - began}
    Path(folder, f"{mode}{dist.get_rank()}.json").write_text(json.dumps(report))
    if error:  # as a trainer ends that does not handle it
        os._exit(0)


@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_no_rank_waits_for_one_that_hangs(mode: str, fifo: Path) -> None:
    done = ranks(2, __file__, mode, fifo.parent)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((fifo.parent / f"{mode}{rank}.json").read_text()) for rank in (0, 1))
    assert "rank 1: worker process" in (fifo.parent / f"{mode}1.log").read_text()
    if mode == "skip":
        assert sorted(first["keys"] + second["keys"], key=int) == [str(i) for i in range(24) if str(i) != HANGS]
    else:
        assert second["error"].startswith("Stalled: worker process")
        assert first["error"].startswith("RuntimeError: rank 0 waited for rank 1")
        assert "the connection is lost" in first["error"]
        assert max(first["seconds"], second["seconds"]) < 30


def test_torchrun_ends_all_ranks_if_one_hangs(fifo: Path) -> None:
    """Rank 0 waits for the step of rank 1, which never comes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", __file__]
    found = environment(OMP_NUM_THREADS="1")
    done = subprocess.run([*command, "torchrun", fifo.parent], env=found, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Stalled: worker process" in done.stderr
    assert "stage map" in done.stderr, done.stderr
    assert "rank 1: worker process" in (fifo.parent / "torchrun1.log").read_text()
    assert not list(fifo.parent.glob("torchrun*.json"))


@pytest.mark.parametrize("workers", [0, 1])
def test_uio_watch_shows_what_hangs(workers: int, fifo: Path) -> None:
    """Nothing comes to the training that would write a record; later ones take its place."""
    loader = uio.Loader(texts(fifo.read_bytes), num_workers=workers, **SKIP)
    shown = list[str]()

    def look() -> None:
        while not any("hung" in text for text in shown):
            time.sleep(0.1)
            with contextlib.suppress(uio.ListError):
                rows = tables(ranks_in(str(fifo.parent / "watch")), time.time())[0][2]
                shown.extend(str(row[1]) for row in rows)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    watched = uio.watch(loader, to=fifo.parent / "watch", every=0.1)
    assert sum(len(batch) for batch in watched) == 23
    looking.join(1)
    who = r"worker process \d+" if workers else "this process"
    assert re.match(rf"hung: {who} has done nothing for \d s: lane 0, stage map: .*'7'.*, \d s ago", shown[-1]), shown
    assert shown[-2] == "0 of 1 running"
    assert [str(row[1]) for row in tables(ranks_in(str(fifo.parent / "watch")), time.time())[0][2]] == [
        "epoch over"
    ] * 2


# Arguments


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stall": "1"}, "stall must be a number of seconds, or None"),
        ({"stall_limit": -1}, "stall_limit must be a number of seconds, or None"),
        ({"stall_limit": 60}, "stall_limit must not be below stall"),
        ({"stall": 0, "stall_limit": 60}, "stall_limit must not be below stall"),
        ({"failures": uio.Failures(hung="skip")}, 'hung="skip" needs stall_limit'),
    ],
)
def test_wrong_arguments_are_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(uio.PipelineError, match=re.escape(message)):
        uio.Loader(texts(list), **given)


def test_nobody_looks_if_stall_is_off(fifo: Path, caplog: Any) -> None:
    loader = uio.Loader(counting(0.3, 2), num_workers=1, stall=None)
    assert not any(thread.name == "uio-looks" for thread in threading.enumerate())
    assert len(list(loader)) == 1
    with pytest.raises(uio.PipelineError, match="hung must be 'raise' or 'skip'"):
        uio.Failures(hung="wait")  # type: ignore[arg-type]


if __name__ == "__main__":
    of_ranks(*sys.argv[1:])
