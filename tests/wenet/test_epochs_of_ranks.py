"""``wenet_dataset`` under a process group: two real ranks, each with torch's ``DataLoader`` and two workers.

Run as a script with a folder, this file starts the ranks; with a number too, it is one of them.
"""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import corpus
import pytest
from command import programs
from yamls import dataset_conf

TRAIN = {
    **{name: dataset_conf(name) for name in ("aishell", "wenetspeech", "u2pp")},
    "left": dataset_conf("aishell"),
    "cycle": {**dataset_conf("aishell"), "cycle": 2},
}


def rank(number: int, folder: str) -> None:
    """One rank of WeNet's trainer: two epochs of each training set, and one of the validation set.

    Of "left" a rank leaves the first epoch early, as with DeepSpeed once another rank has ended.
    """
    import torch
    import torch.distributed as dist
    from contract import digest
    from torch.utils.data import DataLoader

    import uio_pipes as uio

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    tokenizer = uio.CharTokenizer({"<unk>": 0, "文": 1, **{str(i): 2 + i for i in range(10)}})
    listed, seen = f"{folder}/shards.list", {}
    for name, conf in TRAIN.items():
        dataset = uio.wenet_dataset("shard", listed, tokenizer, conf)
        seed = torch.Generator().manual_seed(777)
        loader = DataLoader(
            dataset, batch_size=None, num_workers=2, persistent_workers=True, prefetch_factor=2, generator=seed
        )
        ours = uio.Loader(dataset.pipeline, lanes=4, uneven="join")
        for epoch in range(2):
            leave = 1 if (name, epoch, number) == ("left", 0, 1) else None
            batches = list(islice(loader, leave))
            expected = list(ours)
            if leave is None:
                assert sorted(map(digest, batches)) == sorted(map(digest, expected)), (name, epoch)
            seen[f"{name} {epoch}"] = [batch["keys"] for batch in batches]
    conf = {**dataset_conf("aishell"), "speed_perturb": False, "spec_aug": False, "shuffle": False}
    for part, partition in (("all", False), ("share", True)):
        given = {**conf, "list_shuffle": False, "sort": False}
        dataset = uio.wenet_dataset("shard", listed, tokenizer, given, partition=partition)
        loader = DataLoader(dataset, batch_size=None, num_workers=2)
        seen[part] = [batch["keys"] for batch in loader]
    Path(f"{folder}/rank{number}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[corpus.Corpus, list[dict[str, Any]]]:
    """The corpus, and the keys of the batches that each rank saw."""
    root = tmp_path_factory.mktemp("ranks")
    shards = corpus.shards(root, [3, 4, 2, 5] * 3, rate=16_000, seconds=(0.2, 0.5))
    programs(__file__, root)
    return shards, [json.loads((root / f"rank{i}.json").read_text()) for i in range(2)]


Ran = tuple[corpus.Corpus, list[dict[str, Any]]]


def flat(groups: list[list[str]]) -> list[str]:
    return [key for group in groups for key in group]


@pytest.mark.parametrize("name", sorted(TRAIN))
def test_ranks_share_each_epoch_and_epochs_differ(name: str, ran: Ran) -> None:
    """Nobody calls set_epoch, as in WeNet's train.py; each rank has compared its batches with those of our loader."""
    shards, seen = ran
    for epoch in range(1 if name == "left" else 0, 2):
        keys = flat(seen[0][f"{name} {epoch}"]) + flat(seen[1][f"{name} {epoch}"])
        assert sorted(keys) == sorted(shards.keys * (2 if name == "cycle" else 1))
    assert len({str(seen[0][f"{name} {epoch}"]) for epoch in range(2)}) == 2


def test_validation_is_all_of_it_on_each_rank(ran: Ran) -> None:
    shards, seen = ran
    assert seen[0]["all"] == seen[1]["all"]
    assert sorted(flat(seen[0]["all"])) == sorted(shards.keys)


def test_shares_are_every_n_th_shard_as_in_wenet(ran: Ran) -> None:
    shards, seen = ran
    sizes, start, parts = [3, 4, 2, 5] * 3, 0, []
    for size in sizes:
        parts.append(list(shards.keys[start : start + size]))
        start += size
    for number in range(2):
        mine = parts[number::2]
        expected = [sorted(flat(mine[worker::2])) for worker in range(2)]
        assert sorted(flat(seen[number]["share"])) == sorted(flat(expected))
        firsts = [set(group) for group in seen[number]["share"]]
        assert all(any(group <= set(lane) for lane in expected) for group in firsts)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        ranks = [subprocess.Popen([sys.executable, *sys.argv, str(number)]) for number in range(2)]
        sys.exit(max(process.wait() for process in ranks))
    sys.path.insert(0, str(Path(__file__).parent))
    rank(int(sys.argv[2]), sys.argv[1])
