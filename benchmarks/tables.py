"""Claims: a tar.gz without texts, joined to a table, is read at 90 % of the speed of the same archive with its texts
inside; a table of 10 million rows takes at most 200 MB of a process, which its workers share.

``joined`` streams the archives in their order, with the rows of a TSV in that order, or in any other. ``at random``
reads members of the same archives by their indexes (``uio index --members``), beside what reads gzip at random in other
packages, as far as they are installed. ``python -m benchmarks.tables``; the benchmarks' corpus, of which the archives
are made, is spoken into ``--data`` if it is not there, which takes minutes.
"""

from __future__ import annotations

import gzip
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, ratio, rounds, sized, spread
from benchmarks.corpus import prepare, tar_of
from benchmarks.owned import children, resident
from benchmarks.scale_list import private

MODULE = "benchmarks.tables"
ROWS, FEW, WORKERS = sized((10_000_000, 10_000, 2), (3_000, 300, 1))
READS = sized(300, 20)
JOINED = {"texts inside": "inside", "joined, rows in order": "ordered", "joined, rows in any order": "shuffled"}
AT_RANDOM = {"uio_pipes": "own", "indexed_gzip": "indexed_gzip", "rapidgzip, one thread": "rapidgzip"}
NAMES = {"key": "id", "wav": "path", "txt": "text"}


def measure(data: str, what: str, how: str, rows: int = 0) -> dict[str, Any]:
    """Measure one pass over all archives, some members at random, or a table of so many ``rows``."""
    run: Callable[..., dict[str, Any]] = {"joined": _joined, "random": _at_random, "rows": _rows}[what]
    return run(Path(data), how, *([rows] if rows else []))


# Archives


def archives(data: Path) -> tuple[list[str], Path]:
    """Return tar.gz of the audio alone, and the table with the texts, in ``data``; they are made once."""
    import json
    import tarfile

    folder = data / "tables"
    table = folder / "ordered.tsv"
    if not table.exists():
        folder.mkdir(exist_ok=True)
        rows = []
        for shard in prepare(data).shards("tar"):
            with tarfile.open(shard) as tar:
                texts = {m.name[:-4]: tar.extractfile(m).read().decode() for m in tar if m.name.endswith("txt")}  # type: ignore[union-attr]
                audio = [(m.name, tar.extractfile(m).read()) for m in tar.getmembers() if m.name.endswith("wav")]  # type: ignore[union-attr]
            rows += [f"{name[:-4]}\t{name}\t{json.dumps(texts[name[:-4]], ensure_ascii=False)}\n" for name, _ in audio]
            packed = gzip.compress(tar_of(audio), 6, mtime=0)
            (folder / f"{Path(shard).stem}.tar.gz").write_bytes(packed)
        (folder / "shuffled.tsv").write_text("id\tpath\ttext\n" + "".join(random.Random(1).sample(rows, len(rows))))
        table.write_text("id\tpath\ttext\n" + "".join(rows))
    return sorted(str(path) for path in folder.glob("*.tar.gz")), folder


def _joined(data: Path, how: str) -> dict[str, Any]:
    import uio_pipes as uio
    from uio_pipes.core.lane import Lane
    from uio_pipes.core.ledger import Ledger

    without, folder = archives(data)
    shards = prepare(data).shards("tar.gz") if how == "inside" else without
    for shard in shards:
        Path(shard).read_bytes()
    if how == "inside":
        pipeline = uio.from_shard_list(shards)
    else:
        pipeline = uio.from_table(folder / f"{how}.tsv", fields=NAMES, archives=shards, stream=True)
    node = pipeline.build(Lane(Ledger()))
    node.reset(None)
    began, cpu, count, size = time.perf_counter(), time.process_time(), 0, 0
    for sample in node:
        count, size = count + bool(sample["txt"]), size + len(sample["wav"])
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"speed": count / took, "cpu_speed": count / cpu, "utterances": count, "bytes": size}


