"""``bench``: measures how fast a pipeline is, and how much time each stage takes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from statistics import median
from typing import Any, TypeVar

from uio_pipes.audio.length import Plan
from uio_pipes.base.errors import DataError
from uio_pipes.base.processes import cores
from uio_pipes.base.urls import counted
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
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.loader import Loader
from uio_pipes.run.no_batches import nothing_out
from uio_pipes.run.shared_memory import Ring, Writer
from uio_pipes.run.workers import PackedMessage

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


HANDED = 30  # batches whose transfer between processes is timed
ENOUGH = 0.6  # of the speed of so many processes: from there on, workers pay
ADD = "add workers until the trainer no longer waits (uio.watch shows it)"
LASTING = 5  # times as long as the start of workers: of shorter epochs, a measurement is mostly of that start
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
    utterance for the transfer from worker to trainer. ``given``: names of the pipeline's stages, "cache" if files are
    cached, "remote" or "local" by where the files are."""

    rows: list[StageCost]
    alone: Speed
    num_workers: int
    workers: Speed | None
    handed: float
    failures: int
    given: frozenset[str] = frozenset()

    @property
    def lasting(self) -> bool:
        """Whether epochs were long against the start of workers, so that their figure is that of a training."""
        many = self.workers
        return many is None or many.epochs == 1 or many.seconds / many.epochs >= LASTING * many.first_batch

    @property
    def pays(self) -> bool:
        """Whether the workers that were measured were worth it; True if none were."""
        many = self.workers
        return many is None or many.per_second >= ENOUGH * self.num_workers * self.alone.per_second

    @property
    def advice(self) -> str:
        """What the workers brought, if they were measured, and what to do about the largest cost."""
        return "; ".join(filter(None, (_of_workers(self), _of_stages(self))))


def bench(pipeline: Pipeline, *, seconds: float = 10.0, num_workers: int = 0, seed: int = 0) -> Bench:
    """Run ``pipeline`` for about ``seconds`` in this process, with a clock on every stage; then, if ``num_workers`` is
    not 0, as long in workers, without clocks. It runs several epochs if the data are few.

    Raises: PipelineError if nothing comes out.
    """
    clock = Clock()
    options: dict[str, Any] = {"seed": seed, "rank": 0, "world_size": 1, "failures": COUNTED}
    loader = Loader(timed(pipeline, clock), **options)
    kept: list[tuple[Any, int]] = []
    with headers_timed(clock):
        alone = _run(loader, seconds, clock.spent.clear, kept)
    spent = dict(clock.spent)
    spent[STATE] = max(0.0, alone.seconds - sum(spent.values()))
    total = sum(spent.values()) or 1.0
    rows = [StageCost(name, took / max(1, alone.utterances) * 1e6, took / total) for name, took in spent.items()]
    workers, handed = None, 0.0
    if num_workers:
        handed = _hand_over(kept)
        workers = _run(Loader(pipeline, num_workers=num_workers, **options), seconds, None, [])
    rows.sort(key=lambda row: -row.share)
    return Bench(rows, alone, num_workers, workers, handed, loader.stats().failures, _given(pipeline))


def _given(pipeline: Pipeline) -> frozenset[str]:
    """Return what the advice must know of a pipeline."""
    stages, files = list(pipeline._every_stage()), pipeline._files()
    lazy = all(getattr(stage, "length", None) is not None for stage in stages if stage.name == "map")
    cached = any(one.access.cache is not None for one in files)
    remote = any(len(lines := one.lines()) and is_local(lines[0]) is None for one in files)
    names = [("kept" if stage.name == "cache" else stage.name) for stage in stages]
    return frozenset([*names, "remote" if remote else "local", *["cache"] * cached, *["length"] * lazy])


def _run(loader: Loader, seconds: float, begun: Callable[[], None] | None, kept: list[tuple[Any, int]]) -> Speed:
    """Run ``loader``; ``kept`` gets the first batches, each with the number of its utterances."""
    start = time.perf_counter()
    batches = _epochs(loader)
    kept.append((next(batches), loader.stats().utterances))
    first = time.perf_counter() - start
    if begun is not None:
        begun()
    began, utterances, count, frames, epochs = time.perf_counter(), 0, 0, 0, 1
    before, epoch = loader.stats(), loader.epoch
    for batch in batches:
        stats = loader.stats()
        if loader.epoch != epoch:  # its counts begin at 0
            epoch, before, epochs = loader.epoch, Stats(), epochs + 1
        if len(kept) < HANDED:
            kept.append((batch, stats.utterances - before.utterances))
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


