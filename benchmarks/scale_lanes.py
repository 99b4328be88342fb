"""Claims: the gathered state of 10,000 lanes is at most 100 MB and quick to merge and to load on 1,024 ranks × 8
workers; and how dealing 10,000 lanes affects balance and uneven ends.

A simulation in one process. States are real ones (shuffle 1,500 and sort 500 full, of tar shards), each used for many
lanes. Shards have 1,000 utterances of log-normal lengths of 4.9 s on average, but for the 2 % that end a folder;
batches have 12,000 frames. Lanes are dealt by the loader's own permutation and rule: ``python -m
benchmarks.scale_lanes``.
"""

from __future__ import annotations

import pickle
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import Report, begin, child, parser, sized
from benchmarks.corpus import prepare

MODULE = "benchmarks.scale_lanes"
LANES, RANKS, WORKERS = sized((10_000, 1_024, 8), (64, 16, 2))
DEALS = sized(  # shards, lanes
    [(7_500_000, 8_192), (7_500_000, LANES), (7_500_000, 65_536), (75_000, 8_192), (75_000, 1_024)], [(1_000, LANES)]
)
REAL = sized(8, 1)  # lanes whose states are copied
FRAMES = 12_000 * 0.97  # of a batch, without padding
Column = npt.NDArray[np.float64]


def measure(what: str, **options: Any) -> dict[str, Any]:
    """Run one of the measurements below."""
    ways: dict[str, Callable[..., dict[str, Any]]] = {"state": _state, "deal": _deal}
    return ways[what](**options)


# The state


