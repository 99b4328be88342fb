"""The records of a run: a file of JSON lines for each rank, in one folder. Reading them imports no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from uio_pipes.base.json_text import parse_json
from uio_pipes.core.statistics import NodeStats, Stats

MOST = 1 << 20  # bytes of a file; above that, every second line is dropped, so that the whole run stays


@dataclass(frozen=True)
class RunRecord:
    """The counts of one rank at one moment.

    Attributes:
        time: seconds since 1970.
        every: seconds between two records.
        host, pid: the process; peer: its number among those that get the same batches.
        rank, world_size: of all processes of the run.
        epoch: the loader's.
        state: "running", "over" (the epoch has ended), or "left" (the loop ended before).
        memory: bytes of resident memory, of the process and its workers; 0 where the system does not tell.
        stats: the loader's counts in the epoch.
    """

    time: float
    every: float
    host: str
    pid: int
    peer: int
    rank: int
    world_size: int
    epoch: int
    state: str
    memory: int
    stats: Stats


def append(folder: Path, record: RunRecord) -> None:
    """Append a record to the file of its rank, ``rank-00000.jsonl``.

    Each file has one writer, so that hosts can share the folder without locks. Raises: OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank-{record.rank:05d}.jsonl"
    line = json.dumps(asdict(record), separators=(",", ":")).encode() + b"\n"
    with open(path, "a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        cut_off = size and file.read(1) != b"\n"  # the process was killed, or the disk was full
        file.write(b"\n" + line if cut_off else line)
    if size > MOST:
        part = path.with_suffix(".part")
        part.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[::-2][::-1]))
        part.replace(path)


def read(path: Path, last: int = MOST * 2) -> list[RunRecord]:
    """Read the records in the ``last`` bytes of a file. Damaged lines are passed over. Raises: OSError."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - last))
        return [record for line in file.read().splitlines() for record in _parsed(line)]


def _parsed(line: bytes) -> Iterator[RunRecord]:
    try:
        read = parse_json(line)
        known = {field.name: read["stats"][field.name] for field in fields(Stats)}
        nodes = {name: NodeStats(**node) for name, node in known["nodes"].items()}
        yield RunRecord(**{**read, "stats": Stats(**{**known, "nodes": nodes, "left_out": tuple(known["left_out"])})})
    except (ValueError, TypeError, LookupError, AttributeError):
        return


def memory() -> int:
    """Return the bytes of resident memory of this process and its children; 0 where there is no ``/proc``."""
    try:
        found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError:
        found = []
    return sum(map(_resident, ["self", *found]))


def _resident(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # it has ended
        return 0


def files_of(folder: Path) -> list[Path]:
    """Return the files in a folder, or in the folder ``watch`` in it."""
    return sorted(folder.glob("rank-*.jsonl")) or sorted((folder / "watch").glob("rank-*.jsonl"))
