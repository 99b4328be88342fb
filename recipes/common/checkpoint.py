"""Checkpoints that need no agreement between ranks while they are written.

::

    EXP/checkpoints/step_00000120/model.pt                model, optimizer, step, epoch: by one rank
                                  loader.rank0of2.pt      where each rank's lanes stand: by that rank
                                  loader.rank1of2.pt

A checkpoint is complete when all its files are there. Under ``uneven="join"`` a rank may have ended its epoch while
others go on, and then writes nothing more: that checkpoint stays incomplete and nobody will load it. Where ranks end
together, ``uio.gather_state`` brings the positions to rank 0 instead: one file, ``loader.rank0of1.pt``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import torch

import uio_pipes as uio

from .files import atomic_path

_LOADER = re.compile(r"loader\.rank(\d+)of(\d+)\.pt")


def folder_of(exp: Path, step: int) -> Path:
    """Where the checkpoint of ``step`` belongs."""
    return exp / "checkpoints" / f"step_{step:08d}"


def save(path: Path, value: Any) -> None:
    """``torch.save``, complete or not at all."""
    with atomic_path(path) as temporary:
        torch.save(value, temporary)


def save_loader(folder: Path, loader: uio.Loader) -> None:
    """Save where the loader stands. Under stop and repeat this is a collective; under join it is not."""
    if loader.uneven == "join":
        save(folder / f"loader.rank{loader.rank}of{loader.world_size}.pt", loader.state_dict())
        return
    state = uio.gather_state(loader)
    if state is not None:
        save(folder / "loader.rank0of1.pt", state)


def loader_files(folder: Path) -> list[Path]:
    """The positions of all ranks, or nothing if one of them is missing."""
    found = {(int(match[2]), int(match[1])): path for path in folder.glob("loader.*") if (match := _match(path))}
    for world in sorted({world for world, _ in found}, reverse=True):
        files = [found.get((world, rank)) for rank in range(world)]
        if None not in files:
            return [file for file in files if file is not None]
    return []


def _match(path: Path) -> re.Match[str] | None:
    return _LOADER.fullmatch(path.name)


def is_complete(folder: Path) -> bool:
    """Whether everything is there."""
    return (folder / "model.pt").exists() and bool(loader_files(folder))


def newest(exp: Path) -> Path | None:
    """The newest complete checkpoint."""
    return max(filter(is_complete, (exp / "checkpoints").glob("step_*")), default=None)


def load_model(folder: Path, device: torch.device) -> dict[str, Any]:
    """What ``model.pt`` holds."""
    payload: dict[str, Any] = torch.load(folder / "model.pt", map_location=device, weights_only=True)
    return payload


def load_loader(folder: Path) -> dict[str, str]:
    """Where the lanes of all ranks stand: fits any number of ranks and workers."""
    return uio.merge_states([torch.load(path, weights_only=True) for path in loader_files(folder)])


def discard_all_but(exp: Path, keep: Path | None) -> None:
    """Remove the others: what a killed run left unfinished must never be completed by the next one."""
    for folder in (exp / "checkpoints").glob("step_*"):
        if folder != keep:
            shutil.rmtree(folder)


def prune(exp: Path) -> None:
    """Remove what is older than the newest complete checkpoint."""
    last = newest(exp)
    for folder in (exp / "checkpoints").glob("step_*"):
        if last is not None and folder < last:
            shutil.rmtree(folder, ignore_errors=True)
