"""Ranks that are killed while they share what is left of an epoch (``uneven="share"``): between two batches, or while
others wait for them. The others end with an error, and states that were saved before go on exactly."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch.distributed as dist
from processes import launch

import uio_pipes as uio
from uio_pipes.base.processes import end_with_parent
from uio_pipes.run import epoch_run

SIZES = {"one long": [20, 3, 6], "most long": [2, 16, 2, 1, 5], "fewer than ranks": [14, 5]}
BATCH = 1
STEP = 0.01  # seconds that a step takes
LONG = 40.0  # seconds within which all must have ended; they would wait for half an hour

Line = dict[str, Any]  # of a rank: "keys" of a batch and its "state" after it, or what it ended with


# What each rank does


def graph(path: str) -> uio.Pipeline:
    return uio.from_shard_list(path, shuffle=True).decode_audio().fbank(8).shuffle(5).batch(BATCH).pad()


def rank(
    path: str, out: Path, number: int, state: dict[str, str] | None, kill: tuple[str, int] | None, workers: int
) -> None:
    """Write down each batch with the state after it. ``kill``: where this rank is killed, and after how many batches,
    or of how many times that ranks share."""

    def die(where: str) -> None:
        nonlocal kill
        if kill is not None and kill[0] == where:
            kill = where, kill[1] - 1
            if not kill[1]:
                os.kill(os.getpid(), signal.SIGKILL)

    def gathered(*arguments: Any, tell: Any = epoch_run.all_gathered) -> Any:
        die("deals")
        told = tell(*arguments)
        die("dealt")
        return told

    epoch_run.all_gathered = gathered
    with out.open("a") as file:

        def note(**line: Any) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        try:
            dist.init_process_group("gloo")
            loader = uio.Loader(graph(path), seed=3, num_workers=workers)
            if state is not None:
                loader.load_state_dict(state)
            for batch in loader:
                note(keys=list(batch["keys"]), state=loader.state_dict())
                time.sleep(STEP)
                die("batch")
            note(left_out=loader.stats().left_out[0])
            dist.destroy_process_group()
        except Exception as error:
            note(error=f"{type(error).__name__}: {error}", state=loader.state_dict())


@contextlib.contextmanager
def started(world: int, folder: Path, *arguments: Any) -> Iterator[list[int]]:
    """Processes of so many ranks, forks of this one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(world)}
    pids = []
    for number in range(world):
        if not (pid := os.fork()):
            end_with_parent()
            os.environ["RANK"] = str(number)
            path, state, victim, kill, workers = arguments
            rank(path, folder / f"{number}", number, state, kill if number == victim else None, workers)
            os._exit(0)
        pids.append(pid)
    try:
        yield pids
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def lines(folder: Path, world: int) -> list[list[Line]]:
    """What they have written down, but for a line that is not complete."""
    files = [folder / f"{number}" for number in range(world)]
    texts = [file.read_text() if file.exists() else "" for file in files]
    return [[json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()] for text in texts]


