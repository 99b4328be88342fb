"""Claim: workers on Ray take at most 10 ms of CPU a batch more than local ones; a killed node costs the trainer 5 s.

Frames per second, and the CPU time of all processes (with Ray's own) for a batch, on one machine, from an endless
stream: once the loader has run for a while. Then two nodes of a cluster on this machine, of which one is killed, or one
of its actors: ``python -m benchmarks.ray_workers``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread
from benchmarks.corpus import prepare

MODULE = "benchmarks.ray_workers"
SETTLING, SECONDS = sized((4.0, 10.0), (0.5, 0.5))
LANES = 6  # one for each shard
NODE = {"object_store_memory": 200 << 20, "include_dashboard": False}
PREFETCH = sized((2, 8), (2,))
MOMENT = sized(25, 8)  # the step at which something is killed
WORKERS = sized((1, 2), (1,))
MOST = 10  # ms that Ray takes for a batch


def measure(way: str, data: str, workers: int = 2, prefetch: int = 2) -> dict[str, Any]:
    """Measure a way of running workers, or what it costs if something is killed."""
    if way.startswith("killed"):
        return _killed(way, data)
    return _speed(way, data, workers, prefetch)


def _speed(way: str, data: str, workers: int, prefetch: int) -> dict[str, Any]:
    import ray

    loader = _loader(way, data, workers, prefetch)
    batches = iter(loader)
    next(batches)
    for seconds in (SETTLING, SECONDS):
        since, frames, cpu, count = time.perf_counter(), loader.stats().frames, _cpu(), 0
        while time.perf_counter() < since + seconds:
            next(batches)
            count += 1
    frames, cpu, wall = loader.stats().frames - frames, _cpu() - cpu, time.perf_counter() - since
    del batches
    ray.shutdown()
    return {"speed": frames / wall, "ms": 1000 * cpu / count}


def _loader(way: str, data: str, workers: int, prefetch: int = 2) -> Any:
    import uio_pipes as uio
    from benchmarks.peers.uio import pipeline

    graph = pipeline(prepare(Path(data)).list("tar"))
    where: dict[str, Any] = {"num_workers": workers} if way == "local" else {"num_workers": uio.RayWorkers(workers)}
    return uio.Loader(graph, seed=7, lanes=LANES, steps_per_epoch=10**9, prefetch_factor=prefetch, **where)


def _cpu() -> float:
    """Return the CPU seconds of this process and all that descend from it, so far."""
    return sum(sum(map(int, fields[11:15])) for _, fields in _processes()) / os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yield the ID of this process and of all that descend from it, with the rest of ``/proc/PID/stat``."""
    found: dict[int, list[str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            found[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
    todo = [os.getpid()]
    while todo:
        pid = todo.pop()
        yield pid, found[pid]
        todo += [child for child, fields in found.items() if int(fields[1]) == pid]


def _killed(what: str, data: str) -> dict[str, Any]:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **NODE})
    nodes = [cluster.add_node(num_cpus=2, node_name=f"node{i}", **NODE) for i in range(2)]
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    loader = _loader("ray", data, 2)
    gaps = []
    batches, at = iter(loader), time.perf_counter()
    for step in range(3 * MOMENT):
        next(batches)
        gaps.append(time.perf_counter() - at)
        time.sleep(0.05)  # the trainer works on it
        if step == MOMENT and what == "killed node":
            cluster.remove_node(nodes[0], allow_graceful=False)
        elif step == MOMENT:
            os.kill(_pid_of_an_actor(), signal.SIGKILL)
        at = time.perf_counter()
    restarts = sum(node.restarts for node in loader.stats().nodes.values())
    del batches, loader
    ray.shutdown()
    cluster.shutdown()
    return {"pause": max(gaps[MOMENT:]), "usual": max(gaps[5:MOMENT]), "restarts": restarts}


def _pid_of_an_actor() -> int:
    """Return the process of an actor that runs lanes."""
    return next(pid for pid, _ in _processes() if b"ray::Lanes" in Path(f"/proc/{pid}/cmdline").read_bytes())


def main() -> None:
    """Measure all and write results/ray_workers.md."""
    # As local workers: Ray lets its own give way to all other processes. Its sockets need a folder with a short name.
    os.environ.update(RAY_worker_niceness="0", RAY_TMPDIR="/tmp")
    arguments = begin(measure, parser(__doc__, repeats=5))
    prepare(arguments.data)
    report = Report("ray_workers", "Workers on Ray")
    rows, found = [], []
    for workers in WORKERS:
        jobs = {
            f"{way}, prefetch={prefetch}": {"way": way, "workers": workers, "prefetch": prefetch}
            for prefetch in PREFETCH
            for way in ("local", "ray")
        }
        results = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data))
        for name, runs in results.items():
            local = results.get(f"local, prefetch={jobs[name]['prefetch']}", [])
            found.append(more := median(runs, "ms") - median(local, "ms"))
            wall = ratio(median(runs, "speed"), median(local, "speed"))
            rows.append([f"{name}, {workers}", spread(runs, "speed", ",.0f"), wall, spread(runs, "ms"), f"{more:+.1f}"])
    columns = ["workers", "frames/s", "of local", "ms of CPU for a batch", "more than local"]
    report.table("Throughput on one machine", columns, rows, plot=[1])
    worst = max(found, default=float("nan"))
    report.target(f"at most {MOST} ms of CPU for a batch more than local workers", worst <= MOST, f"{worst:.1f} ms")
    jobs = {way: {"way": way} for way in ("killed node", "killed actor")}
    results = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data))
    rows = [
        [name, spread(runs, "pause"), spread(runs, "usual"), spread(runs, "restarts", ".0f")]
        for name, runs in results.items()
    ]
    report.table("A pause of the trainer, two nodes with an actor each", ["", "s", "before, s", "restarts"], rows)
    longest = max((run["pause"] for run in results.get("killed node", [])), default=float("inf"))
    report.target("a killed node costs at most 5 s", longest <= 5, f"at most {longest:.1f} s")
    report.write()


if __name__ == "__main__":
    main()
