"""Journeys of an epoch: stopped or killed, and on with other ranks and workers; each batch must be the one that is due.

``python tests/helpers/journeys.py 1000 --seed 1`` makes random ones and prints how many differ; ``--graph pack`` makes
them with one graph alone. Each rank is a process of its own. A leg that is killed goes on for some batches after its
state was saved, until SIGKILL. Half of the journeys are of a stream. In half of them, one lane has 1 utterance, another
11, and some have none. Legs begin by passing over some batches.
"""

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from helpers_bad import code_points

sys.path.append(str(Path(__file__).parents[1]))  # as a script

import corpus
from contract import carried, digest

import uio_pipes as uio
from uio_pipes.base.errors import ListError

Topology = tuple[int, int]  # ranks, workers of each
LANES = 16
TOPOLOGIES = [(1, 0), (1, 2), (2, 0), (2, 2), (3, 1), (4, 0), (8, 0), (5, 1)]
SHARDS = [2, 3, 1, 2] * 6  # utterances of each
UNEQUAL = [1, 11, 2, 1, 7, 1, 3]  # the same, where 9 lanes have nothing
IN_STREAM = 23  # steps of an epoch of a stream
MOST = 60  # steps of a leg of a stream, made by one rank


# Graphs


def _with_streams(sample: uio.Sample) -> uio.Sample:
    sample["prompt"], sample["question"] = sample["wav"], 2 * sample["txt"]
    return sample


def _together(lengths: uio.Lengths) -> int:
    return lengths.frames // 4 + lengths["prompt"].frames // 2 + lengths["question"].tokens + lengths.tokens


def _places(lengths: uio.Lengths) -> int:
    return lengths.frames // 4 + lengths.tokens


def small(path: Path | str, bins: int = 4) -> uio.Pipeline:
    """Features that cost little, in an order and with noise that are drawn: to be batched."""
    features = uio.from_shard_list(path, shuffle=True).decode_audio().speed_perturb([0.9, 1.0, 1.1])
    return features.fbank(num_mel_bins=bins, dither=0.1).shuffle(5)


def _features(path: Path) -> uio.Pipeline:
    """All kinds of randomness, small enough to be run many times."""
    return (
        uio.from_shard_list(path, shuffle=True)
        .decode_audio()
        .speed_perturb([0.9, 1.0, 1.1])
        .fbank(num_mel_bins=8, dither=0.1)
        .spec_aug(max_t=9, max_f=3)
        .shuffle(4)
    )


def training(path: Path) -> uio.Pipeline:
    return _features(path).sort(3).dynamic_batch(150).pad()


def three_streams(path: Path) -> uio.Pipeline:
    """Audio and text, another audio, another text, in packed rows of which some are too short for an utterance."""
    streams = uio.from_shard_list(path, shuffle=True).map(_with_streams).decode_audio().fbank(8, dither=0.1)
    streams = streams.tokenize(code_points).tokenize(code_points, of="question").decode_audio(of="prompt")
    streams = streams.speed_perturb([0.9, 1.1], of="prompt").fbank(10, dither=0.1, of="prompt").shuffle(4)
    return streams.pack(70, rows=2, window=5, overflow="alone", length=_together, keep=["txt"])


def _product(frames: int, tokens: int) -> int:
    return frames * tokens


def _labelled(path: Path) -> uio.Pipeline:
    return _features(path).tokenize(code_points)


def _of_speakers(path: Path) -> uio.Pipeline:
    """The shards as a table with speakers of 1, 1, 2, 4, 8, … utterances."""
    shards = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    members = (tarfile.TarFile(shard).getnames() for shard in shards)
    names = [name for each in members for name in each if name.endswith(".wav")]
    rows = [{"wav": name, "txt": name, "speaker": f"S{n.bit_length()}"} for n, name in enumerate(names)]
    return uio.from_table(rows, archives=shards)


