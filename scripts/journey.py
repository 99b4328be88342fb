"""Write docs/journey.md: the files and functions that one utterance passes on its way from a list into a batch.

Run ``.venv/bin/python scripts/journey.py`` when the page is out of date; with ``--check`` it only reports whether the
page names the files of today. It runs ``PROGRAM`` with two workers and notes each function of the package that is
called until the trainer has the first batch and a state: in the trainer, and in the worker that makes this batch.
Workers are forks, which keep the profile function of their trainer, so that they are followed from their first line on.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import re
import sys
import tempfile
import threading
import time
import wave
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "uio_pipes"
PAGE = ROOT / "docs" / "journey.md"
TRAINER, WORKER = 0, 1
PATIENCE = 60  # seconds for the worker to begin its second batch

PROGRAM = """\
import uio_pipes as uio

pipeline = (
    uio.from_raw_list("data/raw.list", shuffle=True)
    .decode_audio()
    .tokenize(uio.CharTokenizer("data/lang_char.txt"))
    .filter(max_frames=4_000)
    .fbank(num_mel_bins=80)
    .shuffle(16)
    .sort(8)
    .dynamic_batch(max_frames=1_000)
    .pad()
)
loader = uio.Loader(pipeline, num_workers=2)
batches = iter(loader)
batch = next(batches)
state = loader.state_dict()
"""

OPENING = """\
# The way of an utterance, function by function

This page is the best way into the code: read it from top to bottom, with the files open. It follows one utterance from
its line in a list into a batch that a trainer holds, through two worker processes, and on to the state that is saved
after it. `scripts/journey.py` writes it: it runs the program below and notes each function of `uio_pipes/` that is
called until then, in the trainer's process and in that of the worker that makes the batch. There are {files} files and
{functions} functions on this way; from the line in the list to the batch in the trainer's hands, without describing,
starting and saving, it passes {passed} files.

A pipeline is pulled: the last stage asks the one before it, and so on back to the list. The sections go the other way,
as the utterance does. Within a section, files and functions stand in the order of their first call, each with the
first sentence of its documentation; a function that several sections call stands in the first of them. Comprehensions,
lambdas and properties that only look something up are left out. [Architecture](architecture.md) has the words, the
rules and the pictures.

```bash
uio example .
```

