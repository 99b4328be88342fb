"""``num_workers="auto"``: lanes move to other numbers of workers within an epoch, and nobody could tell."""

import json
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch.distributed as dist
from command import ranks
from contract import carried, counted, digest, keys_of, restored, timeless
from corpus import Corpus
from journeys import small
from moving import PLANS, Scripted, moving
from processes import launch

import uio_pipes as uio
from uio_pipes.base.errors import PipelineError
from uio_pipes.run import lanes as lanes_module
from uio_pipes.run.tuning import Tuner, WorkerPlan
from uio_pipes.run.workers import Worker

LANES = 4


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Uneven shards: lanes end one after the other."""
    return corpus.shards(tmp_path_factory.mktemp("auto"), [14, 9, 17, 11, 16, 8, 13, 20], seconds=(0.2, 0.6))


def training(path: Path) -> uio.Pipeline:
    return small(path).filter(min_frames=25).sort(3).dynamic_batch(90).pad()


Step = tuple[str, dict[str, str], dict[str, Any]]


def steps(loader: uio.Loader, batches: Iterator[Any] | None = None) -> list[Step]:
    """Return each batch with the state and the statistics after it, without the times waited."""
    return [(digest(b), timeless(loader.state_dict()), timeless_stats(loader)) for b in batches or loader]


def timeless_stats(loader: uio.Loader) -> dict[str, Any]:
    return {k: v for k, v in counted(loader.stats()).items() if k not in ("workers", "prefetch")}


def moves(loader: uio.Loader) -> list[WorkerPlan]:
    assert isinstance(loader._tuner, Scripted)
    return loader._tuner.followed


# Nothing changes


@pytest.mark.parametrize(("workers", "thinned"), [(0, 3), (2, 1)])
def test_batches_states_and_statistics_are_those_of_fixed_workers(shards: Corpus, workers: int, thinned: int) -> None:
    options: dict[str, Any] = {"seed": 3, "lanes": LANES, "snapshot_every": thinned}
    fixed = uio.Loader(training(shards.list), num_workers=workers, **options)
    auto = moving(training(shards.list), **options)
    for _ in range(1 + (workers == 0)):
        assert steps(auto) == steps(fixed)
    assert set(moves(auto)) == set(PLANS)


@pytest.mark.parametrize("make", [0.0, 0.004])
@pytest.mark.parametrize("work", [0.0, 0.02])
def test_whatever_the_rates_are(shards: Corpus, make: float, work: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow producers and consumers, with the real decisions, taken often."""
    monkeypatch.setattr("uio_pipes.run.tuning.WINDOW", 4)
    monkeypatch.setattr("uio_pipes.run.tuning.SHORTEST", 0.0)

    def slow(sample: Any) -> Any:
        time.sleep(make)
        return sample

    pipeline = uio.from_shard_list(shards.list).map(slow).decode_audio().fbank(8).batch(4).pad()
    auto = uio.Loader(pipeline, num_workers="auto", lanes=LANES)
    auto._tuner = Tuner.beginning(2, cores=3)
    fixed = uio.Loader(pipeline, lanes=LANES)
    for _ in range(2):
        got = []
        for batch in auto:
            got.append(digest(batch))
            time.sleep(work)
        assert got == [digest(batch) for batch in fixed]


def test_failures_are_counted_reported_and_quarantined_once(bad_corpus: Corpus, tmp_path: Path) -> None:
    pipeline = uio.from_shard_list(bad_corpus.list).decode_audio().fbank(8).shuffle(3).batch(1).pad()
    made, entries = [], []
    for name in ("auto", "fixed"):
        quarantine = tmp_path / f"{name}.jsonl"
        options: dict[str, Any] = {"lanes": 2, "failures": uio.Failures(quarantine=quarantine)}
        loader = moving(pipeline, Scripted(every=2), **options) if name == "auto" else uio.Loader(pipeline, **options)
        made.append(steps(loader))
        entries.append(sorted(json.loads(line)["reason"] for line in quarantine.read_text().splitlines()))
        assert name == "fixed" or len(moves(loader)) > 2
    assert made[0] == made[1]
    assert entries[0] == entries[1] != []


