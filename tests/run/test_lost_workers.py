"""Workers that the system ends, crash or have no room: our words say so, with the remedy, wherever the trainer is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment

SCRIPT = """
import ctypes, os, signal, sys, time
import torch
import uio_pipes as uio

def worse(sample):
    if sample["key"] == "5":
        {what}
    if sys.argv[1:] == ["big"]:
        sample["x"] = torch.zeros(4_000_000, dtype=torch.complex64)
    return sample

if __name__ == "__main__":
    graph = uio.from_iterable([{{"key": str(i)}} for i in range(20)]).sharding_filter().map(worse).batch(2)
    try:
        batches = iter(uio.Loader(graph, num_workers=1, prefetch_factor=1))
        next(batches)
        time.sleep({sleep})  # the trainer is at work when the worker ends
        print("at work")
        list(batches)
    except Exception as error:
        print(type(error).__name__, error)
"""


def said(what: str, *arguments: str, sleep: float = 0.5, shm: str = "") -> str:
    script = SCRIPT.format(what=what, sleep=sleep)
    command = [sys.executable, "-c", script, *arguments]
    if shm:
        command = [
            "unshare",
            "-m",
            "sh",
            "-c",
            f'mount -t tmpfs -o size={shm} none /dev/shm && exec "$@"',
            "-",
            *command,
        ]
    env = environment(Path(__file__).parent)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", r"was killed \(out of memory\?\)"),
        ("ctypes.string_at(0)", r"crashed \(SIGSEGV\) in compiled code: python -X faulthandler shows where"),
        ("os._exit(3)", r"ended itself with exit status 3 \(a function of the pipeline calls exit\?\)"),
        ("os.kill(os.getpid(), signal.SIGBUS)", r"ran out of shared memory: /dev/shm, .*--shm-size=8g"),
    ],
)
def test_each_end_of_a_worker_is_told_in_our_words(what: str, message: str) -> None:
    at_work, text = said(what).splitlines()
    assert at_work == "at work", "torch raises nothing of its own in the trainer's work"
    assert re.fullmatch(rf"RuntimeError worker process \d+ {message}.*load the last state to go on", text), text


def can_have_little_room() -> bool:
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=4k", "none", "/dev/shm"]
    return Path("/dev/shm").is_dir() and not subprocess.run(command, capture_output=True).returncode


@pytest.mark.skipif(not can_have_little_room(), reason="only root may give a process another /dev/shm")
@pytest.mark.parametrize(("size", "argument"), [("4k", ""), ("1m", "big")])
def test_too_little_shared_memory_is_named_with_the_remedy(size: str, argument: str) -> None:
    text = said("pass", argument, sleep=0, shm=size)
    met = r"(worker process \d+ ran out of shared memory: )?"  # some versions of torch write until SIGBUS
    assert re.search(rf"RuntimeError {met}/dev/shm, .* is too small \(.* MB, of which .* are free\)", text), text
    assert "docker run --shm-size=8g" in text
