"""The main job from end to end (``scripts/demo``): speak a corpus, prepare it, train, kill, resume, check, decode,
score.

All files go to ``demo/``. What is there already is used again; ``--fresh`` starts from nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .aishell.mini import make_mini
from .aishell.plan import settings_for
from .aishell.prepare import prepare
from .common import keylog
from .common.lists import read_lines
from .common.score import Score, read_texts, score

KILLED_EPOCH = 1
KILLED_AFTER = (30, 90)  # steps into that epoch, when there are checkpoints
MAX_CER = 5.0
CONFIG = Path(__file__).parent / "aishell" / "conf" / "mini.yaml"
console = Console(highlight=False)

WHERE_NEXT = """
Where to go next
  README.md                       the pipeline that just ran, explained
  recipes/common/pipelines.py     the graph; recipes/common/train.py: the trainer around it
  recipes/aishell/README.md       the same with the real AISHELL-1
  python -m recipes.aishell.mini OUT --hours 5    a larger mini corpus"""


class Demo:
    """The steps, in their order."""

    def __init__(self, folder: Path, hours: float, epochs: int, seed: int) -> None:
        self.corpus, self.data, self.exp = folder / "corpus", folder / "data", folder / "exp"
        self.hours, self.epochs, self.seed = hours, epochs, seed

    def run(self) -> bool:
        """Run all steps. Returns whether the checks held."""
        start = time.monotonic()
        with _phase("1. Speak a mini AISHELL-1"):
            make_mini(self.corpus, settings_for(self.hours, self.seed))
        with _phase("2. Write lists, global CMVN, a dictionary and shards"):
            prepare(self.corpus, self.data, shard_size=40)
        with _phase("3. Train on 2 ranks × 1 worker, and kill everything in the middle of an epoch"):
            self._train_and_kill()
        with _phase("4. Resume with 2 workers for each rank, and train on"), self._start(num_workers=2) as torchrun:
            if torchrun.wait():
                raise typer.Exit(1)
        with _phase("5. Was every utterance of the killed epoch delivered exactly once?"):
            exact = self._check()
        with _phase("6. Decode the unseen test part"):
            result = self._decode()
        console.print(WHERE_NEXT)
        console.print(f"\n{time.monotonic() - start:.0f} s in all")
        return _judge(result) and exact

    @contextlib.contextmanager
    def _start(self, num_workers: int) -> Iterator[subprocess.Popen[bytes]]:
        """Run torchrun. However the block ends, by Ctrl-C too, all its processes end."""
        runner = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
        values = {"train.epochs": self.epochs, "train.seed": self.seed, "train.log_every": 40}
        values["data.num_workers"] = num_workers
        options = ["--config", str(CONFIG), "--log-keys", *(f"--set={key}={value}" for key, value in values.items())]
        command = [*runner, "-m", "recipes.common.train", str(self.data), str(self.exp), *options]
        # One thread each: two ranks and their workers share the cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        console.print(f"torchrun: 2 ranks, {num_workers} worker(s) each; a line every 40 steps once torch is imported")
        torchrun = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            yield torchrun
        finally:
            if torchrun.poll() is None:
                self._kill(torchrun)

    def _train_and_kill(self) -> None:
        if keylog.last_run(self.exp):
            console.print("killed already, in an earlier demo (--fresh starts again)")
            return
        with self._start(num_workers=1) as torchrun:
            epoch, step = self._wait_for_the_middle(torchrun)
            self._kill(torchrun)
        console.print(f"[red]SIGKILL[/] to torchrun, 2 ranks and 2 workers, in epoch {epoch} after step {step}")

    def _wait_for_the_middle(self, torchrun: subprocess.Popen[bytes]) -> tuple[int, int]:
        """Wait until some steps of the epoch are done; return epoch and step."""
        wait, first = random.randint(*KILLED_AFTER), None
        while torchrun.poll() is None:
            epoch, step = keylog.progress(self.exp)
            if epoch == KILLED_EPOCH:
                first = step if first is None else first
                if step - first >= wait:
                    return epoch, step
            time.sleep(0.05)
        console.print(f"the training ended by itself, with status {torchrun.returncode}, before it could be killed")
        raise typer.Exit(1)

    def _kill(self, torchrun: subprocess.Popen[bytes]) -> None:
        """Kill torchrun first, so that it neither cleans up nor restarts; then each rank with its workers."""
        os.killpg(torchrun.pid, signal.SIGKILL)
        torchrun.wait()
        for rank in keylog.runs(self.exp):
            if rank.run == keylog.last_run(self.exp):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(rank.pid, signal.SIGKILL)  # torchrun makes each rank the leader of a group

    def _check(self) -> bool:
        keys = (line.split()[0] for line in read_lines(self.data / "train" / "text"))
        report = keylog.check_epoch(self.exp, KILLED_EPOCH, keys)
        resumed = [run for run in keylog.runs(self.exp) if run.run == 2]
        console.print(
            f"resumed from step {resumed[0].resumed_step} with {resumed[0].num_workers} workers for each rank"
        )
        console.print(f"epoch {KILLED_EPOCH}, killed and resumed: [{'green' if report.exact else 'red'}]{report}[/]")
        return report.exact

    def _decode(self) -> Score:
        from .common.decode import decode  # here, because torch takes seconds to import
        from .common.search import Search

        hypothesis = read_texts(decode(self.data, self.exp, "test", Search("ctc_greedy_search"), model="latest"))
        reference = read_texts(self.data / "test" / "text")
        for key in sorted(reference)[:3]:
            console.print(f"  {key}  said {reference[key]}\n  {'':16}  read {hypothesis.get(key, '')}")
        return score(reference, hypothesis)


def _judge(result: Score) -> bool:
    """Print the last line; return whether the model has learned enough."""
    good = result.cer < MAX_CER
    color, remark = ("green", "") if good else ("red", f" (should be below {MAX_CER} %)")
    console.print(f"[{color}]CER {result}[/]{remark}")
    return good


@contextlib.contextmanager
def _phase(title: str) -> Iterator[None]:
    console.rule(f"[bold]{title}", align="left")
    start = time.monotonic()
    yield
    console.print(f"[dim]{time.monotonic() - start:.0f} s")


def main(
    folder: Annotated[Path, typer.Option(help="Folder for all files.")] = Path("demo"),
    hours: Annotated[float, typer.Option(help="Hours of training speech.")] = 0.5,
    epochs: int = 4,
    seed: int = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the folder first.")] = False,
) -> None:
    """Speak a corpus, train on it, kill and resume the training, check that nothing was lost, print the error rate."""
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    good = Demo(folder, hours, epochs, seed).run()
    raise typer.Exit(0 if good else 1)


if __name__ == "__main__":
    typer.run(main)