```python
{program}```
"""


class Section(NamedTuple):
    """A part of the way. ``calls``: functions with which it begins; what they call belongs to it, up to another part's.

    ``order``: the processes that take part, in the order in which they do.
    """

    title: str
    sentence: str
    calls: tuple[str, ...] = ()
    order: tuple[int, ...] = (TRAINER, WORKER)


SECTIONS = (
    Section(
        "Describing",
        "In the trainer's process. Each call adds a stage, a frozen dataclass, to a tuple; arguments are checked, and "
        "no audio is opened.",
    ),
    Section(
        "Starting the loader",
        "In the trainer's process first: the loader checks its options, splits the epoch into lanes, deals the lanes "
        "to the workers and starts them. Then in the worker's process, a fork: it builds the nodes of its lanes, one "
        "for each stage, and restores them, here to the beginning of the epoch.",
        ("Loader.__init__", "Loader.__iter__"),
    ),
    Section(
        "Listing",
        "In the worker. A position in the shuffled order of the epoch becomes a line of the list, if it is one of "
        "this lane, and the line becomes a sample: a key, a text, and a reference to a file.",
        ("ListFiles.table", "SourceNode.next", "_ShardingNode.next", "_LoadingNode.next"),
        (WORKER, TRAINER),
    ),
    Section(
        "Planning",
        "In the worker. The filter asks how long the utterance will be. The header of its file says so, and each "
        "stage says what it makes of that; nothing is decoded.",
        ("FilterNode.next", "FilterNode.reason", "Sample.plan", "Deferred.next"),
        (WORKER, TRAINER),
    ),
    Section(
        "Ordering",
        "In the worker. `shuffle` and `sort` hold samples, which are small as long as nothing is decoded, and give "
        "them in another order.",
        ("_ShuffleNode.next", "_SortNode.next"),
        (WORKER, TRAINER),
    ),
    Section(
        "Batching",
        "In the worker. Samples are put together until one more would make the batch larger than its budget, by the "
        "planned lengths.",
        ("_DynamicNode.next",),
        (WORKER, TRAINER),
    ),
    Section(
        "Realizing",
        "In the worker. Only now is the audio read and decoded and are features made, and each utterance is written "
        "to its row of the batch.",
        ("_PadNode.next",),
        (WORKER, TRAINER),
    ),
    Section(
        "Merging",
        "In the trainer. Lanes take turns: the batch that comes next is that of the lane whose turn it is, whoever "
        "made it, and however many workers there are.",
        ("Batches.__next__",),
    ),
    Section(
        "Handing over",
        "The worker packs the batch together with a snapshot of its nodes: large tensors go through shared memory. "
        "The trainer unpacks it and notes where the lane stands.",
        ("LaneRunner._deliver", "PackedMessage.__init__", "Worker.take"),
        (WORKER, TRAINER),
    ),
    Section(
        "Saving a state",
        "In the worker, each node says where it stands, a buffer where its window began. In the trainer, the snapshots "
        "of the batches that it has received become one state.",
        ("Node.get_state", "Buffer.get_state", "Loader.state_dict"),
        (WORKER, TRAINER),
    ),
)

_TITLES = [section.title for section in SECTIONS]
BETWEEN = range(_TITLES.index("Listing"), _TITLES.index("Saving a state"))  # from list to batch


@dataclass(frozen=True)
class Function:
    """A function of the package. ``of``: its class, or nothing; ``line``: that of its first decorator, or its own."""

    file: str
    line: int
    of: str
    name: str
    sentence: str
    of_sentence: str
    shown: bool

    @property
    def path(self) -> str:
        return f"{self.of}.{self.name}" if self.of else self.name


def first_sentence(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """Return the first sentence of the documentation, as Markdown."""
    text = re.sub(r"\s+", " ", (ast.get_docstring(node) or "").split("\n\n")[0]).strip()
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text.replace("``", "`"))
    sentence = re.split(r"(?<=[^.\W]\.)\s(?=[A-Z`(])", text, maxsplit=1)[0]
    return sentence.strip()


def functions_of(path: Path) -> Iterator[Function]:
    """Yield the functions and methods of a module, without those within functions."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    file = str(path.relative_to(PACKAGE))
    todo: list[tuple[str, str, ast.stmt]] = [("", "", node) for node in module.body]
    while todo:
        of, documented, node = todo.pop(0)
        if isinstance(node, ast.ClassDef):
            todo = [*((node.name, first_sentence(node), one) for one in node.body), *todo]
        elif isinstance(node, ast.FunctionDef):
            line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield Function(file, line, of, node.name, first_sentence(node), documented, says_something(node))


def says_something(node: ast.FunctionDef) -> bool:
    """Return whether a reader should see it: no property that only looks something up, and no dunder but the few."""
    if node.name.startswith("__") and node.name not in ("__init__", "__iter__", "__next__", "__call__"):
        return False
    looked_up = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    calls = any(isinstance(part, ast.Call) for statement in node.body for part in ast.walk(statement))
    return not looked_up or calls


class Index:
    """The functions of the package; a module is read when one of its functions is first asked for."""

    def __init__(self) -> None:
        self._of_file: dict[str, list[Function]] = {}

    def of(self, file: str) -> list[Function]:
        """Return the functions of a module."""
        if file not in self._of_file:
            self._of_file[file] = list(functions_of(PACKAGE / file))
        return self._of_file[file]

    def at(self, file: str, line: int, name: str) -> Function | None:
        """Return the function whose code begins there; None for one within another function, or for a lambda."""
        return next((one for one in self.of(file) if (one.line, one.name) == (line, name)), None)

    def named(self, file: str, path: str) -> Function:
        """Return a function by its name; of a property with a setter, the first."""
        return next(one for one in self.of(file) if one.path == path)

    def sentence(self, file: str) -> str:
        """Return what a module says of itself."""
        return first_sentence(ast.parse((PACKAGE / file).read_text(encoding="utf-8")))


class Call(NamedTuple):
    """A first call: the number of its section, the process, and the number of the call in it."""

    section: int
    process: int
    number: int


