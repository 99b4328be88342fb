"""Claim: from a server on this machine, the whole pipeline keeps 80 % of the speed that is possible, by HTTP, also with
20 ms of latency, or 50 ms and 8 connections, and by S3, for at most 1.15 times the CPU; from the local cache, 98 % of
its speed on local files. What is possible is measured: the same pipeline on local files, while a thread beside it does
no more than to receive the same bytes in ranges and to copy them once, at the pipeline's pace.

The pipeline is that of ``throughput.py`` (tar, fbank, spec-augment, shuffle, sort, batches), in one process,
``num_workers=0``. It reads the shards six times, so that the time before the first batch does not weigh too much. HTTP
is nginx, with ranges; then servers that wait before each answer. S3 is nginx, too, which answers requests for objects
as S3 does, and moto, whose own speed is shown beside it. For the cache, ``--shards`` names of shards of 20 MB are read
from nginx twice: into an empty cache (cold), then from it (warm): ``python -m benchmarks.remote``. The shares are
judged by wall time; on a busy machine compare the work per second of CPU, which includes the reading threads.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import tarfile
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec

from benchmarks.common import Report, begin, median, older, parser, ratio, rounds, sized, spread
from benchmarks.corpus import Corpus, prepare, tar_of
from benchmarks.servers import BUCKET, late, moto, nginx, rate, s3_options

MODULE = "benchmarks.remote"
POSSIBLE = "local files, beside a loop that receives and copies"
SEED = 777
ROUNDS = sized(6, 1)
SMALL = sized(250, 10)  # members of a shard of 20 MB
LEAST_SPEED, MOST_CPU = 0.8, 1.15  # of what is possible
RANGE, PIECE, HELD = 4 << 20, 150_000, 1_500  # bytes of a range and of an utterance; utterances that a shuffle holds
AHEAD, FRAME = 16, 320  # ranges that are received in advance; bytes of a frame of 10 ms


def measure(
    urls: list[str],
    options: dict[str, Any] | None = None,
    connections: int = 0,
    cache: str | None = None,
    received: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure one epoch of ``ROUNDS`` rounds, in a process of its own.

    With ``cache``, a folder to make one in, or "" for none: two epochs of one round, cold and warm. ``received``: what
    a thread receives and copies meanwhile.
    """
    from uio_pipes.io import background
    from uio_pipes.io.access import Access
    from uio_pipes.io.opening import open_file

    background.THREADS = connections or background.THREADS
    open_file(urls[0], Access(options or {})).read(0, 1)  # s3fs needs a second to be imported and to make its client
    if cache is None:
        allowed = threading.Semaphore(AHEAD)
        if received:
            threading.Thread(target=_receive, args=([*received] * ROUNDS, allowed), daemon=True).start()
        return _epoch(urls * ROUNDS, {"storage_options": options}, allowed)
    with tempfile.TemporaryDirectory(dir=cache or None) as folder:
        given = {"cache": folder} if cache else {}
        cold, warm = _epoch(urls, given), _epoch(urls, given)
    return {**warm, "cold": cold["speed"], "cold_cpu": cold["cpu_speed"]}


