"""``bench``: measures how fast a pipeline is, and how much time each stage takes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import DataError
from uio_pipes.base.processes import cores
from uio_pipes.base.urls import plural
from uio_pipes.core import sample as samples
from uio_pipes.core.capabilities import with_branches
from uio_pipes.core.chain import Link
from uio_pipes.core.graph import Graph
from uio_pipes.core.ledger import COUNTED
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Deferred, Node, Stage
from uio_pipes.core.statistics import Stats
from uio_pipes.inspect.peek import Clock, Tap
from uio_pipes.io.local import Ref
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.empty_epochs import nothing_out
from uio_pipes.run.loader import Loader
from uio_pipes.stages.batches.window import WindowBatch
from uio_pipes.tools.reports.waiting import lost, mend

READING = "reading audio"
HEADERS = "reading headers"
G = TypeVar("G", bound=Graph)


def timed(graph: G, clock: Clock, within: str = "") -> G:
    """Return ``graph`` with a ``clock`` on every stage; it gives the same batches."""
    stages: list[Stage] = []
    for stage, site in graph._sites():
        name = within + site.name + (f" #{site.ordinal + 1}" if site.ordinal else "")
        stage = with_branches(stage, lambda key, graph: timed(graph, clock, f"{within}{key}: "))
        stages += [stage, Tap(partial(_timed_node, label=name, clock=clock))]
    return type(graph)(tuple(stages))


@contextlib.contextmanager
def headers_timed(clock: Clock) -> Iterator[None]:
    """Count the reading of headers by itself, instead of for the stage that happens to ask for a length first."""
    measure = vars(samples)["measure"]
    setattr(samples, "measure", partial(clock.time, HEADERS, measure))  # noqa: B010
    try:
        yield
    finally:
        setattr(samples, "measure", measure)  # noqa: B010


def _timed_node(source: Node, label: str, clock: Clock) -> Node:
    """Time the stage that ``source`` runs: what it defers, where it only does that."""
    if not isinstance(source, Deferred):
        return _TimingNode(source, label, clock)
    source.link = _TimedLink(source.link, label, clock)
    return source


class _TimedLink:
    """A link in place of another one, which it times; reading its audio has a time of its own."""

    def __init__(self, link: Link, label: str, clock: Clock) -> None:
        self.link, self.label, self.clock = link, label, clock
        self.name, self.of, self.reads, self.writes = link.name, link.of, link.reads, link.writes
        self.takes_pcm = getattr(link, "takes_pcm", False)

    def plan(self, plan: Plan | None, sample: Sample) -> Plan | None:
        return self.clock.time(self.label, self.link.plan, plan, sample)

    def apply(self, sample: Sample) -> None:
        audio = self.of or "wav"
        if audio in self.reads and audio in sample.fields:
            self.clock.time(READING, _read, sample.fields, audio)
        self.clock.time(self.label, self.link.apply, sample)


def _read(fields: dict[str, Any], name: str) -> None:
    """Read the bytes of one or several recordings before they are decoded; a file's go to the system's cache."""
    audio = fields[name]
    fields[name] = [_fetched(one) for one in audio] if isinstance(audio, list) else _fetched(audio)


def _fetched(audio: Any) -> Any:
    if isinstance(audio, Ref):
        return audio.read()
    if isinstance(audio, str) and is_local(audio) is not None:
        with contextlib.suppress(DataError, OSError), open_binary(audio) as file:  # the stage reports it
            file.read()
    return audio


class _TimingNode(Node):
    """Times the stage before it, without what is timed in the stages before that."""

    def __init__(self, source: Node, label: str, clock: Clock) -> None:
        super().__init__(source)
        self.label, self.clock = label, clock

    def next(self) -> Any:
        return self.clock.time(self.label, self.source.next)

    def skip(self, n: int) -> None:
        self.clock.time(self.label, self.source.skip, n)


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
        reading = sum(row.share for row in self.rows if row.stage.split(": ")[-1] in SOURCES)
        if self.workers is not None:
            found.append(self._of_workers(self.workers))
        if reading >= MUCH and not (top.stage == HEADERS and top.share >= MUCH):
            found.append(f"reading takes {reading:.0%} of the time: {REMEDIES[READING]}")
        elif top.share >= MUCH:
            remedy = REMEDIES.get(top.stage.split(": ")[-1].split(" #")[0], "more workers share it")
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


def bench(pipeline: Pipeline, *, seconds: float = 10.0, num_workers: int = 0, seed: int = 0) -> Bench:
    """Run ``pipeline`` for about ``seconds`` in this process, with a clock on every stage; then, if ``num_workers`` is
    not 0, as long in workers, without clocks. It runs several epochs if the data are few.

    Raises: PipelineError if nothing comes out.
    """
    clock = Clock()
    options: dict[str, Any] = {"seed": seed, "rank": 0, "world_size": 1, "failures": COUNTED}
    loader = Loader(timed(pipeline, clock), **options)
    with headers_timed(clock):
        alone, sizes = _run(loader, seconds, clock.spent.clear)
    spent = dict(clock.spent)
    spent[STATE] = max(0.0, alone.seconds - sum(spent.values()))
    total = sum(spent.values())
    rows = [StageCost(name, took / max(1, alone.utterances) * 1e6, took / total) for name, took in spent.items()]
    rows.sort(key=lambda row: -row.share)
    many = _run(Loader(pipeline, num_workers=num_workers, **options), seconds)[0] if num_workers else None
    return Bench(rows, alone, num_workers, many, loader.stats().failures, _waiting(pipeline, sizes))


def _waiting(pipeline: Pipeline, sizes: list[tuple[int, int]]) -> str:
    """Return what ranks would lose, if each was at another place of the batches of these sizes."""
    if len(sizes) < RANKS * RANKS or any(isinstance(stage, WindowBatch) for stage in pipeline.stages):
        return ""
    padded, counts = np.array(sizes[: len(sizes) // RANKS * RANKS]).reshape(RANKS, -1, 2).transpose(2, 0, 1)
    return mend(pipeline, lost(padded), lost(padded * padded / np.maximum(1, counts)), float(padded.mean()))


def _run(loader: Loader, seconds: float, begun: Callable[[], object] = int) -> tuple[Speed, list[tuple[int, int]]]:
    """Run ``loader``, epoch after epoch; ``begun`` is called after its first batch.

    Return also the padded length and the utterances of each batch.
    """
    start = time.perf_counter()
    batches = _epochs(loader)
    next(batches)
    first = time.perf_counter() - start
    begun()
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
        if time.perf_counter() - began >= seconds:
            break
    return Speed(utterances, count, frames / 360_000, time.perf_counter() - began, first, epochs, before.held), sizes


def _epochs(loader: Loader) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise nothing_out(loader.stats().skipped)
