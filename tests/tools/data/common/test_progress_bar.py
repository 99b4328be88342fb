"""Bars of commands: the total is there where it is known, and what is finished is full."""

import re
from pathlib import Path

import corpus
import pytest
from command import uio

from uio_pipes.tools.data.common import follow


def last_count(stderr: str) -> str:
    """Return the last count that the bar shows."""
    return re.findall(r"\d+/[\d?]+", stderr)[-1]


@pytest.mark.parametrize(("total", "worths", "shown"), [(7, [1, 1, 1], "7/7"), (None, [2, 2], "4/4"), (2, [3], "3/3")])
def test_a_finished_bar_is_full(
    total: int | None, worths: list[int], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(follow(((worth, worth) for worth in worths), "packing", total)) == worths
    assert last_count(capsys.readouterr().err) == shown


def test_verify_counts_shards_and_utterances_of_raw_lists(tmp_path: Path) -> None:
    shards = corpus.shards(tmp_path / "s", [4, 4, 4])
    raw = corpus.raw_list(tmp_path, 5)
    assert last_count(uio("verify", shards.list).stderr) == "3/3"
    assert last_count(uio("verify", raw.list).stderr) == "5/5"


def test_convert_knows_the_total_of_a_manifest_and_ends_full(tmp_path: Path) -> None:
    raw = corpus.raw_list(tmp_path, 5)
    assert uio("pack", raw.list, tmp_path / "packed", "--per-shard", 3).returncode == 0
    done = uio("convert", tmp_path / "packed/shards.list", tmp_path / "out")
    assert (done.returncode, last_count(done.stderr)) == (0, "5/5")
