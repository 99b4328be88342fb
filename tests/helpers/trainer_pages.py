"""The scripts of docs/trainers: run whole, killed at a step and run again, and what they say that they trained on.

A script prints a line for each step and rank, ``step 3: KEY KEY …`` or ``step 3 rank 1: KEY KEY …``.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pages
import processes
from command import FORKS

PAGES = pages.ROOT / "docs" / "trainers"
LINE = re.compile(r"step (\d+)(?: rank (\d+))?: (.+)")
Steps = dict[tuple[int, int], list[str]]  # the keys of each step and rank
HEAVY = {  # what takes the scripts seconds to import
    "accelerate": ["accelerate"],
    "fabric": ["lightning"],
    "fsdp2": ["torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict"],
    "hf_trainer": ["transformers.trainer"],
    "lightning": ["lightning"],
}


def environment_of(name: str, packages: Sequence[str] | None) -> Path | None:
    """The folder of the programs that have the packages of a page: the one of scripts/trainers, else our own."""
    made = pages.ROOT / ".venv-trainers" / name / "bin"
    if (made / "python").exists():
        return made
    return Path(sys.executable).parent if packages is not None and all(map(find_spec, packages)) else None


class Script:
    """The script of a page in a folder that ``uio example .`` has made, and the command that the page says.

    A trainer of our own environment runs in forks of a process that has imported it; each would import it for seconds.
    """

    def __init__(self, name: str, programs: Path, example: Path, folder: Path) -> None:
        (command,) = (
            block.code
            for block in pages.blocks(PAGES / f"{name}.md")
            if block.heading == "The script" and block.language == "bash"
        )
        self.folder = shutil.copytree(example, folder)
        shutil.copy(PAGES / f"train_{name}.py", self.folder)
        program, *self.arguments = shlex.split(command)
        forked = {}
        if programs == Path(sys.executable).parent:
            programs = FORKS.stand_ins()
            FORKS.prepare(*HEAVY.get(name, []))
            forked = {"PYTHON_EXEC": str(programs / "python"), "FORKS_PYTHON": str(programs / "python")}
        self.program = str(programs / program)
        path = [str(Path(processes.__file__).with_name("holding")), str(pages.ROOT)]
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(path),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            **forked,
        }

    def run(self, until: int | None = None, ranks: int = 1) -> Steps:
        """Run it to its end, or until all ranks have said that they are at a step, where all processes are killed."""
        held = {} if until is None else {"HOLD_AT": str(until)}
        found: Steps = {}
        with (self.folder / "errors.txt").open("w+") as errors:
            process = subprocess.Popen(
                [self.program, *self.arguments],
                cwd=self.folder,
                env=self.environment | held,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if told := LINE.fullmatch(line.rstrip("\n")):
                        found[int(told[1]), int(told[2] or 0)] = told[3].split()
                    if sum(step == until for step, _ in found) == ranks:
                        break
                else:
                    errors.seek(0)
                    assert (process.wait(), until) == (0, None), errors.read()[-8000:]
            finally:
                self._kill(process)
        return found

    def _kill(self, process: "subprocess.Popen[str]") -> None:
        """End at once all that it has started, torchrun's ranks in sessions of their own included, and all forks."""
        every = [process.pid] if process.poll() is None else []
        for pid in every:
            every += processes.children(of=pid)
        processes.kill_inside(self.folder)
        for pid in every:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def check_whole(whole: Steps, utterances: int, epochs: int) -> None:
    """Raises: AssertionError if an epoch lacks an utterance or has one twice, or a rank lacks a step."""
    ranks = {rank for _, rank in whole}
    assert sorted(whole) == [(step, rank) for step in range(1, len(whole) // len(ranks) + 1) for rank in sorted(ranks)]
    keys = [key for place in sorted(whole) for key in whole[place]]
    assert len(keys) == utterances * epochs
    for epoch in range(epochs):
        assert len(set(keys[utterances * epoch :][:utterances])) == utterances, f"epoch {epoch} has some twice"


def check_resumed(whole: Mapping[tuple[int, int], list[str]], attempts: Sequence[Steps]) -> None:
    """Raises: AssertionError if attempts, each killed but the last, did not train on what one without kills does."""
    for attempt in attempts:
        assert attempt == {place: whole.get(place) for place in attempt}
    for before, after in pairwise(attempts):
        assert min(after)[0] > 1, "it began anew"
        assert min(after)[0] <= max(before)[0] + 1, "steps between checkpoint and kill were left out"
    assert {place for attempt in attempts for place in attempt} == set(whole)
