"""``uio.follow``: the weights of a mix follow what is logged, exactly as without an interruption."""

import itertools
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
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
    """Keys of each batch, and the state after it, which is gathered. A trainer's step is two batches of each rank."""
    loader = uio.Loader(graph(), **{"seed": 2, "lanes": 4, "steps_per_epoch": 23, **options})
    with uio.Recorder(folder, loader) as record:
        uio.follow(record, every=EVERY, power=2, floor=0.1)
        if state is not None:
            loader.load_state_dict(state)
        while steps:
            for batch in loader:
                keys = [sample["key"] for sample in batch]
                update = (loader.epoch * 23 + loader._progress.step - 1) // 2
                record.log(keys, step=update, loss=[loss(key) for key in keys], other=1.0)
                yield keys, uio.gather_state(loader)
                if not (steps := steps - 1):
                    return


def weights_of(state: dict[str, str] | None) -> list[dict[str, Any]]:
    mixes: dict[str, Any] = json.loads((state or {})["meta"])["mixes"]
    return [entry for mix in mixes.values() for entry in mix["journal"][1:]]


def follows_from(batches: Iterable[list[str]]) -> dict[str, float]:
    """The weights of the outer mix after these batches of all ranks."""
    found = defaultdict[str, list[float]](list)
    for key in itertools.chain(*batches):
        if np.isfinite(number := np.float32(loss(key))):
            found[{"c": "clean", "n": "noisy"}.get(key[0], "group")].append(float(number))
    means = {name: sum(values) / len(values) for name, values in found.items()}
    middle = sum(means.values()) / len(means)
    return {name: float(f"{max(0.1, min(5, (mean / middle) ** 2)):.4g}") for name, mean in means.items()}


def test_weights_follow_and_a_resume_in_a_window_changes_nothing(tmp_path: Path) -> None:
    whole = list(trained(tmp_path / "whole", 40))
    changes = weights_of(whole[-1][1])
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
        now = one["epoch"] * 23 + one["step"]
        assert one["weights"] == follows_from(keys for keys, _ in whole[now - EVERY : now])
        assert one["weights"]["clean"] < one["weights"]["group"] < one["weights"]["noisy"]
    assert any("b" in one["weights"] and one["weights"]["b"] < one["weights"]["a"] for one in changes)

    made, state = [], None
    for stop in (3, 8, 4, 25):  # within windows, and over the end of an epoch
        part = list(trained(tmp_path / "parts", stop, state, num_workers=len(made) % 2))
        made += [keys for keys, _ in part]
        state = part[-1][1]
    assert made == [keys for keys, _ in whole]
    assert weights_of(state) == changes
    (tmp_path / "state.json").write_text(json.dumps(state))
    told = uio_command("state", tmp_path / "state.json").stdout
    assert "Weights of the mix group" in told
    assert f"clean {outer[-1]['weights']['clean']:g}, noisy {outer[-1]['weights']['noisy']:g}" in told


def test_what_was_logged_before_a_kill_and_trained_otherwise_afterwards_does_not_count(tmp_path: Path) -> None:
    lost = list(trained(tmp_path / "record", 9))  # no state after that of the third batch was saved
    shutil.copytree(tmp_path / "record", tmp_path / "undisturbed")
    loader = uio.Loader(graph(), seed=2, lanes=4, steps_per_epoch=23)
    loader.load_state_dict(lost[2][1] or {})
    loader.reweight({"clean": 50})
    state = loader.state_dict()
    once = list(trained(tmp_path / "undisturbed", 7, state))
    assert [keys for keys, _ in once[2:6]] != [keys for keys, _ in lost[5:]]
    for steps in (4, 3):
        state = list(trained(tmp_path / "record", steps, state))[-1][1]
    changes = weights_of(state)
    assert changes == weights_of(once[-1][1])
    *_, last = (one["weights"] for one in changes if "noisy" in one["weights"])
    assert last == follows_from(keys for keys, _ in once[2:])


def on_two_ranks(folder: Path) -> None:
    """Six steps, of which a kill loses the last two."""
    dist.init_process_group("gloo")
    made = list(trained(folder / "record", 6, json.loads((folder / "one.json").read_text())))
    (folder / f"keys{dist.get_rank()}.json").write_text(json.dumps([keys for keys, _ in made[:4]]))
    if dist.get_rank() == 0:
        (folder / "two.json").write_text(json.dumps(made[3][1]))
    dist.destroy_process_group()


