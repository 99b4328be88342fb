"""The time of each step of an utterance: from tar to a padded batch of fbank with dither, spec-augment, shuffle and
sort; and from tar to padded waveforms.

The functions that do the work are timed in a real epoch, each without the other timed functions that it calls, and
without what timing them costs. Beside it, the way of a batch from a worker is timed. Written as a table and as
results/profile.svg: ``python -m benchmarks.profile``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, parser, rounds, spread
from benchmarks.corpus import Corpus, prepare

MODULE = "benchmarks.profile"
SEED = 777
HANDED = 40  # batches
REST = "order: shuffle, sort, batch, chain, state"
HAND = "hand-over from a worker (with workers)"
PARTS = {  # shown from the file to the batch
    "tar headers, checksums, names": ["uio_pipes.formats.tar.reader:TarReader.next"],
    "reading from the page cache": ["uio_pipes.io.local:LocalFile.read_upto"],
    "length from the wav header": ["uio_pipes.core.sample:measure"],
    "wav to float32": ["uio_pipes.stages.audio.decode:decoded"],
    "noise for dither": ["uio_pipes.stages.features.fbank:noise"],
    "features, by the compiled kernel": ["uio_pipes.dsp.fbank:Fbank.__call__"],
    "spec-augment": ["uio_pipes.stages.features.frames:SpecAug.apply"],
    "pad": ["uio_pipes.stages.batches.pad:_Batch.add", "uio_pipes.stages.batches.pad:_Batch.made"],
}


class Clock:
    """Seconds by part. The time of a part that another one calls counts only once, there.

    ``inside``, ``outside``: what one call costs beyond the function, of which the clock sees the first part only;
    ``own``: both, of all calls.
    """

    def __init__(self, inside: float = 0.0, outside: float = 0.0) -> None:
        self.inside, self.outside, self.own = inside, outside, 0.0
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]

    @classmethod
    def calibrated(cls, calls: int = 100_000) -> Clock:
        """Return a clock that knows what it costs."""
        clock = cls()
        nothing = clock.timed("", lambda: None)
        began = time.thread_time()
        for _ in range(calls):
            nothing()
        took = time.thread_time() - began
        return cls(clock.seconds[""] / calls, (took - clock.seconds[""]) / calls)

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` wrapped so that its own time is added to ``part``."""

        @functools.wraps(function)
        def run(*arguments: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                took = time.thread_time() - began
                self.seconds[part] = self.seconds.get(part, 0.0) + took - self.inside - self._inner.pop()
                self._inner[-1] += took + self.outside
                self.own += self.inside + self.outside

        return run


def measure(data: str, features: bool) -> dict[str, Any]:
    """Measure the microseconds per utterance, by part; ``total`` is measured before, without the clock."""
    corpus = prepare(Path(data))
    _epoch(corpus, features)
    total = _epoch(corpus, features)
    clock = Clock.calibrated()
    for part, places in PARTS.items():
        for place in places:
            _patch(place, lambda function, part=part: clock.timed(part, function))
    clocked = _epoch(corpus, features)
    parts = {part: clock.seconds.get(part, 0.0) for part in PARTS}
    parts[REST] = clocked - clock.own - sum(parts.values())
    found = {part: seconds / corpus.utterances * 1e6 for part, seconds in parts.items()}
    hand = _handed(list(islice(_loader(corpus, features), HANDED))) * 1e6
    return {**found, HAND: hand, "total": total / corpus.utterances * 1e6, "clocked": clocked / corpus.utterances * 1e6}


def _patch(place: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    from importlib import import_module

    module, _, path = place.partition(":")
    owner: Any = import_module(module)
    *names, last = path.split(".")
    for name in names:
        owner = getattr(owner, name)
    setattr(owner, last, change(getattr(owner, last)))


def _loader(corpus: Corpus, features: bool) -> Any:
    import uio_pipes as uio
    from benchmarks.peers import uio as ours

    source = uio.from_shard_list(corpus.list("tar"), shuffle=True)
    return uio.Loader(ours.features(source) if features else ours.batched(source.decode_audio()), seed=SEED)


def _epoch(corpus: Corpus, features: bool) -> float:
    """Return the CPU seconds of an epoch in this process. Of its batches none is held, so that their memory is used
    again, as in training."""
    loader, began = _loader(corpus, features), time.process_time()
    for _ in loader:
        pass
    return time.process_time() - began


def _handed(batches: list[Any]) -> float:
    """Return the CPU seconds per utterance to pack and unpack its batch, both sides."""
    from uio_pipes.run.lane_runner import Message
    from uio_pipes.run.shared_memory import Ring, Writer
    from uio_pipes.run.workers import PackedMessage

    ring = Ring.made(2)
    writer = Writer(ring)
    took, utterances = 0.0, 0
    for batch in batches:
        began = time.process_time()
        writer.begin()
        PackedMessage(Message(0, 0, 0, batch=dict(batch)), writer).unpacked(ring, False)
        took += time.process_time() - began
        utterances += len(batch["keys"])
    return took / utterances


def main() -> None:
    """Measure, and write results/profile.md and results/profile.svg."""
    arguments = begin(measure, parser(__doc__, repeats=5))
    corpus = prepare(arguments.data)
    report = Report("profile", "Where each microsecond of an utterance goes")
    each = corpus.seconds / corpus.utterances
    report.text(f"{corpus.utterances:,} utterances of {each:.1f} s on average, one process, CPU time, third epoch.")
    jobs = {"features": {"features": True}, "waveforms": {"features": False}}
    found = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data))
    rows = [[part, *(spread(runs, part, ".1f") for runs in found.values())] for part in (*PARTS, REST)]
    report.table("Microseconds an utterance", ["part", *found], rows, plot=range(1, 1 + len(found)))
    rows = [["sum, with the clock's own cost", *(spread(runs, "clocked", ".0f") for runs in found.values())]]
    rows.append(["an epoch without the clock", *(spread(runs, "total", ".0f") for runs in found.values())])
    rows.append([HAND, *(spread(runs, HAND, ".1f") for runs in found.values())])
    report.table("All of them", ["", *found], rows)
    report.write()


if __name__ == "__main__":
    main()
