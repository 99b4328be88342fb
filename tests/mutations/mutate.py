"""Put small faults into a copy of the package, one at a time, and say which test catches each.

    .venv/bin/python tests/mutations/mutate.py            all faults, in about ten minutes
    .venv/bin/python tests/mutations/mutate.py seed lag   those whose name contains one of these words
    .venv/bin/python tests/mutations/mutate.py --daily    by the tests that scripts/test runs: without the slow ones

The tests run without a fault first. One catches a fault if it fails with it and passes without. Run it by hand before
and after a change of the tests: what was caught must still be. The exit status is the number of faults missed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NODES = "tests/test_contract.py::test_node_contract"
CUTS = "tests/test_contract.py::test_rest_is_identical_after_every_cut"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", re.MULTILINE)


class Fault(NamedTuple):
    """A text that stands once in the package, what stands there instead, and the tests that are likely to notice."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "window: a buffer's state says that it began one utterance later",
        'state["window"] = self.arrived - base\n',
        'state["window"] = self.arrived - base - 1\n',
        ("tests/core/test_buffer.py", "tests/core/test_ledger.py", NODES),
    ),
    Fault(
        "mark: a buffer forgets a snapshot that its oldest utterance needs",
        "self._marks[1][0] <= self.oldest:",
        "self._marks[1][0] <= self.oldest + 1:",
        ("tests/core/test_buffer.py", NODES, CUTS),
    ),
    Fault(
        "lag: shuffle holds an utterance without a bound",
        "late = self.age() > LAG * self.size",
        "late = False",
        ("tests/stages/test_shuffle.py",),
    ),
    Fault(
        "seed: a buffer's choices do not depend on the epoch",
        "return self.seed, self.epoch, self.pass_, self.source",
        "return self.seed, 0, self.pass_, self.source",
        ("tests/stages/test_shuffle.py", "tests/test_contract.py::test_epochs_differ_in_order"),
    ),
    Fault(
        "salt: two stages of one name draw the same",
        'return stable_hash("site", self.name, self.ordinal)',
        'return stable_hash("site", self.name, 0)',
        ("tests/core/test_streams.py",),
    ),
    Fault(
        "snapshot: a lane's snapshot is lost when it comes",
        "state.at, state.nodes = state.k, message.snapshot",
        "state.at = state.k",
        (CUTS, "tests/run/test_state_merging.py"),
    ),
    Fault(
        "ended: a lane that has ended begins again after a resume",
        "state.pass_, state.done, state.counts = message.pass_, message.done, message.counts",
        "state.pass_, state.counts = message.pass_, message.counts",
        ("tests/run/test_state_merging.py", "tests/run/test_epochs.py", CUTS),
    ),
    Fault(
        "twice: failures are counted again while a state is restored",
        "self.ledger.quiet, self.mode.skimming = True, skimming",
        "self.mode.skimming = skimming",
        ("tests/core/test_ledger.py",),
    ),
    Fault(
        "flush: sort drops its last, partly filled buffer",
        "            pass\n        self.ready = deque(",
        "            lengths = []\n        self.ready = deque(",
        ("tests/stages/test_shuffle.py", NODES),
    ),
    Fault(
        "budget: a dynamic batch is one utterance too large",
        "if self.budget.room(max(batch.worst, cost)) <= len(batch.numbers):",
        "if self.budget.room(max(batch.worst, cost)) < len(batch.numbers):",
        ("tests/stages/test_budget.py",),
    ),
    Fault(
        "held: the utterance that did not fit is lost",
        "                self.first = [number]\n                return self.give(batch.numbers)",
        "                return self.give(batch.numbers)",
        ("tests/stages/test_budget.py", NODES),
    ),
    Fault(
        "longer: an utterance longer than planned is delivered",
        "longer = actual.frames > planned.frames  # type: ignore[operator]",
        "longer = False",
        ("tests/core/test_streams.py", "tests/stages/test_map.py", "tests/sources/test_ark.py"),
    ),
    Fault(
        "incomplete: an utterance that damage has cut is delivered",
        "return None if touched and self._lacks(group) else group",
        "return group",
        ("tests/formats/tar", "tests/formats/test_advice.py"),
    ),
    Fault(
        "ended source: a mix forgets a source that has ended",
        "        self.ended.add(at)\n        if not source.given:",
        "        if not source.given:",
        ("tests/stages/test_mix.py", NODES),
    ),
    Fault(
        "round: each round of repeat is shuffled alike",
        "self.source = self.upstream(self.lane.in_round(number))",
        "self.source = self.upstream(self.lane.in_round(0))",
        ("tests/stages/test_mix.py", NODES),
    ),
    Fault(
        "order: batches of a rank come lane by lane",
        "heapq.heappush(self._due, (pass_, k + 1, lane))",
        "heapq.heappush(self._due, (pass_, k, lane))",
        (CUTS, "tests/run/test_epochs.py", "tests/run/test_topology.py"),
    ),
    Fault(
        "streak: the budget of failures in a row never ends",
        "if self.streaks[stage] > self.policy.max_consecutive_failures:",
        "if self.streaks[stage] > self.policy.max_consecutive_failures + 1:",
        ("tests/core/test_ledger.py",),
    ),
    Fault(
        "plan: speed_perturb plans the length of another draw",
        "return Plan(speed_length(plan.samples, self._draw(draws)), plan.sample_rate)",
        "return Plan(speed_length(plan.samples, self.speeds[0]), plan.sample_rate)",
        ("tests/stages/test_ops.py",),
    ),
    Fault(
        "deal: a lane takes the items of the next one",
        "return range(rank, lanes, world_size)",
        "return range((rank + 1) % world_size, lanes, world_size)",
        ("tests/run/test_epochs.py", "tests/run/test_topology.py"),
    ),
    Fault(
        "check: changed data under a buffer go unnoticed",
        '        if self.check != initial_state["check"]:\n',
        "        if False:\n",
        ("tests/core/test_buffer.py", "tests/run/test_damaged_state.py", "tests/run/test_replay.py"),
    ),
)