def test_ranks_add_up_what_they_logged_also_before_there_were_others(tmp_path: Path) -> None:
    """One rank, then two, then one, then one again, each of which begins in the middle of a window."""
    made = list(trained(tmp_path / "record", 8))
    (tmp_path / "one.json").write_text(json.dumps(made[-1][1]))
    done = run_ranks(2, __file__, tmp_path)
    assert done.returncode == 0, done.stderr
    state = json.loads((tmp_path / "two.json").read_text())
    of_two = [json.loads((tmp_path / f"keys{rank}.json").read_text()) for rank in (0, 1)]
    steps = [[keys] for keys, _ in made] + [[*both] for both in zip(*of_two, strict=True)]
    for more in (1, 2):
        part = list(trained(tmp_path / "record", more, state))
        steps += [[keys] for keys, _ in part]
        state = part[-1][1]
    outer = [one for one in weights_of(state) if "noisy" in one["weights"]]
    assert [(one["step"], one["ranks"]) for one in outer] == [(5, 1), (10, 2), (15, 1)]
    for one in outer:
        assert one["weights"] == follows_from(itertools.chain(*steps[one["step"] - EVERY : one["step"]]))
    (tmp_path / "state.json").write_text(json.dumps(state))
    told = [line.split() for line in uio_command("state", tmp_path / "state.json").stdout.splitlines()]
    assert ["0", "10", "2"] in [words[:3] for words in told if "noisy" in words], "as a user reads it"


def weights_after(
    folder: Path, losses: Mapping[str, float], weights: Mapping[str, float], then: Mapping[str, float]
) -> dict[str, float]:
    """The weights after 4 batches, with the loss of each source's utterances, if they were changed after the first."""
    sources = {name: texts(name[0], 4000) for name in weights}
    loader = uio.Loader(uio.mix(sources, weights).shuffle(20).batch(8), lanes=1)
    with uio.Recorder(folder, loader) as record:
        uio.follow(record, every=4)
        for step, batch in enumerate(loader):
            if step == 0 and then:
                loader.reweight(then)
            keys = [sample["key"] for sample in batch]
            record.log(keys, loss=[losses[key[0]] for key in keys])
            if step == 3:
                break
    found: dict[str, float] = weights_of(loader.state_dict())[-1]["weights"]
    return found


@pytest.mark.parametrize("lost", [float("nan"), float("inf"), float("-inf")])
def test_a_source_of_which_no_number_counts_keeps_its_share(tmp_path: Path, lost: float) -> None:
    hours = {"clean": 300.0, "noisy": 100.0, "rare": 80.0}
    found = weights_after(tmp_path, {"c": 1, "n": 3, "r": lost}, hours, {})
    assert found == {"clean": 100, "noisy": 300, "rare": 80}


def test_a_source_that_rests_is_not_woken_up_by_what_a_buffer_had_of_it(tmp_path: Path) -> None:
    found = weights_after(tmp_path, {"c": 1, "n": 3, "g": 5}, {"clean": 1, "noisy": 1, "gone": 1}, {"gone": 0})
    assert found == {"clean": 0.5, "noisy": 1.5, "gone": 0}


@pytest.mark.parametrize(
    ("losses", "weights"),
    [({"c": 1, "n": -3}, {"clean": 2, "noisy": 0.2}), ({"c": -1, "n": -3}, {"clean": 0.2, "noisy": 0.2})],
)
def test_a_mean_below_0_counts_as_0(tmp_path: Path, losses: dict[str, float], weights: dict[str, float]) -> None:
    assert weights_after(tmp_path, losses, {"clean": 2, "noisy": 1}, {}) == weights


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
    with uio.Recorder(tmp_path, loader) as record:
        uio.follow(record, every=1, rule=lambda _: {"noisy": float("nan")})
        batch = next(iter(loader))
        with pytest.raises(uio.PipelineError, match=r"reweight: the weight of 'noisy' .* not nan"):
            record.log(batch, loss=1.0)
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
