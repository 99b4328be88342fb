"""Jobs in the background, at the end of the process."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from uio_pipes.io.background import THREADS, Cancelled, submit

SCRIPT = """
import sys, time
from pathlib import Path
from uio_pipes.io.background import THREADS, submit

folder = Path(sys.argv[1])
running = []

def work(name):
    def job(sleep):
        running.append(name)
        time.sleep(0.5)  # as in foreign code, which cannot be broken off
        (folder / name).touch()
    return job

def retry(sleep):
    running.append("retry")
    sleep(3600)

submit(retry)
for number in range(THREADS - 1):
    submit(work(f"begun{number}"))
for number in range(3):
    submit(work(f"waiting{number}"))
while len(running) < THREADS:
    time.sleep(0.001)
"""


def test_at_the_end_of_the_process_jobs_under_way_are_finished_and_no_other_starts(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"begun{number}" for number in range(15))


HELD = """
import sys, threading, time
from pathlib import Path
from uio_pipes.io.background import held

class File: ...

def hold(files):
    time.sleep(0.2)
    Path(sys.argv[1]).touch()
    files.clear()

threading.Thread(target=hold, args=([held(File())],), daemon=True).start()
"""


def test_the_end_waits_until_what_other_threads_hold_is_free(tmp_path: Path) -> None:
    """Arrow's threads may hold a file for a moment after a read is over."""
    done = subprocess.run([sys.executable, "-c", HELD, tmp_path / "let_go"], timeout=60, check=False)
    assert (done.returncode, (tmp_path / "let_go").exists()) == (0, True)


def test_a_forked_child_does_not_wait_for_jobs_of_threads_that_it_lacks() -> None:
    over = threading.Event()
    jobs = [submit(lambda _: over.wait()) for _ in range(THREADS + 2)]  # the last ones wait for a thread
    if not (child := os.fork()):
        try:
            for job in jobs:
                with pytest.raises(Cancelled):
                    job.result()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    over.set()
    assert all(job.result() for job in jobs)
