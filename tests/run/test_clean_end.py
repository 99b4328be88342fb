"""However a run ends, nothing is left behind; and an error in a worker arrives as what it was."""

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract import digest, keys_of, restored
from corpus import Corpus
from processes import children, environment

import uio_pipes as uio

WORKERS = [0, 2]
LIMIT = 20  # seconds after which what has not gone is a leak; nothing waits that long otherwise


# What a process owns


def descriptors() -> set[tuple[str, str]]:
    """Open descriptors, except for those of data files, which are kept open on purpose (at most 128), and of named
    temporary files. After an error torch's DataLoader opens ten of them, to see whether descriptors have run out; where
    its handler of a dead worker's signal raises in the middle of that, one stays open. Ours have no name.
    """
    of_torch = re.compile(re.escape(f"{tempfile.gettempdir()}/{tempfile.gettempprefix()}") + r"\w{8}")
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if not target.endswith((".tar", ".wav", ".gz")) and "/fd" not in target and not of_torch.fullmatch(target):
            found.add((link.name, target))
    return found


def shared_files(pids: set[int]) -> set[str]:
    """Files in shared memory that torch made for these processes."""
    return {p.name for p in Path("/dev/shm").glob("torch_*") if any(f"torch_{pid}_" in p.name for pid in pids)}


class Belongings:
    """The resources of this process now; ``nothing_more`` waits until it has no more than these again."""

    def __init__(self) -> None:
        gc.collect()
        self.children, self.descriptors = children(), descriptors()
        self.threads = set(threading.enumerate())
        self.seen: set[int] = set()

    def look(self) -> set[int]:
        """Remember who is running now."""
        new = children() - self.children
        self.seen |= new
        return new

    def left(self) -> dict[str, Any]:
        gc.collect()
        return {
            "processes": children() - self.children,
            "threads": {t for t in threading.enumerate() if t.is_alive()} - self.threads,
            "descriptors": descriptors() - self.descriptors,
            "shared memory": shared_files(self.seen | {os.getpid()}),
        }

    def nothing_more(self) -> None:
        until = time.monotonic() + LIMIT
        while any(self.left().values()) and time.monotonic() < until:
            time.sleep(0.02)
        assert {what: things for what, things in self.left().items() if things} == {}


@pytest.fixture
def belongings(many_shards: Corpus) -> Iterator[Belongings]:
    """After a first run, which may open what stays (a resource tracker, for one)."""
    list(uio.Loader(features(many_shards), num_workers=1))
    before = Belongings()
    yield before
    before.nothing_more()


def features(corpus: Corpus) -> uio.Pipeline:
    """Batches that are large enough to travel through shared memory."""
    return uio.from_shard_list(corpus.list).decode_audio().fbank(num_mel_bins=80).batch(8).pad()


# Ends without an error


@pytest.mark.parametrize("workers", WORKERS)
def test_whole_epochs_and_an_early_break(many_shards: Corpus, belongings: Belongings, workers: int) -> None:
    loader = uio.Loader(features(many_shards), num_workers=workers)
    for epoch in range(2):
        assert sorted(k for b in loader for k in keys_of(b)) == sorted(many_shards.keys)
        assert loader.epoch == epoch
    belongings.nothing_more()
    for batch in loader:
        assert batch["keys"]
        assert len(belongings.look()) == workers
        break
    del batch  # it may lie in shared memory
    belongings.nothing_more()
    rest = [k for b in loader for k in keys_of(b)]
    assert 0 < len(rest) < len(many_shards.keys), "a loader goes on from where it was left"


@pytest.mark.parametrize("forget", ["loader", "batches", "both"])
def test_forgotten_objects(many_shards: Corpus, belongings: Belongings, forget: str) -> None:
    loader = uio.Loader(features(many_shards), num_workers=2)
    batches = iter(loader)
    next(batches)
    assert len(belongings.look()) == 2
    if forget in ("loader", "both"):
        del loader
    if forget in ("batches", "both"):
        del batches
        belongings.nothing_more()
    else:
        assert next(batches)["keys"], "batches keep what they need"
        del batches


@pytest.mark.parametrize("left", [0, 1])
def test_nothing_waits_for_the_garbage_collector(many_shards: Corpus, pipelines: list[uio.Pipeline], left: int) -> None:
    """A circle would keep what the trainer's functions hold, and workers that it ends would be waited for."""
    decoded = uio.from_shard_list(many_shards.list).decode_audio().fbank(8)
    for graph in [decoded.shuffle(5).batch(3).pad(), *(source.shuffle(5).batch(3) for source in pipelines)]:
        loader = uio.Loader(graph, lanes=2)
        held, count = weakref.ref(loader), len(list(loader)) - left
        gc.disable()
        try:
            for _ in zip(range(count), loader):  # noqa: B905  all files have been read, and some batches are left
                pass
            del loader
            assert held() is None, graph
        finally:
            gc.enable()


