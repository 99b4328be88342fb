"""``bench``: measures how fast a pipeline is, and how much time each stage takes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.base.urls import counted
from uio_pipes.core import sample as samples
from uio_pipes.core.capabilities import with_branches
from uio_pipes.core.graph import Graph
from uio_pipes.core.roles import Op, Wrapped
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage
from uio_pipes.core.statistics import Stats
from uio_pipes.inspect.peek import Clock, Tap
from uio_pipes.io.local import Ref
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.loader import Loader
from uio_pipes.run.no_batches import nothing_out
from uio_pipes.run.shared_memory import Ring, Writer
from uio_pipes.run.workers import PackedMessage
from uio_pipes.stages.utterances.map import Map

READING = "reading audio"
HEADERS = "reading headers"
G = TypeVar("G", bound=Graph)


def timed(graph: G, clock: Clock, within: str = "") -> G:
    """Return ``graph`` with a ``clock`` on every stage; it gives the same batches."""
    stages: list[Stage] = []
    for stage, site in graph._sites():
        name = within + site.name + (f" #{site.ordinal + 1}" if site.ordinal else "")
        stage = with_branches(stage, lambda key, graph: timed(graph, clock, f"{within}{key}: "))
        deferred = stage.deferred() if isinstance(stage, (Op, Map)) else None
        stages += (
            [stage, Tap(partial(_TimingNode, label=name, clock=clock))]
            if deferred is None
            else [_TimedStage(deferred, name, clock)]
        )
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


@dataclass(frozen=True)
class _TimedStage(Wrapped):
    label: str
    clock: Clock

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        return self.clock.time(self.label, self.inner.plan, plan, sample, draws)

    def apply(self, sample: Sample, draws: Draws) -> None:
        if "wav" in self.reads:
            self.clock.time(READING, _read, sample)
        self.clock.time(self.label, self.inner.apply, sample, draws)


def _read(sample: Sample) -> None:
    """Read the audio's bytes before they are decoded; a file's go to the system's cache."""
    wav = sample.fields.get("wav")
    if isinstance(wav, Ref):
        sample.fields["wav"] = wav.read()
    elif isinstance(wav, str) and is_local(wav) is not None:
        try:
            with open_binary(wav) as file:
                file.read()
        except (DataError, OSError):
            return  # the stage reports it


class _TimingNode(Node):
    """Times the stage before it, without what is timed in the stages before that."""

    def __init__(self, source: Node, label: str, clock: Clock) -> None:
        super().__init__(source)
        self.label, self.clock = label, clock

    def next(self) -> Any:
        return self.clock.time(self.label, self.source.next)

    def skip(self, n: int) -> None:
        self.clock.time(self.label, self.source.skip, n)


HANDED = 30  # batches whose transfer between processes is timed
FEW = 3  # epochs: in more of them, a measurement with workers is mostly of their start
STATE = "state, order"
SOURCES = ("load_from_tar", "open_files", "load_records", "load_from_raw", "list_files", READING, HEADERS)


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

    @property
    def per_second(self) -> float:
        return self.utterances / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Bench:
    """The result: speed in one process (``alone``) and with ``num_workers`` workers. ``handed``: microseconds per
    utterance for the transfer from worker to trainer."""

    rows: list[StageCost]
    alone: Speed
    num_workers: int
    workers: Speed | None
    handed: float
    failures: int

    @property
    def advice(self) -> str:
        return _advice(self)


def bench(pipeline: Pipeline, *, seconds: float = 10.0, num_workers: int = 0, seed: int = 0) -> Bench:
    """Run ``pipeline`` for about ``seconds`` in this process, with a clock on every stage; then, if ``num_workers`` is
    not 0, as long in workers, without clocks. It runs several epochs if the data are few.

    Raises: PipelineError if nothing comes out.
    """
    clock = Clock()
    loader = Loader(timed(pipeline, clock), seed=seed, rank=0, world_size=1)
    kept: list[Any] = []
    with headers_timed(clock):
        alone = _run(loader, seconds, clock.spent.clear, kept)
    spent = dict(clock.spent)
    spent[STATE] = max(0.0, alone.seconds - sum(spent.values()))
    total = sum(spent.values()) or 1.0
    rows = [StageCost(name, took / max(1, alone.utterances) * 1e6, took / total) for name, took in spent.items()]
    workers, handed = None, 0.0
    if num_workers:
        handed = _hand_over(kept, alone.utterances / max(1, alone.batches))
        workers = _run(Loader(pipeline, seed=seed, rank=0, world_size=1, num_workers=num_workers), seconds, None, [])
    rows.sort(key=lambda row: -row.share)
    return Bench(rows, alone, num_workers, workers, handed, loader.stats().failures)


