"""The forms of data that training can read, and the name of the list of each in a prepared folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from .strict import check

__all__ = ["DATA_TYPES", "DataType", "list_of"]

DataType = Literal["raw", "shard", "indexed"]
DATA_TYPES: tuple[str, ...] = get_args(DataType)
_LISTS = {"raw": "data.list", "shard": "shards.list", "indexed": "indexed.list"}


def list_of(data: Path, split: str, data_type: str) -> str:
    """Return the path of the list of one part of a prepared folder."""
    check(data_type in DATA_TYPES, "--data-type", f"one of {', '.join(DATA_TYPES)}", data_type)
    return str(data / split / _LISTS[data_type])
