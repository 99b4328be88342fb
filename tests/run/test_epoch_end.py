"""Ends of epochs under real DDP: very uneven lists, a rank without data, gradients accumulated over 3 batches."""

import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

import corpus
import pytest
import torch
import torch.distributed as dist
from command import ranks
from torch.nn.parallel import DistributedDataParallel

import uio_pipes as uio

WORLD = 3
ACCUMULATE = 3
EPOCHS = 2
SIZES = {"uneven": [34, 7, 15], "lonely": [14, 5]}  # utterances of each shard: one a rank; "lonely" has none for rank 2
WAYS = ("stop", "join", "share")


# What each rank does


def main(lists: dict[str, str], out: str) -> None:
    dist.init_process_group("gloo")
    for name, path in lists.items():
        for way in WAYS:
            for workers in (0, 1):
                report = train(path, way, workers)
                everyone: list[Any] = [None] * WORLD
                dist.all_gather_object(everyone, report)
                if dist.get_rank() == 0:
                    (Path(out) / f"{name}-{way}-{workers}.json").write_text(json.dumps(everyone))
    dist.destroy_process_group()


def train(path: str, way: Any, workers: int) -> dict[str, Any]:
    """Two epochs; what this rank saw and has in the end."""
    graph = uio.from_shard_list(path).decode_audio().fbank(num_mel_bins=8).batch(2).pad()
    loader = uio.Loader(graph, seed=3, num_workers=workers, uneven=way)
    torch.manual_seed(dist.get_rank())  # DDP makes the parameters equal
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    report: dict[str, Any] = {"keys": [], "steps": [], "left_out": [], "shares": [], "error": "", "log": logged()}
    for _ in range(EPOCHS):
        try:
            with model.join() if way == "join" else contextlib.nullcontext():
                keys, steps = epoch(loader, model, optimizer)
        except uio.ListError as error:
            return {**report, "error": str(error)}
        report["keys"].append(keys)
        report["steps"].append(steps)
        stats = loader.stats()
        report["left_out"].append(stats.left_out)
        report["shares"].append([stats.delivered, stats.delivered_share])
    report["parameters"] = [p.tolist() for p in model.parameters()]
    return report


def logged() -> list[str]:
    """Return a list to which messages are added as they are logged from now on."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("uio_pipes").handlers[:] = [handler]
    return lines


def epoch(loader: uio.Loader, model: Any, optimizer: Any) -> tuple[list[list[str]], int]:
    keys, steps = [], 0
    for number, batch in enumerate(loader, 1):
        last = number % ACCUMULATE == 0
        with contextlib.nullcontext() if last else model.no_sync():
            model(batch["feats"]).square().mean().backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
        keys.append(sorted(batch["keys"]))
    optimizer.zero_grad()
    return keys, steps


# What must hold

Reports = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, corpus.Corpus]:
    root = tmp_path_factory.mktemp("lists")
    return {name: corpus.shards(root / name, sizes, seconds=(0.1, 0.3)) for name, sizes in SIZES.items()}


@pytest.fixture(scope="module")
def reports(made: dict[str, corpus.Corpus], tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """Of all ranks, by "list-way-workers". One launch for all: that it ends tells that no rank waits for ever."""
    out = tmp_path_factory.mktemp("reports")
    lists = json.dumps({name: str(c.list) for name, c in made.items()})
    done = ranks(WORLD, __file__, lists, out)
    assert done.returncode == 0, done.stderr
    return {path.stem: json.loads(path.read_text()) for path in out.iterdir()}


def batches(utterances: int) -> int:
    return -(-utterances // 2)


CASES = [(way, workers) for way in WAYS for workers in (0, 1)]


@pytest.mark.parametrize(("way", "workers"), CASES)
def test_parameters_are_equal_on_all_ranks_at_the_end(reports: Reports, way: str, workers: int) -> None:
    first, *others = reports[f"uneven-{way}-{workers}"]
    assert all(other["parameters"] == first["parameters"] for other in others)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("way", ["stop", "share"])
def test_all_ranks_take_the_same_steps(reports: Reports, way: str, workers: int) -> None:
    ranks = reports[f"uneven-{way}-{workers}"]
    counts = [batches(size) for size in SIZES["uneven"]]
    count = min(counts) if way == "stop" else sum(counts) // WORLD
    for rank in ranks:
        assert [len(keys) for keys in rank["keys"]] == [count] * EPOCHS
        assert rank["steps"] == [count // ACCUMULATE] * EPOCHS != [0] * EPOCHS


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_tells_what_was_left_out(reports: Reports, workers: int) -> None:
    """At least what the ranks know of; each has delivered as much as the smallest shard's rank."""
    for rank in reports[f"uneven-stop-{workers}"]:
        assert rank["left_out"] == reports[f"uneven-stop-{workers}"][0]["left_out"]
        assert all(0 < utterances <= sum(SIZES["uneven"]) - 7 - 2 * 8 for utterances, _ in rank["left_out"])


@pytest.mark.parametrize("workers", [0, 1])
def test_stop_tells_the_share_that_was_left_out_and_the_remedy(reports: Reports, workers: int) -> None:
    """The smallest shard's 7 and 8 of the others."""
    ranks = reports[f"uneven-stop-{workers}"]
    for rank in ranks:
        for (delivered, share), (utterances, items) in zip(rank["shares"], rank["left_out"], strict=True):
            assert delivered == sum(map(len, (key for r in ranks for key in r["keys"][0]))) == 7 + 2 * 8
            assert (share, items) == (delivered / (delivered + utterances), 0)
    (first, (utterances, _)) = ([x for x in ranks[0]["log"] if "ended with" in x], ranks[0]["left_out"][0])
    told = f"left out {utterances} of at least {23 + utterances} utterances ({utterances / (23 + utterances):.0%})"
    assert told in first[0]
    for remedy in ("more lanes than", "from_tar_index", 'uneven="share"'):
        assert remedy in first[0]
    assert reports[f"uneven-join-{workers}"][0]["shares"] == [[0, 1.0]] * EPOCHS


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("name", SIZES)
def test_join_gives_every_utterance_once_a_rank_without_data_nothing(
    reports: Reports, made: dict[str, corpus.Corpus], name: str, workers: int
) -> None:
    ranks = reports[f"{name}-join-{workers}"]
    for number in range(EPOCHS):
        delivered = [key for rank in ranks for batch in rank["keys"][number] for key in batch]
        assert sorted(delivered) == sorted(made[name].keys)
    sizes = [*SIZES[name], 0][:WORLD]
    assert [rank["steps"] for rank in ranks] == [[batches(size) // ACCUMULATE] * EPOCHS for size in sizes]
    assert len({json.dumps(rank["parameters"]) for rank in ranks}) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_rank_without_data_gets_a_share_or_is_an_error_on_every_rank_with_the_remedy(
    reports: Reports, workers: int
) -> None:
    for rank in reports[f"lonely-share-{workers}"]:
        assert [len(keys) for keys in rank["keys"]] == [sum(map(batches, SIZES["lonely"])) // WORLD] * EPOCHS
    for rank in reports[f"lonely-stop-{workers}"]:
        assert "a rank has no batch at all" in rank["error"]
        assert 'uneven="join"' in rank["error"]
        assert rank["keys"] == []


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
