"""What ``uio watch`` shows on terminals of several sizes, of a large run."""

import re
import time

import pytest

from uio_pipes.core.statistics import RunRecord, Stats, append
from uio_pipes.tools.cli.runs import watch

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """64 ranks, one of which has written nothing, and 300 sources."""
    folder, now = tmp_path_factory.mktemp("run"), time.time()
    stats = Stats(batches=10_900, utterances=1_234_567, frames=10**8, padded=2 * 10**8, failures=3)
    stats.sources, stats.skipped = {f"source {n}": n for n in range(1, 301)}, {"too_long": 4_000}
    for rank in range(63):
        append(folder, RunRecord(now, 1e6, f"node{rank}.cluster.example", 1, 0, rank, 64, 2, "running", 10**9, stats))
    return str(folder)


def interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("columns", "lines"), [(40, 24), (80, 24), (120, 40)])
def test_numbers_are_whole_and_all_tables_fit(
    run: str, columns: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(columns), "LINES": str(lines)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(time, "sleep", interrupt)
    watch(run)
    *_, last = ANSI.sub("", capsys.readouterr().out).rpartition("Ranks, first")  # it is drawn once more at the end
    shown = last.splitlines()
    assert (len(shown) <= lines, max(map(len, shown)) <= columns) == (True, True), "\n".join(shown)
    text = " ".join(shown)
    for part in (
        r"\b63 of 64\b",
        r"has written",
        r"… \d+ more",
        r"source 300 +18,900\b",
        r"… \d+ others",
        r"\b252,000\b",
    ):
        assert re.search(part, text), part
    assert ("77,777,721" in text) == (columns == 120)


def test_once_shows_the_largest_sources(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    watch(run, once=True)
    shown = capsys.readouterr().out
    assert re.search(r"… 290 others +\d", shown)
    assert len(shown.splitlines()) < 45