def _state(data: str) -> dict[str, Any]:
    """Measure sizes and times of the state of all lanes, on its way from all ranks to one and back to all."""
    import uio_pipes as uio
    from benchmarks.peers.uio import pipeline

    shards = prepare(Path(data)).shards("tar") * REAL * 2
    lanes = _lanes(pipeline(shards))
    graph = pipeline(shards * (LANES // len(shards) + 1))
    rank = uio.Loader(graph, lanes=LANES, rank=0, world_size=RANKS)
    meta = rank.state_dict()["meta"]
    states = [
        {"meta": meta} | {f"lane_{lane:06d}": lanes[lane % REAL].text(lane) for lane in range(number, LANES, RANKS)}
        for number in range(RANKS)
    ]
    times: dict[str, float] = {}
    sent = _timed(times, "pickled on its rank", lambda: pickle.dumps(states[0]))
    arrived = _timed(times, "unpickled on rank 0, all", lambda: [pickle.loads(pickle.dumps(s)) for s in states])
    merged = _timed(times, "merge_states, rank 0", lambda: uio.merge_states(arrived))
    size = sum(map(len, merged.values()))
    arrived.clear()
    loader = uio.Loader(graph, lanes=LANES, rank=5, world_size=RANKS, num_workers=WORKERS)
    _timed(times, "load_state_dict, each rank", lambda: loader.load_state_dict(merged))
    _timed(times, "state_dict before the first batch", loader.state_dict)
    resharded = uio.Loader(graph, rank=5, world_size=RANKS // 2, num_workers=WORKERS, lanes=RANKS)
    _timed(times, "load_state_dict, on half as many ranks", lambda: resharded.load_state_dict(merged))
    batches = iter(rank)
    next(batches)
    _timed(times, "state_dict, each rank, each step", rank.state_dict)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    held = sum(_held(lane.node_states) for lane in lanes) / REAL
    return {"times": times, "size": size, "of a rank": len(sent), "held": held, "peak": peak}


def _timed(times: dict[str, float], name: str, call: Any) -> Any:
    began = time.perf_counter()
    found = call()
    times[name] = time.perf_counter() - began
    return found


def _lanes(graph: Any) -> list[Any]:
    """Return the saved states of real lanes whose buffers are full."""
    import uio_pipes as uio
    from uio_pipes.run.state import read_lane

    loader = uio.Loader(graph, lanes=REAL)
    batches = iter(loader)
    for _ in range(30 * REAL):
        next(batches)
    state = loader.state_dict()
    return [read_lane(state, lane) for lane in range(REAL)]


def _held(state: Any) -> int:
    """Count the utterances in the buffers of a lane."""
    from uio_pipes.base.hashing import unpack

    return (len(unpack(state["held"])) if "held" in state else 0) + (_held(state["source"]) if "source" in state else 0)


# Balance


def _deal(shards: int, lanes: int, ranks: int) -> dict[str, Any]:
    """Deal an epoch: measure how even it is, and how much each policy leaves out, repeats or waits for."""
    from uio_pipes.base.hashing import Permutation
    from uio_pipes.core.lane import worker_of

    hours = _hours(shards)
    began = time.perf_counter()
    order = Permutation(shards, 777).all()
    lane_of = np.arange(shards) % lanes
    by_lane = np.bincount(lane_of, hours[order], lanes)
    took = time.perf_counter() - began
    batches = np.ceil(by_lane * 360_000 / FRAMES)
    by_rank = np.bincount(np.arange(lanes) % ranks, batches, ranks)
    seats = [lane % ranks * WORKERS + worker_of(lane, ranks, WORKERS) for lane in range(lanes)]
    by_worker = np.bincount(seats, batches, ranks * WORKERS)
    total, shortest, longest = by_rank.sum(), by_rank.min(), by_rank.max()
    return {
        "hours": float(hours.sum()),
        "seconds": took,
        "lane": _over(batches),
        "rank": _over(by_rank),
        "worker": _over(by_worker),
        "stop": 1 - shortest * ranks / total,
        "join": 1 - total / (longest * ranks),
        "repeat": longest * ranks / total - 1,
    }


def _hours(shards: int) -> Column:
    """Draw the hours of each shard. A sum of 1,000 independent lengths is normally distributed."""
    draws = np.random.default_rng(5)
    utterances = np.where(draws.random(shards) < 0.02, draws.integers(1, 1000, shards), 1000)
    spread = 4.9 * np.sqrt(np.expm1(0.6**2))  # log-normal with a sigma of 0.6
    seconds: Column = 4.9 * utterances + spread * np.sqrt(utterances) * draws.standard_normal(shards)
    return seconds.clip(1) / 3600


def _over(values: npt.NDArray[Any]) -> float:
    """Return how much the fullest has above the mean."""
    return float(values.max() / values.mean() - 1)


def main() -> None:
    """Measure all and write results/scale_lanes.md."""
    arguments = begin(measure, parser(__doc__, repeats=1))
    prepare(arguments.data)
    report = Report("scale_lanes", f"{LANES:,} lanes on {RANKS:,} ranks × {WORKERS} workers, by simulation")
    state = child(MODULE, what="state", data=arguments.data)
    if "error" in state:
        report.text(f"- the state was not measured: {state['error']}")
    else:
        _tell_state(report, state)
    rows = []
    for shards, lanes in DEALS:
        found = child(MODULE, what="deal", shards=shards, lanes=lanes, ranks=RANKS)
        shares = [f"{100 * found[name]:.2f} %" for name in ("lane", "worker", "rank", "stop", "join", "repeat")]
        rows.append([f"{shards:,} ({found['hours']:,.0f} h), {lanes:,}", f"{found['seconds']:.1f} s", *shares])
    columns = [
        "shards, lanes",
        "dealt in",
        "fullest lane",
        "worker",
        "rank",
        "stop: left out",
        "join: idle",
        "repeat: twice",
    ]
    report.table("Balance: above the mean; and uneven ends, of all batches", columns, rows, plot=[2, 3, 4])
    _tell_limits(report)
    report.write()


def _tell_state(report: Report, state: dict[str, Any]) -> None:
    report.table("Seconds", ["", "s"], [[name, f"{took:.3f}"] for name, took in state["times"].items()])
    size = state["size"] / 1e6
    each = state["size"] / LANES / state["held"]
    report.target(
        "the gathered state is at most 100 MB",
        size <= 100,
        f"{size:.1f} MB, {each:.1f} bytes for each of {state['held']:.0f} buffered utterances a lane; "
        f"{state['of a rank'] / 1e3:.0f} kB from each rank; this process took {state['peak']:.0f} MiB at most",
    )


def _tell_limits(report: Report) -> None:
    report.text(
        f"Lanes should be a multiple of ranks × workers: {LANES:,} lanes give 784 of {RANKS:,} ranks one lane more "
        "than the others, and every policy pays for that. A hundred shards a lane keep lanes within a few percent."
    )
    report.text(
        "What limits ten times as many lanes: the gathered state grows to half a gigabyte, and rank 0 needs some four "
        "times that while it joins the parts; every rank reads and parses the whole of it when it resumes, and asks "
        "each shard under way whether it has changed (one `stat`, or one request, a lane and rank). Dealing does not: "
        "no rank works out more of the order than it needs. With a state of its own for each rank (`state_dict()`, or "
        "torch.distributed.checkpoint with the same lanes) nothing grows with the number of ranks."
    )


if __name__ == "__main__":
    main()
