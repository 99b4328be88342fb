"""``uio.follow``: the weights of a mix follow what is logged, exactly as without an interruption."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from command import ranks as run_ranks
from command import uio as uio_command
from helpers_bad import texts

import uio_pipes as uio

EVERY = 5


def graph() -> uio.Pipeline:
    sources = {"clean": texts("c", 4000), "noisy": texts("n", 4000)}
    group = uio.mix({"a": texts("a", 4000), "b": texts("b", 4000)})
    return uio.mix({**sources, "group": group}, {"clean": 1, "noisy": 1, "group": 1}).shuffle(9).batch(8)


def loss(key: str) -> float:
    """Of noise more than of clean texts, and of each utterance its own; some are lost on the way."""
    number = int(key[1:])
    return float("nan") if number % 50 == 7 else {"c": 1.0, "n": 3.0, "a": 2.0, "b": 0.5}[key[0]] + number % 13 / 10


def trained(
    folder: Path, steps: int, state: dict[str, str] | None = None, **options: Any
) -> Iterator[tuple[list[str], dict[str, str] | None]]:
    """Keys of each batch, and the state after it, which is gathered."""
    loader = uio.Loader(graph(), **{"seed": 2, "lanes": 4, "steps_per_epoch": 23, **options})
    with uio.Recorder(folder, loader) as record:
        uio.follow(record, every=EVERY, power=2, floor=0.1)
        if state is not None:
            loader.load_state_dict(state)
        while steps:
            for batch in loader:
                keys = [sample["key"] for sample in batch]
                record.log(keys, loss=[loss(key) for key in keys], other=1.0)
                yield keys, uio.gather_state(loader)
                if not (steps := steps - 1):
                    return


def weights_of(state: dict[str, str]) -> list[dict[str, Any]]:
    mixes: dict[str, Any] = json.loads(state["meta"])["mixes"]
    return [entry for mix in mixes.values() for entry in mix["journal"][1:]]


def by_the_record(folder: Path, epoch: int, step: int) -> dict[str, float]:
    """The weights of the outer mix after this step, as they follow from the files."""
    table = pd.concat(map(pd.read_parquet, sorted(folder.glob("*.parquet"))))
    rows = table[(table.epoch == epoch) & (table.step < step) & (table.step >= step - EVERY) & np.isfinite(table.loss)]
    rows = rows.drop_duplicates(["step", "lane", "k", "key"], keep="last")
    means = rows.loss.groupby(rows.source.str.partition("/")[0]).mean()
    return {name: float(f"{max(0.1, min(5, (mean / means.mean()) ** 2)):.4g}") for name, mean in means.items()}


def test_weights_follow_and_a_resume_in_a_window_changes_nothing(tmp_path: Path) -> None:
    whole = list(trained(tmp_path / "whole", 40))
    changes = weights_of(whole[-1][1] or {})
    outer = [one for one in changes if "noisy" in one["weights"]]
    # the epoch has 23 steps, of which the last 3 are a window that is not full
    assert [(one["epoch"], one["step"]) for one in outer] == [
        (0, 5),
        (0, 10),
        (0, 15),
        (0, 20),
        (1, 5),
        (1, 10),
        (1, 15),
    ]
    for one in outer:
        assert one["weights"] == by_the_record(tmp_path / "whole", one["epoch"], one["step"])
        assert one["weights"]["clean"] < one["weights"]["group"] < one["weights"]["noisy"]
    assert any("b" in one["weights"] and one["weights"]["b"] < one["weights"]["a"] for one in changes)

    made, state = [], None
    for stop in (3, 8, 4, 25):  # within windows, and over the end of an epoch
        part = list(trained(tmp_path / "parts", stop, state, num_workers=len(made) % 2))
        made += [keys for keys, _ in part]
        state = part[-1][1]
    assert made == [keys for keys, _ in whole]
    assert weights_of(state or {}) == changes
    (tmp_path / "state.json").write_text(json.dumps(state))
    told = uio_command("state", tmp_path / "state.json").stdout
    assert "Weights of the mix group" in told
    assert f"clean {outer[-1]['weights']['clean']:g}, noisy {outer[-1]['weights']['noisy']:g}" in told


def on_two_ranks(folder: Path) -> None:
    dist.init_process_group("gloo")
    state = json.loads((folder / "one.json").read_text())
    *_, (_, state) = trained(folder / "record", 5, state)
    if dist.get_rank() == 0:
        (folder / "two.json").write_text(json.dumps(state))
    dist.destroy_process_group()


def test_ranks_add_up_what_they_logged_also_before_there_were_others(tmp_path: Path) -> None:
    """One rank, then two, then one, each of which begins in the middle of a window."""
    *_, (_, state) = trained(tmp_path / "record", 8)
    (tmp_path / "one.json").write_text(json.dumps(state))
    done = run_ranks(2, __file__, tmp_path)
    assert done.returncode == 0, done.stderr
    state = json.loads((tmp_path / "two.json").read_text())
    *_, (_, state) = trained(tmp_path / "record", 3, state)
    assert state is not None
    outer = [one for one in weights_of(state) if "noisy" in one["weights"]]
    assert [(one["step"], one["ranks"]) for one in outer] == [(5, 1), (10, 2), (15, 1)]
    for one in outer:
        assert one["weights"] == by_the_record(tmp_path / "record", 0, one["step"])


def test_a_rule_of_ones_own(tmp_path: Path) -> None:
    loader = uio.Loader(graph(), lanes=2)
    with uio.Recorder(tmp_path, loader) as record:
        uio.follow(
            record,
            every=2,
            of="cer",
            rule=lambda means: {"noisy": 10 * min(means["noisy"], 0.2)} if "noisy" in means else {},
        )
        for step, batch in enumerate(loader):
            keys = [sample["key"] for sample in batch]
            record.log(keys, step=100 + step, cer=torch.full((8,), 0.3))  # a trainer's own count
            if step == 3:
                break
    (change,) = weights_of(loader.state_dict())
    assert change["weights"] == {"clean": 1, "noisy": 2, "group": 1}


def test_what_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    loader = uio.Loader(graph())
    for wrong, rule in (
        ({"every": 0}, "every must be 1 or more"),
        ({"every": 2, "power": -1}, "power must be 0 or more, and floor above 0, not "),
        ({"every": 2, "floor": 3, "ceiling": 2}, "floor above 0"),
    ):
        with uio.Recorder(tmp_path, loader) as record, pytest.raises(uio.PipelineError, match=f"^follow: .*{rule}"):
            uio.follow(record, **wrong)
    with uio.Recorder(tmp_path) as record, pytest.raises(uio.PipelineError, match="does not know the loader: make it"):
        uio.follow(record, every=2)
    apart = uio.Loader(graph(), rank=0, world_size=2, lanes=2)
    with uio.Recorder(tmp_path, apart) as record, pytest.raises(uio.PipelineError, match="ranks do not step together"):
        uio.follow(record, every=2)
    alone = uio.Loader(texts("a", 5))
    with uio.Recorder(tmp_path, alone) as record, pytest.raises(uio.PipelineError, match="no mix with weights"):
        uio.follow(record, every=2)


if __name__ == "__main__":
    on_two_ranks(Path(sys.argv[1]))
