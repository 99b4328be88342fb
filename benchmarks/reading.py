"""Claim: the members of local shards are found, headers verified, 5 times as fast as by webdataset.

Nothing is decoded. ``members`` is what buffers of uio_pipes hold for plain local shards: key, text, the place of the
audio and its first bytes; the payload is read when the batch is made. The other readers return all bytes of the audio,
as webdataset and tarfile (WeNet's way) always do. ``pread`` only copies the payloads, whose places it knows before: the
limit for all that return the bytes. ``python -m benchmarks.reading``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, ratio, rounds, spread
from benchmarks.corpus import prepare, wav_members

MODULE = "benchmarks.reading"
READERS = {
    "uio_pipes, members and payload": "graph",
    "uio_pipes, members": "references",
    "uio_pipes, Loader": "loader",
    "tarfile (WeNet style)": "tarfile",
    "webdataset": "webdataset",
    "pread of the payloads alone": "pread",
}
PLAIN = ("references", "pread")  # for plain tar only
TIMES = {"uio_pipes, members and payload": 2.3, "uio_pipes, members": 5.0}  # webdataset, by CPU time
FIELDS = ("speed", "cpu_speed")


def measure(data: str, reader: str, kind: str) -> dict[str, Any]:
    """Measure one pass over all shards, with warm files."""
    corpus = prepare(Path(data))
    shards = corpus.shards(kind)
    for shard in shards:
        Path(shard).read_bytes()
    run = {"tarfile": _tarfile, "webdataset": _webdataset, "loader": _loader, "pread": _pread}.get(reader)
    _imports(reader)
    utterances = run(shards) if run else _graph(shards, reader == "graph")
    first = next(utterances) if reader == "pread" else None  # finds the places
    began, cpu = time.perf_counter(), time.process_time()
    count = size = 0
    for _, txt, wav in utterances if first is None else chain([first], utterances):
        count, size = count + 1, size + wav + bool(txt) - 1
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "speed": count / took,
        "cpu_speed": count / cpu,
        "megabytes": size / 1e6 / took,
        "utterances": count,
        "bytes": size,
    }


def _imports(reader: str) -> None:
    if reader == "webdataset":
        import webdataset  # noqa: F401
    elif reader == "tarfile":
        import benchmarks.peers.wenet  # noqa: F401
    else:
        import uio_pipes.api  # noqa: F401


def _graph(shards: list[str], payload: bool) -> Iterator[tuple[str, str, int]]:
    import uio_pipes as uio
    from uio_pipes.core.lane import Lane
    from uio_pipes.core.ledger import Ledger

    node = uio.from_shard_list(shards).build(Lane(Ledger()))
    node.reset(None)
    for sample in node:
        yield sample.key, sample["txt"], len(sample["wav"]) if payload else _size(sample.fields["wav"])


def _size(wav: Any) -> int:
    return len(wav) if isinstance(wav, bytes) else int(wav.size)


def _loader(shards: list[str]) -> Iterator[tuple[str, str, int]]:
    import uio_pipes as uio

    for sample in uio.Loader(uio.from_shard_list(shards), snapshot_every=1000):
        yield sample["key"], sample["txt"], _read(sample["wav"])


def _read(wav: Any) -> int:
    return len(wav if isinstance(wav, bytes) else wav.read())


def _tarfile(shards: list[str]) -> Iterator[tuple[str, str, int]]:
    import gzip
    import tarfile

    from benchmarks.peers.wenet import AUDIO

    for path in shards:
        with (
            (gzip.open if path.endswith(".gz") else open)(path, "rb") as file,
            tarfile.open(fileobj=file, mode="r|") as tar,
        ):
            txt = ""
            for member in tar:
                key, _, suffix = member.name.rpartition(".")
                data = tar.extractfile(member)
                assert data is not None
                if suffix in AUDIO:
                    yield key, txt, len(data.read())
                else:
                    txt = data.read().decode("utf8").strip()


def _pread(shards: list[str]) -> Iterator[tuple[str, str, int]]:
    places = {}
    for path in shards:
        places[path] = [(member.offset_data, member.size) for member in wav_members(path)]
    for path, members in places.items():
        with open(path, "rb") as file:
            for offset, size in members:
                yield "", "-", len(os.pread(file.fileno(), size, offset))


def _webdataset(shards: list[str]) -> Iterator[tuple[str, str, int]]:
    import webdataset

    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        yield sample["__key__"], sample["txt"].decode(), len(sample["wav"])


def main() -> None:
    """Measure all and write results/reading.md."""
    arguments = begin(measure, parser(__doc__, repeats=5))
    corpus = prepare(arguments.data)
    report = Report("reading", "Reading utterances from shards, nothing decoded")
    report.text(
        f"{corpus.utterances:,} utterances in 6 shards, {corpus.seconds / 3600:.2f} h; files in the page cache."
    )
    for kind in ("tar", "tar.gz"):
        jobs = {
            name: {"reader": reader, "kind": kind}
            for name, reader in READERS.items()
            if kind == "tar" or reader not in PLAIN
        }
        results = rounds(MODULE, jobs, arguments.repeats, data=arguments.data)
        own = {name: {f: median(results[name], f) for f in FIELDS} for name in TIMES if name in results}
        rows = []
        for name, runs in report.ran(results).items():
            row = [name]
            for field in FIELDS:
                row += [
                    spread(runs, field, ",.0f"),
                    *(ratio(mine[field], median(runs, field)) for mine in own.values()),
                ]
            rows.append([*row, f"{median(runs, 'megabytes'):,.0f}"])
        whose = ["payload is", "members are"][: len(own)]
        columns = ["reader", "utterances per s", *whose, "per s of CPU", *whose, "MB per s"]
        report.table(f"{kind} shards", columns, rows, plot=[1])
        theirs = median(results["webdataset"], "cpu_speed")
        for name, mine in own.items():
            times = mine["cpu_speed"] / theirs
            if kind == "tar":
                claim = f"{kind}: {name}: {TIMES[name]:g} × webdataset by CPU time"
                report.target(claim, times >= TIMES[name], f"{times:.2f}×")
        same = len({(run["utterances"], run["bytes"]) for runs in results.values() for run in runs if "bytes" in run})
        report.text(f"All passed the same number of utterances and bytes: {'yes' if same == 1 else 'NO'}.")
    report.write()


if __name__ == "__main__":
    main()
