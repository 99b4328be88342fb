"""The statistics of a loader, and the records of a run: a file of JSON lines for each rank. Reading them imports no
torch."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from math import floor, log10
from pathlib import Path
from typing import Any

from uio_pipes.base.errors import NOTES
from uio_pipes.base.html_table import html_table
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import plural
from uio_pipes.io.files import plain, write_bytes

LEAVE_OUT_LESS = (
    "To leave out fewer, make the ranks' shares more equal: use more (smaller) shards and more lanes than ranks and "
    "workers, or an index (`uio index`, from_tar_index). "
    'uneven="share" leaves out at most the last, incomplete step (of chunks, "join" leaves out nothing)'
)
LEAVE_OUT_NOTHING = 'tail="repeat" leaves out nothing: ranks without a batch get that of another rank'
COUNTS = ("batches", "utterances", "frames", "padded", "failures", "tokens", "padded_tokens", "bytes_read", "retries")
logger = logging.getLogger("uio_pipes")


@dataclass
class NodeStats:
    """Counts of what one node of a Ray cluster has sent to this rank since its loader was made.

    Attributes:
        batches: batches that the trainer's process took. Default: 0.
        utterances: utterances in them. Default: 0.
        frames: frames in them, as in :class:`Stats`. Default: 0.
        seconds: time that actors of the node worked on them. Default: 0.0.
        restarts: actors on the node that were lost and started anew, there or elsewhere. Default: 0.
    """

    batches: int = 0
    utterances: int = 0
    frames: int = 0
    seconds: float = 0.0
    restarts: int = 0

    @property
    def speed(self) -> float:
        """Utterances per second of an actor's work."""
        return self.utterances / self.seconds if self.seconds else 0.0