def _at_random(data: Path, how: str) -> dict[str, Any]:
    from uio_pipes.formats.archives.archive import Archive
    from uio_pipes.tools.data.index import index_archives

    without, _ = archives(data)
    report = index_archives(without)
    places = [(url, place) for url in without for place in Archive(url).members()]
    wanted = random.Random(2).sample(places, READS)
    files = dict(_opened(without, how))
    began, cpu, size = time.perf_counter(), time.process_time(), 0
    for url, place in wanted:
        size += len(files[url](place.offset, place.size))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert size == sum(place.size for _, place in wanted)
    return {"ms": 1000 * took / READS, "cpu_ms": 1000 * cpu / READS, "index": report.index_bytes / report.bytes}


def _opened(urls: list[str], how: str) -> Iterator[tuple[str, Callable[[int, int], bytes]]]:
    """Yield each archive with what reads it, which knows its points already."""
    for url in urls:
        if how == "own":
            from uio_pipes.formats.archives.archive import Archive

            yield url, Archive(url).file.read
        elif how == "indexed_gzip":
            from indexed_gzip import IndexedGzipFile

            file = IndexedGzipFile(url, spacing=2 << 20)
            file.build_full_index()
            yield url, lambda offset, size, file=file: (file.seek(offset), file.read(size))[1]  # type: ignore[misc]
        else:
            import rapidgzip

            parallel = rapidgzip.open(url, parallelization=1)
            parallel.seek(0, os.SEEK_END)
            yield url, lambda offset, size, file=parallel: (file.seek(offset), file.read(size))[1]  # type: ignore[misc]


# Rows


def _table(data: Path, rows: int) -> Path:
    path = data / f"table_{rows}.tsv"
    if not path.exists():
        with path.with_suffix(".part").open("w") as file:
            file.write("client_id\tpath\tsentence\tage\tgender\tlocale\n")
            for number in range(rows):
                text = f"utterance {number % 977} of a table that is long"
                file.write(f"c{number % 9973:08x}\tcommon_voice_{number}.mp3\t{text}\ttwenties\tfemale\tpl\n")
        path.with_suffix(".part").replace(path)
    return path


def _rows(data: Path, how: str, rows: int) -> dict[str, Any]:
    import uio_pipes as uio
    from uio_pipes.core.lane import Lane
    from uio_pipes.core.ledger import Ledger

    archives = [data / f"none{number}.tar.gz" for number in range(2)]  # so that a row may be in either
    for archive in archives:
        archive.write_bytes(gzip.compress(tar_of([("nothing.wav", b"-" * 100)])))
    names = {"key": "path | stem", "wav": "path", "txt": "sentence", "speaker": "client_id"}
    options: dict[str, Any] = {"archives": archives} if how == "index" else {}
    pipeline = uio.from_table(_table(data, rows), fields=names, shuffle=how == "shuffled", **options)
    before, began = resident(os.getpid()), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    at_first = _kilobytes("VmHWM")
    pipeline._list_fingerprint()
    opened, peak = time.perf_counter() - began, (_kilobytes("VmHWM") - at_first) / 1024
    if how == "index":
        held = (resident(os.getpid()) - before) / (1 << 20)
        return {"opened": opened, "held": held, "peak": peak, "rows": rows / opened}
    if how == "workers":
        return _workers(_table(data, rows), opened)
    node, count = pipeline.build(Lane(Ledger(), seed=1)), min(rows, sized(300_000, 300))
    node.reset(None)
    began = time.process_time()
    for _ in range(count):
        node.next()
    took = time.process_time() - began
    held = (resident(os.getpid()) - before) / (1 << 20)
    return {"opened": opened, "held": held, "peak": peak, "rows": count / took}