def test_a_stream_in_steps(shards: Corpus) -> None:
    pipeline = training(shards.list)
    auto = moving(pipeline, seed=3, lanes=LANES, steps_per_epoch=25)
    fixed = uio.Loader(pipeline, seed=3, lanes=LANES, steps_per_epoch=25)
    for epoch in range(4):
        for loader in (auto, fixed):
            loader.set_epoch(epoch)
        assert steps(auto) == steps(fixed)
    assert len(moves(auto)) > 4


def test_with_a_batch_under_way_to_a_device(shards: Corpus) -> None:
    pipeline = training(shards.list)
    auto = uio.to_device(moving(pipeline, seed=3, lanes=LANES), "cpu")
    assert steps(auto) == steps(uio.Loader(pipeline, seed=3, lanes=LANES))
    assert len(moves(auto)) > 3


def test_batches_that_are_passed_over(shards: Corpus) -> None:
    every = steps(uio.Loader(training(shards.list), seed=3, lanes=LANES))
    auto = moving(training(shards.list), seed=3, lanes=LANES)
    got = []
    for number, batch in enumerate(auto):
        got.append(digest(batch))
        if number == 4:
            auto.skip(6)
    assert got == [batch for batch, *_ in every[:5] + every[11:]]


# States


@pytest.mark.parametrize("then", ["auto", 0, 2])
def test_a_state_saved_while_lanes_move_loads_into_any_loader(shards: Corpus, then: Any) -> None:
    pipeline = training(shards.list)
    every = steps(uio.Loader(pipeline, seed=3, lanes=LANES))
    auto = moving(pipeline, seed=3, lanes=LANES)
    for number, _ in enumerate(auto, 1):
        if number % 25 == 5:  # each time a loader starts workers
            again = moving(pipeline, seed=3) if then == "auto" else uio.Loader(pipeline, seed=3, num_workers=then)
            again.load_state_dict(carried(auto.state_dict()))
            assert [batch for batch, *_ in steps(again)] == [batch for batch, *_ in every[number:]]


