"""``uio watch`` beside a real training: it is killed, and goes on."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import start, uio
from corpus import Corpus
from page_reader import Page
from processes import environment

from uio_pipes.core.statistics import files_of, read
from uio_pipes.tools.reports.run_view import ranks_in, tables


def training(corpus: Corpus, folder: Path, steps: int) -> subprocess.Popen[bytes]:
    runner = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = [str(Path(__file__).with_name("watched_training.py")), str(corpus.list), str(folder), str(steps)]
    return subprocess.Popen([*runner, *script], env=environment(OMP_NUM_THREADS="1"), start_new_session=True)


def wait_until_records(folder: Path, count: int) -> None:
    end = time.monotonic() + 60
    while [len(read(path)) > count for path in files_of(folder)] != [True, True]:
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_a_training_of_two_ranks_is_watched_killed_and_goes_on(many_shards: Corpus, tmp_path: Path) -> None:
    folder, page = tmp_path / "exp/watch", tmp_path / "page.html"
    run = training(many_shards, folder, 1_000_000)
    try:
        wait_until_records(folder, 3)
        once = uio("watch", tmp_path / "exp", "--once", "--html", page)
        live = start("watch", folder, "--html", tmp_path / "live.html")
        end = time.monotonic() + 30
        while not (tmp_path / "live.html").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        for rank in files_of(folder):  # torchrun ends when its ranks have; they would outlive it
            with contextlib.suppress(ProcessLookupError):
                os.kill(read(rank)[-1].pid, signal.SIGKILL)
        assert run.wait(60)
    assert once.returncode == 0, once.stderr
    assert "Ranks" in once.stdout
    assert "Throughput" in page.read_text()
    Page(page.read_text()).check()
    assert 'http-equiv="refresh"' in (tmp_path / "live.html").read_text()
    live.send_signal(signal.SIGINT)
    out, err = live.communicate(timeout=30)
    assert (live.returncode, err, "running" in out) == (0, "", True)
    assert 'http-equiv="refresh"' not in (tmp_path / "live.html").read_text(), "nobody renews it any more"
    assert "0 of 2 running" in str(list(tables(ranks_in(str(folder)), time.time() + 100)[0][2]))
    assert training(many_shards, folder, 20).wait(60) == 0
    ranks = ranks_in(str(folder))
    assert [len({record.pid for record in rank.records}) for rank in ranks] == [2, 2]
    assert [(rank.last.state, rank.last.stats.batches) for rank in ranks] == [("over", 20)] * 2
