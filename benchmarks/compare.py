"""Claim: killed at any batch and resumed, no utterance is lost or repeated, which holds of no peer in every row; and
batches of padded waveforms come faster, the first one sooner, than from any peer.

Two groups. *The same batches*: the batches of ``uio_pipes`` over files are recorded, and every loader that can take an
order makes the same ones of the same files. *Equal work*: the others read shards of the same utterances, shuffle, sort
and fill the same budget in their own ways. Each loader is killed (SIGKILL, with its workers) at random batches, goes on
from the last checkpoint in the way that its documentation describes, and the utterances that the training has got are
counted: ``python -m benchmarks.compare``.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, child, median, parser, rounds, settle, sized, spread
from benchmarks.corpus import Corpus, prepare, wav_members
from benchmarks.owned import proportional
from benchmarks.peers import BUDGET, ORDERED, PEERS, SHUFFLE, SORT, Batch, Resumable, Work, batches_of
from benchmarks.throughput import SHARES, epoch

MODULE = "benchmarks.compare"
SEED = 777
EVERY = sized(10, 2)  # batches between two checkpoints
LATEST = sized(100, 6)  # batches, of which at most that many come before the kill
PATIENCE = 300  # seconds for a loader that hangs
LOOK = 0.05  # seconds between two looks at the memory
OWN, RECORDED = "uio_pipes", "uio_pipes, files"
ALL = ORDERED | PEERS
PROTOCOL = "../README.md#the-comparison-of-loaders"
Found = dict[str, list[dict[str, Any]]]
TIMES = sized(2, 1)  # kills of each loader in each of these ways
WAYS = {
    "one process": {"workers": 0, "buffers": True},
    "two workers": {"workers": 2, "buffers": True},
    "one process, no shuffle buffer": {"workers": 0, "buffers": False},
    "two workers, no shuffle buffer": {"workers": 2, "buffers": False},
}
KILLS = sized(list(WAYS), ["two workers"])


def measure(data: str, what: str, name: str, **fields: Any) -> dict[str, Any]:
    """Measure a loader's epoch, what it makes and holds in one, or what it loses when it is killed."""
    corpus = prepare(Path(data))
    order = json.loads(_recorded(corpus).read_text()) if name in ORDERED and what != "record" else None
    ats = fields.pop("ats", [])
    work = Work(corpus, SEED, features=False, order=order, **fields)
    make = batches_of(ALL[name])
    random.seed(SEED)
    if what == "speed":
        return epoch(work, make)
    if what != "kill":
        return _made(work, make, what == "record")
    kills = [_killed(work, make, at) for at in ats]
    return {field: [kill[field] for kill in kills] for field in ("lost", "repeated", "resume")} | {
        "way": kills[0]["way"]
    }


def _recorded(corpus: Corpus) -> Path:
    return corpus.folder / "recorded.json"


def _made(work: Work, make: Callable[[Work], Iterable[Batch]], record: bool) -> dict[str, Any]:
    """Return what batches an epoch has (keys in the order of each, and its samples), and the most memory it held."""
    done, most = threading.Event(), [0]

    def look() -> None:
        while not done.wait(LOOK):
            most[0] = max(most[0], proportional(os.getpid()))

    settle()
    watching = threading.Thread(target=look)
    watching.start()
    batches, samples = [], 0
    for batch in make(work):
        batches.append(list(batch.keys))
        for key, row, length in zip(batch.keys, batch.feats, batch.lengths.tolist(), strict=True):
            samples ^= zlib.crc32(row[:length].contiguous().numpy(), zlib.crc32(key.encode()))
    done.set()
    watching.join()
    if record:
        _recorded(work.corpus).write_text(json.dumps(batches))
    same = work.order is not None and [sorted(keys) for keys in batches] == [sorted(keys) for keys in work.order]
    keys = [key for some in batches for key in some]
    return {
        "memory": most[0] / 2**20,
        "same": same,
        "samples": samples,
        "batches": len(batches),
        "keys": len(keys),
        "unique": len(set(keys)),
    }


