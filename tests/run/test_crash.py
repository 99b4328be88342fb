"""Real ranks, real SIGKILL. Run as a script, this file is the trainer; as a test, it kills the trainer and compares.

The trainer keeps a log of what it has been given. Log and loader state are saved together, atomically, every few
steps, so what a crashed run has done is what its last checkpoint says.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from command import ranks
from contract import digest, keys_of
from journeys import small
from processes import children, environment

import uio_pipes as uio

Log = list[tuple[str, list[str]]]  # digest and keys of each batch
LANES = 12
SETTINGS: dict[str, Any] = {
    "workers": 2,
    "uneven": "stop",
    "every": 3,  # steps between two checkpoints
    "kill": "",  # whom: "rank", "worker" or "everything"
    "at": -1,  # before which step
    "world": 2,
    "mode": "train",
}


def pipeline(path: str) -> uio.Pipeline:
    return small(path).batch(2).pad()


# The trainer


def main() -> None:
    """The script that torchrun starts on each rank: settings as JSON in the first argument."""
    settings = json.loads(sys.argv[1])
    dist.init_process_group("gloo")
    {"train": train, "uneven": uneven, "dcp_save": dcp_save, "dcp_load": dcp_load}[settings["mode"]](settings)
    dist.destroy_process_group()


def make_loader(settings: dict[str, Any], **options: Any) -> uio.Loader:
    given = {"seed": 3, "num_workers": settings["workers"], "lanes": LANES, "uneven": settings["uneven"], **options}
    return uio.Loader(pipeline(settings["list"]), **given)


def train(settings: dict[str, Any]) -> None:
    folder, rank = Path(settings["folder"]), dist.get_rank()
    loader = make_loader(settings)
    loader.set_epoch(0)
    log: Log = []
    saved = read_checkpoint(folder)
    if saved is not None:
        loader.load_state_dict(saved)
        log = json.loads((folder / f"log{rank}.json").read_text()) if settings["uneven"] == "stop" else []
    for step, batch in enumerate(loader):
        if step == settings["at"]:
            die(settings["kill"], rank, folder, settings["uneven"] == "join")
        log.append((digest(batch), keys_of(batch)))
        if (step + 1) % settings["every"] == 0:
            save_checkpoint(folder, loader, log, settings["uneven"])
    write(folder / f"done{rank}.json", json.dumps(log))


def save_checkpoint(folder: Path, loader: uio.Loader, log: Log, uneven: str) -> None:
    """Under ``stop`` one file of all ranks; under ``join`` one of each rank, whenever it likes."""
    if uneven == "join":
        write(folder / f"rank{dist.get_rank()}.json", json.dumps({"loader": loader.state_dict(), "log": log}))
        return
    state = uio.gather_state(loader)
    logs: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(log, logs)
    if state is not None:
        write(folder / "all.json", json.dumps({"loader": state, "logs": logs}))


def read_checkpoint(folder: Path) -> dict[str, str] | None:
    """Return the state that ``take_stock`` left for a resumed run."""
    path = folder / "resume.json"
    return json.loads(path.read_text()) if path.exists() else None


def die(whom: str, rank: int, folder: Path, join: bool) -> None:
    """Rank 1 dies, or its worker; or it asks the test to kill everything."""
    if rank != 1:
        return
    if whom == "rank":
        for other in range(dist.get_world_size() if join else 0):
            while not (folder / f"rank{other}.json").exists():  # ranks that join go each at its own pace
                time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    elif whom == "worker":
        os.kill(min(children()), signal.SIGKILL)
        time.sleep(1)  # until the news arrives; the test does not depend on when
    else:
        write(folder / "kill_me", "")
        signal.pause()


def uneven(settings: dict[str, Any]) -> None:
    """Epochs of which rank 1 has little: whole, and stopped after some steps and gone on with in another loader.

    ``test_epoch_end.py`` has all that holds for such ends.
    """
    report: dict[str, Any] = {}
    for way, steps in (("stop", 1), ("share", 5), ("join", 0)):
        whole, first, other = (
            uio.Loader(pipeline(settings["list"]), seed=3, lanes=2, num_workers=settings["workers"], uneven=way)
            for _ in range(3)
        )
        epoch = [keys_of(batch) for batch in whole]
        if way == "join":
            with pytest.raises(uio.StateError, match="merge_states"):
                uio.gather_state(whole)
            continue
        batches = iter(first)
        got = [keys_of(next(batches)) for _ in range(steps)]
        states = [uio.gather_state(first)]
        del batches
        assert (states[0] is None) == (dist.get_rank() != 0)
        dist.broadcast_object_list(states)
        other.load_state_dict(states[0])
        report[way] = [epoch, got + [keys_of(batch) for batch in other]]
    write(Path(settings["folder"]) / f"uneven{dist.get_rank()}.json", json.dumps(report))


def dcp_save(settings: dict[str, Any]) -> None:
    loader = make_loader(settings)
    batches = iter(loader)
    log = [(digest(b), keys_of(b)) for _, b in zip(range(settings["at"]), batches, strict=False)]
    dcp.save({"loader": loader}, checkpoint_id=settings["folder"] + "/dcp")
    del batches
    write(Path(settings["folder"]) / f"before{dist.get_rank()}.json", json.dumps(log))


def dcp_load(settings: dict[str, Any]) -> None:
    folder, rank = Path(settings["folder"]), dist.get_rank()
    loader = make_loader(settings, uneven="join")
    dcp.load({"loader": loader}, checkpoint_id=settings["folder"] + "/dcp")
    log = [(digest(b), keys_of(b)) for b in loader]
    refused = []
    for lanes in (LANES // 2, LANES * 2):
        other = make_loader(settings, uneven="join", lanes=lanes)
        try:
            dcp.load({"loader": other}, checkpoint_id=settings["folder"] + "/dcp")
        except BaseException as error:
            refused.append(f"{type(error).__name__}: {error}")
        else:
            refused.append("loaded")
    write(folder / f"after{rank}.json", json.dumps({"log": log, "refused": refused}))


# Processes


def write(path: Path, text: str) -> None:
    """All of the file or nothing."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def family(pid: int) -> list[int]:
    """``pid`` and all that descends from it."""
    return [pid, *(p for child in children(of=pid) for p in family(child))]


