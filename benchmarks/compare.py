"""Claim: killed at any batch and resumed, no utterance is lost or repeated; batches of padded waveforms come faster
than from any peer.

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
from contextlib import suppress
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
PATIENCE = 120  # seconds for a loader that hangs
LOOK = 0.05  # seconds between two looks at the memory
OWN, RECORDED = "uio_pipes", "uio_pipes, files"
ALL = ORDERED | {name: peer for name, peer in PEERS.items() if "torchaudio" not in name}  # a slower decoder only
COMPARED = sized(list(ALL), [OWN, RECORDED, "Lhotse cuts"])  # other peers run in a quick throughput, too
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
    work = Work(corpus, SEED, features=False, order=order, **fields)
    make = batches_of(ALL[name])
    random.seed(SEED)
    if what == "speed":
        return epoch(work, make)
    if what == "kill":
        ways = [way for way in KILLS if WAYS[way]["buffers"] or name in PEERS]  # not twice in one order
        return {way: [_killed(work._replace(**WAYS[way]), make, at) for at in _points(way)] for way in ways}
    return _made(work, make, what == "record")


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
    """Kill a run after batch ``at`` and go on with it, both in forks of this process, which has imported only; count
    utterances. What is right: each once, or of an endless loader what it gives when it is not killed."""
    work = work._replace(endless=True)
    with tempfile.TemporaryDirectory() as name:
        checkpoint, rest = Path(name) / "checkpoint", Path(name) / "rest"
        try:
            if _forked(lambda: _until_killed(work, make, at, checkpoint), rest) != -signal.SIGKILL:
                raise RuntimeError(rest.read_text())
            got, state, way, endless = pickle.loads(checkpoint.read_bytes())
            all_of_it = work.corpus.utterances
            _, right = _rest(work, make, all_of_it, rest) if endless else (0.0, [])
            seconds, more = _rest(work._replace(state=state), make, all_of_it - len(got) if way else 0, rest)
        except Exception as error:
            return {"error": str(error).strip().splitlines()[-1][:200]}
    times = Counter(got + more)
    once = Counter(right or times.keys())
    lost = (once - times).total() if right else all_of_it - len(times)
    return {"lost": lost, "repeated": (times - once).total(), "resume": seconds, "way": way}


def _until_killed(work: Work, make: Callable[[Work], Iterable[Batch]], at: int, checkpoint: Path) -> None:
    running = make(work)
    saved = running if isinstance(running, Resumable) else None
    got: list[str] = []
    for number, batch in enumerate(running, 1):
        got += batch.keys
        if number % EVERY == 0:
            kept = (got, saved.state(), True, saved.endless) if saved else (got, None, False, False)
            partial = checkpoint.with_suffix(".partial")
            partial.write_bytes(pickle.dumps(kept))
            partial.rename(checkpoint)
        if number == at:
            os.killpg(0, signal.SIGKILL)
    raise RuntimeError(f"the epoch ended before batch {at}")


def _rest(work: Work, make: Callable[[Work], Iterable[Batch]], left: int, rest: Path) -> tuple[float, list[str]]:
    """Return when the first batch came, and the utterances of all: see ``_resumed``, which runs in a fork."""
    if _forked(lambda: _resumed(work, make, left, rest), rest):
        raise RuntimeError(rest.read_text())
    first, got = pickle.loads(rest.read_bytes())
    return first, got


def _resumed(work: Work, make: Callable[[Work], Iterable[Batch]], left: int, rest: Path) -> None:
    """Run to the end, or until ``left`` utterances have come: a loader may go on with the next epoch by itself."""
    settle()
    got: list[str] = []
    began, first = time.perf_counter(), 0.0
    for batch in make(work):
        first = first or time.perf_counter() - began
        got += batch.keys
        if left and len(got) >= left:
            break
    rest.write_bytes(pickle.dumps((first, got)))


def _forked(run: Callable[[], None], told: Path) -> int:
    """Call a function in a fork, which leads a group; return how it ended. An error is written to ``told``."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        code = 1
        try:
            run()
            code = 0
        except BaseException as error:
            told.write_text(f"{type(error).__name__}: {error}")
        finally:
            os._exit(code)
    until = time.monotonic() + PATIENCE
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        time.sleep(0.02)
        if time.monotonic() > until:
            told.write_text(f"did not end within {PATIENCE} s")
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 1
    with suppress(ProcessLookupError):  # its workers
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(ended[1])