def _killed(work: Work, make: Callable[[Work], Iterable[Batch]], at: int) -> dict[str, Any]:
    """Let a fork of this process run until batch ``at`` and be killed; go on here, and count utterances."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        pid = os.fork()
        if pid == 0:
            try:
                _until_killed(work, make, at, checkpoint)
            finally:
                os._exit(1)
        if _ended(pid) != -signal.SIGKILL:
            raise RuntimeError("the run that was to be killed ended before, or hung")
        got, state, way = pickle.loads(checkpoint.read_bytes())
    settle()
    began, first = time.perf_counter(), 0.0
    for batch in make(work._replace(state=state)):
        first = first or time.perf_counter() - began
        got += batch.keys
    times = Counter(got)
    return {
        "lost": work.corpus.utterances - len(times),
        "repeated": len(got) - len(times),
        "resume": first,
        "way": way,
    }


def _until_killed(work: Work, make: Callable[[Work], Iterable[Batch]], at: int, checkpoint: Path) -> None:
    os.setsid()
    running = make(work)
    got: list[str] = []
    for number, batch in enumerate(running, 1):
        got += batch.keys
        if number % EVERY == 0:
            way = isinstance(running, Resumable)
            partial = checkpoint.with_suffix(".partial")
            partial.write_bytes(pickle.dumps((got, running.state() if isinstance(running, Resumable) else None, way)))
            partial.rename(checkpoint)
        if number == at:
            os.killpg(0, signal.SIGKILL)


def _ended(pid: int) -> int:
    """Return how a process has ended; it and its group are killed if that takes too long."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 0


def main() -> None:
    """Measure all and write results/compare.md."""
    made = parser(__doc__, repeats=3)
    made.add_argument("--only", nargs="*", choices=ALL, default=list(ALL), help="these loaders, and not all")
    arguments = begin(measure, made)
    corpus = prepare(arguments.data)
    report = Report("compare", "Loaders on the same batches, and on equal work")
    report.text(
        f"{corpus.utterances:,} utterances, {corpus.seconds / 3600:.2f} h ({corpus.speech}), to padded waveforms: "
        f"shuffle {SHUFFLE:,}, sort {SORT}, {BUDGET:,} padded frames a batch. [What is equal, and what is not]({PROTOCOL})."
    )
    first = child(MODULE, data=arguments.data, what="record", name=RECORDED)
    if "error" in first:
        raise RuntimeError(f"no batches were recorded: {first['error']}")
    names = list(arguments.only)

    def measured(what: str, repeats: int = 1, **fields: Any) -> Found:
        jobs = {name: {"name": name} for name in names}
        found = rounds(MODULE, jobs, repeats, data=arguments.data, what=what, **fields)
        return report.ran(found, f"{what}, {fields.get('workers')} workers: ")

    made = {0: measured("made", workers=0)}
    names = list(made[0])
    made[2] = measured("made", workers=2)
    speed = {workers: measured("speed", arguments.repeats, workers=workers) for workers in (0, 2)}
    kills = {way: measured("kill", ats=_points(number), **WAYS[way]) for number, way in enumerate(KILLS)}
    _show(report, made, speed, kills)
    _show_kills(report, kills)
    _show_work(report, made, corpus)
    report.write()


def _points(seed: int) -> list[int]:
    """Return the batches before which a run is killed: at random, the same for all loaders."""
    return random.Random(seed).sample(range(EVERY, LATEST + 1), TIMES)


