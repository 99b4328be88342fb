"""Generated journeys of an epoch under ``uneven="share"``: lanes of very unequal lengths, batches of which nothing is
left, ranks that are killed and go on as others. Each journey runs on groups of 1 to 8 real processes.

Every utterance comes exactly once, but for fewer batches than the last ranks are, which are told.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from command import ranks

import uio_pipes as uio

WORLDS = (1, 2, 3, 5, 8)  # up to as many as there are processes
BATCH = 2


# What each process does


def items(draw: random.Random, lanes: int) -> list[dict[str, Any]]:
    """Utterances of which each lane keeps a number of its own; ``bad`` ones cannot be made."""
    kept = [draw.choice([0, 1, 3, 10, 30]) for _ in range(lanes)]
    bad = draw.choice([0, 0, 0.3])
    return [
        {"key": f"{n}", "feat": np.zeros((1, 1), np.float32), "txt": "", "kept": n // lanes < kept[n % lanes]}
        | {"bad": draw.random() < bad}
        for n in range(lanes * max(kept))
    ]


def graph(rows: list[dict[str, Any]], way: str) -> uio.Pipeline:
    def check(sample: uio.Sample) -> uio.Sample:
        if sample["bad"]:
            raise ValueError("bad")
        return sample

    def source(rows: list[dict[str, Any]]) -> uio.Pipeline:
        return uio.from_iterable(rows).sharding_filter().filter(lambda sample: sample["kept"])

    found = source(rows) if way != "mix" else uio.mix({"a": source(rows[::2]), "b": source(rows[1::2])})
    if way == "shuffle":
        found = found.shuffle(7)
    return found.map(check, length="same").batch(BATCH)


def main(journeys: str, out: str) -> None:
    dist.init_process_group("gloo")
    groups = {world: dist.new_group(list(range(world))) for world in WORLDS if world <= dist.get_world_size()}
    found = [journey(random.Random(seed), groups) for seed in range(int(journeys))]
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


def journey(draw: random.Random, groups: dict[int, Any]) -> dict[str, Any]:
    lanes, way = draw.choice([1, 2, 3, 5, 9, 16]), draw.choice(["plain", "shuffle", "mix"])
    rows = items(draw, lanes)
    pipeline = graph(rows, way)
    legs = [(draw.choice([*groups]), draw.randrange(12), draw.randrange(3)) for _ in range(draw.randrange(4))]
    legs.append((draw.choice([*groups]), 1 << 30, 0))
    tail, workers = draw.choice(["drop", "repeat"]), draw.choice([0, 0, 0, 1, 2])
    options: dict[str, Any] = {"tail": tail, "lanes": lanes, "snapshot_every": draw.choice([1, 3])}
    state: dict[str, str] | None = None
    came: list[str] = []
    for world, steps, more in legs:
        report: list[Any] = [None]
        if dist.get_rank() < world:
            report = [leg(pipeline, world, groups[world], steps, more, state, options | {"num_workers": workers})]
        dist.broadcast_object_list(report, 0)
        found = report[0]
        if "error" in found:
            break
        came, state = came + found["keys"], found["state"]
        if found["ended"]:
            break
    there = [row["key"] for row in rows if row["kept"] and not row["bad"]]
    bad, out = sum(row["kept"] and row["bad"] for row in rows), sum(not row["kept"] for row in rows)
    about = {"world": world, "tail": tail, "legs": legs, "way": way, "bad": bad, "out": out}
    return {**found, "state": None, "keys": came, "there": there, **about}


def leg(
    pipeline: uio.Pipeline, world: int, group: Any, steps: int, more: int, state: Any, options: dict[str, Any]
) -> dict[str, Any]:
    """Go on for so many steps and save a state; then some ``more``, which are lost."""
    failures = uio.Failures(max_setting_share=1.0, max_damage_share=1.0)
    uneven = "share" if world > 1 else "join"
    loader = uio.Loader(pipeline, seed=3, ranks=uio.Ranks(group=group), uneven=uneven, failures=failures, **options)
    if state is not None:
        loader.load_state_dict(state)
    batches, keys, made, ended = iter(loader), list[str](), 0, False
    try:
        for _ in range(steps):
            keys += [sample["key"] for sample in next(batches)]
            made += 1
        saved, stats = uio.gather_state(loader), loader.stats()
        for _ in range(more):
            next(batches, None)
    except StopIteration:
        ended = True
        saved, stats = uio.gather_state(loader), loader.stats()
    except uio.UioError as error:
        return {"error": str(error)}
    told: list[Any] = [None] * world
    dist.all_gather_object(told, (keys, made, stats.utterances, stats.failures, stats.skipped), group=group)
    return {
        "keys": [key for one, *_ in told for key in one],
        "steps": sorted({one[1] for one in told}),
        "counts": [sum(one[2] for one in told), sum(one[3] for one in told)],
        "filtered": sum(sum(one[4].values()) - one[3] for one in told),
        "state": saved,
        "ended": ended,
        "left_out": stats.left_out,
        "delivered": stats.delivered,
    }


# What must hold


@pytest.mark.parametrize(("processes", "journeys"), [(5, 10), pytest.param(8, 80, marks=pytest.mark.slow)])
def test_every_utterance_comes_once_on_any_journey(processes: int, journeys: int, tmp_path: Path) -> None:
    done = ranks(processes, __file__, journeys, tmp_path / "out.json")
    assert done.returncode == 0, done.stderr[-3000:]
    for number, found in enumerate(json.loads((tmp_path / "out.json").read_text())):
        about = number, found["way"], found["tail"], found["legs"], found.get("error")
        came, there, last = Counter(found["keys"]), {*found["there"]}, found["world"] - 1
        assert came.keys() <= there, about
        missing, again = there - came.keys(), came.total() - len(came)
        if "error" in found:  # there was not a batch for each of the first ranks
            assert not came, about
            assert found["tail"] == "drop" or not there, about
            assert "at least as many" in found["error"], about
            continue
        assert len(missing) <= (BATCH * last if found["tail"] == "drop" else 0), about
        most = max(world for world, *_ in found["legs"]) - 1  # a step that was the last one may have been before a move
        assert again <= (BATCH * most if found["tail"] == "repeat" else 0), about
        assert len(found["steps"]) == 1 or not last, about
        assert found["counts"][0] == len(came), about
        if found["tail"] == "repeat" or not last:  # all lanes have been read to their ends
            assert (found["counts"][1], found["filtered"]) == (found["bad"], found["out"]), about
        if last:
            assert found["left_out"] == [len(missing), 0], about


if __name__ == "__main__":
    main(*sys.argv[1:])