def ended(pids: list[int]) -> bool:
    """Whether all of these ended in time."""
    until = time.monotonic() + LONG
    while any(map(runs, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(runs, pids))


def runs(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):  # it has been waited for
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    return False


def killed(draw: random.Random, path: str, folder: Path) -> dict[str, Any]:
    """An epoch in which a rank is killed, and those that go on from what was saved."""
    world, workers = draw.choice([2, 3, 5]), draw.choice([0, 0, 1])
    victim, where = draw.randrange(world), draw.choice(["batch", "stopped", "deals", "dealt"])
    at = draw.randrange(1, 8 if where in ("batch", "stopped") else 3)
    found: dict[str, Any] = {"about": [world, workers, victim, where, at]}
    folder.mkdir()
    with started(world, folder, path, None, victim, (where, at), workers) as pids:
        while where == "stopped" and len(lines(folder, world)[victim]) < at and runs(pids[victim]):
            time.sleep(0.005)
        if where == "stopped" and runs(pids[victim]):
            os.kill(pids[victim], signal.SIGSTOP)
            time.sleep(0.5)
            os.kill(pids[victim], signal.SIGKILL)
        found["ended"] = ended(pids)
    told = lines(folder, world)
    found["came"] = sum("left_out" in line for line in told[victim])
    found["errors"] = [told[one][-1].get("error") for one in range(world) if one != victim]
    batches = [[line for line in one if "keys" in line] for one in told]
    found["steps"] = [len(one) for one in batches]
    common = min(found["steps"])
    ways = {"common": (batches, [common] * world), "last": (batches, found["steps"])}
    ways["survivors"] = ([one for number, one in enumerate(batches) if number != victim], [common] * (world - 1))
    for way, (given, steps) in ways.items():
        if common:
            states = [one[step - 1]["state"] for one, step in zip(given, steps, strict=True)]
            before = [
                key
                for one, step in zip(batches, [*steps, common], strict=False)
                for line in one[:step]
                for key in line["keys"]
            ]
            found[way] = resumed(draw.choice([world, 2, 4]), path, folder / way, states, before)
    return found


def resumed(world: int, path: str, folder: Path, states: list[Any], before: list[str]) -> dict[str, Any]:
    """What all ranks get that go on from states."""
    folder.mkdir()
    try:
        state = uio.merge_states(states)
    except uio.StateError as error:
        return {"error": str(error)}
    errors: list[str] = []
    with started(world, folder, path, state, None, None, 0) as pids:
        until = time.monotonic() + 3 * LONG
        while any(map(runs, pids)) and not errors:  # torchrun ends the others of a rank that fails, too
            time.sleep(0.05)
            errors = ["it hangs"] if time.monotonic() > until else []
            errors += [line["error"] for one in lines(folder, world) for line in one if "error" in line]
    told = lines(folder, world)
    keys = before + [key for one in told for line in one for key in line.get("keys", ())]
    return {"error": errors[0] if errors else "", "keys": keys, "world": world}


def main(lists: str, folder: str, out: str, first: str, count: str) -> None:
    paths = json.loads(lists)
    found = []
    for seed in range(int(first), int(first) + int(count)):
        draw = random.Random(seed)
        name = draw.choice(sorted(paths))
        found.append({"name": name, **killed(draw, paths[name], Path(folder, str(seed)))})
    Path(out).write_text(json.dumps(found))


# What must hold


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_others_end_with_an_error_and_saved_states_go_on(tmp_path: Path) -> None:
    made = {name: corpus.shards(tmp_path / name, sizes, seconds=(0.1, 0.2)) for name, sizes in SIZES.items()}
    lists = json.dumps({name: str(one.list) for name, one in made.items()})
    (tmp_path / "runs").mkdir()
    launch([__file__, lists, str(tmp_path / "runs"), str(tmp_path / "out.json"), "0", "8"], timeout=1_200)
    for found in json.loads((tmp_path / "out.json").read_text()):
        about = found["name"], found["about"], found["steps"]
        assert found["ended"], about
        if not found["came"]:
            for error in found["errors"]:
                assert re.search(r"RuntimeError: rank \d waited for ranks? .*: the connection is lost, since", error), (
                    about
                )
        for way in ("common", "last", "survivors") if min(found["steps"]) else ():
            check(way, found[way], made[found["name"]].keys, about)


def check(way: str, resumed: dict[str, Any], there: Sequence[str], about: Any) -> None:
    if resumed["error"]:  # of one step all is known, unless lanes went with the rank that was killed
        wanted = {
            "last": "pass the last states that all of them have of one step",
            "survivors": "that rank .* are not in it",
        }
        assert re.search(wanted.get(way, "nothing"), resumed["error"]), (about, way, resumed["error"])
        return
    came = Counter(resumed["keys"])
    assert came.keys() <= {*there}, about
    assert max(came.values()) == 1, (about, way)
    assert len(there) - len(came) <= BATCH * (resumed["world"] - 1), (about, way)


if __name__ == "__main__":
    main(*sys.argv[1:])
