"""The partial results of a decoding, which a killed run leaves on disk and the next run continues.

::

    test.partial/begin.json      what is decoded, and how; and the loader's state at the beginning
                 rank0.jsonl     a line a batch: its results, and the positions of its lanes after it
                 rank1.jsonl

Results and positions are in one line, and a line counts only if it is complete and in the expected order. So no batch
can be noted as done without its results, or have results without being noted. Lines are only appended. Each rank
writes one file, under a lock; the files of all ranks are read together, also those of runs with more ranks.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from uio_pipes.base.errors import StateError
from uio_pipes.base.processes import Busy, try_lock
from uio_pipes.io.files import write_lines
from uio_pipes.run.state_merging import merge_states

PATIENCE = 10.0  # seconds within which a killed process must have released its file
State = dict[str, str]


class Changed(StateError):
    """The partial results are those of another model, list or search; the message says what differs."""


@dataclass(frozen=True)
class DecodedBatch:
    """One line: a batch, and the positions of the lanes that have moved since the line before."""

    lanes: State
    utterances: list[Any] = field(default_factory=list)  # what was made of each
    failures: list[str] = field(default_factory=list)  # the loader's reports
    frames: int = 0
    seconds: float = 0.0


class Partial:
    """The folder, as all ranks see it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._begin = folder, folder / "begin.json"

    def begin(self, about: Mapping[str, Any], fresh: State) -> None:
        """Start a decoding, or find what an earlier run left. Only one rank does it.

        Raises:
            Busy: another process writes to it.
            Changed: the results in the folder are those of another decoding.
        """
        for path in self._files():
            ResultWriter(path).close()
        if not self._begin.is_file():
            shutil.rmtree(self.folder, ignore_errors=True)
            write_json(self._begin, {"about": about, "state": fresh})
        if changed := changes(self._read_begin()["about"], json.loads(json.dumps(about))):
            raise Changed(f"{self.folder} belongs to another decoding: {changed}")

    def discard(self) -> None:
        """Delete all results."""
        self._begin.unlink(missing_ok=True)  # without it the rest is ignored
        shutil.rmtree(self.folder, ignore_errors=True)

    def state(self) -> State:
        """Return the state of all lanes, for a loader on any number of ranks."""
        fresh = self._read_begin()["state"]
        ranks: list[State] = [fresh]
        for path in self._files():
            lanes = {name: text for record in _records(path) for name, text in record.lanes.items()}
            ranks.append({"meta": fresh["meta"], **lanes})
        return merge_states(ranks)

    def records(self) -> Iterator[DecodedBatch]:
        """Yield all records."""
        for path in self._files():
            yield from _records(path)

    def writer(self, rank: int) -> ResultWriter:
        """Return a writer at the end of this rank's own file. Raises: Busy."""
        return ResultWriter(self.folder / f"rank{rank}.jsonl")

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("rank*.jsonl"))

    def _read_begin(self) -> dict[str, Any]:
        begin: dict[str, Any] = json.loads(self._begin.read_text(encoding="utf-8"))
        return begin


class ResultWriter:
    """A writer of records to one file. Each is on the disk before the next batch begins; the file is locked until
    closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        try:
            if not try_lock(self._file.fileno(), PATIENCE):
                raise Busy(f"another decoding writes to {path}: wait for it, or end it")
            self._file.truncate(_sound(path.read_bytes())[1])
        except BaseException:
            self._file.close()
            raise

    def add(self, record: DecodedBatch) -> None:
        """Write one line."""
        self._file.write(json.dumps(asdict(record), ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, and with it release the lock."""
        self._file.close()

    def __enter__(self) -> ResultWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_json(path: Path, value: Any) -> None:
    """Write a file completely or not at all, and create its folder."""
    write_lines(path, [json.dumps(value, ensure_ascii=False)])


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what differs between two decodings; "" if nothing does."""
    found = {name: (before.get(name), new) for name, new in now.items() if before.get(name) != new}
    if (graph := found.get("graph")) is not None and graph[0]:  # the first stage that differs
        found["graph"] = next(((a, b) for a, b in zip(graph[0], graph[1], strict=False) if a != b), graph)
    return ", ".join(f"{name} was {old!r}, now {new!r}" for name, (old, new) in found.items())


def _records(path: Path) -> list[DecodedBatch]:
    return _sound(path.read_bytes())[0]


def _sound(data: bytes) -> tuple[list[DecodedBatch], int]:
    """Return the records before the first damaged line, and where that line begins. A kill tears the last line; a
    machine that lost its power may have lost more of the end."""
    records, end = [], 0
    for line in data.splitlines(keepends=True):
        try:
            if not line.endswith(b"\n"):
                break
            records.append(DecodedBatch(**json.loads(line)))
        except (ValueError, TypeError):
            break
        end += len(line)
    return records, end
