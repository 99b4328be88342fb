"""Tensors on their way through shared memory that is used again: nothing that anyone still holds ever changes."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract import digest
from corpus import Corpus
from processes import environment, launch

import uio_pipes as uio
from uio_pipes.run import shared_memory as ring
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.shared_memory import PLAIN, Ring, TensorPlace, Writer
from uio_pipes.run.workers import PackedMessage


@pytest.fixture
def two() -> tuple[Ring, Writer]:
    """A ring of two slots, seen from both sides."""
    made = Ring.made(2)
    assert made is not None
    return made, Writer(made)


def sent(writer: Writer, begun: bool = False, **batch: Any) -> PackedMessage:
    """A message in the writer's next slot, or in the one that it has begun."""
    if not begun:
        writer.begin()
    return PackedMessage(Message(0, 0, 0, batch), writer)


def received(made: Ring, packed: PackedMessage) -> dict[str, Any]:
    batch: dict[str, Any] = packed.unpacked(made, pin=False).batch
    return batch


LARGE = (40, 300)


# One message


@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("size", [(0,), (3,), (100, 7), (300, 100)])
def test_every_kind_and_size_arrives(two: tuple[Ring, Writer], dtype: torch.dtype, size: tuple[int, ...]) -> None:
    made, writer = two
    tensor = (torch.rand(size) * 100).to(dtype)
    got = received(made, sent(writer, x=tensor, rest=["text", {"y": tensor}]))
    for copy in (got["x"], got["rest"][1]["y"]):
        assert copy.dtype is dtype
        assert torch.equal(copy, tensor)


def test_strides_and_views_arrive_as_what_they_show(two: tuple[Ring, Writer]) -> None:
    made, writer = two
    writer.begin()
    base = writer.empty((200, 200), torch.float32).normal_()
    views = {
        "whole": base,
        "rows": base[:100],
        "columns": base[:, ::2],
        "turned": base.T,
        "bits": base.view(torch.int32),
    }
    wanted = {name: view.clone() for name, view in views.items()}
    got = received(made, sent(writer, begun=True, **views))
    assert all(torch.equal(got[name], wanted[name]) for name in views)


def test_what_is_made_in_the_slot_is_not_copied_there(two: tuple[Ring, Writer]) -> None:
    made, writer = two
    writer.begin()
    packed = sent(writer, begun=True, x=writer.empty(LARGE, torch.float32).fill_(3))
    assert writer._used == 40 * 300 * 4, "one place"
    assert torch.equal(received(made, packed)["x"], torch.full(LARGE, 3.0))


def test_tensors_that_are_not_plain_travel_in_torch_s_way(two: tuple[Ring, Writer]) -> None:
    made, writer = two
    given = {
        "bfloat16": torch.ones(LARGE, dtype=torch.bfloat16),
        "parameter": torch.nn.Parameter(torch.ones(LARGE)),
        "sparse": torch.eye(300).to_sparse(),
    }
    packed = sent(writer, **given)
    assert packed.slot is None
    got = received(made, packed)
    assert isinstance(got["parameter"], torch.nn.Parameter)
    assert all(torch.equal(got[name].to_dense(), given[name].to_dense()) for name in given)


# Slots are used again, and when


def test_a_slot_is_used_again_once_its_tensors_are_let_go(two: tuple[Ring, Writer]) -> None:
    made, writer = two
    slots, part = [], torch.zeros(())
    for number in range(6):
        packed = sent(writer, x=torch.full(LARGE, float(number)), y=torch.ones(LARGE))
        slots.append(packed.slot)
        part = received(made, packed)["x"][3:, ::2]  # a view of one tensor keeps the slot
        assert float(part.mean()) == number
    assert slots == [0, 1, 0, 1, 0, 1]