GRAPHS: Mapping[str, Callable[[Path], uio.Pipeline]] = {
    "training": training,
    "three_streams": three_streams,
    "drawn": lambda path: uio.from_shard_list(path, resampled=True).decode_audio().fbank(8, dither=0.1).batch(2).pad(),
    "balanced": lambda path: (
        _of_speakers(path).balance("speaker").decode_audio().fbank(4, dither=0.1).shuffle(5).batch(3).pad()
    ),
    "classes": lambda path: (
        _of_speakers(path).decode_audio().fbank(4, dither=0.1).balanced_batch("speaker", 3, 2).pad()
    ),
    "pack": lambda path: _labelled(path).pack(40, window=4, overflow="drop", length=_places),
    "pack_audio": lambda path: _labelled(path).pack(max_frames=160, window=4, multiple_of=8, fixed=True),
    "pack_split": lambda path: uio.from_shard_list(path, shuffle=True).tokenize(code_points).pack(3, overflow="split"),
    "buckets_found": lambda path: (
        _labelled(path).bucket_batch(num_buckets=(2, 2), max_cost=900, cost=_product, max_wait=5).pad()
    ),
    "buckets_given": lambda path: (
        _labelled(path).bucket_batch([(45, 3), (45, 9), (200, 9)], [3, 2, 2], max_wait=4).pad()
    ),
}


# What is due


class Expected:
    """The undisturbed epoch, or the beginning of a stream, lane by lane, and how far each lane has come."""

    def __init__(self, pipeline: uio.Pipeline, lanes: int = LANES, stream: bool = False) -> None:
        self.lanes = [_lane(pipeline, lane, lanes, stream) for lane in range(lanes)]
        self.done = [0] * lanes

    def take(self, rank: int, world: int, steps: int | None) -> list[str]:
        """The next batches of a rank: always the smallest (pass, k, lane) of its lanes."""
        got: list[str] = []
        while steps is None or len(got) < steps:
            mine = [i for i in range(rank, len(self.lanes), world) if self.done[i] < len(self.lanes[i])]
            if not mine:
                break
            *_, lane, batch = min((*self.lanes[i][self.done[i]][0], i, self.lanes[i][self.done[i]][1]) for i in mine)
            got.append(batch)
            self.done[lane] += 1
        return got


def _lane(pipeline: uio.Pipeline, lane: int, lanes: int, stream: bool) -> list[tuple[tuple[int, int], str]]:
    """Pass and k of each batch of a lane, and its digest; of a stream as many as a journey needs."""
    most = 5 * MOST if stream else None
    place: dict[str, Any] = {"seed": 3, "lanes": lanes, "rank": lane, "world_size": lanes, "uneven": "join"}
    loader, made = uio.Loader(pipeline, steps_per_epoch=most, **place), []
    with contextlib.suppress(ListError):  # a lane without an utterance has no stream
        for batch in loader:
            at = json.loads(loader.state_dict()[f"lane_{lane:06d}"])
            made.append(((at["pass"], at["k"]), digest(batch)))
    return made


# Legs


def begun(
    pipeline: uio.Pipeline, topology: Topology, rank: int, state: dict[str, str] | None, **options: Any
) -> uio.Loader:
    """The loader of a rank, at ``state`` or at the beginning."""
    world, workers = topology
    given = {"seed": 3, "rank": rank, "world_size": world, "num_workers": workers, **options}
    loader = uio.Loader(pipeline, uneven="join", **given)
    if loader.steps_per_epoch is None:
        loader.set_epoch(0)  # a state whose epoch is over would begin the next
    if state is not None:
        loader.load_state_dict(carried(state))
    return loader


def run_ranks(
    pipeline: uio.Pipeline, topology: Topology, state: dict[str, str] | None, steps: int | None, **options: Any
) -> tuple[list[list[Any]], dict[str, str]]:
    """Run ``steps`` steps (None: to the end); return the batches of each rank, and the ranks' states merged."""
    delivered, states = [], []
    for rank in range(topology[0]):
        loader = begun(pipeline, topology, rank, state, **options)
        got, batches = [], iter(loader)
        while (steps is None or len(got) < steps) and (batch := next(batches, None)) is not None:
            got.append(batch)
        delivered.append(got)
        states.append(loader.state_dict())
        del batches
    return delivered, uio.merge_states(states)


def _rank(loader: uio.Loader, over: int, steps: int | None, beyond: int, out: Path) -> None:
    """In a process of its own: note digests and state after ``steps``, the first ``over`` of which are passed over; and
    be killed ``beyond`` batches later."""
    loader.skip(over)
    got, batches = [], chain.from_iterable(repeat(loader)) if loader.steps_per_epoch else iter(loader)
    while (steps is None or len(got) < steps) and (batch := next(batches, None)) is not None:
        got.append(digest(batch))
    out.write_text(json.dumps([got, loader.state_dict()]))
    if beyond >= 0:
        for _ in range(beyond):
            next(batches, None)
        os.kill(os.getpid(), signal.SIGKILL)


