"""Tools for the corpora of the recipes: their exceptions, and the speaking and checking of a mini corpus."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from uio_pipes.base.processes import in_order
from uio_pipes.io.files import write_lines

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["CorpusMissing", "OtherCorpus", "SpeakingFailed", "check_settings", "in_fresh_processes", "write_settings"]

R = TypeVar("R")
PRELOAD = ["soundfile", "uio_pipes.tools.data.common", "uio_pipes.tools.data.example_speech"]


class CorpusMissing(Exception):
    """There is no corpus where one was expected; the message says how to make or get one."""


class OtherCorpus(Exception):
    """The target folder holds something that must not be overwritten."""


class SpeakingFailed(Exception):
    """A process that speaks was killed."""


def write_settings(folder: Path, settings: DataclassInstance) -> None:
    """Write the settings of a mini corpus into its folder, as ``mini.json``."""
    write_lines(folder / "mini.json", [json.dumps(asdict(settings))])


def check_settings(folder: Path, settings: DataclassInstance, name: str) -> None:
    """Check that ``folder`` holds the mini corpus with these settings. ``name``: of the real corpus.

    Raises: OtherCorpus.
    """
    path, wanted = folder / "mini.json", json.dumps(asdict(settings))
    found = path.read_text().strip() if path.exists() else f"no mini.json: it is the real {name}, or another corpus"
    if found != wanted:
        raise OtherCorpus(
            f"{folder} is not the mini corpus with the settings {wanted}; it has {found}. "
            "Choose another folder, or delete it yourself."
        )


def in_fresh_processes(function: Callable[..., R], work: Iterable[tuple[Any, ...]], jobs: int) -> Iterator[R]:
    """Yield ``function(*arguments)`` for all ``work``, in order, by ``jobs`` processes at a time (0: one a core).

    Each call has a process of its own, because what espeak-ng says depends on what it has said before.
    """
    lost = SpeakingFailed("a process that speaks was killed (out of memory?); start again, perhaps with fewer --jobs")

    def run(arguments: tuple[Any, ...]) -> R:
        ((_, result),) = in_order(function, [(None, arguments)], 1, PRELOAD, lost)
        return result

    with ThreadPoolExecutor(jobs or multiprocessing.cpu_count()) as threads:
        yield from threads.map(run, work)
