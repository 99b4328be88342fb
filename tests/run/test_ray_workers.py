"""Workers on a Ray cluster of several nodes: batches and states are those of local ones, whatever dies meanwhile."""

import gc
import json
import logging
import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
import ray_worker
import torch
import torch.distributed as dist
from command import FORKS, ranks
from contract import carried, digest, timeless
from journeys import training
from processes import environment

import uio_pipes as uio
from uio_pipes.core.statistics import NodeStats
from uio_pipes.run.ray import fleet as ray_fleet
from uio_pipes.run.stall import Stalled

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

STORE = 80 << 20
State = dict[str, str]


class Cluster:
    """Nodes on this machine, each with processes and an object store of its own. The trainer's one has no CPUs.

    Workers are forks of a process that has imported torch and this package, which takes seconds.
    """

    def __init__(self, nodes: int = 2) -> None:
        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
        unused = {"include_log_monitor": False, "no_monitor": True}  # logs for the driver, and autoscaling
        self._cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**head, **unused})
        self._nodes: dict[str, Any] = {}
        self._count = 0
        self.grow(nodes)
        ray.init(address=self._cluster.address, logging_level="ERROR", log_to_driver=False)

    def grow(self, size: int) -> None:
        """Add nodes until there are so many."""
        while len(self._nodes) < size:
            name = f"node{self._count}"
            options = {"num_cpus": 2, "object_store_memory": STORE, "setup_worker_path": ray_worker.__file__}
            self._nodes[name] = self._cluster.add_node(node_name=name, **options)
            self._count += 1

    def kill_node(self, used: Iterable[str]) -> None:
        """Kill the node that is there for longest among those in use, and all that runs on it."""
        name = next((name for name in self._nodes if name in used), next(iter(self._nodes)))
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def end(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()


def of_nodes() -> dict[str, str]:
    """The environment of the nodes."""
    # on a busy machine, workers as nice as Ray makes them would wait for all others
    return environment(Path(__file__).parent, FORKS=FORKS.address(), RAY_worker_niceness="0")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in of_nodes().items():
            patch.setenv(name, value)
        made = Cluster()
        yield made
        made.end()


@pytest.fixture(autouse=True)
def no_actors_of_earlier_tests() -> None:
    """Errors that pytest keeps hold loaders, whose actors would leave no room for the next ones."""
    gc.collect()


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> corpus.Corpus:
    return corpus.shards(tmp_path_factory.mktemp("shards"), [6] * 12, seconds=(0.3, 0.9))


def local(pipeline: uio.Pipeline, **options: Any) -> uio.Loader:
    return uio.Loader(pipeline, seed=5, lanes=4, **{"num_workers": 2, **options})


def remote(pipeline: uio.Pipeline, **options: Any) -> uio.Loader:
    return uio.Loader(pipeline, seed=5, lanes=4, num_workers=uio.RayWorkers(2), **options)


def run(loader: uio.Loader, steps: int | None = None, each: Callable[[int], None] = lambda step: None) -> list[Any]:
    """The next batches, as digests, with the state after each."""
    ran = []
    for step, batch in enumerate(loader):
        ran.append((digest(batch), timeless(loader.state_dict())))
        each(step)
        if step + 1 == steps:
            break
    return ran


def test_batches_and_states_are_those_of_local_workers_in_every_epoch(cluster: Cluster, shards: corpus.Corpus) -> None:
    graph = training(shards.list)
    here, there = local(graph), remote(graph)
    for _ in range(2):
        assert run(there) == run(here)
        assert timeless(there.state_dict()) == timeless(here.state_dict())
    nodes = there.stats().nodes
    assert nodes.keys() <= {"node0", "node1"}
    assert sum(node.utterances for node in nodes.values()) == 2 * len(shards.keys)
    assert all(node.speed > 0 and node.restarts == 0 for node in nodes.values())


def test_a_run_goes_from_remote_workers_to_local_ones_and_back(cluster: Cluster, shards: corpus.Corpus) -> None:
    graph = training(shards.list)
    expected = run(local(graph))
    state, done, makers = None, 0, [remote, local, remote]
    for make, steps in zip(makers, (9, 7, None), strict=True):
        loader = make(graph)
        if state is not None:
            loader.load_state_dict(carried(state))
        part = run(loader, steps)
        assert part == expected[done : done + len(part)]
        state, done = loader.state_dict(), done + len(part)
    assert done == len(expected)


def test_batches_may_be_written_to(cluster: Cluster, shards: corpus.Corpus) -> None:
    def with_array(sample: uio.Sample) -> uio.Sample:
        sample["extra"] = np.ones(9, np.float32)
        return sample

    graph = uio.from_shard_list(shards.list).decode_audio().map(with_array).fbank(8).batch(6)
    kinds = set()
    for batch in remote(graph):
        for sample in batch:
            for value in sample.values():
                if isinstance(value, (np.ndarray, torch.Tensor)):
                    value[...] = 0
                    kinds.add(type(value))
    assert kinds == {np.ndarray, torch.Tensor}


def killed_when(flag: Path, path: Path) -> uio.Pipeline:
    """A graph in which whoever works on an utterance is killed if there is a file ``flag``; it is gone then."""

    def survive(sample: uio.Sample) -> uio.Sample:
        try:
            flag.unlink()
        except FileNotFoundError:
            return sample
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")

    return uio.from_shard_list(path, shuffle=True).map(survive).decode_audio().fbank(8).shuffle(4).batch(1).pad()


def test_killed_actors_make_no_difference(cluster: Cluster, shards: corpus.Corpus, tmp_path: Path) -> None:
    flag = tmp_path / "kill"
    graph = killed_when(flag, shards.list)
    expected = run(local(graph))
    moments = sorted(random.Random(3).sample(range(len(expected) // 2), 3))

    def kill(step: int) -> None:
        if moments and step >= moments[0] and not flag.exists():
            flag.touch()
            del moments[0]

    loader = remote(graph)
    assert run(loader, each=kill) == expected
    assert not moments
    assert not flag.exists()
    assert sum(node.restarts for node in loader.stats().nodes.values()) == 3


def stuck_at(key: str, fifo: Path) -> uio.Pipeline:
    """Utterances of which one waits for a FIFO that nobody writes to."""

    def read(sample: uio.Sample) -> uio.Sample:
        if sample["key"] == key:
            fifo.read_bytes()
        return sample

    return uio.from_iterable([{"key": str(i)} for i in range(24)]).sharding_filter().map(read).batch(2)


@pytest.mark.parametrize("skip", [False, True])
def test_what_hangs_in_an_actor_is_named_and_ends_or_is_passed_over(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, skip: bool
) -> None:
    os.mkfifo(tmp_path / "fifo")
    failures = uio.Failures(hung="skip" if skip else "raise")
    loader = remote(stuck_at("7", tmp_path / "fifo"), stall=2, stall_limit=4, failures=failures)
    if skip:
        ran = run(loader)
        assert loader.stats().skipped == {"hung": 1}
        again = remote(stuck_at("7", tmp_path / "fifo"), failures=failures, stall=2, stall_limit=4)
        assert run(again) == ran, "it hangs again, and is passed over again"
        assert sorted(int(key) for batch in loader for key in (one["key"] for one in batch)) == [
            i for i in range(24) if i != 7
        ]
    else:
        with pytest.raises(Stalled, match=r"stall_limit=4 is over: load the last state to go on"):
            run(loader)
    what = (
        r"rank 0: the Ray actor on node \w+ has done nothing for \d s: lane \d, stage map: \S+, item 7, utterance '7'"
    )
    told = [text for record in caplog.records if re.match(what, text := record.getMessage())]
    assert len(told) >= 1 + 2 * skip, caplog.text  # on a busy machine, a new actor hangs there once more
    assert "in read_bytes\n" in told[0]


def test_batches_that_were_passed_over_are_not_passed_over_again(
    cluster: Cluster, shards: corpus.Corpus, tmp_path: Path
) -> None:
    flag = tmp_path / "kill"
    graph = killed_when(flag, shards.list)

    def skipping(loader: uio.Loader, kill: bool) -> list[Any]:
        ran = run(loader, 3)
        loader.skip(7)
        return ran + run(loader, each=lambda step: flag.touch() if kill and step == 1 else None)

    assert skipping(remote(graph, prefetch_factor=1), kill=True) == skipping(local(graph), kill=False)


def test_actors_that_die_at_the_same_batch_each_time_are_an_error(cluster: Cluster, shards: corpus.Corpus) -> None:
    def die(sample: uio.Sample) -> uio.Sample:
        if sample["key"] == shards.keys[20]:
            os.kill(os.getpid(), signal.SIGKILL)
        return sample

    loader = remote(uio.from_shard_list(shards.list).map(die).batch(1))
    with pytest.raises(RuntimeError, match="3 Ray actors in a row died before the same batch"):
        run(loader)


def test_an_error_of_a_lane_is_that_of_a_local_worker(cluster: Cluster, shards: corpus.Corpus) -> None:
    def fail(sample: uio.Sample) -> uio.Sample:
        if sample["key"] == shards.keys[20]:
            raise ValueError("no such thing")
        return sample

    graph = uio.from_shard_list(shards.list).map(fail).batch(1)
    errors = []
    for make in (local, remote):
        got: list[str] = []
        with pytest.raises(uio.DataError) as caught:
            got.extend(batch[0]["key"] for batch in make(graph, failures="raise"))
        errors.append((got, type(caught.value), str(caught.value), "no such thing" in str(caught.value.__cause__)))
    assert errors[0] == errors[1]


def test_what_an_actor_prepares_is_bounded_by_prefetch(cluster: Cluster, shards: corpus.Corpus, tmp_path: Path) -> None:
    made = tmp_path / "made"

    def note(sample: uio.Sample) -> uio.Sample:
        with made.open("a") as file:
            file.write(f"{sample['key']}\n")
        return sample

    loader = remote(uio.from_shard_list(shards.list).map(note).batch(1), prefetch_factor=3)
    batches = iter(loader)
    taken = [next(batches)[0]["key"] for _ in range(8)]
    fleet = loader._options.fleet
    assert fleet is not None
    run, received_ahead = loader._run, 1
    assert run is not None
    run.merge.received()  # waits for the one that is received ahead
    ray.get([host.actor.node.remote() for host in fleet._homes])  # which they answer after all that they were asked
    assert len(made.read_text().splitlines()) == len(taken) + received_ahead + 2 * 3


def test_watch_and_scalars_show_each_node(
    cluster: Cluster, shards: corpus.Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    loader = remote(training(shards.list))
    for _ in uio.watch(loader):
        pass
    shown = re.findall(r" \| (node\d+) [\d,]+/s", capsys.readouterr().err)
    stats = loader.stats()
    scalars = stats.as_dict()
    assert {name.rpartition("/")[2] for name in scalars if "utterances_per_second" in name} == set(stats.nodes)
    assert shown == sorted(stats.nodes) != []


def test_the_speed_of_a_node_is_that_of_its_work() -> None:
    assert NodeStats(utterances=30, seconds=1.5).speed == 20
    assert NodeStats().speed == 0


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: uio.RayWorkers(0), "count must be a whole number, 1 or more, not 0"),
        (lambda: uio.RayWorkers(2, {"max_restarts": 3}), "options must be of .*num_cpus.*, not 'max_restarts'"),
        (lambda: uio.RayWorkers(2, 3), "options must be a mapping, not 3"),  # type: ignore[arg-type]
        (lambda: uio.Loader(_texts(), num_workers=uio.RayWorkers), "num_workers must be a whole number"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(uio.PipelineError, match=match):
        make()


def test_an_option_that_ray_refuses_is_named(cluster: Cluster) -> None:
    loader = uio.Loader(_texts(), num_workers=uio.RayWorkers(1, {"num_cpus": -1}))
    with pytest.raises(uio.PipelineError, match=r"RayWorkers: options=\{'num_cpus': -1\}: .*num_cpus"):
        next(iter(loader))


def _texts() -> uio.Pipeline:
    return uio.from_iterable([{"key": "a", "txt": "b"}]).batch(1)


def test_lanes_are_as_many_as_the_actors() -> None:
    loader = uio.Loader(uio.from_shard_list("x.list"), num_workers=uio.RayWorkers(3), rank=0, world_size=2)
    assert (loader.num_workers, loader.lanes) == (3, 6)


def test_killed_nodes_make_no_difference(
    cluster: Cluster, shards: corpus.Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    graph = training(shards.list)
    here = local(graph)
    expected = run(here)
    first, second = random.Random(4).sample(range(2, len(expected) - 3), 2)
    loader = remote(graph)

    def kill(step: int) -> None:
        if step in (first, second):
            cluster.grow(2)
            cluster.kill_node(loader.stats().nodes)

    with caplog.at_level(logging.WARNING, "uio_pipes"):
        assert run(loader, each=kill) == expected
    assert "goes on" not in caplog.text
    assert re.search(
        r"the Ray actor on node (?:node\d+|\(none yet\)) (died|does not answer): its lanes continue on other actors",
        caplog.text,
    )
    cluster.grow(2)
    assert run(loader) == run(here)  # in other actors, if need be


def test_a_loader_of_which_no_actor_can_start_says_so_after_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_fleet, "REPORT_EVERY", 0.0)
    monkeypatch.setattr(ray_fleet, "MOST", 1.0)
    graph = uio.from_iterable([{"key": "U0", "txt": "a"}]).sharding_filter().batch(1)
    loader = uio.Loader(graph, num_workers=uio.RayWorkers(1, {"resources": {"moon": 1}}))
    with pytest.raises(RuntimeError, match=r"1 Ray actor of 1 not started yet, for \d+ s\. Is .*'moon'.*Free: "):
        next(iter(loader))


WITHOUT_AGENT = """
import test_ray_workers as here
cluster = here.Cluster(nodes=1)
numbers = [{"key": str(number)} for number in range(2_000)]
graph = here.uio.from_iterable(numbers).sharding_filter().map(here.wide).batch(2)
batches = iter(here.uio.Loader(graph, num_workers=here.uio.RayWorkers(2)))
next(batches)
cluster._cluster.head_node.kill_raylet()
print("killed", flush=True)
list(batches)
"""


def wide(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "label": np.zeros(50_000, np.int64)}


@pytest.mark.timeout(120)
def test_a_trainer_whose_own_agent_was_killed_ends_with_an_error() -> None:
    """Its actors are on another node and answer, so that nothing else tells of it."""
    done = FORKS.run(["-c", WITHOUT_AGENT], Path.cwd(), of_nodes())
    assert "killed\n" in done.stdout, done.stderr  # Ray prints there, too
    assert "RuntimeError: Ray's agent (raylet) on the trainer's machine has ended" in done.stderr


class Follower:
    """A worker that counts how often it lost its actor."""

    host: ray_fleet.Host
    moves = 0

    def moved(self, error: Exception | None, hung: object) -> None:
        self.moves += 1


def test_two_threads_that_hear_of_the_same_loss_replace_the_actor_once(cluster: Cluster) -> None:
    """As the thread that receives ahead does beside the trainer's, when ranks share while an actor is killed."""
    fleet = ray_fleet.Fleet(uio.RayWorkers(1))
    worker = Follower()
    host = worker.host = fleet.enter(worker, 0)
    while not host.started:
        time.sleep(0.01)
    together = threading.Barrier(8)

    def lose(_: int) -> None:
        together.wait()
        fleet.lose(host, None)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lose, range(8)))
    assert fleet.stats(host).restarts == worker.moves == 1


def shared(path: str, folder: str) -> None:
    """On each of two ranks: whether batches and states of workers on Ray are those of local ones while ranks share."""
    dist.init_process_group("gloo")
    flag, found = Path(folder, f"kill{dist.get_rank()}"), []
    graph = killed_when(flag, Path(path))
    for lanes, tail in ((1, "drop"), (3, "repeat")):
        options: dict[str, Any] = {"seed": 5, "lanes": lanes, "tail": tail}
        here, states = uio.Loader(graph, **options), list[State]()
        expected = run(here, each=lambda step, here=here, states=states: states.append(here.state_dict()))
        half = len(expected) // 2
        loader = uio.Loader(graph, num_workers=uio.RayWorkers(1), **options)
        ran = run(loader, each=lambda step, half=half: flag.touch() if step == half else None)
        found += [ran == expected, not flag.exists(), sum(node.restarts for node in loader.stats().nodes.values())]
        del loader  # its actors make room for others
        again = uio.Loader(graph, num_workers=uio.RayWorkers(1), **options)
        again.load_state_dict(states[half])
        found.append(run(again) == expected[half + 1 :])
    Path(folder, f"found{dist.get_rank()}").write_text(json.dumps(found))
    dist.destroy_process_group()


def test_ranks_share_with_workers_on_ray_whose_actors_are_killed_meanwhile(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.grow(2)
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    unequal = corpus.shards(tmp_path, [14, 2, 5], seconds=(0.1, 0.3))
    done = ranks(2, __file__, unequal.list, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        assert json.loads((tmp_path / f"found{rank}").read_text()) == [True, True, 1, True] * 2


if __name__ == "__main__":
    shared(*sys.argv[1:])
