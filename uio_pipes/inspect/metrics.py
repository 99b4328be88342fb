"""The counts of a rank as metrics of Prometheus: served by HTTP, or written to a file that its node exporter reads."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from uio_pipes.base.errors import PipelineError
from uio_pipes.core.statistics import RunRecord, Stats
from uio_pipes.run.loader import Loader

PREFIXES = ("prometheus:", "textfile:")  # of what uio.watch(to=…) takes beside a folder
COUNTERS: dict[str, tuple[str, Callable[[Stats], float]]] = {
    "uio_batches": ("Batches that the trainer received.", lambda stats: stats.batches),
    "uio_utterances": ("Utterances in them.", lambda stats: stats.utterances),
    "uio_audio_seconds": ("Audio in them, where a frame is 10 ms.", lambda stats: stats.frames / 100),
    "uio_frames": ("Frames in them, without padding.", lambda stats: stats.frames),
    "uio_padded_frames": ("Frames in them, padding included.", lambda stats: stats.padded),
    "uio_tokens": ("Tokens in them, without padding.", lambda stats: stats.tokens),
    "uio_padded_tokens": ("Tokens in them, padding included.", lambda stats: stats.padded_tokens),
    "uio_failures": ("Utterances, members and shards that failed.", lambda stats: stats.failures),
    "uio_read_bytes": ("Bytes read from files and servers.", lambda stats: stats.bytes_read),
    "uio_retries": ("Requests to servers that were made again.", lambda stats: stats.retries),
}
GAUGES: dict[str, tuple[str, Callable[[RunRecord], float]]] = {
    "uio_epoch": ("The number of the epoch.", lambda record: record.epoch),
    "uio_running": ("1 while the trainer iterates over the loader.", lambda record: record.state == "running"),
    "uio_resident_memory_bytes": ("Memory of the rank's process and its workers.", lambda record: record.memory),
    "uio_buffer_bytes": ("Estimated memory of full buffers.", lambda record: record.stats.buffers),
    "uio_cache_bytes": ("Caches of the process with most of them.", lambda record: record.stats.remembered[1]),
}
SKIPPED, WAIT = "uio_skipped", "uio_batch_wait_seconds"
DIGITS = ((1, 0), (2, 6), (5, 14))  # with the places of Waits.counts that begin there, to 0.3 %
BOUNDS = [(str(digit * 10.0**power), 20 * power + at) for power in range(-4, 2) for digit, at in DIGITS]


class Exporter:
    """What a rank has counted since this process began: over epochs, and without what a loaded state had counted."""

    def __init__(self) -> None:
        self.write: Callable[[], object] = lambda: None  # called after each record
        self._shown: tuple[RunRecord, dict[Any, float], dict[Any, float]] | None = None

    def add(self, record: RunRecord) -> None:
        """Take the newest record."""
        now: dict[Any, float] = {name: of(record.stats) for name, (_, of) in COUNTERS.items()}
        now |= {(SKIPPED, reason): n for reason, n in record.stats.skipped.items()}
        now |= record.stats.waits.counts | {WAIT: record.stats.waits.seconds}
        before, last, total = self._shown or (record, now, {})
        total = dict(total)
        for key, value in now.items():
            was = last.get(key, 0)
            anew = value < was and record.epoch != before.epoch  # else an earlier state was loaded
            total[key] = total.get(key, 0) + max(0, value if anew else value - was)
        self._shown = record, now, total  # at once, as the server has a thread
        self.write()

    def collect(self) -> Iterator[Any]:
        """Yield the metrics, for a registry of prometheus-client."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        if self._shown is None:
            return
        (record, _, total), names = self._shown, ["rank", "peer"]
        labels = [str(record.rank), str(record.peer)]
        numbers: list[Any] = [(CounterMetricFamily, name, text, total[name]) for name, (text, _) in COUNTERS.items()]
        numbers += [(GaugeMetricFamily, name, text, float(of(record))) for name, (text, of) in GAUGES.items()]
        for kind, name, text, value in numbers:
            metric = kind(name, text, labels=names)
            metric.add_metric(labels, value)
            yield metric
        skipped = CounterMetricFamily(SKIPPED, "Utterances left out, and why.", labels=[*names, "reason"])
        for _, reason in (key for key in total if isinstance(key, tuple)):
            skipped.add_metric([*labels, reason], total[SKIPPED, reason])
        waits = {place: n for place, n in total.items() if isinstance(place, int)}
        buckets = [(bound, sum(n for at, n in waits.items() if at < place)) for bound, place in BOUNDS]
        histogram = HistogramMetricFamily(WAIT, "Time from next to the batch.", labels=names)
        histogram.add_metric(labels, [*buckets, ("+Inf", sum(waits.values()))], total[WAIT])
        yield from (skipped, histogram)


_exporters: weakref.WeakKeyDictionary[Loader, dict[str, Exporter]] = weakref.WeakKeyDictionary()


def exporter_for(loader: Loader, to: str, rank: int) -> Exporter:
    """Return what takes the records of a loader, for one of the ``PREFIXES``; the same one each time.

    Raises: PipelineError if that cannot be.
    """
    if to in (known := _exporters.setdefault(loader, {})):
        return known[to]
    try:
        from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
    except ImportError as error:
        raise PipelineError(f'watch: to={to!r} needs prometheus-client: pip install "uio_pipes[prometheus]"') from error
    exporter, registry, (kind, where) = Exporter(), CollectorRegistry(), to.split(":", 1)
    registry.register(exporter)
    try:
        if kind == "textfile":
            (folder := Path(where)).mkdir(parents=True, exist_ok=True)
            exporter.write = partial(write_to_textfile, str(folder / f"uio-rank-{rank:05d}.prom"), registry)
        else:
            port = int(where) + int(os.environ.get("LOCAL_RANK", "0"))
            server, _ = start_http_server(port, registry=registry)
            for end in (server.server_close, server.shutdown):  # the last one is called first
                weakref.finalize(loader, end).atexit = False
    except (ValueError, OverflowError, OSError) as error:
        raise PipelineError(f"watch: {to!r} cannot be used ({error}): give a folder, or a port that is free") from error
    return known.setdefault(to, exporter)