def test_loading_a_state_ends_what_runs_and_a_new_iterator_the_old_one(
    many_shards: Corpus, belongings: Belongings
) -> None:
    loader = uio.Loader(features(many_shards), num_workers=2)
    old, state = iter(loader), loader.state_dict()
    expected = [digest(next(old)) for _ in range(2)]
    loader.load_state_dict(state)
    belongings.nothing_more()
    next(iter(loader))
    assert digest(next(iter(loader))) == expected[1]
    list(loader)
    belongings.nothing_more()


def test_shared_memory_lives_as_long_as_its_batch(many_shards: Corpus, belongings: Belongings) -> None:
    loader = uio.Loader(features(many_shards), num_workers=2)
    batches = list(loader)
    assert max(b["feats"].nbytes for b in batches) > 1 << 16
    before = [digest(b) for b in batches]
    assert [digest(b) for b in batches] == before
    assert [digest(b) for b in uio.Loader(features(many_shards), lanes=2)] == before
    del batches
    belongings.nothing_more()


# Errors


class Refused(Exception):
    """An exception that cannot be made from its message."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} was refused: {reason}")


class Unpicklable(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(f"{key} holds a lock")
        self.lock = threading.Lock()


class Fails(uio.Node):
    """Raises what it is told at the fifth sample."""

    state_fields = ("seen",)

    def __init__(self, source: uio.Node, error: Callable[[str], Exception]) -> None:
        super().__init__(source)
        self.error = error

    def start(self) -> None:
        self.seen = 0

    def next(self) -> Any:
        sample = self.source.next()
        self.seen += 1
        if self.seen == 5:
            raise self.error(sample.key)
        return sample


def plain(key: str) -> Exception:
    return KeyError(f"{key} is not there")


def with_arguments(key: str) -> Exception:
    return Refused(key, "too loud")


def data_error(key: str) -> Exception:
    return uio.DataError("odd", "it is odd", url="a.tar", member=key, offset=512)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (plain, KeyError, "is not there"),
        (with_arguments, (Refused, RuntimeError), "was refused: too loud"),  # its type, or at least its name
        (data_error, uio.DataError, "a.tar, member 'K.*', byte 512: it is odd"),
        (Unpicklable, Exception, "holds a lock"),  # it cannot travel, and stops the run nevertheless
    ],
    ids=["plain", "with_arguments", "data_error", "unpicklable"],
)
def test_exception_keeps_type_and_message(
    many_shards: Corpus, belongings: Belongings, workers: int, make: Any, kind: Any, text: str
) -> None:
    pipeline = uio.from_shard_list(many_shards.list).decode_audio().through(Fails, make).batch(1).pad()
    loader = uio.Loader(pipeline, num_workers=workers)
    with pytest.raises(kind, match=text):
        list(loader)
    belongings.nothing_more()


def odd_batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "function": lambda: 0}


def without_next(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "first": next(k for k in batch["keys"] if k.endswith("0"))}


@pytest.mark.timeout(60)
def test_a_batch_that_cannot_travel_is_an_error(many_shards: Corpus, belongings: Belongings) -> None:
    pipeline = uio.from_shard_list(many_shards.list).decode_audio().batch(4).pad().map(odd_batch)
    with pytest.raises(Exception, match=r"pickle|Can't get local object"):  # as Python 3.13 has it
        list(uio.Loader(pipeline, num_workers=1))
    belongings.nothing_more()


@pytest.mark.parametrize("workers", WORKERS)
def test_stop_iteration_in_a_users_function_is_no_end_of_data(many_shards: Corpus, workers: int) -> None:
    pipeline = uio.from_shard_list(many_shards.list).decode_audio().batch(4).pad().map(without_next)
    with pytest.raises(Exception, match="StopIteration"):
        list(uio.Loader(pipeline, num_workers=workers))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    ("failures", "kind", "text"),
    [
        ("raise", uio.DataError, r"s000\.tar.*bad_header"),
        (uio.Failures(max_failures=2), uio.TooManyFailures, "max_failures=2"),
    ],
)
def test_failures_that_stop_the_run_leave_nothing(
    bad_corpus: Corpus, belongings: Belongings, workers: int, failures: Any, kind: Any, text: str
) -> None:
    pipeline = uio.from_shard_list(bad_corpus.list).decode_audio().batch(2).pad()
    with pytest.raises(kind, match=text):
        list(uio.Loader(pipeline, num_workers=workers, failures=failures))
    belongings.nothing_more()


@pytest.mark.timeout(60)
def test_a_killed_worker_is_an_error_that_names_it(many_shards: Corpus, belongings: Belongings) -> None:
    loader = uio.Loader(features(many_shards), num_workers=2)
    batches = iter(loader)
    next(batches)
    victim = min(belongings.look())
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=str(victim)):
        sum(1 for _ in batches)  # keeps no batch, whose memory is shared with a worker
    state = loader.state_dict()
    del batches
    belongings.nothing_more()
    resumed = restored(features(many_shards), state, num_workers=2)
    assert len([k for b in resumed for k in keys_of(b)]) == len(many_shards.keys) - loader.stats().utterances


BUSY = """
import os, signal, sys, threading, time
import uio_pipes as uio

