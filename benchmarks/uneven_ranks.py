"""Claim: however unequal shards are, ranks that share an epoch (``uneven="share"``) leave out fewer batches than there
are ranks, and lose little time over it.

Real ranks (gloo) of one lane each, which read shards of 1 to 400 utterances, with shuffle 1,500, sort 500 and batches
of 12,000 frames. Every step is a sleep, which all ranks begin together. The tail begins when a rank has no batch any
more; what it takes beside the sleeps is lost. Messages are what the ranks tell each other: how many batches they have,
and where the lanes stand when they share. And by plan, how often 8 to 1,024 ranks share lanes whose numbers of batches
differ by 5 %: ``python -m benchmarks.uneven_ranks``.
"""

from __future__ import annotations

import multiprocessing
import socket
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, begin, child, parser, sized
from benchmarks.corpus import prepare

MODULE = "benchmarks.uneven_ranks"
SIZES = sized((400, 3, 90, 1, 250, 40, 7, 150, 20, 2, 110, 60), (9, 1, 5))  # utterances of a shard
RANKS = sized((1, 2, 3, 5, 8), (2,))
SIMULATED = sized(((8, 64), (64, 256), (1_024, 1_024), (1_024, 8_192)), ((8, 16),))  # ranks, lanes
STEP = sized(0.2, 0.0)  # seconds
EACH = sized(1_000, 20)  # batches of a simulated rank


def measure(what: str, **options: Any) -> dict[str, Any]:
    """Run one of the measurements below."""
    ways: dict[str, Callable[..., dict[str, Any]]] = {"real": _real, "plan": _plan}
    return ways[what](**options)


def _real(data: str, ranks: int, uneven: str) -> dict[str, Any]:
    """Measure an epoch on so many processes."""
    path, context = _unequal(Path(data)), multiprocessing.get_context("fork")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    results: Any = context.SimpleQueue()
    processes = [
        context.Process(target=_rank, args=(path, rank, ranks, uneven, address, results)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError("a rank failed")
    found: dict[str, Any] = results.get()
    return found


def _rank(path: str, rank: int, ranks: int, uneven: str, address: str, results: Any) -> None:
    import torch
    import torch.distributed as dist

    import uio_pipes as uio
    from benchmarks.peers.uio import pipeline
    from uio_pipes.run import epoch_run

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    shared: list[tuple[float, int]] = []  # when, and bytes told by all ranks
    agreed, tell, reduce = 0, epoch_run.all_gathered, dist.all_reduce

    def telling(*arguments: Any) -> Any:
        shared.append((time.perf_counter(), 0))
        told = tell(*arguments)
        shared[-1] = shared[-1][0], sum(len(text) for one in told for text in one.lanes.values())
        return told

    def reducing(*arguments: Any, **options: Any) -> Any:
        nonlocal agreed
        agreed += "group" in options
        return reduce(*arguments, **options)

    epoch_run.all_gathered, dist.all_reduce = telling, reducing  # type: ignore[assignment]
    loader = uio.Loader(pipeline(path), seed=7, uneven=uneven if ranks > 1 else "join")  # type: ignore[arg-type]
    steps, tail = 0, 0
    for _ in (batches := iter(loader)):
        steps, tail = steps + 1, tail + bool(shared)
        dist.barrier()
        time.sleep(STEP)
    lost = time.perf_counter() - shared[0][0] - tail * STEP if shared else 0.0
    delivered = loader.stats().delivered if ranks > 1 else loader.stats().utterances
    undelivered = batches.run.merge.undelivered  # type: ignore[attr-defined]
    counted = torch.tensor([sum(message.batch is not None for message in undelivered)])
    reduce(counted)
    if rank == 0:
        results.put(
            {
                "steps": steps,
                "left": int(counted),
                "utterances": sum(SIZES) - delivered,
                "tail": tail,
                "lost": lost,
                "agreed": agreed,
                "shared": len(shared),
                "kilobytes": sum(size for _, size in shared) / 1e3,
            }
        )
    dist.destroy_process_group()


def _unequal(data: Path) -> str:
    """Make the list, once, of shards of the corpus that are cut to other sizes."""
    folder = data / "unequal"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}-{size}.tar" for number, size in enumerate(SIZES)]
    whole = prepare(data).shards("tar")
    for number, (path, size) in enumerate(zip(paths, SIZES, strict=True)):
        with tarfile.open(whole[number % len(whole)]) as source, tarfile.open(path, "w") as cut:
            for member in source.getmembers()[: 2 * size]:
                cut.addfile(member, source.extractfile(member))
    (folder / "shards.list").write_text("".join(f"{path}\n" for path in paths))
    return str(folder / "shards.list")


def _plan(ranks: int, lanes: int) -> dict[str, Any]:
    """Share lanes by plan."""
    from uio_pipes.tools.reports.simulate import shared

    draws = np.random.default_rng(lanes).normal(1, 0.05, lanes) * EACH * ranks / lanes
    counts = {lane: max(0, round(n)) for lane, n in enumerate(draws.tolist())}
    own = [sum(counts[lane] for lane in range(rank, lanes, ranks)) for rank in range(ranks)]
    orders, deals = shared({lane: list(range(n)) for lane, n in counts.items()}, counts, ranks)
    steps, total = min(map(len, orders)), sum(counts.values())
    return {
        "steps": steps,
        "tail": steps - min(own),
        "stop": 1 - min(own) * ranks / total,
        "left": total - steps * ranks,
        "deals": deals,
    }


def main() -> None:
    """Measure all and write results/uneven_ranks.md."""
    arguments = begin(measure, parser(__doc__, repeats=1))
    prepare(arguments.data)
    report = Report("uneven_ranks", "Ranks with unequal shards share an epoch")
    rows, worst = [], 0
    for ranks in RANKS:
        for uneven in ("share", "stop")[:ranks]:
            found = child(MODULE, what="real", data=arguments.data, ranks=ranks, uneven=uneven)
            worst = max(worst, found["left"] - ranks + 1 if uneven == "share" else 0)
            left = f"{found['utterances']:,} ({100 * found['utterances'] / sum(SIZES):.1f} %)"
            told = [str(found["agreed"]), str(found["shared"]), f"{found['kilobytes']:.0f}"]
            lost = [str(found["tail"]), f"{found['lost']:.2f}"]
            rows.append([f"{ranks} ranks, {uneven}", left, str(found["steps"]), *lost, *told])
    columns = ["", "utterances left out", "steps", "of them in the tail", "seconds lost there"]
    report.table("Real ranks", [*columns, "all-reduces", "times shared", "kB of states"], rows)
    report.target(
        "fewer batches than ranks are left out", worst <= 0, "at most as many" if worst <= 0 else f"{worst} more"
    )
    rows = []
    for ranks, lanes in SIMULATED:
        found = child(MODULE, what="plan", ranks=ranks, lanes=lanes)
        left = [f"{100 * found['stop']:.1f} %", f"{found['left']:,} batches"]
        rows.append(
            [f"{ranks:,} ranks, {lanes:,} lanes", *left, *(str(found[name]) for name in ("steps", "tail", "deals"))]
        )
    report.table("By plan", ["", "stop leaves out", "share", "steps", "of them in the tail", "times shared"], rows)
    report.write()


if __name__ == "__main__":
    main()
