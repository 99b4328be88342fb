"""Claim: on a disk whose metadata calls take 5 or 20 ms, as those of NFS, Lustre or JuiceFS do, tar shards are read at
90 % of the speed on a local disk, and single files of lists and manifests at 80 %, from the first batch on. A shard is
opened once. Of 100,000 shards the first batch is there within 5 s.

The slow disk is a library in C, compiled here (it needs gcc) and preloaded: each ``open``, ``stat``, ``access`` and
``opendir`` of a path below the corpus takes so much longer; the local disk is the same library with 0 ms. The pipeline
is that of ``throughput.py`` (fbank, spec-augment, shuffle, sort, batches), in one process, ``num_workers=0``. Calls are
counted by strace, where it is installed, in a shorter run without buffers: ``python -m benchmarks.network_disk``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.common import ONE_THREAD, Report, begin, median, older, parser, ratio, rounds, sized, spread
from benchmarks.corpus import RATE, Corpus, prepare, tar_of

MODULE = "benchmarks.network_disk"
LATE = sized((0, 5, 20), (0, 5))  # milliseconds
SHARD = sized(100, 15)  # utterances of a shard: 16 MB
ROUNDS = sized(2, 1)  # times that an epoch reads the list: the start is less of a longer one
MANY = sized(100_000, 1_000)  # shards of a list whose first batch is timed
COUNTED = sized(400, 30)  # utterances, 4 shards of them, whose calls are counted
SHARES = {"tar": 0.9, "index": 0.9}  # of the speed on a local disk; of single files, 0.8
WHAT = {
    "tar": "tar shards",
    "index": "indexed shards, shuffled",
    "raw": "raw list",
    "raw, durations": "raw list with durations",
    "raw, relative": "raw list of relative paths",
    "nemo": "NeMo manifest of relative paths",
}
TRACED = sized(tuple(WHAT), ("index",))  # kinds whose calls are counted
CALLS = {
    "open": ("open", "openat"),
    "stat": ("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink"),
    "fstat": ("fstat",),
    "lseek": ("lseek",),
    "read": ("read", "pread64", "readv", "preadv"),
}
_CALL = re.compile(r'^\d+ +(\w+)\((?:AT_FDCWD(?:<[^>]*>)?, |\d+<([^>]*)>, ""|\d+<([^>]*)>|)(?:"([^"]*)")?')


def measure(
    kind: str, where: str, ms: int = 0, folder: str = "", batches: int | None = None, count: bool = False
) -> dict[str, Any]:
    """Measure an epoch, or its first ``batches``, over the list ``where`` below ``folder``. ``count``: mark the phases
    of a short run for strace instead."""
    import uio_pipes as uio
    from benchmarks.peers.uio import features

    os.environ.update(SLOW_FOLDER=folder, SLOW_MS=str(ms))
    made = {"tar": uio.from_shard_list, "index": uio.from_tar_index, "nemo": uio.from_nemo}
    make = made.get(kind, uio.from_raw_list)
    if count:
        _phases(make(where).decode_audio().fbank().batch(8).pad())
        return {}
    graph = features(make([where] * ROUNDS, shuffle=True))
    frames, before, first = 0, 0, float("nan")
    began, cpu = time.perf_counter(), time.process_time()
    for number, batch in enumerate(uio.Loader(graph, seed=777, failures="raise"), 1):
        frames += int(batch["feats_lengths"].sum())
        if number == 1:
            first, before = time.perf_counter() - began, frames
        if number == batches:
            break
    took, cpu = time.perf_counter() - began - first, time.process_time() - cpu
    return {"speed": (frames - before) / 100 / took, "cpu": cpu, "first": first, "frames": frames}


def _phases(graph: Any) -> None:
    """Run an epoch, and resume it in the middle, with a mark for strace before each part."""
    import uio_pipes as uio

    _mark("start")
    loader = uio.Loader(graph, seed=777, failures="raise")
    running, saved = iter(loader), {}
    next(running)
    _mark("epoch")
    for number, _ in enumerate(running):
        saved = saved if number != 1 else loader.state_dict()
    resumed = uio.Loader(graph, seed=777, failures="raise")
    _mark("resume")
    resumed.load_state_dict(saved)
    next(iter(resumed))
    _mark("end")


def _mark(phase: str) -> None:
    with contextlib.suppress(OSError):
        os.stat(f"/phase/{phase}")


def _slow_disk(folder: Path) -> str:
    """Return the library that makes a disk slow, compiled in ``folder``."""
    made = folder / "network_disk.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", made, source, "-ldl"], check=True)
    return str(made)


def _counted(kind: str, where: str, below: Path) -> dict[str, Counter[tuple[str, str]]]:
    """Return the calls of each phase for files below a folder: how many of each name for each suffix."""
    traced = ",".join(name for names in CALLS.values() for name in names if name != "newfstatat")
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as out:
        arguments = json.dumps({"kind": kind, "where": where, "count": True})
        command = ["strace", "-f", "-y", "-s", "300", "-o", out.name, "-e", f"trace={traced},newfstatat"]
        environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1")}
        python = [sys.executable, "-m", MODULE, "--child", arguments]
        subprocess.run([*command, *python], check=True, env=environment, stdout=subprocess.DEVNULL)
        phase, found = "", defaultdict[str, Counter[tuple[str, str]]](Counter)
        for line in out:
            if (call := _CALL.match(line)) is None:
                continue
            name, of_fd, other_fd, path = call.groups()
            path = path or of_fd or other_fd or ""
            if path.startswith("/phase/"):
                phase = path.removeprefix("/phase/")
            elif phase and path.startswith(f"{below}/"):
                what = (
                    "fstat"
                    if of_fd and name == "newfstatat"
                    else next(w for w, names in CALLS.items() if name in names)
                )
                found[phase][Path(path).suffix, what] += 1
    return found


def _make(corpus: Corpus, folder: Path) -> dict[str, str]:
    """Return the lists of each kind, whose files are made in ``folder`` if they are not there: shards of 16 MB with
    indexes, and single recordings."""
    from uio_pipes.tools.data.index import index_lists

    lists = {kind: str(folder / f"{kind.replace(', ', '_')}.list") for kind in WHAT}
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "wav").mkdir(parents=True)
        names = [_written(folder, number, members) for number, members in enumerate(_cut(corpus))]
        lines = [line for shard in names for line in shard[1]]
        for kind in ("tar", "index"):
            Path(lists[kind]).write_text("".join(f"{shard}\n" for shard, _ in names))
        relative = [{**line, "wav": os.path.relpath(line["wav"], folder)} for line in lines]
        theirs = {"audio_filepath": "wav", "duration": "duration", "text": "txt"}
        _write(lists["raw, durations"], lines)
        _write(lists["raw"], map(_without_duration, lines))
        _write(lists["raw, relative"], map(_without_duration, relative))
        _write(lists["nemo"], ({name: line[ours] for name, ours in theirs.items()} for line in relative))
        index_lists([lists["tar"]])
        (folder / "complete").touch()
    return lists


def _write(path: str, lines: Iterable[dict[str, Any]]) -> None:
    Path(path).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _without_duration(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "duration"}


def _cut(corpus: Corpus) -> Iterator[list[tuple[str, bytes]]]:
    for path in corpus.shards("tar"):
        with tarfile.open(path) as tar:
            members = [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
        yield from (members[at : at + 2 * SHARD] for at in range(0, len(members), 2 * SHARD))


def _written(folder: Path, number: int, members: list[tuple[str, bytes]]) -> tuple[str, list[dict[str, Any]]]:
    """Write a shard, and the same as single files. Return its path, and the lines of a raw list."""
    shard, lines = folder / f"{number:05d}.tar", []
    shard.write_bytes(tar_of(members))
    for (_, txt), (name, wav) in zip(members[::2], members[1::2], strict=True):
        path = folder / "wav" / name
        path.write_bytes(wav)
        line = {"key": path.stem, "wav": str(path), "txt": txt.decode()}
        lines.append({**line, "duration": (len(wav) - 44) / 2 / RATE})
    return str(shard), lines


def _short(path: str, folder: Path, lines: int) -> str:
    """Return a list in ``folder`` of the first lines of the list ``path`` there, which names files relative to it."""
    out = folder / f"short_{Path(path).name}"
    out.write_text("".join(Path(path).read_text().splitlines(keepends=True)[:lines]))
    return str(out)


def _report_calls(report: Report, lists: dict[str, str], below: Path) -> None:
    if shutil.which("strace") is None:
        report.text("The calls are left out: strace is not installed (apt install strace).")
        return
    rows, begun = [], []
    for kind in TRACED:
        name, shards = WHAT[kind], COUNTED // SHARD
        suffix, files = (".tar", shards) if kind in ("tar", "index") else (".wav", COUNTED)
        counts = _counted(kind, _short(lists[kind], below, files), below)
        both = counts["start"] + counts["epoch"]
        rows.append([f"{name}: a {suffix[1:]}", *(f"{both[suffix, what] / files:.2f}" for what in CALLS)])
        if kind == "index":
            rows.append([f"{name}: an index", *(f"{both['.uioidx', what] / files:.2f}" for what in CALLS)])
            rows.append([f"{name}: an utterance", *(f"{counts['epoch'][suffix, w] / COUNTED:.2f}" for w in CALLS)])
        for phase in ("start", "resume"):
            of_phase = [sum(n for (_, each), n in counts[phase].items() if each == what) for what in CALLS]
            begun.append([f"{name}: {phase}", *map(str, of_phase)])
    report.table("Calls for each file, in an epoch", ["", *CALLS], rows)
    report.table("Calls up to the first batch of 8 utterances", ["", *CALLS], begun)


def _report_speed(report: Report, lists: dict[str, str], below: Path, repeats: int, old: str | None) -> None:
    jobs: dict[str, dict[str, object]] = {
        f"{name}, {ms} ms": {"kind": kind, "where": lists[kind], "ms": ms, "folder": str(below)}
        for kind, name in WHAT.items()
        for ms in LATE
    }
    results = rounds(MODULE, {**jobs, **older(jobs, old)}, repeats)
    rows = []
    for name, found in report.ran(results).items():
        local = results[re.sub(r"\d+ ms", "0 ms", name)]
        shares = [ratio(median(found, field), median(local, field)) for field in ("speed", "cpu")]
        rows.append(
            [name, spread(found, "speed", ".0f"), shares[0], spread(found, "cpu"), shares[1], spread(found, "first")]
        )
    columns = ["", "s of audio per s, from then on", "of local", "CPU, s", "CPU of local", "first batch, s"]
    report.table("Epochs", columns, rows, plot=[1])
    for kind, name in WHAT.items():
        for ms in LATE[1:]:
            share = median(results[f"{name}, {ms} ms"], "speed") / median(results[f"{name}, 0 ms"], "speed")
            least = SHARES.get(kind, 0.8)
            claim = f"{name}, {ms} ms: at least {100 * least:.0f} % of the speed on a local disk"
            report.target(claim, share >= least, f"{100 * share:.0f} %")
    if len({result.get("frames") for found in results.values() for result in found}) != 1:
        report.text("The epochs differ: the comparison is void.")


def _report_start(report: Report, shards: str, below: Path, repeats: int) -> None:
    names = cycle(Path(shards).read_text().splitlines())
    many = below / "many.list"
    many.write_text("".join(f"{name}\n" for name in islice(names, MANY // ROUNDS)))
    job = {"kind": "tar", "where": str(many), "folder": str(below), "batches": 1}
    results = rounds(MODULE, {f"{ms} ms": {**job, "ms": ms} for ms in LATE}, repeats)
    rows = [[name, spread(found, "first")] for name, found in report.ran(results).items()]
    report.table(f"First batch of a list of {MANY:,} shards", ["", "s"], rows)
    for name, found in report.ran(results).items():
        claim = f"{MANY:,} shards, {name}: the first batch is there within 5 s"
        report.target(claim, (first := median(found, "first")) <= 5, f"{first:.1f} s")


def main() -> None:
    """Measure all and write results/network_disk.md."""
    arguments = begin(measure, parser(__doc__, repeats=3))
    corpus = prepare(arguments.data, tar_only=True)
    below = Path(arguments.data).resolve() / "network_disk"
    lists = _make(corpus, below)
    report = Report("network_disk", "A disk whose metadata calls take long")
    _report_calls(report, lists, below)
    with tempfile.TemporaryDirectory() as folder:
        if shutil.which("gcc") is None:
            report.text("Nothing is slow here: gcc is not installed (apt install gcc).")
        else:
            os.environ["LD_PRELOAD"] = _slow_disk(Path(folder))
        _report_speed(report, lists, below, arguments.repeats, arguments.old)
        _report_start(report, lists["tar"], below, arguments.repeats)
    os.environ.pop("LD_PRELOAD", None)
    report.write()


if __name__ == "__main__":
    main()
