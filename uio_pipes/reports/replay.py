"""A batch of a run made again from a saved state, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import torch

from uio_pipes.base.printable import counted
from uio_pipes.core.graph import Graph
from uio_pipes.run.loader import Loader
from uio_pipes.run.state import read_meta

LONG = 2**31  # steps of an epoch, which none has


def loader_of(graph: Graph, state: Mapping[str, Any], rank: int, world_size: int) -> Loader:
    """Return a loader where ``state`` was saved, as a rank alone. Raises: StateError as ``load_state_dict``."""
    meta = read_meta(state)
    steps = None if meta.step is None else LONG
    place: dict[str, Any] = {"rank": rank, "world_size": world_size, "uneven": "join"}
    loader = Loader(graph, seed=meta.seed, lanes=meta.lanes, steps_per_epoch=steps, **place)
    loader.load_state_dict(state)
    return loader


def save(batch: Any, path: str) -> None:
    """Write a batch by ``torch.save``."""
    torch.save(batch, path)


def seen(batch: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Return the keys in a batch, and for each of its other values the name, what it is, and a digest of a tensor."""
    if not isinstance(batch, Mapping):
        return [sample["key"] for sample in batch], []
    keys = batch.get("keys", [batch["key"]] if "key" in batch else [])  # of a batch, or of an utterance
    return keys, [(name, *_value(value)) for name, value in batch.items() if name not in ("keys", "key")]


def _value(value: Any) -> tuple[str, str]:
    if isinstance(value, str):
        return repr(value), ""
    if not isinstance(value, torch.Tensor) or value.is_nested:
        return (counted(len(value), "value") if hasattr(value, "__len__") else str(value)), ""
    data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    kind = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return kind, blake2b(data, digest_size=8).hexdigest()