def run(settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run this file on the ranks."""
    given = {**SETTINGS, **settings}
    return ranks(given["world"], __file__, json.dumps(given))


def killed_torchrun(settings: dict[str, Any], log: Path) -> int:
    """Run this file by torchrun; the exit status. Kills everything when the run asks for it."""
    given = {**SETTINGS, **settings}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(given["world"])]
    env = environment(OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    marker = Path(given["folder"]) / "kill_me"
    with log.open("w") as file:
        run = subprocess.Popen([*command, __file__, json.dumps(given)], env=env, stdout=file, stderr=subprocess.STDOUT)
        try:
            while run.poll() is None:
                if marker.exists():
                    marker.unlink()
                    for pid in family(run.pid):
                        os.kill(pid, signal.SIGKILL)
                try:
                    return run.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
            return run.returncode
        finally:
            if run.poll() is None:
                for pid in family(run.pid):
                    os.kill(pid, signal.SIGKILL)
                run.wait()


def finished(folder: Path, world: int) -> list[Log]:
    return [[(d, k) for d, k in json.loads((folder / f"done{r}.json").read_text())] for r in range(world)]


# The tests


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> corpus.Corpus:
    """Every lane gets 2 shards of 3 utterances, so ranks end together and ``stop`` leaves nothing out."""
    return corpus.shards(tmp_path_factory.mktemp("crash"), [3] * 24, seconds=(0.3, 0.5))


def undisturbed(path: Path, world: int) -> list[Log]:
    """Run each rank in this process, undisturbed; return the batches of each."""
    logs = []
    for rank in range(world):
        loader = uio.Loader(
            pipeline(str(path)), seed=3, lanes=LANES, rank=rank, world_size=world, num_workers=0, uneven="join"
        )
        logs.append([(digest(b), keys_of(b)) for b in loader])
    return logs


@pytest.mark.parametrize(("whom", "workers"), [("rank", 2), ("worker", 3), ("everything", 0)])
def test_resumed_from_its_last_checkpoint_after_sigkill(
    shards: corpus.Corpus, tmp_path: Path, whom: str, workers: int
) -> None:
    expected = undisturbed(shards.list, 2)
    # What a worker had made before it died is still delivered; if that is all there is, its death is no error.
    at = SETTINGS["every"] + 1 if whom == "worker" else random.Random(whom).randint(4, len(expected[0]) - 2)
    settings = {"list": str(shards.list), "folder": str(tmp_path), "kill": whom, "at": at}
    if whom == "everything":
        assert killed_torchrun(settings, tmp_path / "crash.log") != 0, (tmp_path / "crash.log").read_text()
    else:
        assert run(settings).returncode != 0
    saved = json.loads((tmp_path / "all.json").read_text())
    done = at - at % SETTINGS["every"]
    first, second = (len(log) for log in saved["logs"])
    assert first == second >= done
    assert first == done or whom == "worker"
    write(tmp_path / "resume.json", json.dumps(saved["loader"]))
    for rank, log in enumerate(saved["logs"]):
        write(tmp_path / f"log{rank}.json", json.dumps(log))
    settings = {"list": str(shards.list), "folder": str(tmp_path), "workers": workers}
    done = run(settings)
    assert done.returncode == 0, done.stderr
    logs = finished(tmp_path, 2)
    assert logs == expected
    assert Counter(k for log in logs for _, keys in log for k in keys) == Counter(shards.keys)


def test_join_resumes_from_the_files_of_each_rank_on_other_ranks(shards: corpus.Corpus, tmp_path: Path) -> None:
    settings = {"list": str(shards.list), "folder": str(tmp_path), "uneven": "join", "kill": "rank", "at": 8}
    assert run(settings).returncode != 0
    saved = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("rank*.json"))]
    assert len(saved) == 2
    write(tmp_path / "resume.json", json.dumps(uio.merge_states([s["loader"] for s in saved])))
    before = [(d, k) for s in saved for d, k in s["log"]]
    settings = {"list": str(shards.list), "folder": str(tmp_path), "uneven": "join", "world": 3, "workers": 1}
    done = run(settings)
    assert done.returncode == 0, done.stderr
    after = [entry for log in finished(tmp_path, 3) for entry in log]
    expected = [entry for log in undisturbed(shards.list, 1) for entry in log]
    assert sorted(before + after) == sorted(expected)
    assert Counter(k for _, keys in before + after for k in keys) == Counter(shards.keys)


def test_uneven_epochs_resume(tmp_path: Path) -> None:
    """Rank 0 has 30 utterances in three shards, rank 1 six."""
    made = corpus.shards(tmp_path / "a", [10, 2, 10, 2, 10, 2], seconds=(0.3, 0.5))
    done = run({"list": str(made.list), "folder": str(tmp_path), "mode": "uneven"})
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        report = json.loads((tmp_path / f"uneven{rank}.json").read_text())
        assert 1 < len(report["stop"][0]) < len(report["share"][0])
        assert all(resumed == epoch for epoch, resumed in report.values())


def test_distributed_checkpoint_of_four_ranks_loads_on_three(shards: corpus.Corpus, tmp_path: Path) -> None:
    settings = {"list": str(shards.list), "folder": str(tmp_path), "workers": 0, "at": 4}
    for world, mode in ((4, "dcp_save"), (3, "dcp_load")):
        done = run({**settings, "world": world, "mode": mode})
        assert done.returncode == 0, done.stderr
    before = [entry for r in range(4) for entry in json.loads((tmp_path / f"before{r}.json").read_text())]
    reports = [json.loads((tmp_path / f"after{r}.json").read_text()) for r in range(3)]
    entries = [(d, k) for d, k in before + [entry for report in reports for entry in report["log"]]]
    expected = [entry for log in undisturbed(shards.list, 1) for entry in log]
    assert len(before) == 16
    assert sorted(entries) == sorted(expected)
    for report in reports:
        fewer, more = report["refused"]
        assert f"Loader(lanes={LANES})" in fewer
        assert "lane_0000" in more


if __name__ == "__main__":
    main()