def _show(report: Report, made: dict[int, Found], speed: dict[int, Found], kills: dict[str, Found]) -> None:
    rows = []
    for name in speed[0]:
        alone, two = speed[0][name], speed[2].get(name, [])
        waits = " / ".join(f"{median(alone, f'p{share}'):.1f}" for share in SHARES)
        memory = " / ".join(f"{median(made[workers].get(name, []), 'memory'):.0f}" for workers in (0, 2))
        killed = [runs[0] for runs in (kill.get(name, []) for kill in kills.values()) if runs]
        resumed = [{"resume": seconds} for kill in killed for seconds in kill["resume"] if kill["way"]]
        worst = [max((most for kill in killed for most in kill[field]), default=-1) for field in ("lost", "repeated")]
        rows.append(
            [
                name,
                "chosen" if name == RECORDED else "the same" if name in ORDERED else "equal work",
                spread(alone, "speed", ",.0f"),
                spread(alone, "cpu_speed", ",.0f"),
                spread(two, "speed", ",.0f"),
                spread(alone, "first"),
                waits,
                memory,
                spread(resumed, "resume"),
                "–" if worst[0] < 0 else f"{worst[0]:,} / {worst[1]:,}",
            ]
        )
    columns = ["loader", "batches", "s of audio per s, one process", "per s of CPU", "per s, two workers"]
    columns += [
        "first batch (s)",
        "ms from next to batch: p50 / p95 / p99",
        "peak MiB of all processes: none / two workers",
    ]
    columns += ["resumed after (s)", "lost / repeated when killed, at worst"]
    report.table("Loaders", columns, rows, plot=[2, 4])
    report.table(
        "First batch and resume",
        ["loader", columns[5], columns[8]],
        [[row[0], row[5], row[8]] for row in rows],
        plot=[1, 2],
    )
    for name in (OWN, RECORDED):
        if name in speed[0]:
            group = ORDERED if name in ORDERED else PEERS
            others = {
                peer: median(runs, "cpu_speed") for peer, runs in speed[0].items() if peer in group and peer != name
            }
            best = max(others, key=lambda peer: others[peer], default="no peer")
            times = median(speed[0][name], "cpu_speed") / others.get(best, float("nan"))
            report.target(
                f"{name}: faster than the best peer, one process, CPU time", times > 1, f"{times:.2f}× {best}"
            )


def _show_kills(report: Report, kills: dict[str, Found]) -> None:
    rows = []
    for name in next(iter(kills.values())):
        cells = []
        for found in kills.values():
            kill = found.get(name, [{}])[0]
            counts = [
                f"{lost:,} / {again:,}"
                for lost, again in zip(kill.get("lost", []), kill.get("repeated", []), strict=True)
            ]
            cells.append("; ".join(counts) + ("" if kill.get("way", True) else " (none: starts again)") or "–")
        rows.append([name, *cells])
    points = ", ".join(f"{way}: {' and '.join(map(str, _points(number)))}" for number, way in enumerate(kills))
    report.table("Utterances lost / repeated when killed", ["loader", *kills], rows)
    report.text(f"A checkpoint every {EVERY} batches; killed after batch: {points}.")
    mine = [runs[0] for found in kills.values() for name, runs in found.items() if name in (OWN, RECORDED)]
    exact = all(not any(kill["lost"] + kill["repeated"]) for kill in mine)
    report.target("uio_pipes loses and repeats no utterance", exact and bool(mine), f"{TIMES * len(mine)} kills")


def _show_work(report: Report, made: dict[int, Found], corpus: Corpus) -> None:
    rows = []
    right = sum(1 for shard in corpus.shards("tar") for _ in wav_members(shard))
    samples = Counter(runs[0]["samples"] for runs in made[0].values()).most_common(1)[0][0]
    for name, (run,) in made[0].items():
        both = [run, *made[2].get(name, [])]
        once = all(one["keys"] == one["unique"] == right for one in both)
        same = "yes" if all(one["same"] for one in both) else "NO" if name in ORDERED else "own"
        bits = "yes" if all(one["samples"] == samples for one in both) else "NO"
        rows.append([name, f"{run['keys']:,}", "yes" if once else "NO", str(run["batches"]), same, bits])
    columns = ["loader", "utterances", "all, once", "batches", "the recorded ones", "the same samples, bit for bit"]
    report.table("Work, without workers and with two", columns, rows)


if __name__ == "__main__":
    main()
