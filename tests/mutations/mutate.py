"""Put small faults into a copy of the package, one at a time, and say which test catches each.

    .venv/bin/python tests/mutations/mutate.py            all faults; takes about an hour on two cores
    .venv/bin/python tests/mutations/mutate.py seed lag   those whose name contains one of these words

The tests beside the fault run first, and most others only if those miss it. It is run by hand, before and after a
change of the tests: what was caught before must be caught after it. The exit status is the number of faults missed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = "tests/test_contract.py"
EVERYTHING = (
    "tests/core",
    "tests/run",
    "tests/stages",
    "tests/sources",
    "tests/formats",
    "tests/io",
    "tests/audio",
    CONTRACT,
)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


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
        ("tests/core/test_ledger.py", "tests/core", CONTRACT),
    ),
    Fault(
        "mark: a buffer forgets a snapshot that its oldest utterance needs",
        "self._marks[1][0] <= self.oldest:",
        "self._marks[1][0] <= self.oldest + 1:",
        ("tests/core/test_ledger.py", "tests/core", CONTRACT),
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
        ("tests/test_golden.py", "tests/core"),
    ),
    Fault(
        "salt: two stages of one name draw the same",
        'return stable_hash("site", self.name, self.ordinal)',
        'return stable_hash("site", self.name, 0)',
        ("tests/core/test_streams.py", "tests/test_golden.py"),
    ),
    Fault(
        "snapshot: a lane's snapshot is lost when it comes",
        "state.at, state.nodes = state.k, message.snapshot",
        "state.at = state.k",
        ("tests/run", CONTRACT),
    ),
    Fault(
        "ended: a lane that has ended begins again after a resume",
        "state.pass_, state.done, state.counts = message.pass_, message.done, message.counts",
        "state.pass_, state.counts = message.pass_, message.counts",
        ("tests/run", CONTRACT),
    ),
    Fault(
        "twice: failures are counted again while a state is restored",
        "self.ledger.quiet, self.mode.skimming = True, skimming",
        "self.mode.skimming = skimming",
        ("tests/core/test_ledger.py", "tests/core", "tests/run", CONTRACT),
    ),
    Fault(
        "flush: sort drops its last, partly filled buffer",
        "            pass\n        self.ready = deque(",
        "            lengths = []\n        self.ready = deque(",
        ("tests/stages/test_sort.py", CONTRACT),
    ),
    Fault(
        "budget: a dynamic batch is one utterance too large",
        "if self.budget.room(max(batch.worst, cost)) <= len(batch.numbers):",
        "if self.budget.room(max(batch.worst, cost)) < len(batch.numbers):",
        ("tests/stages/test_dynamic_batch.py",),
    ),
    Fault(
        "held: the utterance that did not fit is lost",
        "                self.first = [number]\n                return self.give(batch.numbers)",
        "                return self.give(batch.numbers)",
        ("tests/stages/test_dynamic_batch.py", CONTRACT),
    ),
    Fault(
        "longer: an utterance longer than planned is delivered",
        "longer = actual.frames > planned.frames  # type: ignore[operator]",
        "longer = False",
        ("tests/core", "tests/stages"),
    ),
    Fault(
        "incomplete: an utterance that damage has cut is delivered",
        "return None if touched and self._lacks(group) else group",
        "return group",
        ("tests/formats/tar", "tests/sources"),
    ),
    Fault(
        "ended source: a mix forgets a source that has ended",
        "        self.ended.add(at)\n        if not source.given:",
        "        if not source.given:",
        ("tests/stages/test_mix.py", CONTRACT),
    ),
    Fault(
        "round: each round of repeat is shuffled alike",
        "self.source = self.upstream(self.lane.again(number))",
        "self.source = self.upstream(self.lane.again(0))",
        ("tests/stages/test_repeat.py", CONTRACT),
    ),
    Fault(
        "order: batches of a rank come lane by lane",
        "heapq.heappush(self._due, (pass_, k + 1, lane))",
        "heapq.heappush(self._due, (pass_, k, lane))",
        ("tests/run", CONTRACT),
    ),
    Fault(
        "streak: the budget of failures in a row never ends",
        "if self.streaks[stage] > self.policy.max_consecutive_failures:",
        "if self.streaks[stage] > self.policy.max_consecutive_failures + 1:",
        ("tests/core",),
    ),
    Fault(
        "plan: speed_perturb plans the length of another draw",
        "return Plan(speed_length(plan.samples, self._draw(draws)), plan.sample_rate)",
        "return Plan(speed_length(plan.samples, self.speeds[0]), plan.sample_rate)",
        ("tests/stages/test_speed_perturb.py", CONTRACT),
    ),
    Fault(
        "deal: a lane takes the items of the next one",
        "return range(rank, lanes, world_size)",
        "return range((rank + 1) % world_size, lanes, world_size)",
        ("tests/core", "tests/run"),
    ),
    Fault(
        "check: changed data under a buffer go unnoticed",
        "        if self.check != check:\n",
        "        if False:\n",
        ("tests/core", "tests/run", "tests/sources"),
    ),
)


def main() -> None:
    words = sys.argv[1:]
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    missed = 0
    for fault in chosen:
        began = time.monotonic()
        by = caught(fault)
        missed += not by
        print(f"{fault.name}: {f'caught by {by}' if by else 'MISSED'}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults are caught")
    sys.exit(missed)


def caught(fault: Fault) -> str:
    """Return the first test that fails with ``fault`` in a copy of the package; "" if none does."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "uio_pipes"
        for part in ("uio_pipes", "tests", "recipes", "benchmarks"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "CONTRIBUTING.md"):  # tests/core/test_own_stages.py takes stages from the latter
            shutil.copy(ROOT / file, copy)
        put_in(fault, copy / "uio_pipes")
        return failing(copy, fault.tests) or failing(copy, EVERYTHING)


def put_in(fault: Fault, package: Path) -> None:
    """Replace the text. Raises: SystemExit if it does not stand exactly once in the package: then renew the fault."""
    places = [path for path in sorted(package.rglob("*.py")) if fault.old in path.read_text()]
    if len(places) != 1 or places[0].read_text().count(fault.old) != 1:
        sys.exit(f"{fault.name}: its text must stand once in the package, not in {[p.name for p in places]}: renew it")
    places[0].write_text(places[0].read_text().replace(fault.old, fault.new))


def failing(folder: Path, tests: tuple[str, ...]) -> str:
    """Run tests in ``folder`` up to the first failure, and return its name."""
    env = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "OMP_NUM_THREADS": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / ".hypothesis"),
    }
    command = [sys.executable, "-m", "pytest", "-n2", "-x", "-q", "--timeout=120", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode not in (0, 1, 2):
        sys.exit(f"pytest did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = FAILED.search(done.stdout)
    if found and "::" not in found[1]:
        sys.exit(f"{found[1]} cannot be collected, which catches nothing: {done.stdout[-2000:]}")
    return found[1] if found else ""


if __name__ == "__main__":
    main()
