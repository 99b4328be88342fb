"""Ranks under NCCL: the loader's own messages go by gloo, through no GPU, between the trainer's collectives."""

import json
import re
from itertools import chain
from pathlib import Path

import pytest
import torch
from corpus import Corpus
from gathering_ranks import STEPS, loader
from processes import launch

RANKS = Path(__file__).parents[1] / "helpers" / "ranks.py"
SCRIPT = Path(__file__).with_name("gathering_ranks.py")


@pytest.mark.parametrize("world", [1, 2])
def test_ranks_agree_and_one_goes_on_from_their_state(
    plain_corpus: Corpus, device: torch.device, world: int, tmp_path: Path
) -> None:
    out = launch([str(RANKS), str(world), str(SCRIPT), device.type, str(plain_corpus.list), str(tmp_path)])
    rests = [int(rest) for rest in re.findall(r"rank \d: (\d+)", out)]
    received, state = json.loads((tmp_path / "found.json").read_text())
    assert [len(keys) for keys in received] == [STEPS] * world
    assert len(rests) == world
    assert len(set(rests)) == 1
    resumed = loader(str(plain_corpus.list))
    resumed.load_state_dict(state)
    later = [key for batch in resumed for key in batch["keys"]]
    assert sorted([*chain(*received), *later]) == sorted(plain_corpus.keys)
