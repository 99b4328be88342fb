"""The parts that the benchmarks share: a process for each measurement, one thread, tables, facts of the machine."""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

__all__ = [
    "QUICK",
    "Report",
    "begin",
    "child",
    "default_folder",
    "load",
    "median",
    "older",
    "one_thread",
    "parser",
    "ratio",
    "rounds",
    "settle",
    "sized",
    "spread",
]

QUICK = (
    os.environ.get("UIO_BENCHMARKS") == "quick"
)  # a few utterances, once: everything runs, but the figures mean nothing
RESULTS = Path(__file__).parent / "results"
INSTALL = "install the peers by pip install -e '.[benchmarks]'"
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
T = TypeVar("T")
PACKAGES = (
    "torch",
    "torchaudio",
    "torchdata",
    "numpy",
    "soundfile",
    "webdataset",
    "lhotse",
    "torchcodec",
    "isal",
    "megatron-energon",
    "litdata",
    "mosaicml-streaming",
    "grain",
    "spdl-core",
    "spdl-io",
)


def sized(usual: T, quick: T) -> T:
    """Return ``usual``, or ``quick`` if the benchmarks are only to show that they run."""
    return quick if QUICK else usual


def one_thread() -> None:
    """Make torch use one thread; call it before torch is used."""
    import torch

    torch.set_num_threads(1)


def settle() -> None:
    """Take all that is loaded out of Python's garbage collection; call it after the imports, before the clock starts.

    Otherwise, a full collection, 0.1 s with torch loaded, falls into a measurement or not by the number of modules.
    """
    gc.collect()
    gc.freeze()


def default_folder() -> Path:
    """Return a temporary folder; it is kept between runs until the system empties it."""
    return Path(tempfile.gettempdir()) / ("uio_pipes_benchmarks_quick" if QUICK else "uio_pipes_benchmarks")


