"""What hangs is named, ends, or is passed over: FIFOs, a server that stops answering, stopped workers, a disk that hangs
so that no process that reads from it can be killed."""

import ctypes
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch.distributed as dist
from command import ranks
from contract import carried, digest, keys_of
from hung_disk import can_hang, hung_disk
from processes import children

import uio_pipes as uio
from uio_pipes.run.stall import Stalled

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
    began, keys = time.monotonic(), list[str]()
    with pytest.raises(Stalled, match=r"stall_limit=1 is over: load the last state to go on"):
        for batch in loader:
            keys += keys_of(batch)
    assert time.monotonic() - began < 8
    assert keys == ["0", "2", "1", "3", "4", "6"]
    (told,) = (r.getMessage() for r in caplog.records if "has done nothing" in r.getMessage())
    who = r"worker process \d+" if workers else "this process"
    what = rf"rank 0: {who} has done nothing for \d s: lane 1, stage map: from_iterable, item 7, utterance '7'"
    assert re.match(what, told), told
    assert "in read\n" in told, "the calls are named"
    assert "in read_bytes\n" in told
    assert not workers or re.search(r"it waits \(state S", told)
    assert not children(), "the worker has been killed"
    assert keys_of(next(iter(uio.Loader(texts(list), lanes=2)))) == ["0", "2"], "the next loader works"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_server_that_stops_answering_is_passed_over(workers: int, server: str) -> None:
    loader = uio.Loader(texts(lambda: urllib.request.urlopen(server).read()), num_workers=workers, **SKIP)
    assert [key for batch in loader for key in keys_of(batch)] == [str(i) for i in range(24) if str(i) != HANGS]
    assert loader.stats().skipped == {"hung": 1}
    assert loader.stats().failures == 1


# Passing over, exactly


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("heals", [False, True])
def test_after_what_was_passed_over_every_state_goes_on_alike(workers: int, heals: bool, fifo: Path) -> None:
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
        began = time.monotonic()
        assert [digest(batch) for batch in again] == digests[cut + 1 :], f"after batch {cut}"
        assert again.stats().skipped == {"hung": 1}, "what hung is counted once"
        assert time.monotonic() - began < 0.8 or workers, "it does not hang again"
    before = uio.Loader(graph(list), **options)
    before.load_state_dict(carried(states[0]))
    assert HANGS in [key for batch in before for key in keys_of(batch)], "a state from before does not know it"


@needs_disk
def test_what_waits_for_a_hung_disk_is_left_behind_and_named(tmp_path: Path, caplog: Any) -> None:
    """A read that neither a signal nor a kill ends: of a header while batches are planned, and of audio."""
    data = corpus.raw_list(tmp_path / "real", 16)
    with hung_disk(tmp_path / "real", tmp_path / "shown") as shown:
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
        assert sorted(sum(keys, [])) == sorted(set(data.keys) - {"R0004", "R0010"})
        text = caplog.text
        assert len(re.findall(r"worker process \d+ cannot be killed: it is left behind", text)) == 2
        assert re.search(r"stage plan: \S+/shown/r004.wav, utterance 'R0004'", text), text
        assert re.search(r"stage decode_audio: \S+/shown/r010.wav, utterance 'R0010'", text), text
        assert "request_wait_answer" in text
        for cut in (3, 6):
            again = uio.Loader(graph, num_workers=1, **SKIP)
            again.load_state_dict(carried(states[cut]))
            assert [keys_of(batch) for batch in again] == keys[cut + 1 :]