def test_batches_that_are_kept_do_not_change() -> None:
    made = Ring.made(4)
    assert made is not None
    writer, slots, kept = Writer(made), [], []
    for number in range(6):
        packed = sent(writer, x=torch.full(LARGE, float(number)))
        slots.append(packed.slot)
        kept.append(received(made, packed)["x"])
    assert slots == [0, 1, 2, 3, 3, 3], "three are lent, the others are copied"
    assert [float(x.mean()) for x in kept] == list(range(6))
    kept[0].add_(1)
    del kept[0]
    assert sent(writer, x=torch.ones(LARGE)).slot == 0


def test_a_forked_process_lets_no_slot_go(two: tuple[Ring, Writer]) -> None:
    made, writer = two
    got = received(made, sent(writer, x=torch.ones(LARGE)))
    if (child := os.fork()) == 0:
        got.clear()
        os._exit(0)
    os.waitpid(child, 0)
    assert sent(writer, x=torch.zeros(LARGE)).slot == 1
    assert float(got["x"].mean()) == 1


def test_a_forked_process_keeps_the_batches_that_there_were(two: tuple[Ring, Writer]) -> None:
    """Whatever the trainer, or the child, does to them then; and the slot is used again."""
    made, writer = two
    for number in range(3):
        got = received(made, sent(writer, x=torch.full(LARGE, float(number))))
        go, goes = os.pipe()
        if (child := os.fork()) == 0:
            os.read(go, 1)
            right = bool((got["x"] == number).all())
            got["x"].zero_()
            os._exit(0 if right else 1)
        kept = got["x"].view(-1)[:5]
        got.clear()
        other = sent(writer, x=torch.full(LARGE, float(7)))
        assert other.slot is not None
        os.write(goes, b".")
        assert os.waitpid(child, 0)[1] == 0
        assert kept.tolist() == [number] * 5
        assert bool((received(made, other)["x"] == 7).all())
        del kept
        os.close(go)
        os.close(goes)
    assert not made.in_use.any()


def test_a_fork_waits_until_a_message_is_unpacked(two: tuple[Ring, Writer]) -> None:
    """In another thread: else a tensor that is handed out after the fork began would be in memory that was parted."""
    made, writer = two
    packed = sent(writer, x=torch.full(LARGE, 1.0), y=torch.full(LARGE, 2.0))
    begun, forked, pids = threading.Event(), threading.Event(), list[int]()

    def fork() -> None:
        begun.set()
        if (pid := os.fork()) == 0:
            os._exit(0)
        pids.append(pid)
        forked.set()

    array = made.array

    def slowly(slot: int, place: TensorPlace) -> Any:
        if not begun.is_set():
            threading.Thread(target=fork).start()
            assert begun.wait(10)
        elif threading.current_thread() is threading.main_thread() and not forked.is_set():  # before the second tensor
            assert not forked.wait(0.3), "a fork between two tensors of a message"
        return array(slot, place)

    made.array = slowly  # type: ignore[method-assign]
    got = received(made, packed)
    assert forked.wait(10)
    os.waitpid(*pids, 0)
    assert (got["x"] == 1).all()
    assert (got["y"] == 2).all()


def test_another_thread_forks_while_a_batch_is_let_go(two: tuple[Ring, Writer]) -> None:
    """It must not part a slot that is just given back: later batches would be read from memory of the fork's time."""
    made = two[0]
    writer = Writer(Ring(made.slots, os.dup(made._fd)))  # with a mapping of its own, as in a worker
    pids: list[int] = []
    forks: list[threading.Thread] = []

    def fork() -> None:
        if (pid := os.fork()) == 0:
            os._exit(0)
        pids.append(pid)

    class Taken(np.ndarray[Any, Any]):
        def __setitem__(self, slot: Any, value: Any) -> None:
            if value == 0 and not forks:
                forks.append(threading.Thread(target=fork))
                forks[0].start()
                forks[0].join(0.3)  # it may have to wait for us
            super().__setitem__(slot, value)

    made.in_use = made.in_use.view(Taken)
    for number in range(5):
        packed = sent(writer, x=torch.full(LARGE, float(number)))
        assert bool((received(made, packed)["x"] == number).all())
    forks[0].join()
    os.waitpid(*pids, 0)
    assert not made.in_use.any()