def parser(description: str | None, repeats: int, only: Collection[str] = ()) -> argparse.ArgumentParser:
    """Return a parser with the arguments that all benchmarks have. ``only``: what is measured, where one can choose."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--data", type=Path, default=default_folder(), help="folder of the corpus; made if it is not there"
    )
    made.add_argument("--repeats", type=int, default=sized(repeats, 1), help="measurements of each; medians are shown")
    made.add_argument("--old", metavar="COMMIT", help="measure uio_pipes as of this commit, too, where the script can")
    made.add_argument("--child", help=argparse.SUPPRESS)
    if only:
        made.add_argument("--only", nargs="*", choices=only, default=list(only), help="these, and not all")
    return made


def begin(measure: Callable[..., dict[str, Any]], parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments. In a child process, measure, print the result as JSON and exit instead."""
    sys.excepthook = _told
    arguments = parser.parse_args()
    if arguments.child is not None:
        one_thread()
        settle()
        print("\n" + json.dumps(measure(**json.loads(arguments.child))))
        sys.exit()
    return arguments


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say in one line what is not installed; show any other error as usual."""
    if lacking := _lacking(error):
        print(lacking, file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _lacking(error: BaseException) -> str:
    """Return which package or system library is not installed, or nothing if that is not what is wrong."""
    text = str(error).strip()
    if library := re.search(r"(lib[\w.+-]+\.so[.\d]*): cannot open shared object file", text):
        return f"the system has no {library[1]}, which a peer needs (that of FFmpeg: apt install ffmpeg); {INSTALL}"
    # an error in a worker of torch's has it in its last line
    return f"{text.splitlines()[-1].rstrip('.')}: {INSTALL}" if isinstance(error, ImportError) and text else ""


def older(jobs: Mapping[str, Mapping[str, object]], commit: str | None) -> dict[str, dict[str, object]]:
    """Return the jobs as they are to be measured with the package of ``commit``, by names of their own."""
    if commit is None or QUICK:
        return {}
    return {f"{name}, {commit}": {**job, "commit": commit} for name, job in jobs.items()}


@cache
def _folder_of(commit: str) -> Path:
    """Return a folder with the package as of ``commit``, and the benchmarks as they are; it is removed at exit."""
    root, folder = RESULTS.parents[1], Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    wanted = ["uio_pipes", "setup.py", "README.md", "pyproject.toml"]
    packed = subprocess.run(["git", "archive", commit, *wanted], cwd=root, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(folder)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]  # its kernel, if it has one
    subprocess.run(build, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name in ("benchmarks", "recipes"):
        (folder / name).symlink_to(root / name)
    return folder


def child(module: str, commit: str | None = None, packages: str = "", **what: object) -> dict[str, Any]:
    """Measure once in a fresh process (in a quick run, in this one), with one thread. ``{"error": …}`` if it failed.

    With ``commit``, the package is that of this commit. ``packages``: a folder made by ``pip install --target``, whose
    packages come before those that are installed.
    """
    if QUICK:
        return _here(module, json.loads(json.dumps(what, default=str)))
    command = [sys.executable, "-m", module, "--child", json.dumps(what, default=str)]
    path = os.pathsep.join(filter(None, (packages, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), **({"PYTHONPATH": path} if path else {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process would compile again what it imports
    done = subprocess.run(
        command, cwd=commit and _folder_of(commit), env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:300]
        if last.endswith(INSTALL):
            return {"error": last}
        print(done.stderr[-4000:], file=sys.stderr)
        return {"error": last}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _here(module: str, what: dict[str, Any]) -> dict[str, Any]:
    one_thread()
    try:
        result: dict[str, Any] = json.loads(json.dumps(import_module(module).measure(**what)))
    except Exception as error:
        return {"error": _lacking(error) or f"{type(error).__name__}: {error}"}
    return result


def rounds(
    module: str, jobs: Mapping[str, Mapping[str, object]], repeats: int, **common: object
) -> dict[str, list[dict[str, Any]]]:
    """Measure each job ``repeats`` times, in turns, so that a busy moment of the machine hits all of them alike.

    ``common``: arguments that all jobs have, beside their own.
    """
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(module.rsplit(".", 1)[-1], total=repeats * len(jobs))
        for turn in range(repeats):
            order = list(jobs) if turn % 2 == 0 else list(jobs)[::-1]
            for name in order:
                progress.update(task, description=name)
                if not any("error" in result for result in results[name]):
                    results[name].append(child(module, **common, **jobs[name]))
                progress.advance(task)
    return results


def median(results: Sequence[Mapping[str, Any]], field: str) -> float:
    """Return the median of ``field`` over the measurements; NaN if they failed."""
    values = [float(result[field]) for result in results if field in result]
    return statistics.median(values) if values else float("nan")


def ratio(mine: float, theirs: float) -> str:
    """Return ``mine`` as a multiple of ``theirs``."""
    return f"{mine / theirs:.2f}×" if theirs == theirs else "–"


def spread(results: Sequence[Mapping[str, Any]], field: str, form: str = ".2f") -> str:
    """Return the median, with the lowest and highest in brackets."""
    values = [float(result[field]) for result in results if field in result]
    if not values:
        return "–"
    return f"{statistics.median(values):{form}} ({min(values):{form}}…{max(values):{form}})"


def load() -> str:
    """Return how busy the machine is: the mean length of the run queue over the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