@dataclass
class Trace:
    """Follows a process, and its first fork. ``report``: where the fork writes what it has found."""

    index: Index
    report: Path
    calls: dict[Function, Call] = field(default_factory=dict)
    process: int = TRAINER
    forks: int = 0
    fetched: int = 0
    passed: set[str] = field(default_factory=set)
    sections: dict[str, int] = field(default_factory=dict)
    of_code: dict[Any, tuple[Function | None, int | None, str]] = field(default_factory=dict)
    stacks: threading.local = field(default_factory=threading.local)

    def run(self, program: str) -> None:
        """Run the program and note what it calls."""
        self.sections = {call: number for number, section in enumerate(SECTIONS) for call in section.calls}
        os.register_at_fork(before=self._count, after_in_child=self._in_fork)
        code = compile(program, "<program>", "exec")
        gc.disable()  # else it decides when objects go
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            names: dict[str, Any] = {"__name__": "program"}
            exec(code, names)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        self._add_report()
        gc.enable()
        names.clear()

    def _count(self) -> None:
        self.forks += 1

    def _in_fork(self) -> None:
        if self.process == TRAINER and self.forks == 1:
            self.process, self.calls, self.passed = WORKER, {}, set()
        else:
            self._stop()

    def _stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _add_report(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.report.exists():
            if time.monotonic() > deadline:
                sys.exit("the worker that makes the first batch was not followed: has it been started in another way?")
            time.sleep(0.01)
        report = json.loads(self.report.read_text())
        self.passed.update(report["passed"])
        for file, path, *call in report["calls"]:
            self._note(self.index.named(file, path), Call(*call))

    def _note(self, function: Function, call: Call) -> None:
        before = self.calls.get(function)
        if before is None or _place(call) < _place(before):
            self.calls[function] = call

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        stack = self._stack()
        if event == "return":
            if len(stack) > 1:
                stack.pop()
            return
        known = self.of_code.get(frame.f_code)
        if known is None:
            known = self.of_code[frame.f_code] = self._known(frame)
        function, begins, what = known
        if what == "fetch" and self.process == WORKER:
            self.fetched += 1
            if self.fetched == 2:
                self._end_of_worker()
                return
        section = -1 if what == "aside" or stack[-1] < 0 else stack[-1] if begins is None else begins
        stack.append(section)
        if function is not None and section >= 0:
            self._note(function, Call(section, self.process, len(self.calls)))
            if section in BETWEEN:
                self.passed.add(function.file)

    def _stack(self) -> list[int]:
        """Return the sections of the calls under way in this thread. Threads of the trainer bring it batches, one of
        the worker watches the trainer."""
        stack: list[int] | None = getattr(self.stacks, "sections", None)
        if stack is None:
            threads = "Merging" if self.process == TRAINER else "Starting the loader"
            begins = "Describing" if threading.current_thread() is threading.main_thread() else threads
            stack = self.stacks.sections = [_TITLES.index(begins)]
        return stack

    def _known(self, frame: FrameType) -> tuple[Function | None, int | None, str]:
        """Return the function that a frame runs, the section that it begins, and what is special about it."""
        code = frame.f_code
        if code.co_filename.endswith("torch/utils/data/_utils/fetch.py"):
            return None, None, code.co_name
        if not code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
            return None, None, ""
        if code.co_name in ("<module>", "__del__"):  # what modules do when they are imported, and objects when they go
            return None, None, "aside"
        file = str(Path(code.co_filename).relative_to(PACKAGE))
        function = self.index.at(file, code.co_firstlineno, code.co_name)
        if function is None:
            return None, None, ""
        return (function if function.shown else None), self.sections.get(function.path), ""

    def _end_of_worker(self) -> None:
        """Write what was found: the worker begins another batch, with which the utterance has nothing to do."""
        self._stop()
        rows = [[function.file, function.path, *call] for function, call in self.calls.items()]
        new = self.report.with_suffix(".new")
        new.write_text(json.dumps({"calls": rows, "passed": sorted(self.passed)}))
        new.replace(self.report)


def _place(call: Call) -> tuple[int, int, int]:
    """Return what calls are sorted by: the section, and the turn of their process in it."""
    return call.section, SECTIONS[call.section].order.index(call.process), call.number


def make_data(folder: Path) -> None:
    """Write a raw list of 48 hums, and a dictionary, as ``uio example`` names them."""
    (folder / "data" / "wav").mkdir(parents=True)
    lines = []
    for number in range(48):
        name, samples = f"data/wav/U{number:03d}.wav", 8000 + 500 * (number * 7 % 48)
        with wave.open(str(folder / name), "wb") as file:
            file.setparams((1, 2, 16_000, samples, "NONE", ""))
            file.writeframes(b"\x00\x10\x00\xf0" * (samples // 2))
        lines.append(json.dumps({"key": f"U{number:03d}", "wav": name, "txt": "ab"}) + "\n")
    (folder / "data" / "raw.list").write_text("".join(lines))
    symbols = ["<blank>", "<unk>", "a", "b"]
    (folder / "data" / "lang_char.txt").write_text("".join(f"{symbol} {at}\n" for at, symbol in enumerate(symbols)))


def traced() -> tuple[Index, list[tuple[Function, Call]], set[str]]:
    """Run the program; return the functions in the order of the page, and the files between list and batch."""
    sys.path.insert(0, str(ROOT))
    import uio_pipes.api  # noqa: F401  (so that what is imported at once is not imported on the way)

    index = Index()
    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder))
        trace = Trace(index, Path(folder) / "worker.json")
        before = os.getcwd()
        os.chdir(folder)
        try:
            trace.run(PROGRAM)
        finally:
            os.chdir(before)
    met = {function.path for function in trace.calls}
    if lost := [call for section in SECTIONS for call in section.calls if call not in met]:
        sys.exit(f"{', '.join(lost)}: not on the way any more; name another in SECTIONS of scripts/journey.py")
    return index, sorted(trace.calls.items(), key=lambda one: _place(one[1])), trace.passed


def page(index: Index, calls: list[tuple[Function, Call]], passed: set[str]) -> str:
    """Return the text of the page; ``passed``: the files between starting the loader and saving a state."""
    files = {function.file for function, _ in calls}
    text = [OPENING.format(files=len(files), functions=len(calls), passed=len(passed), program=PROGRAM)]
    for number, section in enumerate(SECTIONS):
        text += [f"## {section.title}\n", f"{section.sentence}\n"]
        here = [function for function, call in calls if call.section == number]
        for file in dict.fromkeys(function.file for function in here):
            text += [f"**`{file}`**: {index.sentence(file)}\n"]
            text += ["\n".join(lines_of([function for function in here if function.file == file])) + "\n"]
    return "\n".join(text)


def lines_of(functions: list[Function]) -> Iterator[str]:
    """Yield a line for each function that says what it does, one for the others of each class, and one for the rest."""
    told: set[str] = set()
    for function in functions:
        if function.sentence:
            yield f"- `{function.path}`: {function.sentence}"
        elif function.of and function.of not in told:
            told.add(function.of)
            mute = [one.name for one in functions if one.of == function.of and not one.sentence]
            names = ", ".join(f"`{name}`" for name in mute if name != "__init__")
            yield f"- `{function.of}`{names and f' ({names})'}" + (function.of_sentence and f": {function.of_sentence}")
    if rest := [function.name for function in functions if not function.sentence and not function.of]:
        yield "- and " + ", ".join(f"`{name}`" for name in rest)


def files_named(text: str) -> set[str]:
    """Return the files that a page names."""
    return set(re.findall(r"^\*\*`([\w/]+\.py)`\*\*", text, re.MULTILINE))


def outdated(written: str, current: str) -> str:
    """Return what is wrong with the files that the written page names, nothing if it is current."""
    there, today = files_named(written), files_named(current)
    wrong = [f"lacks {file}" for file in sorted(today - there)]
    wrong += [f"has {file}, which is not on the way" for file in sorted(there - today)]
    return ", ".join(wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/journey.md.")
    parser.add_argument("--check", action="store_true", help="only report whether the page names the files of today")
    options = parser.parse_args()
    index, calls, passed = traced()
    current = page(index, calls, passed)
    if not options.check:
        PAGE.write_text(current, encoding="utf-8")
    elif wrong := outdated(PAGE.read_text(encoding="utf-8"), current):
        sys.exit(f"docs/journey.md {wrong}: run .venv/bin/python scripts/journey.py")
    print(f"{len(files_named(current))} files, {len(calls)} functions; {len(passed)} files from list to batch")


if __name__ == "__main__":
    main()
