"""Claim: at the randomness of a 1,500 shuffle, ``bucket_batch(max_frames=12_000)`` pads at most 3 %, and
``pack(max_frames=12_000)`` nothing.

Compared with ``shuffle`` + ``sort`` + ``dynamic_batch`` and with Lhotse's sampler with 10 buckets, on the same files
with the same budget of 12,000 padded frames. Nothing is decoded: lengths come from headers. Shards are read in the
order of the list, so that an utterance is moved only by the buffers: ``python -m benchmarks.padding``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import Report, begin, child, parser
from benchmarks.corpus import Corpus, prepare
from benchmarks.peers import BUDGET, SHUFFLE, SORT

MODULE = "benchmarks.padding"
LIMIT = 3.0  # %
SEED = 777
TIMES = (1, 8)  # how often the files are listed: the ends of an epoch pad more, and count less in a long one
WAYS = {
    "bucket_batch(max_frames=12_000)": "window",
    "shuffle(1500) + sort(500) + dynamic_batch": "sorted",
    "shuffle(1500) + bucket_batch, 10 buckets found": "buckets",
    "Lhotse, DynamicBucketingSampler, 10 buckets": "lhotse",
    "shuffle(1500) + pack(max_frames=12_000)": "packed",
    "the same, multiple_of=8, fixed=True": "fixed",
}
SHUFFLED = "shuffle(1500) alone, batches as they come"
WAYS[SHUFFLED] = "shuffled"


class Length(NamedTuple):
    """An utterance in a batch: its frames, and its place in the order of reading."""

    frames: int
    place: int


def measure(data: str, way: str, times: int) -> dict[str, Any]:
    """Measure padding and order of one epoch."""
    corpus = prepare(Path(data))
    made = _lhotse(corpus, times) if way == "lhotse" else _uio(corpus, way, times)
    batches, sizes = zip(*made, strict=True)
    real = sum(item.frames for batch in batches for item in batch)
    out = [item.place for batch in batches for item in batch]
    moved = [place - at for at, place in enumerate(out)]
    means = [statistics.fmean(item.frames for item in batch) for batch in batches]
    return {
        "padding": 100 * (1 - real / sum(sizes)),
        "batches": len(batches),
        "over": sum(size > BUDGET for size in sizes),
        "whole": sorted(out) == list(range(len(out))),
        "moved": statistics.pstdev(moved),
        "next": statistics.correlation(means[:-1], means[1:]),
        "spread": statistics.pstdev(means) / statistics.fmean(means),
    }


Batches = Iterator[tuple[list[Length], int]]  # with its frames, padding included


def _uio(corpus: Corpus, way: str, times: int) -> Batches:
    import uio_pipes as uio
    from uio_pipes.core.lane import Lane, Mode
    from uio_pipes.core.ledger import Ledger

    def run(graph: uio.Pipeline) -> Any:
        node = graph.build(Lane(Ledger(), seed=SEED, mode=Mode(skimming=True)))
        node.reset(None)
        return node

    shards = corpus.shards("tar") * times
    places = {sample.origin: at for at, sample in enumerate(run(uio.from_shard_list(shards)))}
    source = uio.from_shard_list(shards).decode_audio().fbank(num_mel_bins=80)
    graphs = {
        "window": lambda: source.bucket_batch(max_frames=BUDGET),
        "sorted": lambda: source.shuffle(SHUFFLE).sort(SORT).dynamic_batch(BUDGET),
        "buckets": lambda: source.shuffle(SHUFFLE).bucket_batch(max_frames=BUDGET, num_buckets=10),
        "shuffled": lambda: source.shuffle(SHUFFLE).dynamic_batch(BUDGET),
        "packed": lambda: source.shuffle(SHUFFLE).pack(max_frames=BUDGET),
        "fixed": lambda: source.shuffle(SHUFFLE).pack(max_frames=BUDGET, multiple_of=8, fixed=True),
    }
    graph = graphs[way]()
    for batch in run(graph):
        lengths = [Length(sample.plan.length, places[sample.origin]) for sample in batch]
        yield lengths, graph.stages[-1].padded([one.frames for one in lengths], batch)


def _lhotse(corpus: Corpus, times: int) -> Batches:
    from lhotse import CutSet
    from lhotse.dataset import DynamicBucketingSampler

    cuts = CutSet.from_shar(in_dir=corpus.shar("tar"))
    places = {cut.id: at for at, cut in enumerate(cuts)}
    passes: dict[str, int] = {}
    sampler = DynamicBucketingSampler(
        cuts.repeat(times, preserve_id=True),
        max_duration=BUDGET / 100,
        num_buckets=10,
        shuffle=True,
        buffer_size=SHUFFLE + SORT,
        num_cuts_for_bins_estimate=SHUFFLE,
        seed=SEED,
        rank=0,
        world_size=1,
    )
    for batch in sampler:
        lengths = []
        for cut in batch:
            turn = passes[cut.id] = passes.get(cut.id, -1) + 1
            frames = 1 + (cut.num_samples - 400) // 160
            lengths.append(Length(frames, places[cut.id] + turn * len(places)))
        yield lengths, len(lengths) * max(lengths).frames


def main() -> None:
    """Measure all and write results/padding.md."""
    arguments = begin(measure, parser(__doc__, repeats=1))
    corpus = prepare(arguments.data)
    report = Report("padding", "Padding at the randomness of a 1,500 shuffle")
    report.text(f"{corpus.utterances:,} utterances in 6 shards; {BUDGET:,} padded frames a batch; lengths in frames.")
    for times in TIMES:
        found = {name: child(MODULE, data=arguments.data, way=way, times=times) for name, way in WAYS.items()}
        for name in [name for name, one in found.items() if "error" in one]:
            report.text(f"- {name} did not run: {found.pop(name)['error']}")
        rows = [
            [
                name,
                f"{one['padding']:.2f} %",
                f"{one['batches']:,}",
                str(one["over"]),
                "yes" if one["whole"] else "NO",
                f"{one['moved']:,.0f}",
                f"{one['next']:+.2f}",
                f"{one['spread']:.2f}",
            ]
            for name, one in found.items()
        ]
        columns = ["way", "padding", "batches", "over budget", "all, once", "moved", "next alike", "between"]
        report.table(f"{corpus.utterances * times:,} utterances", columns, rows, plot=[1])
        window, shuffled = found["bucket_batch(max_frames=12_000)"], found[SHUFFLED]
        padding = (
            f"{window['padding']:.2f} %, with utterances moved by {window['moved']:,.0f} and {shuffled['moved']:,.0f}"
        )
        claim = f"{corpus.utterances * times:,} utterances: at most {LIMIT:.0f} %, moved as by shuffle(1500)"
        report.target(claim, window["padding"] <= LIMIT and window["moved"] >= 0.9 * shuffled["moved"], padding)
        packed = found["shuffle(1500) + pack(max_frames=12_000)"]["padding"]
        report.target(f"{corpus.utterances * times:,} utterances: no padding, packed", packed == 0, f"{packed:.2f} %")
    report.text(
        "moved: standard deviation of how far, in utterances, one came from its place in the order of reading; next "
        "alike: correlation of the mean lengths of successive batches (0: no order left); between: standard deviation "
        "of batches' mean lengths over their mean (batches of equal lengths differ from each other by nature)."
    )
    report.write()


if __name__ == "__main__":
    main()
