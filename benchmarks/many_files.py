"""Claim: of 100,000 indexed tar shards, and of 18,496 Parquet files, the first batch is there within 1 s of
``iter(loader)``, and of 800 Parquet files on a server 50 ms away within 2 s, with 1, 2 and 4 workers.

Each file holds one or two utterances of 0.1 s, the Parquet files in two row groups. Each measurement is a fresh process
that has made a batch of something else, and so imported the package; it imports pyarrow itself: ``python -m
benchmarks.many_files``. The shards and their indexes, which are made once, take 1.2 GB; ``uio index`` has written their
catalogue. Of the Parquet files an earlier start has kept what their footers tell; the first start is measured beside.
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, begin, median, older, parser, rounds, settle, sized, spread
from benchmarks.corpus import RATE, tar_of, wav_of
from benchmarks.servers import late

MODULE = "benchmarks.many_files"
SHARDS, FILES, FAR = sized((100_000, 18_496, 800), (30, 20, 10))
FOLDER = 1000  # shards in a folder
WORKERS = (1, 2, 4)
LATE = 0.05  # seconds
LIMITS = {"tar": 1.0, "parquet": 1.0, "http": 2.0}
FIELDS = {"key": "id", "wav": "audio", "txt": "text"}


def measure(kind: str, where: str, workers: int) -> dict[str, Any]:
    """Measure the seconds to the first batch; ``where``: the list of shards, or the folder of the files."""
    import uio_pipes as uio

    def batches(graph: Any, workers: int) -> Iterator[Any]:
        return iter(uio.Loader(graph.decode_audio().fbank().batch(8).pad(), seed=777, num_workers=workers))

    next(batches(uio.from_iterable([{"key": "a", "wav": _wavs()[0]}]), 0))  # imports torch and what makes batches
    empty = tempfile.TemporaryDirectory()  # removed when this process ends
    if kind == "first":
        os.environ["XDG_CACHE_HOME"] = empty.name
    settle()
    began, cpu = time.perf_counter(), time.process_time()
    if kind == "tar":
        graph = uio.from_tar_index(where, shuffle=True)
    else:
        names = [f"{where}/{number:05d}.parquet" for number in range(FAR if kind == "http" else FILES)]
        graph = uio.from_parquet(names, fields=FIELDS, shuffle=True)
    running = batches(graph, workers)
    next(running)
    return {"first": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def _wavs() -> list[bytes]:
    rng = np.random.default_rng(0)
    return [wav_of(rng.integers(-3000, 3000, RATE // 10 + 20 * i).astype(np.int16)) for i in range(64)]


def _shards(folder: Path) -> str:
    """Return the list of the shards, which are made and indexed if they are not there."""
    from uio_pipes.tools.data.index import index_lists

    path = folder / f"{SHARDS}.list"
    if not path.exists():
        path.write_text("".join(f"{name}\n" for name in _written(folder / f"tar_{SHARDS}")))
    index_lists([str(path)])
    return str(path)


def _written(folder: Path) -> Iterator[Path]:
    wavs = _wavs()
    for number in range(SHARDS):
        path = folder / f"{number // FOLDER:03d}/{number:06d}.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        key = f"utterance_{number:06d}"
        path.write_bytes(tar_of([(f"{key}.txt", b"hello"), (f"{key}.wav", wavs[number % len(wavs)])]))
        yield path


def _parquet(folder: Path) -> Path:
    """Return the folder of the Parquet files, which are made if they are not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = folder / f"parquet_{FILES}_groups"
    if not out.exists():
        part, contents = out.with_suffix(".part"), list[bytes]()
        for number, wav in enumerate(_wavs()):
            audio = [{"bytes": wav, "path": None}] * 2
            table = pa.table({"id": [f"{number}a", f"{number}b"], "audio": audio, "text": ["hello", "world"]})
            file = io.BytesIO()
            pq.write_table(table, file, row_group_size=1)
            contents.append(file.getvalue())
        part.mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            (part / f"{number:05d}.parquet").write_bytes(contents[number % len(contents)])
        part.rename(out)
    return out


def main() -> None:
    """Measure all and write results/many_files.md."""
    arguments = begin(measure, parser(__doc__, repeats=5))
    report = Report("many_files", "From the start to the first batch, of many files")
    folder = Path(arguments.data) / "many_files"
    shards, files = _shards(folder), _parquet(folder)
    with late(files, LATE) as far:
        what = {
            f"{SHARDS:,} tar shards": {"kind": "tar", "where": shards},
            f"{FILES:,} Parquet files": {"kind": "parquet", "where": str(files)},
            f"{FAR:,} Parquet files, 50 ms late": {"kind": "http", "where": far},
        }
        jobs: dict[str, dict[str, Any]] = {
            f"{name}, num_workers={workers}": {**job, "workers": workers}
            for name, job in what.items()
            for workers in WORKERS
        }
        jobs[f"{FILES:,} Parquet files, the first start"] = {"kind": "first", "where": str(files), "workers": 1}
        results = rounds(MODULE, {**jobs, **older(jobs, arguments.old)}, arguments.repeats)
    rows = [[name, *(spread(runs, field) for field in ("first", "cpu"))] for name, runs in report.ran(results).items()]
    report.table("Seconds", ["files", "to the first batch", "main process's CPU"], rows, plot=[1])
    for name, job in what.items():
        most = max(median(results[each], "first") for each in jobs if each.startswith(f"{name}, num"))
        limit = LIMITS[str(job["kind"])]
        report.target(f"{name}: first batch within {limit:g} s", most <= limit, f"{most:.2f} s at most")
    report.write()


if __name__ == "__main__":
    main()
