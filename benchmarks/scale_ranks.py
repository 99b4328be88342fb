"""Claim: with the pipelines as the README and the recipes have them, ranks that step together lose at most 3 % of their
time to the slowest one, on 8, 64 and 1,024 ranks; they share random draws and send no messages.

A simulation by plan: ranks of one lane each, whose utterances have lengths drawn from those of the corpus, twice as
long for LibriSpeech. A step takes as long as the rank with the most padded frames needs. Beside it, the loss if time
goes by frames times length, as if there was nothing but attention, and what is left of it with that as ``cost=``.
``shuffle``: the same by shuffle, sort and the usual batches. Of more ranks fewer steps are measured, which flatters
``sort``, whose ranks drift apart step by step. Of the other recipes, Whisper's batches are all of 8 × 30 s, and those
of the speech language model, which ``pack`` makes, of 3 × 256 places: ranks lose nothing by them.

Then a real run: two ranks under torchrun load the batches of both ways, and step through them by a model that
waits in place of a GPU: 8 µs for each padded frame. Each step ends with an all-reduce, in which the quicker rank waits
for the slower one. The batches are loaded before, and a wait takes as long on a busy machine, so the figures hardly
depend on what else it does: ``python -m benchmarks.scale_ranks``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import uio_pipes as uio
from benchmarks.common import Report, begin, child, median, parser, rounds, sized, spread
from benchmarks.corpus import Corpus, prepare, wav_members
from benchmarks.peers import BUDGET, SHUFFLE, SORT
from uio_pipes.core.lane import Lane, Mode, Site
from uio_pipes.core.ledger import Failures, Ledger
from uio_pipes.core.stage import Node
from uio_pipes.tools.reports.simulation import lost

MODULE = "benchmarks.scale_ranks"
RANKS = sized({8: 400, 64: 200, 1_024: 40}, {8: 20})  # and the steps of so many
LIMIT = 0.03
BYTES_PER_SECOND = 32_000
STEPS, TIMES, SECONDS = sized(120, 2), sized(8, 1), 8e-6  # of the real run: steps, the list so often, time of a frame
USUAL = 500  # frames of an utterance
CONF = Path(__file__).parents[1] / "recipes"
Graphs = dict[str, Callable[[uio.Pipeline], uio.Pipeline]]


def attention(frames: int) -> float:
    """What an encoder costs in which attention takes as much as all else at 10 s."""
    return frames + frames**2 / 1_000


def squared(frames: int) -> int:
    """What attention alone costs."""
    return frames**2


def _sorted(graph: uio.Pipeline) -> uio.Pipeline:
    return graph.shuffle(SHUFFLE).sort(SORT)


SHUFFLED: Graphs = {
    "README": lambda graph: _sorted(graph).dynamic_batch(BUDGET),
    "README, without sort": lambda graph: graph.shuffle(SHUFFLE).dynamic_batch(BUDGET),
    "AISHELL": lambda graph: _sorted(graph).batch(16),
    "LibriSpeech": lambda graph: _sorted(graph).batch(12),
    "WenetSpeech": lambda graph: graph.shuffle(5_000).sort(1_000).dynamic_batch(36_000),
}
BUCKETED: Graphs = {
    "README": lambda graph: graph.bucket_batch(max_frames=BUDGET),
    "README, cost=": lambda graph: graph.bucket_batch(max_cost=BUDGET * 3 // 2, cost=attention),
    "AISHELL": lambda graph: graph.bucket_batch(**_conf("aishell")),
    "LibriSpeech": lambda graph: graph.bucket_batch(**_conf("librispeech")),
    "WenetSpeech": lambda graph: graph.bucket_batch(**_conf("wenetspeech")),
}
SQUARED: Graphs = {
    "README": lambda graph: _by_square(graph, {"max_frames": BUDGET}),
    "AISHELL": lambda graph: _by_square(graph, _conf("aishell")),
    "LibriSpeech": lambda graph: _by_square(graph, _conf("librispeech"), 2 * USUAL),
    "WenetSpeech": lambda graph: _by_square(graph, _conf("wenetspeech")),
}
WAYS = {"shuffle": SHUFFLED, "bucket_batch": BUCKETED, "squared": SQUARED}
REAL = {  # what a step's time goes by, and the batches
    "frames": (("shuffle", "README, without sort"), ("shuffle", "README"), ("bucket_batch", "README")),
    "frames and attention": (
        ("shuffle", "README, without sort"),
        ("shuffle", "README"),
        ("bucket_batch", "README, cost="),
    ),
}


def _conf(recipe: str) -> dict[str, int]:
    from recipes.common.config import Config

    batch = Config.load(CONF / recipe / "conf" / "full.yaml").data.batch
    assert batch.type == "bucket"
    return {"max_frames": batch.max_frames, "window": batch.window}


def _by_square(graph: uio.Pipeline, conf: dict[str, int], usual: int = USUAL) -> uio.Pipeline:
    return graph.bucket_batch(max_cost=conf.pop("max_frames") * usual, cost=squared, **conf)


def measure(data: str, when: str, way: str, law: str = "") -> dict[str, Any]:
    """Plan for many ranks; or run two whose steps take time by a ``law``, of which this process may be one."""
    corpus = prepare(Path(data), tar_only=True)
    if not law:
        return _planned(corpus, when, way)
    if "LOCAL_RANK" in os.environ:
        return _rank(corpus, when, way, law)
    job = json.dumps({"data": data, "when": when, "way": way, "law": law})
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--local-ranks-filter=0"]
    command = [sys.executable, *torchrun, "-m", MODULE, "--child", job]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


class _Drawn(Node):
    """Gives utterances at random, without end."""

    def __init__(self, utterances: list[uio.Sample], seed: int) -> None:
        super().__init__()
        self.utterances, self.draw = utterances, random.Random(seed)

    def next(self) -> uio.Sample:
        return self.draw.choice(self.utterances)


def _planned(corpus: Corpus, when: str, way: str) -> dict[str, Any]:
    """Return what so many ranks lose, by their number."""
    longer, mode = 2 if way == "LibriSpeech" else 1, Mode(skimming=True, saved=False)
    items = [
        {"key": str(i), "wav": f"{i}.wav", "txt": "x" * int(3 * seconds), "duration": longer * seconds}
        for i, seconds in enumerate(_durations(corpus))
    ]
    front = _labelled(uio.from_raw_list(items))
    source = front.build(Lane(Ledger(Failures()), mode=mode))
    source.reset(None)
    utterances = [source.next() for _ in items]
    frames = {id(one): one.plan.length for one in utterances}
    stages = WAYS[when][way](front).stages[len(front.stages) :]
    each, found = list[list[tuple[int, int, int]]](), dict[str, Any]()
    for rank in range(max(RANKS)):  # fewer ranks make more steps
        lane, node = Lane(Ledger(Failures()), rank, max(RANKS), mode=mode), _Drawn(utterances, rank)
        for stage in stages:
            node = stage.build(node, lane, Site(stage.name, 0))
        node.reset(None)
        steps = next(steps for ranks, steps in RANKS.items() if rank < ranks)
        lengths = [[frames[id(one)] for one in node.next()] for _ in range(steps)]
        each.append([(len(batch), max(batch), sum(batch)) for batch in lengths])
    for ranks, steps in RANKS.items():
        counts, longest, total = np.array([rank[:steps] for rank in each[:ranks]], float).transpose(2, 0, 1)
        padded = counts * longest
        found[str(ranks)] = {
            "lost": lost(padded),
            "squared": lost(padded * longest),
            "cost": lost(padded * (1 + longest / 1_000)),
            "padding": float(1 - total.sum() / padded.sum()),
            "steps": steps,
        }
    return found


def _codes(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def _labelled(source: uio.Pipeline) -> uio.Pipeline:
    return source.decode_audio().fbank(num_mel_bins=80).tokenize(_codes)


def _durations(corpus: Corpus) -> list[float]:
    shards = corpus.shards("tar")
    return [(member.size - 44) / BYTES_PER_SECOND for shard in shards for member in wav_members(shard)]


def _rank(corpus: Corpus, when: str, way: str, law: str) -> dict[str, Any]:
    """Step together with another rank, and return what both found."""
    dist.init_process_group("gloo")
    shards = uio.from_shard_list(corpus.shards("tar") * TIMES, shuffle=True)
    loader = uio.Loader(WAYS[when][way](_labelled(shards)).pad(), seed=777)
    shapes = [batch["feats"].shape for batch, _ in zip(loader, range(STEPS), strict=False)]
    one, steps = torch.ones(1), list[tuple[float, float, float]]()
    dist.all_reduce(one)  # both have begun
    for count, longest, _ in shapes:
        takes = SECONDS * count * (attention(longest) if law == "frames and attention" else longest)
        asked = time.perf_counter()
        time.sleep(takes)
        slept = time.perf_counter()
        dist.all_reduce(one)
        steps.append((takes, slept - asked, time.perf_counter() - slept))
    found: list[Any] = [None] * 2
    dist.all_gather_object(found, (steps, sum(count for count, _, _ in shapes)))
    dist.destroy_process_group()
    takes, slept, waited = np.array([steps for steps, _ in found]).transpose(2, 0, 1)
    wall = (slept + waited).sum()
    return {
        "waited": waited.sum() / wall,
        "lost": lost(takes),
        "speed": 2 * sum(heard for _, heard in found) / wall,
        "late": (slept - takes).sum() / wall,
        "step_ms": 1e3 * takes.mean(),
    }


def _simulated(arguments: Any, report: Report) -> None:
    jobs = [(when, way) for when, ways in WAYS.items() for way in ways]
    with ThreadPoolExecutor(os.cpu_count()) as several:
        ran = several.map(lambda job: child(MODULE, data=arguments.data, when=job[0], way=job[1]), jobs)
        planned = dict(zip(jobs, ran, strict=True))
    rows, worst = [], 0.0
    for when, way in (job for job in jobs if job[0] != "squared"):
        for ranks in RANKS:
            found = planned[when, way][str(ranks)]
            held = found["cost" if "cost=" in way else "lost"]
            worst = max(worst, held if when == "bucket_batch" else 0.0)
            other = planned["squared", way][str(ranks)] if when == "bucket_batch" and way in SQUARED else {}
            by_cost = other.get("squared")
            shares = [found["lost"], found["squared"], by_cost, found["cost"], found["padding"]]
            told = ["" if share is None else f"{100 * share:.2f} %" for share in shares]
            rows.append([f"{when}: {way}, {ranks:,} ranks", *told, str(found["steps"])])
    columns = ["pipeline, ranks", "lost to the slowest", "frames × length", "the same, as cost="]
    columns += ["frames + frames × length / 1,000", "padding", "steps"]
    report.table("Of all frames, by plan", columns, rows, plot=[1, 2])
    told = f"{100 * worst:.2f} % at most (of what cost= says, where it is given)"
    report.target("at most 3 % lost, 8 to 1,024 ranks", worst <= LIMIT, told)


def _real(arguments: Any, report: Report) -> None:
    rows = []
    for law, ways in list(REAL.items())[: sized(len(REAL), 1)]:
        jobs = {f"{when}: {way}": {"when": when, "way": way, "law": law} for when, way in ways}
        found = report.ran(rounds(MODULE, jobs, arguments.repeats, data=arguments.data))
        for name, ran in found.items():
            shares = [f"{100 * median(ran, field):.1f} %" for field in ("waited", "lost", "late")]
            rows.append([f"{law}; {name}", spread(ran, "speed", ".0f"), *shares, f"{median(ran, 'step_ms'):.0f}"])
        speeds = [median(found.get(name, []), "speed") for name in jobs]
        gains = f"{speeds[2] / speeds[1]:.2f} × with sort, {speeds[2] / speeds[0]:.2f} × without"
        report.target(f"time by {law}: more utterances a second than by shuffle", speeds[2] > max(speeds[:2]), gains)
    columns = ["time goes by; batches", "utterances a second", "waiting for the other", "by the steps' own times"]
    columns += ["steps took too long by", "step, ms"]
    report.table(f"Two ranks, {STEPS} steps", columns, rows, plot=[1])


def main() -> None:
    """Simulate all, let two ranks step together, and write results/scale_ranks.md."""
    arguments = begin(measure, parser(__doc__, repeats=3))
    prepare(arguments.data, tar_only=True)
    report = Report("scale_ranks", "Ranks that step together: time lost to the slowest")
    _simulated(arguments, report)
    _real(arguments, report)
    report.write()


if __name__ == "__main__":
    main()