def main() -> None:
    daily = ["-m", "not slow"] if "--daily" in sys.argv else []
    words = [word for word in sys.argv[1:] if word != "--daily"]
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        if red := failing(copy, [*dict.fromkeys(test for fault in chosen for test in fault.tests), *daily]):
            sys.exit(f"{red} fails without a fault: mend it first")
        print("| fault | caught by | seconds |\n|---|---|---:|")
        for fault in chosen:
            began = time.monotonic()
            by = caught(copy, fault, daily)
            missed += not by
            print(f"| {fault.name} | {f'`{by}`' if by else 'MISSED'} | {time.monotonic() - began:.0f} |", flush=True)
    print(f"\n{len(chosen) - missed} of {len(chosen)} faults are caught")
    sys.exit(missed)


def copied(folder: Path) -> Path:
    """Copy the files of the repository as they are now, and the compiled kernel, into ``folder``."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    built = [str(path.relative_to(ROOT)) for path in (ROOT / "uio_pipes").rglob("*.so")]
    for file in filter(lambda file: (ROOT / file).is_file(), [*listed.split("\0"), *built]):  # not what is deleted
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, folder / file)
    return folder


def caught(copy: Path, fault: Fault, options: Sequence[str]) -> str:
    """Return the first test that fails with ``fault`` in ``copy`` and passes without it; "" if none does."""
    unsure: list[str] = []  # tests that failed without it, too
    path, text = place(fault, copy / "uio_pipes")
    while True:
        path.write_text(text.replace(fault.old, fault.new))
        found = failing(copy, [*fault.tests, *options, *(f"--deselect={test}" for test in unsure)])
        path.write_text(text)
        if not found or not failing(copy, [found]):
            return found
        unsure.append(found)


def place(fault: Fault, package: Path) -> tuple[Path, str]:
    """Return the file to change and its text. Raises: SystemExit if what is to be replaced does not stand once in the
    package: then renew the fault."""
    texts = {path: path.read_text() for path in sorted(package.rglob("*.py"))}
    places = [path for path, text in texts.items() for _ in range(text.count(fault.old))]
    if len(places) != 1:
        sys.exit(f"{fault.name}: its text must stand once in the package, not in {[p.name for p in places]}: renew it")
    return places[0], texts[places[0]]


def failing(folder: Path, arguments: Sequence[str]) -> str:
    """Run tests in ``folder`` up to the first failure, and return its name; "" if all pass."""
    env = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout=60", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    found = FAILED.search(done.stdout)
    if not found and done.returncode not in (0, 5):  # 5: all of them are slow
        sys.exit(f"no test failed, but pytest: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found[1] if found else ""


if __name__ == "__main__":
    main()
