"""Writing the manifest of a list of shards; see ``formats.lists.manifest`` for its layout."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from uio_pipes.formats.lists.manifest import VERSION, ShardEntry, manifest_path
from uio_pipes.prep.writing.folder import write_to


def write_manifest(list_path: str | Path, shards: Iterable[ShardEntry]) -> str:
    """Write the manifest of a local or remote list, completely or not at all; return its path."""
    path = manifest_path(str(list_path))
    lines = [json.dumps(shard._asdict(), ensure_ascii=False) + "\n" for shard in shards]
    body = "".join(lines).encode()
    head = {"manifest": VERSION, "shards": len(lines), "crc32": f"{crc32(body):08x}"}
    write_to(path, json.dumps(head).encode() + b"\n" + body)
    return path
