"""Claims: an utterance is planned and packed in 60 µs; packed batches come 3 times as fast as Lhotse's bucketed ones.
Packed audio comes as fast as padded batches.

Planning: 100,000 rows in NeMo's form, shuffled, each with its tokens, packed into rows of 2,048 places (four frames and
a token are one place each), windows of 2,000 and 20,000 utterances. Batches: the shards of ``throughput``, fbank with
dither and spec-augment, shuffled, packed into rows of tokens, or as audio without padding; against Lhotse's dynamic
buckets with features on the fly, and against our padded batches: ``python -m benchmarks.packing``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, median, parser, ratio, rounds, spread
from benchmarks.corpus import Corpus, prepare
from benchmarks.manifests import ROWS, rows
from benchmarks.peers import BUDGET, DITHER, MELS, SHUFFLE, Work, batches_of

MODULE = "benchmarks.packing"
PLACES, WINDOWS = 2_048, (2_000, 20_000)
MOST, TIMES = 60.0, 3.0
FILLED = {2_000: 98.0, 20_000: 99.0}  # per cent
OURS, THEIRS = "uio_pipes, packed", "Lhotse, dynamic buckets"
AUDIO, PADDED = "uio_pipes, pack(max_frames=12_000)", "uio_pipes, bucket_batch(max_frames=12_000)"


def code_points(text: str) -> list[int]:
    """Return the tokens of a text, one a character."""
    return list(map(ord, text))


def words(text: str) -> list[int]:
    """Return the tokens of a text, one a word."""
    return list(map(len, text.split()))


def places(lengths: Any) -> int:
    """Return how many places an utterance takes in a row."""
    return int(lengths.frames // 4 + lengths.tokens)


def measure(data: str, **what: Any) -> dict[str, Any]:
    """Plan an epoch with this window, or make its batches."""
    return _planned(rows(Path(data)), **what) if "window" in what else _made(prepare(Path(data)), **what)


def _planned(manifest: Path, window: int) -> dict[str, Any]:
    import uio_pipes as uio
    from uio_pipes.run.planning import plan_lanes

    graph = uio.from_nemo(manifest, shuffle=True).decode_audio().tokenize(words)
    began = time.process_time()
    (plan,) = plan_lanes(graph.pack(PLACES, window=window, length=places), 1, 0, 0)
    took = time.process_time() - began
    assert sum(plan.counts) == ROWS
    return {"us": took / ROWS * 1e6, "fill": 100 * sum(plan.frames[:-1]) / max(1, sum(plan.padded[:-1]))}


def _made(corpus: Corpus, way: str) -> dict[str, Any]:
    run = MAKERS[way]()
    began, cpu = time.perf_counter(), time.process_time()
    seen = sum(run(corpus))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"speed": corpus.seconds / took, "cpu_speed": corpus.seconds / cpu, "utterances": seen}


def _ours(batches: Callable[[Any], Any]) -> Callable[[Corpus], Iterator[int]]:
    import uio_pipes as uio

    import_module("uio_pipes.api")

    def run(corpus: Corpus) -> Iterator[int]:
        graph = uio.from_shard_list(corpus.list("tar"), shuffle=True).decode_audio().tokenize(code_points)
        graph = graph.fbank(num_mel_bins=MELS, dither=DITHER).spec_aug()
        for batch in uio.Loader(batches(graph), seed=777):
            yield len(batch["keys"])

    return run


def _theirs() -> Callable[[Corpus], Iterator[int]]:
    batches = batches_of("lhotse_shar.batches")
    return lambda corpus: (len(batch.keys) for batch in batches(Work(corpus, 777)))


MAKERS = {
    OURS: lambda: _ours(lambda graph: graph.shuffle(SHUFFLE).pack(BUDGET // 3, window=SHUFFLE, length=places)),
    AUDIO: lambda: _ours(lambda graph: graph.shuffle(SHUFFLE).pack(max_frames=BUDGET)),
    PADDED: lambda: _ours(lambda graph: graph.bucket_batch(max_frames=BUDGET).pad()),
    THEIRS: _theirs,
}


def main() -> None:
    """Measure all and write results/packing.md."""
    arguments = begin(measure, parser(__doc__, 3))
    rows(arguments.data)
    prepare(arguments.data)
    report = Report("packing", "Rows of tokens")
    planned = rounds(MODULE, {f"{w:,}": {"window": w} for w in WINDOWS}, arguments.repeats, data=arguments.data)
    table = [[name, spread(one, "us", ".1f"), spread(one, "fill", ".2f")] for name, one in planned.items()]
    report.table(f"Planning {ROWS:,} utterances", ["window", "µs of CPU for each", "% filled"], table)
    made = report.ran(rounds(MODULE, {name: {"way": name} for name in MAKERS}, arguments.repeats, data=arguments.data))
    table = [[name, *(spread(one, field, ",.0f") for field in ("speed", "cpu_speed"))] for name, one in made.items()]
    report.table("Batches", ["", "seconds of audio a second", "a CPU second"], table, plot=[2])
    for window in WINDOWS:
        one = planned[f"{window:,}"]
        us, fill = median(one, "us"), median(one, "fill")
        report.target(f"at most {MOST:.0f} µs, window {window:,}", us <= MOST, f"{us:.1f} µs")
        report.target(
            f"at least {FILLED[window]:.0f} % filled, window {window:,}", fill >= FILLED[window], f"{fill:.2f} %"
        )
    if {AUDIO, PADDED} <= made.keys():
        speeds = median(made[AUDIO], "cpu_speed"), median(made[PADDED], "cpu_speed")
        report.target("packed audio 0.95 × as fast as padded", speeds[0] >= 0.95 * speeds[1], ratio(*speeds))
    if {OURS, THEIRS} <= made.keys():
        speeds = median(made[OURS], "cpu_speed"), median(made[THEIRS], "cpu_speed")
        report.target(
            f"packed batches {TIMES:.0f} × as fast as Lhotse's", speeds[0] >= TIMES * speeds[1], ratio(*speeds)
        )
    report.write()


if __name__ == "__main__":
    main()
