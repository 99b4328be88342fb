"""Ranks that share what is left of an epoch (``uneven="share"``), under real process groups.

Nothing is left out but the last, incomplete step; states go on exactly, from anywhere, also on other numbers of ranks.
"""

import json
import random
import sys
from collections.abc import Callable, Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from command import ranks
from contract import timeless
from moving import Scripted
from torch.distributed.device_mesh import init_device_mesh

import uio_pipes as uio
from uio_pipes.core.ledger import Failures
from uio_pipes.run.dealing import Turns
from uio_pipes.run.epoch_end import AHEAD
from uio_pipes.run.lane_runner import LaneOptions, LaneStream, Message, Position
from uio_pipes.run.state import LaneState
from uio_pipes.run.tuning import WorkerPlan

SIZES = {"one long": [34, 7, 15], "most long": [3, 40, 2, 2, 9], "fewer than ranks": [14, 5]}
WORLDS = (2, 3, 5)
CASES: dict[str, dict[str, Any]] = {
    "drop": {},
    "workers": {"num_workers": 2, "snapshot_every": 3},
    "repeat": {"tail": "repeat"},
}
BAD = {"a lane's last": [33], "several in turn": [20, 21, 22, 25, 30], "its end": [26, 28, 29, 33]}  # of one long


# What each rank does


def graph(path: str, bad: list[str]) -> uio.Pipeline:
    def check(sample: uio.Sample) -> uio.Sample:
        if sample["key"] in bad:
            raise ValueError("bad")
        return sample

    pipeline = uio.from_shard_list(path, shuffle=not bad).decode_audio().fbank(8)
    return pipeline.map(check).batch(1).pad() if bad else pipeline.shuffle(5).batch(2).pad()


def main(given: str, out: str) -> None:
    dist.init_process_group("gloo")
    ways: dict[str, Callable[..., Any]] = {
        each.__name__: each for each in (epoch, made_by, skipped, received, checkpointed, chosen)
    }
    reports = [ways[case.pop("what", "epoch")](**case) for case in json.loads(Path(given).read_text())]
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(reports))
    dist.destroy_process_group()


def epoch(path: str, bad: list[str], options: Any, state: dict[str, str] | None = None, every: int = 0) -> Any:
    """An epoch, from a state on; what all ranks delivered, and what resuming at every so manieth step gave."""

    def loader(**more: Any) -> uio.Loader:
        failures = uio.Failures(max_setting_share=1.0) if bad else "skip"
        return uio.Loader(graph(path, bad), seed=3, failures=failures, **{**options, **more})

    running, keys, states, wrong = loader(), list[list[str]](), list[list[dict[str, str]]](), list[Any]()
    if state is not None:
        running.load_state_dict(state)
    for batch in running:
        keys.append(list(batch["keys"]))
        joined = [uio.gather_state(running)]
        dist.broadcast_object_list(joined, 0)
        states.append([running.state_dict(), joined[0] or {}])
    stats = running.stats()
    for step in range(0, len(states) if every else 0, every or 1):
        for one in states[step]:
            again = loader(num_workers=0)
            again.load_state_dict(one)
            if [list(batch["keys"]) for batch in again] != keys[step + 1 :]:
                wrong.append(step)
        if (again.stats().delivered, again.stats().left_out) != (stats.delivered, stats.left_out):
            wrong.append([step, again.stats().delivered, stats.delivered])
    counts = {"left_out": stats.left_out, "delivered": stats.delivered, "failures": stats.failures, "wrong": wrong}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {"keys": keys, **counts})
    return {"ranks": everyone, "states": [joined for _, joined in states]}