def _kilobytes(name: str) -> int:
    """Return a figure of this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _workers(table: Path, opened: float) -> dict[str, Any]:
    import uio_pipes as uio

    texts = uio.from_table(table, fields={"key": "path | stem", "txt": "sentence"}, shuffle=True)
    loader = uio.Loader(texts.batch(16), num_workers=WORKERS)
    batches = iter(loader)
    next(batches)
    return {"opened": opened, "worker": max(private(pid) for pid in children(os.getpid()))}


def main() -> None:
    """Measure all and write results/tables.md."""
    arguments = begin(measure, parser(__doc__, repeats=5))
    corpus = prepare(arguments.data)
    archives(arguments.data)
    for rows in (ROWS, FEW):
        _table(arguments.data, rows)
    report = Report("tables", "Tables of audio in archives")
    report.text(f"{corpus.utterances:,} utterances in 6 archives, {corpus.seconds / 3600:.2f} h; in the page cache.")
    _tell_joined(report, arguments)
    _tell_random(report, arguments)
    _tell_rows(report, arguments)
    report.write()


def _tell_joined(report: Report, arguments: Any) -> None:
    jobs = {name: {"what": "joined", "how": how} for name, how in JOINED.items()}
    results = rounds(MODULE, jobs, arguments.repeats, data=arguments.data)
    base = {field: median(results["texts inside"], field) for field in ("speed", "cpu_speed")}
    rows = []
    for name, runs in report.ran(results).items():
        row = [name]
        for field, own in base.items():
            row += [spread(runs, field, ",.0f"), ratio(median(runs, field), own)]
        rows.append(row)
    columns = ["tar.gz", "utterances per s", "of texts inside", "per s of CPU", "of texts inside"]
    report.table("In the order of the archives, nothing decoded", columns, rows, plot=[1])
    share = median(results["joined, rows in order"], "cpu_speed") / base["cpu_speed"]
    report.target("joined: 90 % of the speed with texts inside", share >= 0.9, f"{share:.2f}×")


def _tell_random(report: Report, arguments: Any) -> None:
    jobs = {name: {"what": "random", "how": how} for name, how in AT_RANDOM.items()}
    results = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data))
    rows = [[name, spread(runs, "ms", ".2f"), spread(runs, "cpu_ms", ".2f")] for name, runs in results.items()]
    report.table("One member of a tar.gz at random", ["by points 2 MiB apart", "ms", "ms of CPU"], rows)
    report.text(f"The indexes take {median(results['uio_pipes'], 'index'):.1%} of the archives.")


def _tell_rows(report: Report, arguments: Any) -> None:
    ways = {"in order": "ordered", "in any order": "shuffled", "index by member": "index"}
    jobs = {f"{name}, {ROWS:,}": {"what": "rows", "how": how, "rows": ROWS} for name, how in ways.items()}
    jobs |= {f"workers, {rows:,}": {"what": "rows", "how": "workers", "rows": rows} for rows in (ROWS, FEW)}
    results = report.ran(rounds(MODULE, jobs, min(3, arguments.repeats), data=arguments.data))
    fields = {
        "opened": ("opened, s", ".1f"),
        "rows": ("rows per s of CPU", ",.0f"),
        "held": ("MiB", ".0f"),
        "peak": ("MiB at the most", ".0f"),
    }
    shown = {name: runs for name, runs in results.items() if not name.startswith("workers")}
    rows = [[name, *(spread(runs, field, form) for field, (_, form) in fields.items())] for name, runs in shown.items()]
    report.table("A table of many rows in one process", ["", *(name for name, _ in fields.values())], rows)
    most = max(median(runs, "peak") for runs in shown.values())
    report.target("at most 200 MB of a process, while it is opened, too", most * (1 << 20) <= 200e6, f"{most:.0f} MiB")
    many, few = (median(results[f"workers, {rows:,}"], "worker") for rows in (ROWS, FEW))
    report.target("workers share it", many - few <= 20, f"{many - few:.1f} MiB more in a worker than with {FEW:,} rows")


if __name__ == "__main__":
    main()
