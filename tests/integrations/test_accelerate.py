"""Accelerate with the real package: ``prepare`` leaves our loader alone, and checkpoints hold all ranks' lanes."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from command import told_by_ranks
from contract import digest, keys_of
from corpus import Corpus
from journeys import small
from torch.utils.data import DataLoader, IterableDataset

import uio_pipes as uio
from uio_pipes import Gathered

try:
    from transformers import trainer_pt_utils as trainer_utils
except ImportError:
    trainer_utils = None
accelerate = pytest.importorskip("accelerate", reason="could not import accelerate: pip install accelerate")
pytestmark = pytest.mark.timeout(120)
LANES = 6


def pipeline(path: str) -> uio.Pipeline:
    return small(path, bins=6).batch(2).pad()


# What each rank runs


def main(settings: dict[str, Any]) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    modes = {
        "save": save,
        "rest": rest,
        "dataset": dataset,
        "prepared": prepared,
        "utterances": utterances,
        "wrapped": wrapped,
    }
    report = modes[settings["mode"]](accelerator, settings)
    folder, rank = Path(settings["folder"]), accelerator.process_index
    (folder / f"{settings['mode']}{rank}.json").write_text(json.dumps(report))
    accelerator.wait_for_everyone()
    accelerator.end_training()


def make_loader(settings: dict[str, Any]) -> uio.Loader:
    return uio.Loader(pipeline(settings["list"]), seed=3, lanes=LANES)


def save(accelerator: Any, settings: dict[str, Any]) -> Any:
    """Three steps, a checkpoint, the rest."""
    loader = make_loader(settings)
    prepared = accelerator.prepare(loader)
    accelerator.register_for_checkpointing(Gathered(loader))
    seen = []
    for batch in prepared:
        seen.append(entry(batch))
        if len(seen) == 3:
            accelerator.save_state(settings["folder"] + "/state")
    return {"same": prepared is loader, "seen": seen, "world": accelerator.num_processes}


def rest(accelerator: Any, settings: dict[str, Any]) -> Any:
    loader = accelerator.prepare(make_loader(settings))
    accelerator.register_for_checkpointing(Gathered(loader))
    accelerator.load_state(settings["folder"] + "/state")
    return [entry(batch) for batch in loader]


def dataset(accelerator: Any, settings: dict[str, Any]) -> Any:
    """A torch DataLoader that is not given to ``prepare``."""
    loader = DataLoader(pipeline(settings["list"]).as_dataset(seed=3), batch_size=None, num_workers=1)
    return [entry(batch) for batch in loader]


def prepared(accelerator: Any, settings: dict[str, Any]) -> Any:
    """One that is: Accelerate lets rank 0 read and deals out what it gives."""
    loader = DataLoader(pipeline(settings["list"]).as_dataset(seed=3), batch_size=None)
    return [entry(batch) for batch in accelerator.prepare(loader)]


def utterances(accelerator: Any, settings: dict[str, Any]) -> Any:
    """Utterances, by both of Accelerate's ways to deal them out: the error, and what comes with ``partition=False``."""
    found: dict[str, Any] = {}
    for dispatch in (True, False):
        accelerator.dataloader_config.dispatch_batches = dispatch
        for workers in (0, 2):
            for partition in (True, False):
                graph = uio.from_shard_list(settings["list"]).map(numbered)
                data = graph.as_dataset(seed=3, partition=partition)
                loader = DataLoader(data, batch_size=2, num_workers=workers)
                try:
                    batches = list(accelerator.prepare(loader))
                    found[f"{dispatch} {workers} {partition}"] = [n for b in batches for n in b["number"].tolist()]
                except uio.PipelineError as error:
                    found[f"{dispatch} {workers} {partition}"] = str(error)
    return found


class Wrapped(IterableDataset[Any]):
    """A dataset of the user's around ours, which nobody can look into."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __iter__(self) -> Any:
        yield from self.source


def wrapped(accelerator: Any, settings: dict[str, Any]) -> Any:
    """Behind what hides it, and by the shard of transformers, without Accelerate's loader."""
    found = []
    accelerator.dataloader_config.dispatch_batches = False  # else only rank 0 looks, and the other one waits for it
    place = {"num_processes": 2, "process_index": accelerator.process_index}
    for workers in (0, 2):
        data = Wrapped(uio.from_shard_list(settings["list"]).map(numbered).as_dataset(seed=3))
        prepared = accelerator.prepare(DataLoader(data, batch_size=2, num_workers=workers))
        theirs = DataLoader(trainer_utils.IterableDatasetShard(data, 2, **place), batch_size=2, num_workers=workers)
        for loader in (prepared, theirs):
            try:
                found.append(len(list(loader)))
            except uio.PipelineError as error:
                found.append(str(error))
    return found


def numbered(sample: dict[str, Any]) -> dict[str, Any]:
    return {"number": torch.tensor(int(sample["key"][1:]))}


def entry(batch: Any) -> tuple[str, list[str]]:
    return digest(batch), keys_of(batch)


# The tests


def run(corpus: Corpus, folder: Path, mode: str, world: int) -> list[Any]:
    return told_by_ranks(world, __file__, mode, corpus.list, folder, ["accelerate", "transformers.trainer_pt_utils"])


def test_state_saved_on_two_ranks_loads_on_two_and_on_one(many_shards: Corpus, tmp_path: Path) -> None:
    saved = run(many_shards, tmp_path, "save", 2)
    assert all(r["same"] and r["world"] == 2 for r in saved), "prepare gives back what it was given"
    before = [e for r in saved for e in r["seen"][:3]]
    after = [r["seen"][3:] for r in saved]
    assert run(many_shards, tmp_path, "rest", 2) == after
    alone = run(many_shards, tmp_path, "rest", 1)[0]
    epoch = [list(entry(b)) for b in uio.Loader(pipeline(str(many_shards.list)), seed=3, lanes=LANES)]
    assert sorted(before + alone) == sorted(epoch), "each batch once"


def test_dataset_outside_prepare_is_shared_among_ranks_once(many_shards: Corpus, tmp_path: Path) -> None:
    reports = run(many_shards, tmp_path, "dataset", 2)
    assert all(reports)
    assert Counter(k for r in reports for _, keys in r for k in keys) == Counter(many_shards.keys)


def test_dataset_given_to_prepare_stops_instead_of_losing_a_rank(many_shards: Corpus, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"deals that share to 2 processes again.*partition=False"):
        run(many_shards, tmp_path, "prepared", 2)


def test_utterances_are_not_dealt_twice(many_shards: Corpus, tmp_path: Path) -> None:
    found = run(many_shards, tmp_path, "utterances", 2)
    assert len(found[0]) == 8
    for case, first in found[0].items():
        if case.endswith("True"):
            assert all("as_dataset(partition=False)" in one[case] for one in found), case
        else:
            both = first + found[1][case]
            assert {f"K{number:04d}" for number in both} == set(many_shards.keys), case
            assert len(both) < len(many_shards.keys) + 8, "Accelerate fills up the last batches"


@pytest.mark.skipif(trainer_utils is None, reason="could not import transformers: pip install transformers")
def test_who_deals_them_again_is_found_behind_other_datasets(many_shards: Corpus, tmp_path: Path) -> None:
    for found in run(many_shards, tmp_path, "wrapped", 2):
        assert len(found) == 4
        assert all("as_dataset(partition=False)" in one for one in found), found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
