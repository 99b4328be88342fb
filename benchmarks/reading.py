"""Claim: utterances are read from shards faster than by tarfile (WeNet's way) and webdataset, plain and gzipped.

Nothing is decoded; every reader hands over key, text and all bytes of the audio. ``references`` is what buffers of
uio_pipes hold instead for plain local shards: the payload is read when the batch is made.
``python -m benchmarks.reading``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Report, in_child, median, parser, ratio, rounds, spread
from benchmarks.corpus import prepare

MODULE = "benchmarks.reading"
READERS = {
    "uio_pipes, graph": "graph",
    "uio_pipes, graph, references": "references",
    "uio_pipes, Loader": "loader",
    "tarfile (WeNet style)": "tarfile",
    "webdataset": "webdataset",
}


def measure(data: str, reader: str, kind: str) -> dict[str, Any]:
    """One pass over all shards, files warm."""
    corpus = prepare(Path(data))
    shards = corpus.shards(kind)
    for shard in shards:
        Path(shard).read_bytes()
    run = {"tarfile": _tarfile, "webdataset": _webdataset, "loader": _loader}.get(reader)
    _imports(reader)
    began, cpu = time.perf_counter(), time.process_time()
    count = size = 0
    for _, txt, wav in run(shards) if run else _graph(shards, reader == "graph"):
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
        import uio_pipes  # noqa: F401


def _graph(shards: list[str], payload: bool) -> Iterator[tuple[str, str, int]]:
    import uio_pipes as uio
    from uio_pipes.lane import Lane
    from uio_pipes.ledger import Ledger

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


def _webdataset(shards: list[str]) -> Iterator[tuple[str, str, int]]:
    import webdataset

    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        yield sample["__key__"], sample["txt"].decode(), len(sample["wav"])


def main() -> None:
    """Measure all and write results/reading.md."""
    arguments = parser(__doc__, repeats=5).parse_args()
    if in_child(arguments, measure):
        return
    corpus = prepare(arguments.data)
    report = Report("reading", "Reading utterances from shards, nothing decoded")
    report.text(
        f"{corpus.utterances:,} utterances in 6 shards, {corpus.seconds / 3600:.2f} h; files in the page cache."
    )
    for kind in ("tar", "tar.gz"):
        jobs = {
            name: {"data": arguments.data, "reader": reader, "kind": kind}
            for name, reader in READERS.items()
            if kind == "tar" or reader != "references"
        }
        results = rounds(MODULE, jobs, arguments.repeats)
        mine = {field: median(results["uio_pipes, graph"], field) for field in ("speed", "cpu_speed")}
        rows = []
        for name, runs in results.items():
            if "error" in runs[-1]:
                report.text(f"- {name} did not run: {runs[-1]['error']}")
                continue
            row = [name]
            for field in ("speed", "cpu_speed"):
                row += [spread(runs, field, ",.0f"), ratio(mine[field], median(runs, field))]
            rows.append([*row, f"{median(runs, 'megabytes'):,.0f}"])
        columns = ["reader", "utterances per s", "uio graph is", "per s of CPU", "uio graph is", "MB per s"]
        report.table(f"{kind} shards", columns, rows)
        others = max(median(results[name], "cpu_speed") for name in ("tarfile (WeNet style)", "webdataset"))
        found = f"{ratio(mine['cpu_speed'], others)} the faster, by CPU time"
        report.target(f"{kind}: faster than tarfile and webdataset", mine["cpu_speed"] > others, found)
        same = len({(run["utterances"], run["bytes"]) for runs in results.values() for run in runs if "bytes" in run})
        report.text(f"All read the same number of utterances and bytes: {'yes' if same == 1 else 'NO'}.")
    report.write()


if __name__ == "__main__":
    main()
