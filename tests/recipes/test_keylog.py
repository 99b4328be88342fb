"""The check that an epoch contained every utterance exactly once, across a crash: it must notice when it did not."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from recipes.common.keylog import KeyLog, Run, check_epoch

KEYS = [f"utterance{number}" for number in range(12)]
Steps = Iterable[tuple[int, int, list[str]]]


def write_run(folder: Path, run: int, resumed_step: int, by_rank: list[Steps]) -> None:
    for rank, steps in enumerate(by_rank):
        log = KeyLog(folder, Run(run, rank, 1, len(by_rank), 1, resumed_step))
        for epoch, step, keys in steps:
            log.write(epoch, step, keys)
        log.close()


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Killed after steps 4 and 3 on two ranks, resumed from step 2 on one rank; the steps after 2 are done again."""
    first = [(1, step, KEYS[step - 1 : step]) for step in (1, 2, 3, 4)]
    second = [(1, step, KEYS[step + 3 : step + 4]) for step in (1, 2, 3)]
    write_run(tmp_path, 1, 0, [first, second])
    write_run(tmp_path, 2, 2, [[(1, 3, [*KEYS[2:4], KEYS[6]]), (1, 4, KEYS[7:]), (2, 5, KEYS[:3])]])
    return tmp_path


def test_exact_across_the_crash(crashed: Path) -> None:
    report = check_epoch(crashed, 1, KEYS)
    assert report.exact
    assert report.delivered == len(KEYS)
    assert "each exactly once" in str(report)


@pytest.mark.parametrize(
    ("wanted", "more", "kind", "said"),
    [
        ([*KEYS, "lost"], [], "missing", "1 lost (lost, …)"),
        (KEYS, [KEYS[0]], "repeated", "repeated"),
        (KEYS[1:], [], "unknown", KEYS[0]),
    ],
)
def test_what_is_wrong_is_noticed(crashed: Path, wanted: list[str], more: list[str], kind: str, said: str) -> None:
    write_run(crashed, 3, 4, [[(1, 5, more)]])
    report = check_epoch(crashed, 1, wanted)
    assert (report.exact, getattr(report, kind)) == (False, ("lost",) if kind == "missing" else (KEYS[0],))
    assert said in str(report)


def test_notices_a_resume_that_skipped_what_was_only_done_by_the_killed_run(tmp_path: Path) -> None:
    write_run(tmp_path, 1, 0, [[(0, 1, KEYS[:6]), (0, 2, KEYS[6:8])]])
    write_run(tmp_path, 2, 1, [[(0, 2, KEYS[8:])]])
    assert check_epoch(tmp_path, 0, KEYS).missing == tuple(KEYS[6:8])


def test_a_crash_before_any_checkpoint_counts_for_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, 1, 0, [[(0, 1, KEYS[:4])]])
    write_run(tmp_path, 2, 0, [[(0, 1, KEYS)]])
    assert check_epoch(tmp_path, 0, KEYS).exact


def test_a_torn_last_line_is_passed_over(crashed: Path) -> None:
    with (crashed / "keys.rank0.run1.log").open("a") as file:
        file.write('{"epoch": 1, "step": 5, "ke')
    assert check_epoch(crashed, 1, KEYS).exact
