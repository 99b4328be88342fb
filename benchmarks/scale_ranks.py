"""Claim: with ``bucket_batch(window=1500, sync=True)`` ranks that step together lose at most 3 % of their time to the
slowest one; they share a random draw and send no messages.

A simulation by plan, like ``uio simulate``: 8 to 64 ranks of one lane each, 4,000 utterances a rank, whose lengths are
drawn from those of the corpus. A step takes as long as the rank with most padded frames needs. Beside it, the loss if
time goes by frames times length, as in attention: ``python -m benchmarks.scale_ranks``.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, begin, child, parser, sized
from benchmarks.corpus import Corpus, prepare, wav_members
from benchmarks.peers import BUDGET, SHUFFLE, SORT

MODULE = "benchmarks.scale_ranks"
RANKS = sized((8, 16, 32, 64), (8,))
EACH = sized(4_000, 200)  # utterances of a rank
WAYS = {
    "bucket_batch(window=1500, sync=True)": "sync",
    "bucket_batch(window=1500)": "window",
    "shuffle(1500) + sort(500) + dynamic_batch": "sorted",
}
LIMIT = 0.03
BYTES_PER_SECOND = 32_000


def measure(data: str, way: str, ranks: int) -> dict[str, Any]:
    """Plan one epoch."""
    import uio_pipes as uio
    from uio_pipes.tools.reports.simulate import simulate

    durations, draw = _durations(prepare(Path(data))), random.Random(ranks)
    items = [
        {"key": str(i), "wav": f"{i}.wav", "txt": "", "duration": draw.choice(durations)} for i in range(EACH * ranks)
    ]
    source = uio.from_raw_list(items, shuffle=True).decode_audio().fbank(num_mel_bins=80)
    graph = {
        "sync": lambda: source.bucket_batch(max_frames=BUDGET, window=SHUFFLE, sync=True),
        "window": lambda: source.bucket_batch(max_frames=BUDGET, window=SHUFFLE),
        "sorted": lambda: source.shuffle(SHUFFLE).sort(SORT).dynamic_batch(BUDGET),
    }[way]()
    found = simulate(graph, world_size=ranks, uneven="stop")
    padded, counts = np.array(found.padded), np.array(found.counts)
    return {
        "lost": _lost(padded),
        "squared": _lost(padded * (padded / counts)),
        "padding": found.padding_ratio,
        "left_out": 1 - found.utterances / len(items),
        "steps": found.steps[0],
    }


def _lost(costs: Any) -> float:
    """Return the share of the time that ranks wait for the slowest; ``costs``: (ranks, steps)."""
    return 1 - float(costs.mean(axis=0).sum() / costs.max(axis=0).sum())


def _durations(corpus: Corpus) -> list[float]:
    shards = corpus.shards("tar")
    return [(member.size - 44) / BYTES_PER_SECOND for shard in shards for member in wav_members(shard)]


def main() -> None:
    """Simulate all and write results/scale_ranks.md."""
    arguments = begin(measure, parser(__doc__, repeats=1))
    prepare(arguments.data)
    report = Report("scale_ranks", "Ranks that step together: time lost to the slowest")
    rows, worst = [], 0.0
    for name, way in WAYS.items():
        for ranks in RANKS:
            found = child(MODULE, data=arguments.data, way=way, ranks=ranks)
            worst = max(worst, found["lost"] if way == "sync" else 0.0)
            shares = [f"{100 * found[what]:.2f} %" for what in ("lost", "squared", "padding", "left_out")]
            rows.append([f"{ranks} ranks, {name}", *shares, str(found["steps"])])
    lost = ["lost to the slowest", "the same, frames × length"]
    report.table("Of all frames", ["ranks", *lost, "padding", "behind the common end", "steps"], rows, plot=[1, 2, 3])
    report.target("sync: at most 3 % lost, 8 to 64 ranks", worst <= LIMIT, f"{100 * worst:.2f} % at most")
    report.write()


if __name__ == "__main__":
    main()
