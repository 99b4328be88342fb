"""What ``uio watch`` shows on terminals of several sizes, of a large run."""

import re
import time
from pathlib import Path

import pytest

from uio_pipes.core.statistics import RunRecord, Stats, append
from uio_pipes.tools.cli.runs import watch


def interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 40)])
def test_numbers_are_whole_and_all_tables_fit(
    tmp_path: Path, columns: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 64 ranks, one of which has written nothing, and 300 sources."""
    stats = Stats(batches=10_900, utterances=1_234_567, frames=10**8, padded=2 * 10**8, failures=3)
    stats.sources, stats.skipped = {f"source {n}": n for n in range(1, 301)}, {"too_long": 4_000}
    for rank in range(63):
        about = (f"node{rank}.cluster.example", 1, 0, rank, 64, 2, "running", 10**9)
        append(tmp_path, RunRecord(time.time(), 1e6, *about, stats))
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(columns), "LINES": str(lines)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(time, "sleep", interrupt)
    watch(str(tmp_path))
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().out)
    shown = plain.rpartition("Ranks in epoch 2, first")[2].splitlines()  # it is drawn once more at the end
    assert (len(shown) <= lines, max(map(len, shown)) <= columns) == (True, True), "\n".join(shown)
    assert ("p50/p95/p99" in plain) == (columns > 80)
    for part in (r"\b63 of 64\b", r"\b10,900\b", r"… \d+ more", r"source 300 +18,900\b", r"too_long +252,000\b"):
        assert re.search(part, "\n".join(shown)), part
