"""Checkpoints: a folder each, written beside its place by all ranks, and there only when it is complete.

::

    EXP/checkpoints/step_00000120/model.pt       model, optimizer, scaler, schedule, step, epoch, world_size: by rank 0
                                 /rank_0.pt      where that rank's lanes stand, and its random states
                                 /rank_1.pt
                   /step_00000160_end/…          after the last step of an epoch, validation included
                   /.partial.step_00000180/…     being written, or left by a run that was killed

``newest`` looks into every file (their checksums), so a checkpoint that a disk or a copy has torn is passed over.
"""

from __future__ import annotations

import logging
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import uio_pipes as uio

from .files import atomic_path

__all__ = ["clear", "load_loader", "load_model", "load_rank", "name_of", "newest", "save", "write"]

logger = logging.getLogger(__name__)
_PARTIAL, _GONE = ".partial.", ".gone."


def name_of(step: int, ended: bool) -> str:
    """What the checkpoint after ``step`` is called; names sort as they were written."""
    return f"step_{step:08d}" + ("_end" if ended else "")


def write(path: Path, value: Any) -> None:
    """``torch.save``, complete and on the disk, or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())


def save(exp: Path, name: str, parts: dict[str, Any], keep: int, first: bool, barrier: Callable[[], None]) -> None:
    """Write this rank's ``parts`` (file name → value); every rank calls it. The ``first`` rank completes it, and
    removes all but the ``keep`` newest."""
    folder = exp / "checkpoints" / name
    partial = folder.with_name(_PARTIAL + name)
    for file, value in parts.items():
        write(partial / file, value)
    barrier()
    if first:
        if folder.exists():  # of the same step: a signal came where one was due
            _remove(folder)
        partial.rename(folder)
        for old in _complete(exp)[keep:]:
            _remove(old)
    barrier()


def newest(exp: Path) -> Path | None:
    """The newest checkpoint that is intact."""
    for folder in _complete(exp):
        if fault := _fault(folder):
            logger.warning("%s is passed over: %s", folder, fault)
        else:
            return folder
    return None


def clear(exp: Path, newest: Path | None) -> None:
    """Remove what a killed run left unfinished, and what is newer than the newest intact one."""
    for folder in (exp / "checkpoints").glob(".*"):
        shutil.rmtree(folder)
    for folder in _complete(exp):
        if newest is None or folder.name > newest.name:
            _remove(folder)


def load_model(folder: Path, device: torch.device) -> dict[str, Any]:
    """What ``model.pt`` holds."""
    payload: dict[str, Any] = torch.load(folder / "model.pt", map_location=device, weights_only=True)
    return payload


def load_rank(folder: Path, rank: int) -> dict[str, Any]:
    """What ``rank`` wrote."""
    payload: dict[str, Any] = torch.load(folder / f"rank_{rank}.pt", map_location="cpu", weights_only=True)
    return payload


def load_loader(folder: Path) -> dict[str, str]:
    """Where the lanes of all ranks stand: fits any number of ranks and workers."""
    ranks = range(len(list(folder.glob("rank_*.pt"))))
    return uio.merge_states([load_rank(folder, rank)["loader"] for rank in ranks])


def _complete(exp: Path) -> list[Path]:
    """From the newest to the oldest."""
    return sorted((exp / "checkpoints").glob("step_*"), reverse=True)


def _remove(folder: Path) -> None:
    """First out of sight: what is half removed must not look complete."""
    gone = folder.with_name(_GONE + folder.name)
    folder.rename(gone)
    shutil.rmtree(gone)


def _fault(folder: Path) -> str:
    """What is wrong with a checkpoint; nothing if it is intact."""
    try:
        world_size = load_model(folder, torch.device("meta"))["world_size"]
    except Exception as error:  # damaged bytes come out of torch as errors of many classes
        return f"model.pt cannot be read ({' '.join(str(error).split())[:200]})"
    return next(filter(None, _faults(folder, ["model.pt", *(f"rank_{rank}.pt" for rank in range(world_size))])), "")


def _faults(folder: Path, files: list[str]) -> Iterator[str]:
    for file in files:
        try:
            with zipfile.ZipFile(folder / file) as archive:
                torn = archive.testzip()
            yield f"{file} is damaged ({torn})" if torn else ""
        except (OSError, zipfile.BadZipFile) as error:
            yield f"{file} cannot be read ({error})"
