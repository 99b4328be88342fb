"""One peer reads and the others receive: nobody could tell by batches, states or errors. Four processes, gloo."""

import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from command import programs
from contract import digest, timeless
from helpers_bad import ones
from moving import Scripted
from torch.distributed.device_mesh import init_device_mesh

import uio_pipes as uio
from uio_pipes.run.lane_runner import Message
from uio_pipes.run.peers import _packed, _unpacked
from uio_pipes.run.ranks import place_of_rank
from uio_pipes.run.shared_memory import ALIGN
from uio_pipes.run.state import _sealed
from uio_pipes.run.tuning import WorkerPlan

WORLD = 4
MESHES: dict[str, tuple[tuple[int, ...], tuple[str, ...], tuple[str, ...]]] = {  # shape, names, those of the data
    "2x2": ((2, 2), ("tp", "dp"), ("dp",)),  # whose peers are not neighbours
    "1x4": ((1, 4), ("dp", "cp"), ("dp",)),
}
Notes = list[list[Any]]
calls: Counter[str] = Counter()  # of functions in this process
broken = False  # True where some files cannot be read


def items(count: int) -> list[dict[str, str]]:
    return [{"key": f"U{i}", "txt": "a" * (1 + i * 7 % 11)} for i in range(count)]


def graph(count: int = 100) -> uio.Pipeline:
    text = uio.from_iterable(items(count)).sharding_filter().tokenize(ones).map(read, length="same")
    return text.shuffle(20).sort(5, length="tokens").dynamic_batch(max_tokens=24).pad()


def read(sample: dict[str, Any]) -> dict[str, Any]:
    calls["read"] += 1
    if broken and sample["key"] in ("U70", "U71", "U72", "U73"):
        raise ValueError("it cannot be read here")
    return sample


# What each process does: each program notes batch and state after each step


def steps(loader: uio.Loader, most: int = 10**6, batches: Iterator[Any] | None = None) -> Notes:
    notes: Notes = []
    for batch in batches or loader:
        notes.append([loader.epoch, digest(batch), timeless(loader.state_dict())])
        if len(notes) == most:
            break
    return notes


def whole_epochs(**options: Any) -> Notes:
    loader = made(**options)
    return [note for _ in range(2) for note in steps(loader)]


def left_and_begun_again(**options: Any) -> Notes:
    loader = made(**options)
    notes = steps(loader, 3) + steps(loader, 2)
    loader.set_epoch(2)
    notes += steps(loader, 4)
    loader.skip(2)
    batches = iter(loader)
    notes += steps(loader, 2, batches)
    loader.skip(1)  # in the middle of an epoch
    again = made(**options)
    again.load_state_dict(loader.state_dict())
    return [*notes, *steps(loader, 3, batches), *steps(again, 3), [digest(again.batch_at(9))]]


def at_two_loaders_at_once(**options: Any) -> Notes:
    one, other = made(**options), made(count=60, **options)
    ones, others = iter(one), iter(other)
    return [note for n in (1, 3, 2) for note in steps(one, n, ones) + steps(other, n, others)]


def in_steps(**options: Any) -> Notes:
    loader = made(steps_per_epoch=11, **options)
    return [note for _ in range(4) for note in steps(loader)]


def on_a_device(**options: Any) -> Notes:
    return steps(uio.to_device(made(pin_memory=True, **options), "cpu"))


def with_moving_workers(**options: Any) -> Notes:
    options["num_workers"] = "auto"
    loader = made(**options)
    assert (loader._tuner is None) == (loader._options.ranks.peers != () and loader.peer > 0)
    if loader._tuner is not None:
        loader._tuner = Scripted((WorkerPlan(1, 2), WorkerPlan(2, 1)))
    notes = steps(loader, batches=loader)
    assert loader._tuner is None or len(loader._tuner.followed) > 1  # type: ignore[attr-defined]
    return notes


def until_an_error(**options: Any) -> Notes:
    loader, notes = made(**options), Notes()
    try:
        for batch in loader:
            notes.append([digest(batch)])
    except uio.UioError as error:
        return [*notes, [type(error).__name__, str(error)]]
    raise AssertionError("there was no error")


def from_a_state_that_cannot_be_restored(**options: Any) -> Notes:
    loader = made(**options)
    steps(loader, 3)
    damaged = loader.state_dict()
    for name, text in damaged.items():
        if json.loads(text).get("at"):
            given = {field: value for field, value in json.loads(text).items() if field != "crc32"}
            damaged[name] = _sealed(name, json.dumps({**given, "nodes": {"x": 1}}))
    loader.load_state_dict(damaged)
    with pytest.raises(uio.StateError) as caught:
        next(iter(loader))
    return [[str(caught.value)]]


def made(count: int = 100, **options: Any) -> uio.Loader:
    return uio.Loader(graph(count), seed=3, lanes=8, **options)