@dataclass
class Waits:
    """How long the trainer waited for each batch, from ``next`` to the batch. Shares are told within 6 %.

    Attributes:
        counts: batches by ``floor(20 * log10(seconds))``. Default: {}.
        seconds: the sum of all waits. Default: 0.0.
    """

    counts: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a batch."""
        place = floor(20 * log10(max(seconds, 1e-9)))
        self.counts[place] = self.counts.get(place, 0) + 1
        self.seconds += seconds

    def within(self, share: float) -> float:
        """Return the seconds within which this ``share`` of the batches came; 0 without batches."""
        left = share * sum(self.counts.values())
        for place in sorted(self.counts):
            left -= self.counts[place]
            if left <= 0:
                return float(10 ** ((place + 0.5) / 20))
        return 0.0

    @property
    def p50(self) -> float:
        """Seconds within which half of the batches came."""
        return self.within(0.5)

    @property
    def p95(self) -> float:
        """Seconds within which 95 % of the batches came."""
        return self.within(0.95)

    @property
    def p99(self) -> float:
        """Seconds within which 99 % of the batches came."""
        return self.within(0.99)

    def __str__(self) -> str:
        """The three of them, in milliseconds."""
        told = [1e3 * seconds for seconds in (self.p50, self.p95, self.p99)]
        return "/".join(f"{ms:,.0f}" if ms >= 10 else f"{ms:.2g}" for ms in told) + " ms"


@dataclass
class Stats:
    """Counts of this rank's lanes in the epoch under way, up to the last batch that the trainer received.

    They are part of the loader's state: a resumed run goes on counting, and counts nothing twice.

    Attributes:
        batches: batches delivered. Default: 0.
        utterances: utterances delivered. Default: 0.
        frames: frames delivered, without padding: feature frames, or units of 10 ms of audio. Default: 0.
        padded: frames delivered, padding included; 0 of rows of tokens, whose frames have none. Default: 0.
        failures: utterances, members or shards that failed; each is in ``skipped`` under its reason. Default: 0.
        skipped: how many were left out for each reason, by filters or failures.
        waited: seconds that the trainer waited for batches. Default: 0.0.
        left_out: after an epoch that all ranks ended together: (utterances, list items) that no rank delivered; under
            ``uneven="stop"`` at least as many utterances. Default: (0, 0).
        delivered: utterances that all ranks delivered, after such an epoch. Default: 0.
        workers: worker processes that ``num_workers="auto"`` has chosen by now. Default: None, they were given.
        prefetch: batches that each of them prepares ahead. Default: None, as for ``workers``.
        nodes: of each node of a Ray cluster, by its name, what came from there. Default: {}, without
            ``RayWorkers``.
        tokens: labels delivered, without padding; of ``pack``, places that are in use. Default: 0.
        padded_tokens: labels delivered, padding included; of ``pack``, all places. Default: 0.
        sources: utterances made for batches from each source of a mix, by its path. Default: {}, without a mix.
        items_are_utterances: whether list items are single utterances, not shards of them. Default: False.
        remembered: files that the process with most of them, a worker or this one, holds open now, and the bytes of its
            caches. Default: (0, 0).
        waits: how long the trainer waited for each batch (``waits.p50``, ``p95``, ``p99``, in seconds); this and what
            follows since this process began the epoch, or went on with it.
        bytes_read: bytes that the loader's processes have read from files and servers. Default: 0.
        retries: requests to servers that were made again. Default: 0.
        buffers: bytes that the buffers of all processes take when full, as estimated. Default: 0.
    """

    batches: int = 0
    utterances: int = 0
    frames: int = 0
    padded: int = 0
    failures: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    waited: float = 0.0
    left_out: tuple[int, int] = (0, 0)
    delivered: int = 0
    workers: int | None = field(default=None, compare=False)
    prefetch: int | None = field(default=None, compare=False)
    nodes: dict[str, NodeStats] = field(default_factory=dict, compare=False)
    tokens: int = 0
    padded_tokens: int = 0
    sources: dict[str, int] = field(default_factory=dict)
    items_are_utterances: bool = field(default=False, repr=False, compare=False)
    remembered: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)
    waits: Waits = field(default_factory=Waits, repr=False, compare=False)
    bytes_read: int = field(default=0, repr=False, compare=False)
    retries: int = field(default=0, repr=False, compare=False)
    buffers: int = field(default=0, repr=False, compare=False)

    def __str__(self) -> str:
        """The counts in a sentence, which names only what there is."""
        made = f"{plural(self.batches, 'batch')} with {plural(self.utterances, 'utterance')}"
        hours = f", {self.hours:.2f} h of audio" if self.frames else ""
        parts = [made + hours]
        if self.padded or self.padded_tokens:
            parts.append(f"{self.padding_ratio:.1%} padding")
        parts.append(f"waited {self.waited:.1f} s for batches")
        parts[-1] += f" (p50/p95/p99: {self.waits})" if self.waits.counts else ""
        for what, named in (("left out", self.skipped.keys() - NOTES), ("noted", self.skipped.keys() & NOTES)):
            if named:
                parts.append(f"{what}: {', '.join(f'{self.skipped[reason]:,} {reason}' for reason in sorted(named))}")
                parts[-1] += f" ({plural(self.failures, 'failure')})" if self.failures and what == "left out" else ""
        if self.sources:
            parts.append("from " + ", ".join(f"{name}: {n:,}" for name, n in self.sources.items()))
        if any(self.left_out):
            parts.append(f"{1 - self.delivered_share:.0%} of the epoch left out at its end")
        return "; ".join([*parts, *filter(None, [self.held])])

    def _repr_html_(self) -> str:
        shown = {"hours": f"{self.hours:.2f}", "padding": f"{self.padding_ratio:.1%}", "waited": f"{self.waited:.1f} s"}
        counts = {"batches": self.batches, "utterances": self.utterances, "failures": self.failures}
        counts |= {f"{'noted' if reason in NOTES else 'left out'}: {reason}": n for reason, n in self.skipped.items()}
        counts |= {f"from {source}": n for source, n in self.sources.items()}
        return html_table(("count", ""), [*shown.items(), *((name, f"{n:,}") for name, n in counts.items())])

    @property
    def held(self) -> str:
        """The caches in ``remembered``, as text; "" if there are none."""
        files, cached = self.remembered
        held = f"a process holds {plural(files, 'open file')}, {cached / 1e6:,.1f} MB in caches"
        return held if files or cached else ""

    @property
    def hours(self) -> float:
        """Hours of audio delivered, where a frame is 10 ms. For features of another frame shift (Whisper's and
        Kaldi's are 10 ms), or precomputed ones that were subsampled, multiply by shift / 10 ms."""
        return self.frames / 360_000

    @property
    def padding_ratio(self) -> float:
        """Share of the padded frames that is padding; where no frames are padded, :attr:`token_padding_ratio`."""
        return 1 - self.frames / self.padded if self.padded else self.token_padding_ratio

    @property
    def token_padding_ratio(self) -> float:
        """Share of the padded tokens that is padding."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0

    @property
    def delivered_share(self) -> float:
        """Share of the known utterances that all ranks delivered of an epoch that they ended together. It is an upper
        bound if nobody looked into what was left, and 1 before the end of the epoch.
        """
        known = self.delivered + self._left
        return self.delivered / known if known else 1.0

    @property
    def _left(self) -> int:
        """The number of utterances that are known to be left out."""
        return self.left_out[0] + (self.left_out[1] if self.items_are_utterances else 0)

    def log_losses(self, epoch: int, rank: int) -> None:
        """Log which share of a rank's utterances was left out or lost, and why; as a warning if anything failed.

        Args:
            epoch: number of the epoch that ended.
            rank: number of the rank whose counts these are.
        """
        lost = {reason: n for reason, n in self.skipped.items() if reason not in NOTES}
        if not lost:
            return
        total, why = sum(lost.values()), ", ".join(f"{lost[reason]:,} {reason}" for reason in sorted(lost))
        logger.log(
            logging.WARNING if self.failures else logging.INFO,
            "epoch %d on rank %d: %d of %d utterances (%.1f%%) were left out: %s",
            *(epoch, rank, total, total + self.utterances, 100 * total / (total + self.utterances), why),
        )

    def told_left_out(self, epoch: int, shared: bool) -> str:
        """Return a message about what an epoch left out, with the remedy. ``shared``: only an incomplete step."""
        if shared:
            return (
                f"epoch {epoch} left out {self._left} of {self.delivered + self._left} utterances, as there were fewer "
                f"batches than ranks for a last step. {LEAVE_OUT_NOTHING}"
            )
        unopened = 0 if self.items_are_utterances else self.left_out[1]
        return (
            f"epoch {epoch} ended with the first rank that ran out of data, and left out {self._left} of at least "
            f"{self.delivered + self._left} utterances ({1 - self.delivered_share:.0%}"
            f"{f' at least, as {unopened} list items were not opened' if unopened else ''}). {LEAVE_OUT_LESS}"
        )

    def add(self, counts: dict[str, Any]) -> None:
        """Add one lane's counts."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + counts.get(name, 0))
        for table, more in ((self.skipped, counts.get("skipped", {})), (self.sources, counts.get("sources", {}))):
            for name, n in more.items():
                table[name] = table.get(name, 0) + n
        self.waited += counts.get("waited_us", 0) / 1e6

    def as_dict(self, prefix: str = "data") -> dict[str, float]:
        """Return the counts of this rank as scalars by name, as loggers of experiments take them.

        They are ``data/batches``, ``data/utterances``, ``data/hours``, ``data/padding_ratio``, ``data/failures``,
        ``data/bytes_read``, ``data/retries``, ``data/waited_seconds``, ``data/wait_p50_seconds`` with ``p95`` and
        ``p99``, and one ``data/skipped/REASON`` for each reason; with ``num_workers="auto"`` also ``data/workers`` and
        ``data/prefetch``, with ``RayWorkers`` one ``data/utterances_per_second/NODE`` for each node. After an epoch
        that the ranks ended together there are also ``data/delivered_share``, ``data/left_out_utterances`` (at least)
        and ``data/left_out_items``, of all ranks.

        Args:
            prefix: what comes before the slash, which an empty one leaves out. Default: "data".
        """
        counts = ("batches", "utterances", "hours", "padding_ratio", "failures", "bytes_read", "retries")
        scalars: dict[str, float] = {name: getattr(self, name) for name in counts}
        scalars["waited_seconds"] = self.waited
        scalars.update((f"wait_{name}_seconds", getattr(self.waits, name)) for name in ("p50", "p95", "p99"))
        if self.workers is not None and self.prefetch is not None:
            scalars["workers"], scalars["prefetch"] = self.workers, self.prefetch
        if self.delivered or any(self.left_out):
            scalars["delivered_share"] = self.delivered_share
            scalars["left_out_utterances"], scalars["left_out_items"] = self.left_out
        scalars.update((f"skipped/{reason}", n) for reason, n in sorted(self.skipped.items()))
        scalars.update((f"utterances_per_second/{name}", node.speed) for name, node in sorted(self.nodes.items()))
        return {f"{prefix}/{name}" if prefix else name: value for name, value in scalars.items()}


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
        state: "running", "over" (the epoch has ended), "left" (the loop ended before), or "hung: " and what hangs.
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
        first, *others = path.read_bytes().splitlines(keepends=True)
        write_bytes(path, b"".join([first, *others[::-2][::-1]]))  # the first and the last one stay


def read(path: Path, last: int = MOST * 2) -> list[RunRecord]:
    """Read the records in the ``last`` bytes of a file. Damaged lines are passed over. Raises: OSError."""
    with open(path, "rb", opener=plain) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - last))
        return [record for line in file.read().splitlines() for record in _parsed(line)]


def _parsed(line: bytes) -> Iterator[RunRecord]:
    try:
        read = parse_json(line)
        known = {field.name: read["stats"][field.name] for field in fields(Stats)}
        nodes = {name: NodeStats(**node) for name, node in known["nodes"].items()}
        new: dict[str, Any] = {name: tuple(known[name]) for name in ("left_out", "remembered")}
        counts, seconds = known["waits"]["counts"], known["waits"]["seconds"]
        new["waits"] = Waits({int(place): n for place, n in counts.items()}, seconds)
        yield RunRecord(**{**read, "stats": Stats(**{**known, "nodes": nodes, **new})})
    except (ValueError, TypeError, LookupError, AttributeError):
        return


def memory() -> int:
    """Return the bytes of resident memory of this process and its children; 0 where there is no ``/proc``."""
    try:
        found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError:
        found = []
    pages = 0
    for pid in ("self", *found):
        with suppress(OSError, IndexError):  # it has ended
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def files_of(folder: Path) -> list[Path]:
    """Return the files in a folder, or in the folder ``watch`` in it."""
    return sorted(folder.glob("rank-*.jsonl")) or sorted((folder / "watch").glob("rank-*.jsonl"))
