"""Journeys of an epoch whose mix changes on the way, by ``reweight`` and by edited graphs, between kills and moves.

``python tests/helpers/edits.py 1000 --seed 1`` makes random ones and prints how many differ. What is due comes from
loaders of single lanes that are never stopped, get each change at the batch where the journey had it, and know all
sources from the beginning.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1]))  # as a script

from contract import digest
from journeys import TOPOLOGIES, begun, command, in_processes

import uio_pipes as uio

LANES = 8
SHARDS = [2, 3, 1, 2] * 5  # utterances of each
Weights = dict[str, float]
Change = tuple[int, Weights]  # the batch of a lane with which it comes, and the new weights


class Segment(NamedTuple):
    """Steps of a leg, and the weights after them (None: as before)."""

    steps: int | None
    weights: Weights | None


class Leg(NamedTuple):
    """A start on other ranks: with an edited mix (None: as before), and killed ``beyond`` batches after its state."""

    topology: tuple[int, int]
    adopted: Weights | None
    segments: list[Segment]
    beyond: int
    snapshot_every: int


def mixed(path: Path, weights: Weights, follows: bool, stop: Any) -> uio.Pipeline:
    """All kinds of randomness and buffers, behind a mix; if it ``follows``, with bounds and a budget by step."""
    sources = {name: uio.from_shard_list(path, shuffle=True).tag({"kind": name}) for name in weights}
    features = uio.mix(sources, weights, stop=stop).decode_audio().speed_perturb().fbank(num_mel_bins=8, dither=0.1)
    if follows:
        kept = features.filter(max_frames=uio.by_step({0: 70.0, 3: 10_240.0}))
        return kept.shuffle(4).sort(3).dynamic_batch(uio.by_step({0: 150, 6: 300})).pad()
    return features.shuffle(4).sort(3).dynamic_batch(150).pad()


class Expected:
    """What is due: the rest of each lane with the changes so far, and how much of it has been taken."""

    def __init__(self, graph: uio.Pipeline, ranks: int) -> None:
        self.graph, self.ranks = graph, ranks
        self.changes: list[list[Change]] = [[] for _ in range(LANES)]
        self.done = [0] * LANES
        self.lanes = [self._run(lane) for lane in range(LANES)]

    def _run(self, lane: int) -> list[str]:
        loader = uio.Loader(self.graph, seed=3, lanes=LANES, rank=lane, world_size=LANES, uneven="join")
        loader._progress.ranks = self.ranks  # for which steps are counted
        batches, got = iter(loader), list[str]()
        for at, weights in self.changes[lane]:
            got += [digest(next(batches)) for _ in range(at - len(got))]
            loader.reweight(weights)
        return got + [digest(batch) for batch in batches]

    def change(self, weights: Weights) -> None:
        """Let the rest of each lane have other weights."""
        for lane, changes in enumerate(self.changes):
            changes.append((self.done[lane], weights))
            self.lanes[lane] = self._run(lane)

    def take(self, rank: int, world: int, steps: int | None) -> list[str]:
        """The next batches of a rank: always the smallest (k, lane) of its lanes."""
        got: list[str] = []
        while steps is None or len(got) < steps:
            left = [(self.done[i], i) for i in range(rank, LANES, world) if self.done[i] < len(self.lanes[i])]
            if not left:
                break
            k, lane = min(left)
            got.append(self.lanes[lane][k])
            self.done[lane] += 1
        return got


def _rank(loader: uio.Loader, leg: Leg, out: Path) -> None:
    """In a process of its own: note digests and state after the segments; and be killed, or end."""
    got, batches = [], iter(loader)
    for steps, weights in leg.segments:
        here: list[str] = []
        while (steps is None or len(here) < steps) and (batch := next(batches, None)) is not None:
            here.append(digest(batch))
        got += here
        if weights is not None:
            loader.reweight(weights)
    out.write_text(json.dumps([got, loader.state_dict()]))
    if leg.beyond >= 0:
        for _ in range(leg.beyond):
            next(batches, None)
        os.kill(os.getpid(), signal.SIGKILL)


def _run(graph: uio.Pipeline, leg: Leg, state: dict[str, str] | None) -> list[Any]:
    """Run all ranks at the same time; digests and state of each."""
    options = {"lanes": LANES, "snapshot_every": leg.snapshot_every}
    options |= {"on_change": "adopt"} if leg.adopted is not None else {}
    return in_processes(
        leg.topology[0], lambda rank, out: _rank(begun(graph, leg.topology, rank, state, **options), leg, out)
    )


def _weights(rng: random.Random, names: list[str]) -> Weights:
    return {name: rng.choice([0, 1, 1, 2, 5]) for name in names[1:]} | {names[0]: rng.choice([1, 3])}


def journey(path: Path, seed: str) -> str:
    """Make one; return what differs, or nothing."""
    rng = random.Random(seed)
    follows, stop = rng.random() < 0.5, rng.choice(["all", "all", "cycle", "first"])
    names, legs, state = ["a", "b"], rng.randint(2, 5), None
    weights = _weights(rng, names)
    now = dict(weights)  # that hold, whatever the file says
    first = rng.choice(TOPOLOGIES)
    expected = Expected(mixed(path, weights | {"c": 0, "d": 0}, follows, stop), first[0])
    most = sum(map(len, expected.lanes))
    for number in range(legs):
        topology = first if number == 0 else rng.choice(TOPOLOGIES)
        adopted = None
        if number and rng.random() < 0.4:
            names += [name for name in ("c", "d") if name not in names][: rng.randint(0, 1)]
            edited = _weights(rng, names)
            adopted = edited if edited != weights else None
            now = {name: w if weights.get(name) != w else now[name] for name, w in edited.items()}
            weights = edited
        last = number == legs - 1
        cuts = [rng.randint(0, most // (3 * topology[0])) for _ in range(rng.randint(1, 3))]
        segments = [Segment(cut, _weights(rng, names) if rng.random() < 0.6 else None) for cut in cuts]
        segments += [Segment(None, None)] if last else []
        leg = Leg(topology, adopted, segments, -1 if last else rng.choice([-1, 0, 1, 5]), rng.choice([1, 1, 3]))
        order = rng.sample(names, len(names))  # of the sources in the file, which does not matter
        made = _run(
            mixed(path, {name: weights[name] for name in order} if number else weights, follows, stop), leg, state
        )
        if adopted is not None:
            expected.change(dict(now))
        due: list[list[str]] = [[] for _ in range(topology[0])]
        for steps, new in segments:
            for rank, of_rank in enumerate(due):
                of_rank += expected.take(rank, topology[0], steps)
            if new is not None:
                expected.change(new)
                now |= new
        if [got for got, _ in made] != due:
            return f"seed {seed}: leg {number} differs: {leg}"
        state = uio.merge_states([saved for _, saved in made])
    whole = expected.done == [len(lane) for lane in expected.lanes]
    return "" if whole else f"seed {seed}: the epoch is not over at its end"


def different(path: Path, count: int, seed: int) -> list[str]:
    """Make ``count`` random journeys; return what differs."""
    found = (journey(path, f"{seed}/{number}") for number in range(count))
    return [text for text in found if text]


if __name__ == "__main__":
    sys.exit(command("Random journeys with edits, kills and moves; prints how many differ.", SHARDS, different))
