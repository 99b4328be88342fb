"""The script of each page of docs/trainers runs with the real trainer, and trains on the same when it is killed.

One kill of each trainer is enough where it is among the packages of development: in the first epoch, so that the
resumed run passes on to the next, or in the second. Others have environments of their own, and are killed in both
epochs: ``scripts/trainers NAME`` makes one, and runs the tests of that page; others compare batches of own loaders.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import command
import pages
import processes
import pytest
from trainer_pages import PAGES, Script, Steps, check_resumed, check_whole, environment_of


@dataclass(frozen=True)
class Row:
    """A page, and what ``.venv`` must have for its script; None: the page has an environment of its own.

    ``kills``: the steps at which attempts are killed.
    """

    page: str
    packages: tuple[str, ...] | None = ()
    kills: tuple[int, ...] = (5, 15)


ROWS = [
    Row("accelerate", ("accelerate",), kills=(4,)),
    Row("ddp", kills=(9,)),
    Row("espnet", None, kills=(10, 20)),
    Row("fabric", ("lightning",), kills=(4,)),
    Row("fsdp2", kills=(9,)),
    Row("funasr", None, kills=(5, 8, 15)),
    Row("hf_trainer", ("transformers", "accelerate"), kills=(9,)),
    Row("icefall", kills=(5,)),
    Row("lightning", ("lightning",), kills=(9,)),
    Row("ms_swift", None),
    Row("nemo", None),
    Row("speechbrain", None),
    Row("torchtitan", None, kills=(6, 9)),
    Row("trl", None),
    Row("verl", None),
    Row("wenet", None),
]


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the first command of each page makes."""
    folder = tmp_path_factory.mktemp("trainers")
    done = command.uio("example", ".", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.page)
def test_a_script_that_is_killed_and_run_again_trains_on_the_same(row: Row, example: Path, tmp_path: Path) -> None:
    programs = environment_of(row.page, row.packages)
    if programs is None:
        own = f"scripts/trainers {row.page} makes the environment of this page"
        pytest.skip(own if row.packages is None else f"could not import {', '.join(row.packages)}")
    whole = Script(row.page, programs, example, tmp_path / "whole").run()
    check_whole(whole, utterances=48, epochs=2)
    script = Script(row.page, programs, example, tmp_path / "killed")
    ranks = len({rank for _, rank in whole})
    attempts = [script.run(until=step, ranks=ranks) for step in row.kills]
    check_resumed(whole, [*attempts, script.run()])


HELPERS = Path(processes.__file__).parent
COMPARED = [(path.stem.removeprefix("of_"), path) for path in sorted(HELPERS.glob("own_loaders/of_*.py"))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "script"),
    [*COMPARED, ("verl", HELPERS / "verl_prompts.py")],
    ids=lambda given: getattr(given, "stem", given),
)
def test_a_trainer_gets_the_same_batches(page: str, script: Path, example: Path, tmp_path: Path) -> None:
    """Ours as its own loader's; and verl's own trainer, resumed or not."""
    programs = environment_of(page, ("lhotse",) if page == "icefall" else None)
    if programs is None:
        pytest.skip(f"scripts/trainers {page} makes the environment of this page")
    folder = shutil.copytree(example, tmp_path / "example")
    found = {**os.environ, "PYTHONPATH": str(pages.ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([programs / "python", script], cwd=folder, env=found, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["the same"]), done.stderr[-4000:]


def test_every_page_has_a_row() -> None:
    assert sorted(row.page for row in ROWS) == sorted(page.stem for page in PAGES.glob("*.md"))


def test_what_is_lost_or_comes_twice_is_found() -> None:
    whole: Steps = {(1, 0): ["a"], (2, 0): ["b"], (3, 0): ["b"], (4, 0): ["a"]}
    check_whole(whole, utterances=2, epochs=2)
    first, rest = {(1, 0): ["a"], (2, 0): ["b"]}, {(2, 0): ["b"], (3, 0): ["b"], (4, 0): ["a"]}
    check_resumed(whole, [first, rest])
    for wrong in ({**whole, (2, 0): ["a"]}, {(1, 0): ["a"], (2, 0): ["b"]}, {**whole, (6, 0): ["a"]}):
        with pytest.raises(AssertionError):
            check_whole(wrong, utterances=2, epochs=2)
    for attempts in ([first, whole], [first], [{(1, 0): ["a"]}, {(3, 0): ["b"], (4, 0): ["a"]}]):
        with pytest.raises(AssertionError):
            check_resumed(whole, attempts)
    with pytest.raises(AssertionError):
        check_resumed(whole, [first, {**rest, (3, 0): ["a"]}])
