"""Checkpoints: a folder each, written beside its place by all ranks, and there only when it is complete.

::

    EXP/checkpoints/step_00000120/model.pt       model, optimizer, scaler, schedule, step, epoch, world_size: by rank 0
                                 /rank_0.pt      where that rank's lanes stand, and its random states
                                 /rank_1.pt
                   /step_00000160_dev/…          after the last step of an epoch, before its validation
                   /step_00000160_end/…          after its validation; replaces _dev
                   /.partial.step_00000180/…     being written, or left by a run that was killed
                   /.damaged.step_00000140/…     found torn by a run that then went on from an older one

``newest`` looks into every file (their checksums), so a checkpoint that a disk or a copy has torn is passed over. What
was torn is kept, out of sight; an error that may pass (of the disk, of memory) counts as no damage, but is raised.
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

import uio_pipes as uio
from uio_pipes.io.files import atomic_path

__all__ = [
    "Damaged",
    "Moment",
    "clear",
    "load_loader",
    "load_model",
    "load_rank",
    "name_of",
    "newest",
    "save",
    "to_resume",
    "write",
]

logger = logging.getLogger(__name__)
_PARTIAL, _GONE, _DAMAGED = ".partial.", ".gone.", ".damaged."
Moment = Literal["", "_dev", "_end"]  # within an epoch, before its validation, after it
# What zipfile and torch say of bytes that are not as they were written. No memory and no disk raise others.
_DAMAGE = (
    *(zipfile.BadZipFile, EOFError, FileNotFoundError, NotImplementedError, pickle.UnpicklingError, struct.error),
    *(AttributeError, LookupError, TypeError, ValueError),
)


class Damaged(Exception):
    """There are checkpoints, but none is intact; the message says what to do."""


def name_of(step: int, moment: Moment = "") -> str:
    """Return the name of the checkpoint after ``step``; names sort in the order of writing."""
    return f"step_{step:08d}{moment}"


def write(path: Path, value: Any) -> None:
    """Save with ``torch.save``: after a crash the file is complete and on the disk, or not there at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())


def save(exp: Path, name: str, parts: dict[str, Any], keep: int, first: bool, barrier: Callable[[], None]) -> None:
    """Write this rank's ``parts`` (file name → value). Every rank must call it; the ``first`` rank completes the
    checkpoint and removes all but the ``keep`` newest."""
    folder = exp / "checkpoints" / name
    partial = folder.with_name(_PARTIAL + name)
    for file, value in parts.items():
        write(partial / file, value)
    barrier()
    if first:
        if folder.exists():  # of the same step: a signal came when a checkpoint was due
            _remove(folder)
        partial.rename(folder)
        before = folder.with_name(name.replace("_end", "_dev"))
        if name.endswith("_end") and before.exists():
            _remove(before)
        for old in _complete(exp)[keep:]:
            _remove(old)
    barrier()


def newest(exp: Path) -> Path | None:
    """Return the newest checkpoint that is intact. Raises: OSError or MemoryError if one could not be read."""
    for folder in _complete(exp):
        if fault := _fault(folder):
            logger.warning("%s is passed over: %s", folder, fault)
        else:
            return folder
    return None


def to_resume(exp: Path) -> Path | None:
    """Return the newest intact checkpoint, or None if there is none at all. Raises: Damaged, and what ``newest``
    raises."""
    found = newest(exp)
    if found is None and _complete(exp):
        raise Damaged(
            f"{exp / 'checkpoints'}: no checkpoint in it is intact; move it away, or remove it, to begin again"
        )
    return found


def clear(exp: Path, newest: Path | None) -> None:
    """Remove the checkpoint that a killed run left unfinished, and hide those that are newer than the newest intact
    one."""
    for kind in (_PARTIAL, _GONE):
        for folder in (exp / "checkpoints").glob(f"{kind}*"):
            shutil.rmtree(folder)
    for folder in _complete(exp):
        if newest is not None and folder.name > newest.name:
            _put_aside(folder)


def _put_aside(folder: Path) -> None:
    target = folder.with_name(_DAMAGED + folder.name)
    count = len(list(folder.parent.glob(f"{target.name}*")))
    folder.rename(target.with_name(f"{target.name}.{count}") if count else target)


def load_model(folder: Path, device: torch.device) -> dict[str, Any]:
    """Load ``model.pt``."""
    payload: dict[str, Any] = torch.load(folder / "model.pt", map_location=device, weights_only=True)
    return payload


def load_rank(folder: Path, rank: int) -> dict[str, Any]:
    """Load the file that ``rank`` wrote."""
    payload: dict[str, Any] = torch.load(folder / f"rank_{rank}.pt", map_location="cpu", weights_only=True)
    return payload


def load_loader(folder: Path) -> dict[str, str]:
    """Load the positions of all lanes; they fit any number of ranks and workers."""
    ranks = range(len(list(folder.glob("rank_*.pt"))))
    return uio.merge_states([load_rank(folder, rank)["loader"] for rank in ranks])


def _complete(exp: Path) -> list[Path]:
    """Return the complete checkpoints, newest first."""
    return sorted((exp / "checkpoints").glob("step_*"), reverse=True)


def _remove(folder: Path) -> None:
    """Rename the folder first: one that is half removed must not look complete."""
    gone = folder.with_name(_GONE + folder.name)
    folder.rename(gone)
    shutil.rmtree(gone)


def _fault(folder: Path) -> str:
    """Describe what is damaged in a checkpoint; empty if it is intact."""
    if fault := _torn(folder / "model.pt"):
        return fault
    try:
        world_size = load_model(folder, torch.device("meta"))["world_size"]
    except _DAMAGE as error:
        return _unreadable("model.pt", error)
    except RuntimeError as error:  # torch raises it for lack of memory, too
        if "memory" in str(error):
            raise
        return _unreadable("model.pt", error)
    return next(filter(None, (_torn(folder / f"rank_{rank}.pt") for rank in range(world_size))), "")


def _torn(path: Path) -> str:
    """Describe what is wrong with the bytes of a file; empty if nothing is."""
    try:
        with zipfile.ZipFile(path) as archive:
            torn = archive.testzip()
    except (*_DAMAGE, RuntimeError, zlib.error) as error:
        return _unreadable(path.name, error)
    except OSError as error:
        if error.errno != errno.EINVAL:  # impossible offsets in the archive
            raise
        return _unreadable(path.name, error)
    return f"{path.name} is damaged ({torn})" if torn else ""


def _unreadable(name: str, error: Exception) -> str:
    return f"{name} cannot be read ({' '.join(str(error).split())[:200]})"