def test_lanes_do_not_depend_on_the_machine(shards: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    for cores in (1, 64):
        monkeypatch.setattr("uio_pipes.run.loader.cores_of_rank", lambda cores=cores: cores)
        loader = uio.Loader(training(shards.list), num_workers="auto", rank=1, world_size=3)
        assert loader.lanes == 48


# Several ranks: each moves its lanes by itself


def main(path: str, out: str) -> None:
    """What each rank does."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for way in ("stop", "share"):
        made = []
        for auto in (True, False):
            options: dict[str, Any] = {"seed": 3, "lanes": 5, "uneven": way}
            tuner = Scripted(every=2 + rank) if rank else Scripted(plans=(WorkerPlan(1, 2),))  # rank 0 stays as it is
            loader = (
                moving(training(Path(path)), tuner, **options) if auto else uio.Loader(training(Path(path)), **options)
            )
            made.append(steps(loader))
            assert not auto or (len({*moves(loader)}) > 1) == (rank > 0), moves(loader)
        assert made[0] == made[1]
        (Path(out) / f"{way}{rank}").touch()
    dist.destroy_process_group()


def test_ranks_that_end_together_move_each_by_itself(shards: Corpus, tmp_path: Path) -> None:
    done = ranks(2, __file__, shards.list, tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["share0", "share1", "stop0", "stop1"]


OTHER_START = """
import multiprocessing, sys
from pathlib import Path
if __name__ == "__main__":
    import test_auto_workers as here
    multiprocessing.set_start_method("spawn")
    pipeline = here.training(Path(sys.argv[1]))
    plans = here.WorkerPlan(1, 2), here.WorkerPlan(2, 2)
    auto = here.moving(pipeline, here.Scripted(plans, once=True), seed=3, lanes=4)
    assert here.steps(auto) == here.steps(here.uio.Loader(pipeline, seed=3, lanes=4))
    assert here.moves(auto) == list(plans)
"""


@pytest.mark.timeout(150)
def test_workers_that_are_spawned(shards: Corpus, tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(OTHER_START)
    launch([str(script), str(shards.list)], timeout=140, folders=[Path(__file__).parent])


# Ends and accidents


def pids(workers: list[Any]) -> list[int]:
    return [process.pid for worker in workers for process in worker._batches._workers]


def are_gone(ids: list[int], seconds: float = 30.0) -> bool:
    """Return whether all these processes have ended, at the latest by then: one that was killed is reaped later."""
    until = time.monotonic() + seconds
    while left := [pid for pid in ids if Path(f"/proc/{pid}").exists()]:
        multiprocessing.active_children()  # reaps them
        if time.monotonic() > until:
            return not left
        time.sleep(0.02)
    return True


def test_a_killed_worker_is_an_error_and_the_state_is_good(shards: Corpus) -> None:
    pipeline = training(shards.list)
    every = [digest(batch) for batch in uio.Loader(pipeline, seed=3, lanes=LANES)]
    auto = moving(pipeline, seed=3, lanes=LANES)
    batches = iter(auto)
    for _ in range(6):  # by then the first workers have been replaced
        next(batches)
    assert len(moves(auto)) > 1
    assert auto._run is not None
    ids = pids(auto._run.runners)
    os.kill(ids[0], signal.SIGKILL)
    with pytest.raises(RuntimeError, match=str(ids[0])):
        for _ in batches:
            pass
    auto.load_state_dict(state := auto.state_dict())  # ends the run, if torch raised the error outside of it
    assert are_gone(ids)
    again = restored(pipeline, state, seed=3)
    assert [digest(batch) for batch in again] == every[auto.stats().batches :]


def test_it_stays_as_it_is_where_no_process_can_be_started(
    shards: Corpus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refused(Worker):
        made = 0

        def __init__(self, *args: Any, **options: Any) -> None:
            if Refused.made:
                raise BlockingIOError("Resource temporarily unavailable")
            Refused.made += 1
            super().__init__(*args, **options)

    monkeypatch.setattr(lanes_module, "Worker", Refused)
    auto = moving(training(shards.list), seed=3, lanes=LANES)
    assert steps(auto) == steps(uio.Loader(training(shards.list), seed=3, lanes=LANES))
    assert "stays with 1 worker, prefetch 2: no more could be started (Resource temporarily" in caplog.text


# Telling


def test_it_says_what_it_chose(
    shards: Corpus, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "uio_pipes")
    auto = moving(training(shards.list), Scripted(plans=PLANS[:2]), lanes=LANES)
    assert (auto.num_workers, auto.stats().workers, auto.stats().prefetch) == (1, 1, 2)
    assert "auto (1 worker, prefetch 2), 4 lanes" in repr(auto)
    auto._tuner = Scripted(plans=PLANS[1:2])
    keys = [key for batch in uio.watch(auto) for key in keys_of(batch)]
    assert keys
    assert (auto.num_workers, auto.stats().workers, auto.stats().prefetch) == (3, 3, 1)
    assert "| 3 workers" in capsys.readouterr().err
    written = auto.stats().as_dict()
    assert (written["data/workers"], written["data/prefetch"]) == (3, 1)
    assert uio.Loader(training(shards.list), num_workers=2).stats().workers is None


def test_the_choice_holds_for_the_next_epoch(shards: Corpus) -> None:
    auto = moving(training(shards.list), Scripted(plans=(WorkerPlan(1, 2), WorkerPlan(3, 2)), once=True), lanes=LANES)
    for _ in auto:
        pass
    assert moves(auto) == [WorkerPlan(1, 2), WorkerPlan(3, 2)]
    next(iter(auto))
    assert moves(auto) == [WorkerPlan(1, 2), WorkerPlan(3, 2), WorkerPlan(3, 2)]


@pytest.mark.parametrize("given", ["Auto", "2", -1, None, True, 1.5])
def test_other_words_are_refused(shards: Corpus, given: Any) -> None:
    with pytest.raises(PipelineError, match="num_workers must be a whole number"):
        uio.Loader(training(shards.list), num_workers=given)


def test_a_dataset_leaves_it_to_its_loader(shards: Corpus) -> None:
    with pytest.raises(PipelineError, match="num_workers is an option of the loader that the dataset is given to"):
        training(shards.list).as_dataset(num_workers="auto")


if __name__ == "__main__":
    main(*sys.argv[1:])