def busy(sample):
    if sample["key"] == "8":
        time.sleep(400)
    return sample

items = [{"key": str(n), "label": [n]} for n in range(20)]
loader = uio.Loader(uio.from_iterable(items).map(busy).batch(2), num_workers=1, prefetch_factor=1)
batches = iter(loader)
for _ in range(4):
    next(batches)
if sys.argv[1] == "killed":
    pid = next(iter(batches.run.runners))._batches._workers[0].pid
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
    next(batches)
if sys.argv[1] == "error":
    raise ValueError("in the trainer")
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("end", r"\A\Z"),
        ("error", r"\ATraceback.*ValueError: in the trainer\n\Z"),
        ("killed", r"\ATraceback.*RuntimeError: worker process \d+ was killed \(out of memory\?\); load .*\n\Z"),
    ],
)
def test_a_trainer_ends_while_a_worker_is_busy(how: str, told: str) -> None:
    """Its thread waits for the worker's next batch then."""
    command = [sys.executable, "-c", BUSY, how]
    done = subprocess.run(command, env=environment(Path(__file__).parent), capture_output=True, text=True, timeout=60)
    assert re.search(told, done.stderr, re.DOTALL), done.stderr
    assert done.returncode == (how != "end")


# Ctrl-C

INTERRUPTED = """
import os, signal, sys, test_clean_end as here
signal.signal(signal.SIGINT, signal.default_int_handler)  # CI may run in the background, where it is ignored
signal.signal(signal.SIGALRM, signal.default_int_handler)
interrupted = False
def dropped(what):
    sys.__unraisablehook__(what)
    if not interrupted and what.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
sys.unraisablehook = dropped  # Python drops what is raised in a destructor. Who pressed Ctrl-C in vain does it again.
from pathlib import Path
from corpus import Corpus
loader = here.uio.Loader(here.features(Corpus(Path(sys.argv[1]), ())), num_workers=int(sys.argv[2]))
try:
    while True:
        for batch in loader:
            print("running", *here.children(), flush=True)
except KeyboardInterrupt:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    interrupted = True
    print("interrupted", flush=True)
print("left", *here.children(), flush=True)
"""


@pytest.mark.timeout(100)
@pytest.mark.parametrize("whole_group", [True, False], ids=["terminal", "only_parent"])
@pytest.mark.parametrize("workers", WORKERS)
def test_ctrl_c(many_shards: Corpus, workers: int, whole_group: bool) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(many_shards.list), str(workers)],
        env=environment(Path(__file__).parent),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None
    word, *pids = run.stdout.readline().split()
    assert word == "running"
    assert len(pids) == workers
    if whole_group:
        os.killpg(run.pid, signal.SIGINT)
    else:
        run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert "interrupted" in out, err
    assert out.splitlines()[-1] == "left"
    assert run.returncode == 0, err
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert shared_files({run.pid, *map(int, pids)}) == set()


def test_ctrl_c_of_a_terminal_does_not_end_workers(many_shards: Corpus) -> None:
    """A trainer that catches it, and saves first, still gets batches."""
    expected = len(list(uio.Loader(features(many_shards), num_workers=0, lanes=2)))
    others = children()  # such as the process that forks programs
    batches = iter(uio.Loader(features(many_shards), num_workers=2, lanes=2))
    begun = [next(batches) for _ in range(2)]  # one of each worker
    for pid in children() - others:
        os.kill(int(pid), signal.SIGINT)
    assert len(begun) + len(list(batches)) == expected


STARTING = """
import os, signal
import uio_pipes as uio
from uio_pipes.run import workers

workers.GRACE = 3600  # a worker that is only told to end would live so long
signal.signal(signal.SIGINT, signal.default_int_handler)
for start in (1, 2, 3):  # each in a process of its own, which has imported only
    if pid := os.fork():
        print(start, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    else:
        break
else:
    os._exit(0)
starts = []
def interrupt():
    starts.append(None)
    if len(starts) == start:
        os.kill(os.getpid(), signal.SIGINT)
os.register_at_fork(after_in_parent=interrupt)
items = [{"key": str(n), "label": [n]} for n in range(20)]
list(uio.Loader(uio.from_iterable(items).sharding_filter().batch(2), num_workers=3))
"""


def test_ctrl_c_while_workers_start() -> None:
    """Every worker that has been started is known, and ended, however early the trainer ends."""
    command = [sys.executable, "-c", STARTING]
    done = subprocess.run(command, env=environment(Path(__file__).parent), capture_output=True, text=True, timeout=240)
    assert done.stdout == "".join(f"{start} {-signal.SIGINT}\n" for start in (1, 2, 3)), done.stderr
    assert done.stderr.count("\nKeyboardInterrupt\n") == 3
    assert "Exception ignored" not in done.stderr