def main() -> None:
    """Measure all and write results/compare.md."""
    made = parser(__doc__, repeats=3, only=ALL)
    made.set_defaults(only=COMPARED)
    arguments = begin(measure, made)
    corpus = prepare(arguments.data)
    report = Report("compare", "Loaders on the same batches, and on equal work")
    report.text(
        f"{corpus.utterances:,} utterances, {corpus.seconds / 3600:.2f} h ({corpus.speech}), to padded waveforms: "
        f"shuffle {SHUFFLE:,}, sort {SORT}, {BUDGET:,} padded frames a batch. "
        "What is equal, and what is not, is said in benchmarks/README.md."
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
    kills = measured("kill")
    _show(report, made, speed, kills)
    _show_kills(report, kills)
    _show_work(report, made, corpus)
    report.write()


def _points(way: str) -> list[int]:
    """Return the batches after which runs are killed: at random, each after another checkpoint."""
    drawn = random.Random(way)
    return [EVERY * saved + drawn.randrange(EVERY) for saved in drawn.sample(range(1, LATEST // EVERY), TIMES)]


def _show(report: Report, made: dict[int, Found], speed: dict[int, Found], kills: Found) -> None:
    rows = []
    for name, alone in speed[0].items():
        two, killed = speed[2].get(name, []), _all(kills.get(name, []))
        counted = [kill for kill in killed if "lost" in kill]
        worst = " / ".join(f"{max(kill[field] for kill in counted):,}" for field in ("lost", "repeated") if counted)
        ways = [kill for kill in counted if kill["way"]]
        waits = " / ".join(f"{median(alone, f'p{share}'):.1f}" for share in SHARES)
        first = " / ".join(spread(runs, "first") for runs in (alone, two))
        memory = " / ".join(f"{median(made[workers].get(name, []), 'memory'):.0f}" for workers in (0, 2))
        batches = "chosen" if name == RECORDED else "the same" if name in ORDERED else "equal work"
        speeds = [spread(alone, "speed", ",.0f"), spread(alone, "cpu_speed", ",.0f"), spread(two, "steady", ",.0f")]
        rows.append([name, batches, *speeds, first, waits, memory, spread(ways, "resume"), worst or "–"])
    columns = ["loader", "batches", "s of audio per s, one process", "per s of CPU"]
    columns += ["two workers, from the first batch on", "first batch (s): no / two workers"]
    columns += ["ms from next to batch: p50 / p95 / p99", "peak MiB of all: no / two workers"]
    columns += ["resumed after (s)", "lost / repeated when killed, at worst"]
    report.table("Loaders", columns, rows, plot=[2, 4])
    firsts = [[row[0], *row[5].split(" / "), row[8]] for row in rows]
    report.plot("Seconds", ["", "first batch", "first batch of two workers", "resumed after"], firsts, [1, 2, 3])
    held = [[row[0], *row[7].split(" / ")] for row in rows]
    report.plot("Peak MiB of all processes", ["", "no workers", "two workers"], held, [1, 2])
    cost = [[row[0], *row[9].split(" / ")] for row in rows if row[9] != "–"]
    report.plot("Utterances when killed, at worst", ["", "lost", "repeated"], cost, [1, 2])
    for name, group in ((RECORDED, ORDERED), (OWN, PEERS)):
        if name in speed[0]:
            theirs = {peer: median(speed[0][peer], "cpu_speed") for peer in group.keys() & speed[0].keys() - {name}}
            best = max(theirs, key=lambda peer: theirs[peer], default="no peer")
            times = median(speed[0][name], "cpu_speed") / theirs.get(best, float("nan"))
            report.target(
                f"{name}: faster than the best peer, one process, CPU time", times > 1, f"{times:.2f}× {best}"
            )


def _all(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [kill for run in runs for way in KILLS for kill in run.get(way, [])]


def _show_kills(report: Report, kills: Found) -> None:
    rows = []
    for name, (run,) in kills.items():
        rows.append([name, *("; ".join(map(_told, run.get(way, []))) or "–" for way in KILLS)])
    report.table("Utterances lost / repeated when killed", ["loader", *KILLS], rows)
    points = "; ".join(f"{way}: {' and '.join(map(str, _points(way)))}" for way in KILLS)
    report.text(
        f"A checkpoint every {EVERY} batches. Killed after the batches {points}. "
        "*: no way is documented to go on in the middle of an epoch, which starts again."
    )
    mine = [kill for name in (OWN, RECORDED) for kill in _all(kills.get(name, []))]
    exact = all(_told(kill) == "0 / 0" for kill in mine)
    report.target("uio_pipes loses and repeats no utterance", exact and bool(mine), f"{len(mine)} kills")


def _told(kill: dict[str, Any]) -> str:
    """Return what a kill has cost, in a cell."""
    if "error" in kill:
        return str(kill["error"])
    return f"{kill['lost']:,} / {kill['repeated']:,}{'' if kill['way'] else ' *'}"


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