def _hand_over(batches: list[tuple[Any, int]]) -> float:
    """Return the microseconds per utterance of a transfer. Few batches are handed over again and again; the first
    round is not counted, as its memory is new."""
    ring, took = Ring.made(1), list[float]()
    writer = Writer(ring)
    for batch, utterances in islice(cycle(batches), len(batches) + HANDED):
        began = time.perf_counter()
        writer.begin()
        PackedMessage(Message(0, 0, 0, batch), writer).unpacked(ring, pin=False)
        took.append((time.perf_counter() - began) / max(1, utterances))
    return median(took[len(batches) :]) * 1e6


# Advice


def _of_workers(result: Bench) -> str:
    workers, n, alone = result.workers, result.num_workers, result.alone.per_second
    if workers is None or not alone:
        return ""
    if not result.lasting:
        enough = math.ceil(LASTING * workers.first_batch * n * alone / 1000) * 1000
        return (
            f"the data lasted for {workers.seconds / workers.epochs:.2f} s an epoch, too few to measure workers: "
            f"starting them is most of what was measured; {enough:,} utterances would do"
        )
    text = f"{counted(n, 'worker')} {'gives' if n == 1 else 'give'} {workers.per_second:,.0f} utterances a second"
    text += f" instead of {alone:,.0f}"
    if result.pays:
        return f"{text}: {ADD if n < cores() else f'that is one for each core of this machine ({cores()})'}"
    if result.handed * alone > 2e5:
        return f"{text}, and handing over takes {result.handed:.0f} µs an utterance: make batches smaller"
    used = f"this machine has {counted(cores(), 'core')}" if n >= cores() else "the cores or the storage are used up"
    return f"{text}: {used}; compare with fewer workers"


def _of_stages(result: Bench) -> str:
    top = result.rows[0]
    full = result.lasting and (not result.pays or result.num_workers >= cores())
    given = result.given | ({"full"} if full else set())
    share = f"{top.stage} takes {top.share:.0%} of the time"
    if top.stage == HEADERS and top.share >= 0.4:
        return f"{share}: {_remedy(HEADERS, given)}"
    reading = sum(r.share for r in result.rows if r.stage.split(": ")[-1] in SOURCES)
    if reading >= 0.4:
        return f"reading takes {reading:.0%} of the time: {_remedy(READING, given)}"
    if top.share < 0.4:
        return f"no stage dominates ({share}){'' if result.workers else f': {ADD}'}"
    return f"{share}: {_remedy(top.stage.split(': ')[-1].split(' #')[0], given)}"


def _remedy(stage: str, given: frozenset[str]) -> str:
    """Return the first remedies for what takes most, without what the pipeline has already."""
    found = [text for unless, text in _REMEDIES.get(stage, ()) if not given & set(unless.split())]
    return ", or ".join(found or ([] if "full" in given else [MORE])) or "only faster cores or fewer stages help"


MORE = "more workers share it"
# By stage: remedies, each after the words in ``given`` that make it pointless.
_REMEDIES: dict[str, tuple[tuple[str, str], ...]] = {
    HEADERS: (
        ("load_from_raw", "known lengths need no headers (uio index and from_tar_index)"),
        ("load_from_tar", "known lengths need no headers (a duration in each line of the list)"),
    ),
    READING: (
        ("load_from_tar", "pack shards (uio pack), which are read in one go"),
        ("cache local", "give the source cache=…, a folder on a local disk"),
        ("remote", "put the data on a local disk"),
        ("full", "more workers read in parallel"),
    ),
    "decode_audio": (("", "16-bit PCM wav decodes ten times as fast as compressed audio, for more disk (uio pack)"),),
    "resample": (("", "store the audio at the rate that you train with (uio pack --resample)"),),
    "speed_perturb": (("", "it resamples: fewer speeds other than 1.0 cost less"),),
    **dict.fromkeys(
        ("fbank", "mfcc", "log_mel_spectrogram"),
        (("full", MORE), ("speed_perturb", "features are stored once, if the audio is not augmented")),
    ),
    "tokenize": (("", "a slow tokenizer: store its tokens in the data"),),
    "map": (
        ("", "your own function: profile it"),
        ("length", "give it length= to be run only for what is delivered"),
        ("kept", "keep what it makes, if that is always the same: .cache(folder) behind it"),
    ),
    "flat_map": (("", "your own function: profile it"),),
    "filter": (("", "a filter's function that touches audio decodes it: filter by length or text instead"),),
    "pad": (
        ("bucket_batch", "copying padded batches: bucket_batch makes them less padded"),
        ("full", MORE),
    ),
    STATE: (("", "Loader(snapshot_every=…) takes fewer snapshots; larger batches cost less each"),),
}