def _epoch(urls: list[str], given: dict[str, Any], allowed: threading.Semaphore | None = None) -> dict[str, Any]:
    """Run an epoch. ``allowed``: the ranges that may be received beside it, as many as it has used up."""
    import uio_pipes as uio
    from benchmarks.peers.uio import features

    graph = features(uio.from_shard_list(urls, shuffle=True, **given))
    frames = used = 0
    began, cpu = time.perf_counter(), time.process_time()
    for batch in uio.Loader(graph, seed=SEED, failures="raise"):
        frames += int(batch["feats_lengths"].sum())
        if allowed is not None and (new := frames * FRAME // RANGE - used):
            allowed.release(new)
            used += new
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "speed": frames / 100 / took,
        "cpu_speed": frames / 100 / cpu,
        "cpu": cpu,
        "frames": frames,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _receive(urls: list[str], allowed: threading.Semaphore) -> None:
    """Receive files of one server in ranges, one after the other, into the same few buffers, and copy them in pieces.
    The last pieces are held, as by a shuffle."""
    parts = [urlsplit(url) for url in urls]
    connection = http.client.HTTPConnection(parts[0].netloc)
    buffers, held = cycle([memoryview(bytearray(RANGE)) for _ in range(16)]), deque[bytes](maxlen=HELD)
    for part in parts:
        at, size = 0, 1
        while at < size:
            allowed.acquire()
            connection.request("GET", part.path, headers={"Range": f"bytes={at}-{at + RANGE - 1}"})
            answer, view, got = connection.getresponse(), next(buffers), 0
            size = int(answer.headers["Content-Range"].rpartition("/")[2])
            while count := answer.fp.readinto1(view[got : min(RANGE, size - at)]):
                got += count
            answer.length = 0
            answer.close()
            held.extend(bytes(view[first : min(first + PIECE, got)]) for first in range(0, got, PIECE))
            at += got


def names_of_small_shards(corpus: Corpus, folder: Path, count: int) -> list[str]:
    """Cut the corpus into shards of 20 MB, and give them ``count`` names in ``folder``. Return the names."""
    folder.mkdir()
    for number, members in enumerate(_cut(corpus)):
        (folder / f"{number}.part").write_bytes(tar_of(members))
    parts = len(list(folder.iterdir()))
    names = [f"{number:04d}.tar" for number in range(count)]
    for number, name in enumerate(names):
        (folder / name).symlink_to(folder / f"{number % parts}.part")
    return names


def _cut(corpus: Corpus) -> Iterator[list[tuple[str, bytes]]]:
    for shard in corpus.shards("tar"):
        members: list[tuple[str, bytes]] = []
        with tarfile.open(shard) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                members.append((member.name, file.read()))
                if len(members) == SMALL:
                    yield members
                    members = []
        if members:
            yield members


def main() -> None:
    """Measure all and write results/remote.md."""
    made = parser(__doc__, repeats=5)
    made.add_argument("--shards", type=int, default=sized(50, 2), help="shards of 20 MB that are cached, on the disk")
    arguments = begin(measure, made)
    corpus = prepare(arguments.data)
    report = Report("remote", "Shards from servers on this machine")
    _uncached(report, corpus, arguments.repeats, arguments.old)
    _cached(report, corpus, arguments.repeats, arguments.shards)
    report.write()


def _uncached(report: Report, corpus: Corpus, repeats: int, old: str | None) -> None:
    shards = [shard for shard in corpus.shards("tar") if shard.endswith(".tar")]  # indexes are beside them
    names = [Path(shard).name for shard in shards]
    with contextlib.ExitStack() as stack:
        www = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        www.chmod(0o755)
        (www / BUCKET).symlink_to(corpus.folder.resolve())
        near = stack.enter_context(nginx(www))
        far, farther = (stack.enter_context(late(www, seconds)) for seconds in (0.02, 0.05))
        s3 = stack.enter_context(moto(shards))
        by_nginx = s3_options(near)
        jobs: dict[str, dict[str, object]] = {
            "local files": {"urls": shards},
            "HTTP": {"urls": [f"{near}/{BUCKET}/tar/{name}" for name in names]},
            "HTTP, 20 ms late": {"urls": [f"{far}/{BUCKET}/tar/{name}" for name in names]},
            "HTTP, 50 ms late, 8 connections": {
                "urls": [f"{farther}/{BUCKET}/tar/{name}" for name in names],
                "connections": 8,
            },
            "S3 (nginx)": {"urls": [f"s3://{BUCKET}/tar/{name}" for name in names], "options": by_nginx},
            "S3 (moto)": {"urls": [f"s3://{BUCKET}/tar/{name}" for name in names], "options": s3},
            POSSIBLE: {"urls": shards, "received": [f"{near}/{BUCKET}/tar/{name}" for name in names]},
        }
        jobs |= older({name: jobs[name] for name in ("local files", "HTTP", "S3 (nginx)")}, old)
        results = rounds(MODULE, jobs, repeats)
        signed = fsspec.filesystem("s3", **s3).sign(f"{BUCKET}/tar/{names[0]}")
        rates = {"HTTP": rate(f"{near}/{BUCKET}/tar/{names[0]}"), "S3 (moto)": rate(signed)}
    local, cpu = (median(results["local files"], field) for field in ("speed", "cpu"))
    possible, least_cpu = (median(results[POSSIBLE], field) for field in ("speed", "cpu"))
    rows = []
    for name, found in report.ran(results).items():
        numbers = [
            spread(found, "speed", ".0f"),
            ratio(median(found, "speed"), local),
            spread(found, "cpu_speed", ".0f"),
            ratio(median(found, "cpu"), cpu),
        ]
        rows.append([name, *numbers, f"{median(found, 'memory'):.0f}", f"{rates[name]:.0f}" if name in rates else ""])
    columns = ["", "s of audio per s", "of local", "per s of CPU", "CPU of local"]
    columns += ["MiB of the main process", "server alone, MB/s"]
    report.table(f"{ROUNDS} rounds, {ROUNDS * corpus.utterances:,} utterances", columns, rows, plot=[1, 3])
    for name in ("HTTP", "HTTP, 20 ms late", "HTTP, 50 ms late, 8 connections", "S3 (nginx)"):  # moto itself is slower
        share, work = median(results[name], "speed") / possible, median(results[name], "cpu") / least_cpu
        claim = f"{name}: at least {100 * LEAST_SPEED:.0f} % of the speed that is possible"
        report.target(claim, share >= LEAST_SPEED, f"{100 * share:.0f} %")
        report.target(f"{name}: at most {MOST_CPU} times the CPU that is needed", work <= MOST_CPU, f"{work:.2f} times")
    if len({result.get("frames") for found in results.values() for result in found}) != 1:
        report.text("The epochs differ: the comparison is void.")


def _cached(report: Report, corpus: Corpus, repeats: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as www, nginx(Path(www)) as server, tempfile.TemporaryDirectory() as cache:
        os.chmod(www, 0o755)
        names = names_of_small_shards(corpus, Path(www) / BUCKET, count)
        jobs: dict[str, dict[str, object]] = {
            "local files": {"urls": [f"{www}/{BUCKET}/{name}" for name in names], "cache": ""},
            "HTTP with a cache": {"urls": [f"{server}/{BUCKET}/{name}" for name in names], "cache": cache},
        }
        results = rounds(MODULE, jobs, repeats)
    local = results["local files"]
    rows = []
    for name, found in report.ran(results).items():
        numbers = [spread(found, field, ".0f") for field in ("cold", "speed")]
        shares = [
            ratio(median(found, "cold"), median(local, "cold")),
            ratio(median(found, "speed"), median(local, "speed")),
            ratio(median(local, "cold_cpu"), median(found, "cold_cpu")),
            ratio(median(local, "cpu_speed"), median(found, "cpu_speed")),
        ]
        rows.append([name, *numbers, *shares])
    columns = ["", "first epoch, s of audio per s", "second", "first, of local", "second, of local"]
    report.table(f"{count} shards of 20 MB, two epochs", [*columns, "CPU of the first", "CPU of the second"], rows)
    share = median(results["HTTP with a cache"], "speed") / median(local, "speed")
    report.target("warm cache: at least 98 % of the speed on local files", share >= 0.98, f"{100 * share:.0f} %")


if __name__ == "__main__":
    main()
