"""What a packing has finished: a line a shard, so that a packing killed at any moment goes on where it was.

::

    {"list": "3f…", "size": 2000, …}                                       what is packed, and how
    {"shard": "10_500/data-00000.tar", "bytes": 123, "utterances": 1999, "failed": [["KEY", "bad_audio", "…"]]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from uio_pipes.prep.locks import taken


class OtherPacking(Exception):
    """The folder holds shards of another list or other settings, or another process packs into it."""


@dataclass(frozen=True)
class Finished:
    """One shard. No file belongs to one whose utterances all failed."""

    shard: str
    bytes: int
    utterances: int
    failed: list[list[str]] = field(default_factory=list)  # key, reason, detail


class Journal:
    """The journal of one folder of shards; holds a lock on it until closed."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.path = folder, folder / "pack.journal"
        folder.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = self.path.open("a+", encoding="utf-8")
        self.finished: dict[str, Finished] = {}
        if not taken(self._file.fileno()):
            self._file.close()
            raise OtherPacking(f"another process packs into {folder}; wait for it, or end it")
        self._take_over(settings)

    def _take_over(self, settings: dict[str, Any]) -> None:
        """Read what is there; a line torn by a kill is cut off, its shard is packed again."""
        self._file.seek(0)
        text = self._file.read()
        complete = text[: text.rfind("\n") + 1]
        if complete != text:
            self._file.truncate(len(complete.encode()))
        lines = [json.loads(line) for line in complete.splitlines()]
        if not lines:
            self._write(settings)
        elif lines[0] != settings:
            self._file.close()
            changed = [f"{name} {lines[0].get(name)!r} -> {value!r}" for name, value in settings.items()
                       if lines[0].get(name) != value]  # fmt: skip
            raise OtherPacking(
                f"{self.folder} holds shards packed otherwise ({', '.join(changed)}); choose another folder, or delete "
                "this one yourself"
            )
        for done in (Finished(**line) for line in lines[1:]):
            if not done.utterances or self._size(done.shard) == done.bytes:
                self.finished[done.shard] = done

    def _size(self, shard: str) -> int:
        path = self.folder / shard
        return path.stat().st_size if path.is_file() else -1

    def add(self, done: Finished) -> None:
        """Note a shard that is in its place."""
        self.finished[done.shard] = done
        self._write(asdict(done))

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()

    def failures(self) -> Iterator[list[str]]:
        """Key, reason and detail of each utterance that failed, shard by shard."""
        for _, done in sorted(self.finished.items()):
            yield from done.failed

    def close(self) -> None:
        """Let go of the folder."""
        self._file.close()