class Report:
    """Tables and lines, printed at once and written to ``results/NAME.md`` at the end."""

    def __init__(self, name: str, title: str) -> None:
        self.name, self.console = name, Console(width=None if sys.stdout.isatty() else 140)
        self.began, self.since = load(), time.monotonic()
        self.lines = [f"# {title}", ""]
        self._plots: list[tuple[str, list[str], dict[str, list[float]]]] = []  # title, labels, values by name

    def text(self, line: str) -> None:
        """Add a paragraph."""
        self.console.print(line, markup=False)
        self.lines += [line, ""]

    def table(
        self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], plot: Sequence[int] = ()
    ) -> None:
        """Add a table; its first column is text, the others are numbers. ``plot``: columns drawn as bars, too."""
        shown = Table(title=title, title_justify="left")
        for i, column in enumerate(columns):
            shown.add_column(column, justify="left" if i == 0 else "right")
        for row in rows:
            shown.add_row(*row)
        self.console.print(shown)
        cells = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
        self.lines += [f"**{title}**", "", *("| " + " | ".join(row) + " |" for row in cells), ""]

        if plot:
            self.plot(title, columns, rows, plot)

    def plot(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], which: Sequence[int]) -> None:
        """Draw some columns of a table as bars."""
        series = {columns[i]: [_number(row[i]) for row in rows] for i in which}
        self._plots.append((title, [row[0] for row in rows], series))

    def ran(self, results: Mapping[str, list[dict[str, Any]]], what: str = "") -> dict[str, list[dict[str, Any]]]:
        """Return the results of ``rounds`` that did not fail. Each failure becomes a line that begins with ``what``."""
        for name, runs in results.items():
            if "error" in runs[-1]:
                self.text(f"- {what}{name} did not run: {runs[-1]['error']}")
        return {name: runs for name, runs in results.items() if "error" not in runs[-1]}

    def target(self, claim: str, holds: bool, found: str) -> None:
        """Add a line: is the target met? Nothing fails if it is not, or if a peer is missing with which to compare."""
        missing = re.search(r"\b(nan|inf)\b|–", found)
        self.text(f"- {'PASS' if holds else 'NOT MEASURED' if missing else 'FAIL'}: {claim}; measured: {found}")

    def write(self) -> None:
        """Write the markdown, with facts of the machine and the command. A quick run writes nothing."""
        if QUICK:
            return
        command = " ".join(["python -m", f"benchmarks.{self.name}", *sys.argv[1:]])
        versions = ", ".join(f"{name} {version}" for name in PACKAGES if (version := _version(name)))
        facts = [
            "## Where and how",
            "",
            f"- command: `{command}`, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
            f"- machine: {os.cpu_count()} cores, {_cpu()}, {_memory():.0f} GiB",
            f"- it took {(time.monotonic() - self.since) / 60:.0f} minutes, with the package as of {_commit()}",
            f"- other jobs: a load of {self.began} before the start, of {load()} at the end (1 may be this job)",
            f"- Python {platform.python_version()}, {versions}",
            "- one thread per process; medians over repeats, lowest…highest in brackets",
        ]
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.md"
        plots = [f"![bar plots]({self.name}.svg)", ""] if self._plots and _draw(self._plots, self.name) else []
        path.write_text("\n".join([*self.lines, *plots, *facts, ""]), encoding="utf-8")
        self.console.print(f"written: {path}")


def _commit() -> str:
    """Return the last commit that changed the package."""
    command = ["git", "log", "-1", "--format=%h", "--", ":/uio_pipes"]
    told = subprocess.run(command, cwd=RESULTS, capture_output=True, text=True)
    return told.stdout.strip() or "no commit"


def _number(cell: str) -> float:
    """Return the number at the beginning of a cell; 0 if there is none."""
    found = re.match(r"[+-]?[\d,]*\.?\d+", cell)
    return float(found[0].replace(",", "")) if found else 0.0


def _draw(plots: Sequence[tuple[str, list[str], dict[str, list[float]]]], name: str) -> bool:
    """Draw bars, table by table, in results/NAME.svg. Returns False if matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = name  # the same file for the same numbers
    mpl.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    sizes = [len(labels) * (1 + len(series)) + 3 for _, labels, series in plots]
    figure, several = pyplot.subplots(
        len(plots), figsize=(8, 0.17 * sum(sizes)), height_ratios=sizes, squeeze=False, layout="constrained"
    )
    for axes, (title, labels, series) in zip(several[:, 0], plots, strict=True):
        height = 0.8 / len(series)
        for at, (column, values) in enumerate(series.items()):
            places = [-place - (at - (len(series) - 1) / 2) * height for place in range(len(labels))]
            axes.bar_label(axes.barh(places, values, height, label=column), fmt="{:,.4g}", fontsize=7, padding=2)
        axes.set_yticks([-place for place in range(len(labels))], labels, fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.margins(x=0.12)
        if len(series) > 1:
            axes.legend(fontsize=7)
        else:
            axes.set_xlabel(next(iter(series)), fontsize=8)
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    return True


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _memory() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