def test_with_no_slot_free_nobody_waits(two: tuple[Ring, Writer]) -> None:
    made, writer = two
    under_way = []
    for number in range(4):
        writer.begin()
        under_way.append(sent(writer, begun=True, x=writer.empty(LARGE, torch.float32).fill_(number)))
    assert [packed.slot for packed in under_way] == [0, 1, None, None]
    assert [float(received(made, packed)["x"].mean()) for packed in under_way] == list(range(4))
    assert sent(writer, x=torch.ones(LARGE)).slot == 0


def test_a_slot_is_not_used_again_while_the_worker_holds_what_is_in_it(two: tuple[Ring, Writer]) -> None:
    made, writer = two
    writer.begin()
    held = writer.empty(LARGE, torch.float32).fill_(7)[3:]
    received(made, sent(writer, begun=True, x=held))
    for number in range(3):
        packed = sent(writer, x=torch.full(LARGE, float(number)))
        assert packed.slot == 1
        received(made, packed)
    assert float(held.mean()) == 7
    del held
    assert sent(writer, x=torch.ones(LARGE)).slot == 0


def test_what_is_larger_than_a_slot_finds_another_way(
    two: tuple[Ring, Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, writer = two
    monkeypatch.setattr(ring, "SLOT", 100_000)
    writer.begin()
    packed = sent(
        writer, begun=True, a=torch.ones(20_000), b=torch.full((20_000,), 2.0), c=writer.empty((9,) * 6, torch.float32)
    )
    got = received(made, packed)
    assert (float(got["a"].mean()), float(got["b"].mean()), got["c"].shape) == (1.0, 2.0, (9,) * 6)


# Loaders


def features(corpus: Corpus) -> uio.Pipeline:
    return uio.from_shard_list(corpus.list).decode_audio().fbank(num_mel_bins=80).batch(2).pad()


class Behind(uio.Node):
    """Gives each batch one later, when the next one has been made."""

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self.held: list[Any] = []

    def next(self) -> Any:
        while len(self.held) < 2:
            self.held.append(self.source.next())
        return self.held.pop(0)


def test_a_node_may_hold_batches_back(plain_corpus: Corpus) -> None:
    wanted = [digest(batch) for batch in uio.Loader(features(plain_corpus), lanes=2)]
    behind = features(plain_corpus).through(Behind)
    got = [digest(batch) for batch in uio.Loader(behind, lanes=2, num_workers=2)]
    assert len(got) == len(wanted) - 2, "each lane keeps its last one"
    assert set(got) < set(wanted)


@pytest.mark.parametrize("limit", [0, 30_000], ids=["no ring", "small slots"])
def test_without_room_the_stream_is_the_same(plain_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    wanted = [digest(batch) for batch in uio.Loader(features(plain_corpus), lanes=2)]
    if limit:
        monkeypatch.setattr(ring, "SLOT", limit)
    else:
        monkeypatch.delattr(os, "memfd_create")
    assert [digest(batch) for batch in uio.Loader(features(plain_corpus), lanes=2, num_workers=2)] == wanted


OTHER_START = """
import multiprocessing, sys
from pathlib import Path
import test_shared_memory as here
from contract import digest
from corpus import Corpus
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[2])
    corpus = Corpus(Path(sys.argv[1]), ())
    loaders = [here.uio.Loader(here.features(corpus), lanes=2, num_workers=workers) for workers in (0, 2)]
    first, second = ([digest(batch) for batch in loader] for loader in loaders)
    assert first == second, (first, second)
"""


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_may_be_started_in_other_ways(plain_corpus: Corpus, tmp_path: Path, method: str) -> None:
    script = tmp_path / "other_start.py"
    script.write_text(OTHER_START)
    launch([str(script), str(plain_corpus.list), method], folders=[Path(__file__).parent])


UNSENDABLE = """
import multiprocessing, sys
from multiprocessing import context
import uio_pipes as uio
if __name__ == "__main__":
    if sys.argv[2] == "3.14":  # its default, which nobody chose
        context._default_context._default_context = multiprocessing.get_context("forkserver")
    else:
        multiprocessing.set_start_method(sys.argv[2])
    first = uio.from_shard_list(sys.argv[1]).map(lambda sample: sample)
    loader = uio.Loader(uio.interleave([first, uio.from_shard_list(sys.argv[1])]).batch(2), num_workers=2)
    try:
        print(len(list(loader)), "batches")
    except uio.PipelineError as error:
        print(error, multiprocessing.active_children())
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "3.14"])
def test_a_lambda_is_refused_before_workers_start_unless_they_are_forks(
    plain_corpus: Corpus, tmp_path: Path, method: str
) -> None:
    script = tmp_path / "unsendable.py"
    script.write_text(UNSENDABLE)
    command = [sys.executable, str(script), str(plain_corpus.list), method]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    if method == "3.14":
        assert done.stdout == "25 batches\n"
    else:
        where = rf"map\(<lambda> @ {script}:10\) cannot be sent to worker processes that start by {method}"
        assert re.fullmatch(rf'{where} .*set_start_method\("fork"\).* \[\]\n', done.stdout)
        assert not done.stderr, "torch says nothing of its own"


EXITS = """
import atexit, sys, test_shared_memory as here
from pathlib import Path
from corpus import Corpus
loader = here.uio.Loader(here.features(Corpus(Path(sys.argv[1]), ())), num_workers=2)
workers = []
atexit.register(lambda: print(*(worker.exitcode for worker in workers)))  # called behind what is registered later
batches = iter(loader)
next(batches)
workers += (process for runner in loader._active().runners for process in runner._batches._workers)
if sys.argv[2] == "raise":
    raise ValueError
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["raise", "end"])
def test_workers_are_ended_when_the_trainer_leaves_an_iterator_open(plain_corpus: Corpus, end: str) -> None:
    command = [sys.executable, "-c", EXITS, str(plain_corpus.list), end]
    run = subprocess.run(command, env=environment(Path(__file__).parent), capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["0", "0"], run.stderr
    assert run.returncode == (end == "raise")


KILLED = """
import os, sys, test_shared_memory as here
from pathlib import Path
from corpus import Corpus
loader = here.uio.Loader(here.features(Corpus(Path(sys.argv[1]), ())).repeat(), num_workers=2, steps_per_epoch=10**6)
batches = iter(loader)
next(batches)
print(*(p.pid for r in loader._active().runners for p in r._batches._workers), flush=True)
for _ in batches:
    pass
"""


KILLED_EARLY = """
import multiprocessing, os, sys, threading, time, test_shared_memory as here
from pathlib import Path
from corpus import Corpus
os.register_at_fork(after_in_child=lambda: time.sleep(1))
def tell():
    while len(children := multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    print(*(child.pid for child in children), flush=True)
threading.Thread(target=tell).start()
for _ in here.uio.Loader(here.features(Corpus(Path(sys.argv[1]), ())).repeat(), num_workers=2, steps_per_epoch=10**6):
    pass
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("program", [KILLED, KILLED_EARLY], ids=["at_work", "before_its_workers_began"])
def test_nothing_is_left_when_the_trainer_is_killed(plain_corpus: Corpus, program: str) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", program, str(plain_corpus.list)],
        env=environment(Path(__file__).parent),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    workers = [int(pid) for pid in run.stdout.readline().split()]
    assert len(workers) == 2
    run.send_signal(signal.SIGKILL)
    run.wait()
    until = time.monotonic() + 40
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    names = [name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in (run.pid, *workers))]
    assert names == []