PROGRAMS: dict[str, tuple[Callable[..., Notes], str, list[dict[str, Any]]]] = {  # what, which peers are broken, options
    "whole epochs": (whole_epochs, "", [{"uneven": u} for u in ("share", "stop", "join")] + [{"num_workers": 1}]),
    "left and begun again": (left_and_begun_again, "", [{"uneven": "stop"}, {"uneven": "join", "num_workers": 1}]),
    "two loaders": (at_two_loaders_at_once, "", [{}]),
    "in steps": (in_steps, "", [{}, {"num_workers": 2}]),
    "everything on each rank": (whole_epochs, "", [{"partition": False}]),
    "on a device": (on_a_device, "", [{"num_workers": 1}, {}]),
    "moving workers": (with_moving_workers, "", [{}]),
    "broken for all": (whole_epochs, "all", [{"uneven": "stop"}]),
    "an error": (until_an_error, "all", [{"uneven": "join", "failures": "raise", "num_workers": n} for n in (0, 1)]),
    "too many failures": (until_an_error, "all", [{"uneven": "join", "failures": uio.Failures(max_failures=0)}]),
    "a damaged state": (from_a_state_that_cannot_be_restored, "", [{"num_workers": n} for n in (0, 1)]),
}


def main(folder: str, mesh: str) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=run, args=(rank, folder, mesh)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode or 0) for process in processes))


def run(rank: int, folder: str, which: str) -> None:
    global broken
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    shape, names, data = MESHES[which]
    where: dict[str, Any] = {"mesh": init_device_mesh("cpu", shape, mesh_dim_names=names), "data": data}
    place, done = place_of_rank(ranks=uio.Ranks(**where, peers="receive")), list[Any]()
    for name, (program, who, several) in PROGRAMS.items():
        for options in several:
            made = {}
            for peers in ("read", "receive"):
                broken = who == "all" and (peers == "read" or place.reads)
                calls.clear()
                made[peers] = program(**options, ranks=uio.Ranks(**where, peers=peers))
                if name == "two loaders":  # which has no workers
                    assert (calls["read"] > 0) == (place.reads or peers == "read")
            done.append((f"{name} {options}", place.rank, place.peer, made))
    broken = place.peer == 0 and place.rank == place.world_size - 1  # one of several data ranks meets an error
    done.append(("last", place.rank, place.peer, last_words(where)))
    Path(folder, f"{rank}.json").write_text(json.dumps(done))
    os._exit(0)  # in the middle of collectives of others


def last_words(where: dict[str, Any]) -> dict[str, Any]:
    loader, got = made(failures="raise", uneven="stop", ranks=uio.Ranks(**where, peers="receive")), []
    try:
        for batch in loader:
            got.append(digest(batch))
    except (uio.UioError, RuntimeError) as error:
        return {"got": got, "error": f"{type(error).__name__}: {error}"}
    return {"got": got, "error": ""}


# Tests


@pytest.mark.parametrize("mesh", MESHES)
def test_whoever_reads_batches_states_and_errors_are_the_same(mesh: str, tmp_path: Path) -> None:
    programs(__file__, tmp_path, mesh)
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD)]
    for program in zip(*ranks, strict=True):
        by_rank: dict[int, Any] = {}
        if program[0][0] == "last":
            _check_last(program)
            continue
        for name, rank, peer, made in program:
            assert made["read"], name
            assert made["receive"] == made["read"], (name, rank, peer)
            assert by_rank.setdefault(rank, made["receive"]) == made["receive"], (name, rank, peer)


def _check_last(program: Any) -> None:
    """All peers of the data rank that fails raise its error at the same step. The others hear that it has ended."""
    failed = max(rank for _, rank, _, _ in program)
    for _, rank, _, made in program:
        if rank == failed:
            assert "it cannot be read here" in made["error"]
            assert made == next(m for _, r, p, m in program if (r, p) == (rank, 0))
        else:
            assert made["error"].startswith("RuntimeError")


def test_a_message_keeps_every_bit() -> None:
    odd = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4).transpose(0, 2)
    batch = {
        "feats": torch.randn(7, 9),
        "halves": torch.randn(5).to(torch.bfloat16),
        "odd": odd,
        "none": torch.empty(0, 3),
        "number": torch.tensor(3),
        "wav": np.arange(5, dtype=np.int16),
        "keys": ["a", "b"],
        "list": [{"x": torch.ones(3, dtype=torch.bool)}, b"bytes"],
    }
    sent = Message(3, 1, 7, batch=dict(batch), snapshot="{}", counts={"utterances": 2}, reports=["r"], took=0.5)
    got = _unpacked(*_packed(sent))
    assert sent.batch["feats"] is batch["feats"]  # what is sent stays as it is
    assert {**vars(got), "batch": None} == {**vars(sent), "batch": None}
    assert torch.equal(got.batch.pop("halves"), batch.pop("halves"))
    assert digest(got.batch) == digest(batch)
    assert got.batch["feats"].data_ptr() % ALIGN == 0
    got.batch["feats"].add_(1)  # it is the trainer's own
    got.batch["wav"][0] = 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"peers": "wait"}, "peers must be 'read' or 'receive'"),
        ({"peers": "receive"}, "give mesh=…"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        uio.Ranks(**options)


if __name__ == "__main__":
    main(*sys.argv[1:])
