"""The files of each shard of a Lhotse Shar: ``cuts.000001.jsonl.gz``, ``recording.000001.tar``, …"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from uio_pipes.base.errors import ListError
from uio_pipes.base.redact import unsigned
from uio_pipes.base.urls import inside, name_of
from uio_pipes.formats.lists.table import expand
from uio_pipes.io.access import Access

_NAME = re.compile(r"(?P<field>[^./]+)(?:\.(?P<number>[^/]*))?\.(?:tar|jsonl)(?:\.gz)?")
Sources = tuple[tuple[str, tuple[str, ...]], ...]


class SharTable:
    """The shards of a Shar; ``shards``: of each, its files by field, but for those ``unread``. Raises: ListError."""

    weights = None

    def __init__(self, sources: str | Sources, access: Access, unread: frozenset[str] = frozenset()) -> None:
        if isinstance(sources, str):
            found = _in_folder(sources, access)
        else:
            found = {name: [path for entry in paths for path in expand(entry, access)] for name, paths in sources}
        found = {name: paths for name, paths in found.items() if name not in unread}
        _check(found)
        names = list(found)
        self.shards = [dict(zip(names, files, strict=True)) for files in zip(*found.values(), strict=True)]
        bases = [unsigned(path).rpartition("/")[2] for shard in self.shards for path in shard.values()]
        self.digest = blake2b("\n".join(bases).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self.shards)

    def place(self, number: int) -> str:
        return str(self.shards[number]["cuts"])


def _in_folder(folder: str, access: Access) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in map(str, expand(inside(folder, "*"), access)):
        name = _NAME.fullmatch(name_of(path))
        if name is not None:
            found.setdefault(name["field"], []).append(path)
    if "cuts" not in found:
        raise ListError(
            f"the folder {folder} has no cuts.*.jsonl(.gz): it is not a Lhotse Shar, or not all of it is there"
        )
    return {"cuts": found.pop("cuts"), **dict(sorted(found.items()))}


def _check(found: Mapping[str, Sequence[str]]) -> None:
    """Check that each shard has a file of every field, of the same number. Raises: ListError."""
    if not found.get("cuts") or len(found) < 2:
        raise ListError(f"a Shar needs cuts and a field beside them (recording, features), not only {sorted(found)}")
    cuts = [_number(path) for path in found["cuts"]]
    for name, paths in found.items():
        numbers = [_number(path) for path in paths]
        if numbers != cuts:
            lacking = sorted(set(cuts) ^ set(numbers))[:3] or ["in another order"]
            raise ListError(
                f"cuts have {len(cuts)} shards and {name} {len(numbers)}, which do not pair by number "
                f"({', '.join(lacking)}): fetch what is missing, or name the files field by field"
            )


def _number(path: str) -> str:
    name = _NAME.fullmatch(name_of(path))
    return str(name["number"] or "") if name is not None else ""
