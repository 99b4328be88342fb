"""Claim: a TouchDataset is read in random order as fast as by a bare mmap of its layout, and as our tars in order.

To read an utterance is to parse its metadata and to return its samples as float32. The bare reader is the least code
that does that: ``numpy.memmap`` of both files, no checks, no keys, no state. The indexes and metadata take at most 2 %
of the audio. ``python -m benchmarks.indexed``.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import Report, begin, median, parser, ratio, rounds, spread
from benchmarks.corpus import prepare

MODULE = "benchmarks.indexed"
READERS = {
    "bare mmap, random order": "bare",
    "uio_pipes, the same: records, random order": "records",
    "uio_pipes, graph, shuffled": "graph",
    "uio_pipes, graph, tar in order": "tar",
}


def measure(data: str, reader: str) -> dict[str, Any]:
    """Measure the second pass over all utterances, when files and memory are warm."""
    root, shards = _folder(Path(data))
    for path in (*root.iterdir(), *map(Path, shards)):
        path.read_bytes()
    run: Callable[[], Iterator[Any]] = {
        "bare": lambda: _bare(root),
        "records": lambda: _records(root),
        "graph": lambda: _graph(root, None),
        "tar": lambda: _graph(root, shards),
    }[reader]
    for _ in run():
        pass
    began, cpu = time.perf_counter(), time.process_time()
    count = samples = 0
    for wav in run():
        count, samples = count + 1, samples + wav.shape[1]
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"us": took / count * 1e6, "cpu_us": cpu / count * 1e6, "utterances": count, "samples": samples}


def _folder(data: Path) -> tuple[Path, list[str]]:
    """Return the corpus as one folder of a TouchDataset, and its shards."""
    from uio_pipes.tools.data.pack import PackSettings, pack

    corpus = prepare(data)
    shards = corpus.shards("tar")
    listed = data / "indexed.source.list"
    listed.write_text("".join(f"{shard}\n" for shard in shards))
    pack(listed, data / "indexed", data / "indexed/data.list", PackSettings(1_000_000, to="indexed", sample_rate=None))
    return data / "indexed" / "data-00000", shards


def _order(count: int) -> list[int]:
    order: list[int] = np.random.default_rng(1).permutation(count).tolist()
    return order


def _bare(root: Path) -> Iterator[Any]:
    import torch

    (audio, count), (texts, _) = _mapped(root / "audio", np.int16), _mapped(root / "metainfo", np.uint8)
    for number in _order(count):
        json.loads(texts(number).tobytes())
        yield torch.from_numpy(audio(number).astype(np.float32) / np.float32(32768))[None]


def _mapped(prefix: Path, dtype: npt.DTypeLike) -> tuple[Callable[[int], npt.NDArray[Any]], int]:
    data, index = np.memmap(f"{prefix}.bin", mode="r"), np.memmap(f"{prefix}.idx", mode="r")
    (count,) = struct.unpack_from("<Q", index, 18)
    lengths = np.frombuffer(index, np.int32, count, 34)
    offsets = np.frombuffer(index, np.int64, count, 34 + 4 * count)
    return lambda number: np.frombuffer(data, dtype, lengths[number], offsets[number]), count


def _records(root: Path) -> Iterator[Any]:
    from uio_pipes.io.access import PLAIN
    from uio_pipes.sources.touchdataset.source import IndexedTable

    table = IndexedTable((str(root),), None, PLAIN)
    for number in _order(len(table)):
        yield table.fields(number)["wav"].decode(0, None, None)[0]


def _graph(root: Path, shards: list[str] | None) -> Iterator[Any]:
    import uio_pipes as uio
    from uio_pipes.core.lane import Lane
    from uio_pipes.core.ledger import Ledger

    source = uio.from_indexed(root, shuffle=True) if shards is None else uio.from_shard_list(shards)
    node = source.decode_audio().build(Lane(Ledger()))
    node.reset(None)
    while True:
        try:
            yield node.next()["wav"]
        except StopIteration:
            return


def main() -> None:
    """Measure all readers, report."""
    arguments = begin(measure, parser(__doc__, 7))
    report = Report("indexed", "Random access: TouchDataset")
    root, _ = _folder(arguments.data)
    jobs = {name: {"reader": reader} for name, reader in READERS.items()}
    results = rounds(MODULE, jobs, arguments.repeats, data=arguments.data)
    cpu = {name: median(found, "cpu_us") for name, found in results.items()}
    bare, records, graph, tar = (cpu[name] for name in READERS)
    rows = [
        [name, spread(found, "us", ".0f"), spread(found, "cpu_us", ".0f"), ratio(bare, cpu[name])]
        for name, found in results.items()
    ]
    columns = ["reader", "µs", "µs of CPU", "speed (CPU)"]
    report.table("Metadata and float32 samples of an utterance", columns, rows, plot=[1, 2])
    sizes = {path.name: path.stat().st_size for path in root.iterdir()}
    share = 100 * (sum(sizes.values()) / sizes["audio.bin"] - 1)
    report.target("at least 1.0 × the bare mmap reader", bare / records >= 1, ratio(bare, records))
    report.target("no slower than tars in order", graph <= tar, ratio(tar, graph))
    report.target("indexes and metadata at most 2 % of the audio", share <= 2, f"{share:.2f} %")
    report.write()


if __name__ == "__main__":
    main()
