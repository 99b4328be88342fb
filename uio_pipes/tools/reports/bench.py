"""``bench``: measures how fast a pipeline is, and how much time each stage takes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from uio_pipes.base import clock
from uio_pipes.base.clock import HEADERS, READING
from uio_pipes.base.processes import cores
from uio_pipes.base.urls import plural
from uio_pipes.core.ledger import COUNTED
from uio_pipes.core.statistics import Stats
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.empty_epochs import nothing_out
from uio_pipes.run.loader import Loader
from uio_pipes.stages.batches.window import WindowBatch
from uio_pipes.tools.reports.simulation import lost, mend

ENOUGH = 0.6  # of the speed of so many processes: from there on, workers pay
LASTING = 5  # times as long as the start of workers: of shorter epochs, a measurement is mostly of that start
STATE = "state, order"
SOURCES = ("load_from_tar", "open_files", "load_records", "load_from_raw", "list_files", READING, HEADERS)
RANKS = 8  # that the batches of one process stand for
MUCH = 0.4  # of the time: a stage that takes as much is named
FEATURES = "store features, if the audio is not augmented"
REMEDIES = {
    HEADERS: "known lengths need no headers: uio index and from_tar_index, or a duration in each line of the list",
    READING: "read packed shards (uio pack), from a local disk (cache=… keeps there what is remote)",
    "decode_audio": "16-bit PCM wav decodes ten times as fast as compressed audio, for more disk (uio pack)",
    "resample": "store the audio at the rate that you train with (uio pack --resample)",
    "speed_perturb": "it resamples: fewer speeds other than 1.0 cost less",
    "fbank": FEATURES,
    "mfcc": FEATURES,
    "log_mel_spectrogram": FEATURES,
    "tokenize": "a slow tokenizer: store its tokens in the data",
    "map": "your own function: profile it, give it length= to be run only for what is delivered, or keep what it makes "
    "by .cache(folder) behind it",
    "flat_map": "your own function: profile it",
    "filter": "a filter's function that touches audio decodes it: filter by length or text instead",
    "pad": "copying padded batches: bucket_batch makes them less padded",
    STATE: "Loader(snapshot_every=…) takes fewer snapshots; larger batches cost less each",
}


@dataclass(frozen=True)
class StageCost:
    """The cost of one stage: microseconds per utterance delivered, and its share of the time in one process."""

    stage: str
    microseconds: float
    share: float


@dataclass(frozen=True)
class Speed:
    """The batches delivered in ``seconds`` after the first one."""

    utterances: int
    batches: int
    hours: float
    seconds: float
    first_batch: float
    epochs: int  # epochs begun; 1 if the data were enough
    held: str  # what such a process remembers

    @property
    def per_second(self) -> float:
        return self.utterances / self.seconds


@dataclass(frozen=True)
class Bench:
    """The result: speed in one process (``alone``) and with ``num_workers`` workers, and the stages, by their cost."""

    rows: list[StageCost]
    alone: Speed
    num_workers: int
    workers: Speed | None
    failures: int
    waiting: str = ""  # what ranks that step together would lose, and what mends it

    @property
    def advice(self) -> list[str]:
        """What the workers brought, if they were measured, and what to do about the largest cost."""
        found, top = [], self.rows[0]
        reading = sum(row.share for row in self.rows if _kind(row.stage) in SOURCES)
        if self.workers is not None:
            found.append(self._of_workers(self.workers))
        if reading >= MUCH and not (top.stage == HEADERS and top.share >= MUCH):
            found.append(f"reading takes {reading:.0%} of the time: {REMEDIES[READING]}")
        elif top.share >= MUCH:
            remedy = REMEDIES.get(_kind(top.stage), "more workers share it")
            found.append(f"{top.stage} takes {top.share:.0%} of the time: {remedy}")
        else:
            found.append(f"no stage dominates ({top.stage} takes {top.share:.0%} of the time): add workers")
        return found + [self.waiting] * bool(self.waiting)

    def _of_workers(self, many: Speed) -> str:
        n, alone = self.num_workers, self.alone.per_second
        if many.epochs > 1 and many.seconds / many.epochs < LASTING * many.first_batch:
            enough = math.ceil(LASTING * many.first_batch * n * alone / 1000) * 1000
            return f"the data are too few to measure workers, as starting them takes longer; take {enough:,} utterances"
        pays = many.per_second >= ENOUGH * n * alone
        if n >= cores():
            advice = f"this machine has {plural(cores(), 'core')}" + "; compare with fewer workers" * (not pays)
        elif pays:
            advice = "add workers until the trainer no longer waits (uio.watch shows it)"
        else:
            advice = (
                "cores, storage or handing batches over are used up; compare with fewer workers, or smaller batches"
            )
        brought = f"{plural(n, 'worker')} {'gives' if n == 1 else 'give'} {many.per_second:,.0f} utterances a second"
        return f"{brought} instead of {alone:,.0f}: {advice}"


def _kind(stage: str) -> str:
    """Return the name of a stage without its place: ``read/map (number 2)`` is a map."""
    return stage.split("/")[-1].split(" (")[0]


def bench(pipeline: Pipeline, *, seconds: float = 10.0, num_workers: int = 0, seed: int = 0) -> Bench:
    """Run ``pipeline`` for about ``seconds`` in this process, with a clock on every stage; then, if ``num_workers`` is
    not 0, as long in workers, without clocks. It runs several epochs if the data are few.

    Raises: PipelineError if nothing comes out.
    """
    options: dict[str, Any] = {"seed": seed, "rank": 0, "world_size": 1, "failures": COUNTED}
    loader, spent = Loader(pipeline, **options), dict[str, int]()
    clock.start(short=0)
    try:
        alone, sizes = _run(loader, seconds, spent)
    finally:
        clock.stop()
    spent[STATE] = max(0, int(alone.seconds * 1e9) - sum(spent.values()))
    total = sum(spent.values())
    rows = [StageCost(name, took / max(1, alone.utterances) / 1e3, took / total) for name, took in spent.items()]
    rows.sort(key=lambda row: -row.share)
    many = _run(Loader(pipeline, num_workers=num_workers, **options), seconds)[0] if num_workers else None
    return Bench(rows, alone, num_workers, many, loader.stats().failures, _waiting(pipeline, sizes))


def _waiting(pipeline: Pipeline, sizes: list[tuple[int, int]]) -> str:
    """Return what ranks would lose, if each was at another place of the batches of these sizes."""
    if len(sizes) < RANKS * RANKS or any(isinstance(stage, WindowBatch) for stage in pipeline.stages):
        return ""
    padded, counts = np.array(sizes[: len(sizes) // RANKS * RANKS]).reshape(RANKS, -1, 2).transpose(2, 0, 1)
    return mend(pipeline, lost(padded), lost(padded * padded / np.maximum(1, counts)), float(padded.mean()))


def _run(loader: Loader, seconds: float, spent: dict[str, int] | None = None) -> tuple[Speed, list[tuple[int, int]]]:
    """Run ``loader``, epoch after epoch; ``spent``: takes the nanoseconds of each stage, by the clock.

    Return also the padded length and the utterances of each batch.
    """
    start = time.perf_counter()
    batches = epochs_of(loader)
    next(batches)
    first = time.perf_counter() - start
    if clock.running is not None:
        clock.running.taken()
    began, utterances, count, frames, epochs = time.perf_counter(), 0, 0, 0, 1
    before, epoch, sizes = loader.stats(), loader.epoch, list[tuple[int, int]]()
    for _ in batches:
        stats = loader.stats()
        if loader.epoch != epoch:  # its counts begin at 0
            epoch, before, epochs = loader.epoch, Stats(), epochs + 1
        utterances, frames = utterances + stats.utterances - before.utterances, frames + stats.frames - before.frames
        padded = stats.padded - before.padded or stats.padded_tokens - before.padded_tokens
        sizes.append((padded, stats.utterances - before.utterances))
        count, before = count + 1, stats
        if spent is not None and clock.running is not None:
            paused = time.perf_counter()
            clock.add_own_times(spent, clock.running.taken())
            began += time.perf_counter() - paused
        if time.perf_counter() - began >= seconds:
            break
    return Speed(utterances, count, frames / 360_000, time.perf_counter() - began, first, epochs, before.held), sizes


def epochs_of(loader: Loader) -> Iterator[Any]:
    """Yield the batches of one epoch after the other. Raises: UioError if there are none."""
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise nothing_out(loader.stats().skipped)