def in_processes(world: int, run: Callable[[int, Path], None]) -> list[Any]:
    """Run all ranks at the same time, each in a process of its own; what each wrote to the path that it was given."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / str(rank) for rank in range(world)]
        pids = []
        for rank, file in enumerate(files):
            if not (pid := os.fork()):
                status = 1
                try:
                    run(rank, file)
                    status = 0
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            pids.append(pid)
        for pid in pids:
            os.waitpid(pid, 0)
        return [json.loads(file.read_text()) if file.exists() else [["nothing"], None] for file in files]


def _leg(make: Callable[[int], uio.Loader], world: int, over: int, steps: int | None, beyond: int) -> list[Any]:
    """Run all ranks at the same time; digests and state of each."""
    return in_processes(world, lambda rank, out: _rank(make(rank), over, steps, beyond, out))


@cache
def _expected(name: str, path: Path, stream: bool) -> Expected:
    return Expected(GRAPHS[name](path), stream=stream)


def journey(name: str, paths: Sequence[Path], seed: str) -> str:
    """Make one; return what differs, or nothing."""
    rng = random.Random(seed)
    path, stream = rng.choice(paths), rng.random() < 0.5
    pipeline, expected = GRAPHS[name](path), _expected(name, path, stream)
    expected.done = [0] * LANES
    state, legs = None, rng.randint(2, 5)
    most = MOST if stream else sum(map(len, expected.lanes)) // 2
    for leg in range(legs):
        world, workers = topology = rng.choice([one for one in TOPOLOGIES if not stream or one[0] <= len(UNEQUAL)])
        steps = None if leg == legs - 1 and not stream else rng.randint(0, most // world)
        over = rng.choice([0, rng.randint(0, most // world)])
        over = over if steps is None or over < steps else 0  # it is due at the first batch that is taken
        beyond = rng.choice([-1, 0, 1, 5]) if steps is not None else -1
        options: dict[str, Any] = {"lanes": LANES, "snapshot_every": rng.choice([1, 1, 3])}
        options["steps_per_epoch"] = IN_STREAM if stream else None
        left = None if steps is None else steps - over
        made = _leg(lambda rank, at=state: begun(pipeline, topology, rank, at, **options), world, over, left, beyond)  # type: ignore[misc]  # noqa: B023
        if [got for got, _ in made] != [expected.take(rank, world, steps)[over:] for rank in range(world)]:
            what = f"{world} ranks with {workers} workers, {steps} steps, {over} of them passed over"
            return f"{name} of {path}{' as a stream' * stream}, seed {seed}: leg {leg} of {what}"
        state = uio.merge_states([saved for _, saved in made])
    whole = stream or expected.done == [len(lane) for lane in expected.lanes]
    return "" if whole else f"{name}, seed {seed}: the epoch is not over at its end"


def different(path: Path, count: int, seed: int, names: list[str] | None = None) -> list[str]:
    """Make ``count`` random journeys, of all graphs in turn; return what differs."""
    names = names or list(GRAPHS)
    paths = path, corpus.shards(path.parent / "unequal", UNEQUAL, seconds=(0.3, 0.8)).list
    found = (journey(names[number % len(names)], paths, f"{seed}/{number}") for number in range(count))
    return [text for text in found if text]


def command(description: str, shards: list[int], make: Callable[..., list[str]], graphs: Sequence[str] = ()) -> int:
    """Make as many journeys as the command line says; print how many differ."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    if graphs:
        parser.add_argument("--graph", action="append", choices=graphs, dest="names", help="Default: all, in turn.")
    given = vars(parser.parse_args())
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # of epochs that were over
    with tempfile.TemporaryDirectory() as folder:
        made = corpus.shards(Path(folder), shards, seconds=(0.3, 0.8))
        wrong = make(made.list, **given)
    print("\n".join([*wrong, f"{given['count']} journeys, {len(wrong)} differ"]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(command("Random journeys with kills and moves; prints how many differ.", SHARDS, different, list(GRAPHS)))