def _run(loader: Loader, seconds: float, begun: Callable[[], None] | None, kept: list[Any]) -> Speed:
    start = time.perf_counter()
    batches = _epochs(loader)
    kept.append(next(batches))
    first = time.perf_counter() - start
    if begun is not None:
        begun()
    began, utterances, count, frames, epochs = time.perf_counter(), 0, 0, 0, 1
    before, epoch = loader.stats(), loader.epoch
    for batch in batches:
        if len(kept) < HANDED:
            kept.append(batch)
        stats = loader.stats()
        if loader.epoch != epoch:  # its counts begin at 0
            epoch, before, epochs = loader.epoch, Stats(), epochs + 1
        utterances, frames = utterances + stats.utterances - before.utterances, frames + stats.frames - before.frames
        count, before = count + 1, stats
        if time.perf_counter() - began >= seconds:
            break
    return Speed(utterances, count, frames / 360_000, time.perf_counter() - began, first, epochs)


def _epochs(loader: Loader) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise nothing_out(loader.stats().skipped)


def _hand_over(batches: list[Any], utterances: float) -> float:
    ring, took = Ring.made(1), []
    writer = Writer(ring)
    for batch in batches:
        began = time.perf_counter()
        writer.begin()
        PackedMessage(Message(0, 0, 0, batch), writer).unpacked(ring, pin=False)
        took.append(time.perf_counter() - began)
    return median(took) / max(1.0, utterances) * 1e6


# Advice


def _advice(result: Bench) -> str:
    workers = result.workers
    if workers is not None and workers.epochs > FEW:
        return (
            f"the data lasted for {workers.seconds / workers.epochs:.2f} s an epoch, so that starting workers is most "
            "of what was measured: bench on a longer list"
        )
    if workers is not None and result.alone.per_second:
        gain = workers.per_second / result.alone.per_second
        if gain < 0.6 * result.num_workers:
            are = f"{counted(result.num_workers, 'worker')} {'is' if result.num_workers == 1 else 'are'}"
            text = f"{are} {gain:.1f} times as fast as one process"
            if result.handed * result.alone.per_second > 2e5:
                return f"{text}, and handing over takes {result.handed:.0f} µs an utterance: make batches smaller"
            return f"{text}: the cores or the storage are used up; compare with fewer workers, and look at the top row"
    top = result.rows[0]
    share = f"{top.stage}: {top.share:.0%} of the time"
    if top.stage == HEADERS and top.share >= 0.4:
        return f"{share}; {_REMEDIES[HEADERS]}"
    reading = sum(r.share for r in result.rows if r.stage.split(": ")[-1] in SOURCES)
    if reading >= 0.4:
        return (
            f"reading takes {reading:.0%} of the time: put the shards on a local disk, or give from_shard_list(…, "
            "cache=…) a folder there; for raw lists pack shards (uio pack); more workers read in parallel"
        )
    if top.share < 0.4:
        return f"no stage dominates ({share}): add workers until the trainer no longer waits (uio.watch shows it)"
    return f"{share}; {_REMEDIES.get(top.stage.split(': ')[-1].split(' #')[0], 'more workers share it')}"


_REMEDIES = {
    HEADERS: "known lengths need no headers: uio index and from_tar_index, or a duration in the raw list",
    "decode_audio": "16-bit PCM wav decodes ten times as fast as compressed audio, for more disk (uio pack)",
    "resample": "store the audio at the rate that you train with (uio pack --resample)",
    "speed_perturb": "it resamples: fewer speeds other than 1.0 cost less, or add workers",
    **dict.fromkeys(
        ("fbank", "mfcc", "log_mel_spectrogram"), "add workers; or store features once, if you do not augment the audio"
    ),
    "tokenize": "a slow tokenizer: store its tokens in the data, or add workers",
    "map": "your own function: profile it, or give it length= to be run only for what is delivered",
    "flat_map": "your own function: profile it",
    "filter": "a filter's function that touches audio decodes it: filter by length or text instead",
    "pad": "copying padded batches: sort or bucket_batch makes them less padded",
    STATE: "Loader(snapshot_every=…) takes fewer snapshots; larger batches cost less each",
}
