"""The log of delivered keys, and the check that an epoch contained every utterance exactly once, across crashes.

Every rank of every run writes a file of its own, ``keys.rank0.run1.log``: JSON lines, the first about the run::

    {"run": 2, "rank": 0, "pid": 4711, "world_size": 2, "num_workers": 2, "resumed_step": 120}
    {"epoch": 1, "step": 121, "keys": ["BAC009S0002W0122", …]}

A step counts if no later run repeated it: steps of run 1 count up to the step from which run 2 resumed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NAME = re.compile(r"keys\.rank(\d+)\.run(\d+)\.log")


@dataclass(frozen=True)
class Run:
    """The facts that a rank notes when it starts."""

    run: int
    rank: int
    pid: int
    world_size: int
    num_workers: int
    resumed_step: int


class KeyLog:
    """A log that gets one line for each step; the line is in the file system before the next step begins."""

    def __init__(self, folder: Path, run: Run) -> None:
        self._file = (folder / f"keys.rank{run.rank}.run{run.run}.log").open("w", encoding="utf-8")
        self._write(vars(run))

    def write(self, epoch: int, step: int, keys: list[str]) -> None:
        """Note the keys of the batch that this step was made of."""
        self._write({"epoch": epoch, "step": step, "keys": keys})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True)
class Report:
    """The number of times that an epoch contained each expected utterance."""

    delivered: int
    missing: tuple[str, ...]
    repeated: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """True if every utterance came once, and nothing else came."""
        return not (self.missing or self.repeated or self.unknown)

    def __str__(self) -> str:
        if self.exact:
            return f"{self.delivered} utterances, each exactly once: none lost, none repeated"
        parts = ((self.missing, "lost"), (self.repeated, "repeated"), (self.unknown, "not in the list"))
        return "NOT exactly once: " + ", ".join(f"{len(keys)} {what} ({keys[0]}, …)" for keys, what in parts if keys)


def last_run(folder: Path) -> int:
    """Return the number of the newest run; 0 before the first."""
    return max(
        (int(match[2]) for path in folder.glob("keys.rank*.log") if (match := _NAME.match(path.name))), default=0
    )


def runs(folder: Path) -> list[Run]:
    """Return the runs so far, one entry for each rank of each run."""
    lines = (next(_lines(path), None) for path in sorted(folder.glob("keys.rank*.log")))
    return [Run(**line) for line in lines if line is not None]


def delivered(folder: Path, epoch: int) -> Counter[str]:
    """Count how often each key was delivered in the steps of ``epoch`` that count."""
    resumed = {run.run: run.resumed_step for run in runs(folder)}
    counts: Counter[str] = Counter()
    for path in sorted(folder.glob("keys.rank*.log")):
        run = int(path.name.split(".run")[1].removesuffix(".log"))
        last = min((step for later, step in resumed.items() if later > run), default=None)
        for line in _lines(path):
            if line.get("epoch") == epoch and (last is None or line["step"] <= last):
                counts.update(line["keys"])
    return counts


def check_epoch(folder: Path, epoch: int, expected: Iterable[str]) -> Report:
    """Compare the keys that an epoch delivered with the expected ones."""
    counts, wanted = delivered(folder, epoch), set(expected)
    missing = tuple(sorted(wanted - counts.keys()))
    repeated = tuple(sorted(key for key, count in counts.items() if count > 1))
    unknown = tuple(sorted(counts.keys() - wanted))
    return Report(counts.total(), missing, repeated, unknown)


def progress(folder: Path) -> tuple[int, int]:
    """Return epoch and step of the newest line of the newest run; (-1, -1) before there is one."""
    path = folder / f"keys.rank0.run{last_run(folder)}.log"
    newest = (-1, -1)
    for line in _lines(path) if path.exists() else ():
        newest = (line["epoch"], line["step"]) if "step" in line else newest
    return newest


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines. A kill can tear the last line, but that step is repeated in any case."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