def all_of(mine: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def keys_of(batches: Iterable[Any]) -> list[list[str]]:
    return [list(batch["keys"]) for batch in batches]


def made_by(path: str) -> list[Any]:
    """What each rank delivered of a single lane, and what it has computed."""
    computed = list[str]()

    def note(sample: uio.Sample) -> uio.Sample:
        computed.append(sample["key"])
        return sample

    pipeline = uio.from_shard_list(path).decode_audio().map(note, length="same").batch(2).pad()
    loader = uio.Loader(pipeline, lanes=1)
    return all_of([[*chain(*keys_of(loader))], computed])


def skipped(path: str) -> list[Any]:
    """Where skipping differed from taking batches and throwing them away; states go on with what is to be skipped."""
    wanted, wrong = keys_of(uio.Loader(graph(path, []), seed=3)), []
    for step in range(0, len(wanted), 3):
        for what in (3, range(step + 1, step + 5), 100):
            loader, again = (uio.Loader(graph(path, []), seed=3) for _ in range(2))
            batches = iter(loader)
            before = keys_of(islice(batches, step))
            loader.skip(what)
            again.load_state_dict(loader.state_dict())
            gone = what if isinstance(what, range) else range(step, step + what)
            left = [one for at, one in enumerate(wanted) if at >= step and at not in gone]
            if not (before == wanted[:step] and keys_of(batches) == keys_of(again) == left):
                wrong.append([step, str(what)])
    return all_of(wrong)


def received(path: str) -> list[Any]:
    """Batches and states of processes that read, and of those that receive."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp"))
    notes: dict[str, list[Any]] = {"read": [], "receive": []}
    for peers, found in notes.items():
        loader = uio.Loader(graph(path, []), seed=3, ranks=uio.Ranks(mesh=mesh, data="dp", peers=peers))
        found += [[list(batch["keys"]), timeless(loader.state_dict())] for batch in loader]
        found.append(loader.stats().left_out)
    return all_of([notes["read"] == notes["receive"], len(notes["read"])])


def checkpointed(path: str, folder: str) -> list[Any]:
    """What ranks delivered before and after torch.distributed.checkpoint saved them, at each step."""
    found = []
    length = len(keys_of(uio.Loader(graph(path, []), seed=3)))
    for step in range(1, length, 3):
        loader, again = (uio.Loader(graph(path, []), seed=3) for _ in range(2))
        before = keys_of(islice(iter(loader), step))
        dcp.save({"loader": loader}, checkpoint_id=f"{folder}/{step}")
        dcp.load({"loader": again}, checkpoint_id=f"{folder}/{step}")
        found.append(all_of([*chain(*before, *keys_of(again))]))
    return found


def chosen(path: str) -> list[Any]:
    """Whether batches with numbers of workers that change are those without workers."""
    found = []
    for auto in (True, False):
        loader = uio.Loader(graph(path, []), seed=3, lanes=5, num_workers="auto" if auto else 0)
        if auto:
            loader._tuner = Scripted((WorkerPlan(1, 2), WorkerPlan(2, 1), WorkerPlan(3, 1)))
        found.append([[list(batch["keys"]), timeless(loader.state_dict())] for batch in loader])
    return all_of(found[0] == found[1])


# What must hold


def run(world: int, folder: Path, cases: list[dict[str, Any]]) -> list[Any]:
    (folder / "cases.json").write_text(json.dumps(cases))
    done = ranks(world, __file__, folder / "cases.json", folder / "out.json")
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads((folder / "out.json").read_text())
    return found


def delivered(report: Any, steps: int | None = None) -> list[str]:
    return [key for rank in report["ranks"] for batch in rank["keys"][:steps] for key in batch]


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, corpus.Corpus]:
    root = tmp_path_factory.mktemp("lists")
    return {name: corpus.shards(root / name, sizes, seconds=(0.1, 0.3)) for name, sizes in SIZES.items()}


@pytest.fixture(scope="module")
def reports(
    lists: dict[str, corpus.Corpus], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[int, str, str], Any]:
    found = {}
    for world in WORLDS:
        names = [(world, name, case) for name in SIZES for case in CASES]
        given: list[dict[str, Any]] = [
            {"path": str(lists[name].list), "bad": [], "options": CASES[case], "every": 2} for _, name, case in names
        ]
        found |= dict(zip(names, run(world, tmp_path_factory.mktemp("world"), given), strict=True))
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("world", WORLDS)
def test_every_utterance_comes_once_but_for_an_incomplete_step(
    reports: Any, lists: dict[str, corpus.Corpus], world: int, name: str, case: str
) -> None:
    report, there = reports[world, name, case], len(lists[name].keys)
    keys = delivered(report)
    assert len({len(rank["keys"]) for rank in report["ranks"]}) == 1  # steps
    assert all(not rank["wrong"] for rank in report["ranks"])  # resuming, by the rank's own state and by that of all
    left = there - len(set(keys))
    if case == "repeat":
        assert left == 0 <= len(keys) - there < 2 * world
    else:
        assert len(keys) == len(set(keys))
        assert left <= 2 * (world - 1)
    for rank in report["ranks"]:
        assert (rank["delivered"], rank["left_out"]) == (len(set(keys)), [left, 0])


@pytest.mark.parametrize("world", [2, 4])
def test_a_state_goes_on_with_other_ranks(
    reports: Any, lists: dict[str, corpus.Corpus], world: int, tmp_path: Path
) -> None:
    """Also with more ranks than lanes."""
    draws, cases, before = random.Random(world), list[dict[str, Any]](), []
    for (ranks_before, name, case), report in reports.items():
        for step in draws.sample(range(len(report["states"])), 2) if case == "drop" and ranks_before != world else ():
            state = report["states"][step]
            cases.append({"path": str(lists[name].list), "bad": [], "options": {}, "state": state})
            before.append((name, delivered(report, step + 1)))
    for (name, keys), report in zip(before, run(world, tmp_path, cases), strict=True):
        every = keys + delivered(report)
        assert len(every) == len(set(every))
        assert len(lists[name].keys) - len(every) <= 2 * (world - 1)
        assert len({len(rank["keys"]) for rank in report["ranks"]}) == 1


@pytest.mark.parametrize("world", [2, 3])
def test_a_batch_of_which_nothing_is_left_costs_nobody_a_turn(
    lists: dict[str, corpus.Corpus], world: int, tmp_path: Path
) -> None:
    keys = lists["one long"].keys
    cases = [
        {"path": str(lists["one long"].list), "bad": [keys[at] for at in bad], "options": {"tail": tail}, "every": 5}
        for bad in BAD.values()
        for tail in ("drop", "repeat")
    ]
    for case, report in zip(cases, run(world, tmp_path, cases), strict=True):
        there = {*keys} - {*case["bad"]}
        came = delivered(report)
        assert {*came} <= there
        assert len(there - {*came}) <= (0 if case["options"] == {"tail": "repeat"} else world - 1)
        failed = sum(rank["failures"] for rank in report["ranks"])  # one in a step that is left out is not known
        assert 0 <= len(case["bad"]) - failed <= (0 if case["options"] == {"tail": "repeat"} else world - 1)
        assert all(not rank["wrong"] for rank in report["ranks"])


def test_what_belongs_to_other_ranks_is_not_decoded(lists: dict[str, corpus.Corpus], tmp_path: Path) -> None:
    """And fewer lanes than ranks are shared, too."""
    ((first, *others),) = run(3, tmp_path, [{"what": "made_by", "path": str(lists["one long"].list)}])
    assert sorted(chain(*(keys for keys, _ in (first, *others)))) == sorted(lists["one long"].keys)[: 56 // 6 * 6]
    for keys, computed in others:
        assert computed[: len(keys)] == keys
        assert len(computed) <= len(keys) + 2  # of the last step, which is left out
    keys, computed = first
    assert computed[-len(keys) :] == keys or computed[-len(keys) - 2 : -2] == keys
    assert len(computed) <= len(keys) + 2 + 2 * (AHEAD + 2)  # made before it was known that others have nothing


def test_skipped_steps_are_those_of_all_ranks(lists: dict[str, corpus.Corpus], tmp_path: Path) -> None:
    assert run(3, tmp_path, [{"what": "skipped", "path": str(lists[name].list)} for name in SIZES]) == [[[]] * 3] * 3


def test_whoever_receives_batches_gets_those_of_whoever_reads(lists: dict[str, corpus.Corpus], tmp_path: Path) -> None:
    found = run(4, tmp_path, [{"what": "received", "path": str(lists[name].list)} for name in SIZES])
    assert all(same and count > 3 for report in found for same, count in report)


def test_torch_checkpoints_lose_and_repeat_nothing(lists: dict[str, corpus.Corpus], tmp_path: Path) -> None:
    cases = [{"what": "checkpointed", "path": str(lists[name].list), "folder": str(tmp_path / name)} for name in SIZES]
    for name, report in zip(SIZES, run(3, tmp_path, cases), strict=True):
        for ranks_keys in report:
            keys = [*chain(*ranks_keys)]
            assert len(keys) == len(set(keys))
            assert len(lists[name].keys) - len(keys) <= 2 * 2


def test_changing_numbers_of_workers_change_no_batch(lists: dict[str, corpus.Corpus], tmp_path: Path) -> None:
    assert run(3, tmp_path, [{"what": "chosen", "path": str(lists[name].list)} for name in SIZES]) == [[True] * 3] * 3


@pytest.mark.parametrize("lost", [[], [1, 4]])
def test_a_worker_that_begins_within_a_step_makes_the_same_batches(lists: Any, lost: list[int]) -> None:
    """As an actor of Ray does, in place of one that died."""
    pipeline = uio.from_shard_list(lists["one long"].list).decode_audio().batch(3)
    turns = Turns(1, 3, 0, frozenset(lost), False)
    options = LaneOptions(pipeline, seed=3, lanes=1, failures=Failures(), turns=turns)

    def told(messages: Iterable[Message]) -> list[Any]:
        return [(one.k, one.done, one.others, one.closes, one.batch is None) for one in messages]

    whole = told(LaneStream(options, {0: LaneState(0)}))
    assert [k for k, done, others, *_ in whole if not (done or others)][:3] == ([1, 4, 7] if not lost else [1, 2, 6])
    for taken in range(1, 12):
        position = Position(LaneState(0))
        for message in islice(LaneStream(options, {0: LaneState(0)}), taken):
            position.advance(message)
        assert told(LaneStream(options, {0: position.saved()})) == whole[taken:]


if __name__ == "__main__":
    main(*sys.argv[1:])
