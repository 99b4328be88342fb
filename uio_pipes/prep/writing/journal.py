"""What a packing has finished: a small file a shard, so that a packing killed at any moment goes on where it was.

::

    OUT/pack.journal/settings.json                    what is packed, and how
                     10_500/data-00000.tar.json       {"shard": "10_500/data-00000.tar", "bytes": 123, "crc32": …}
                     1of8.lock                        held by the job that packs the first of eight shares

A shard is noted after it has come to its place. Any number of jobs share a journal, on any file system; each packs
shards of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from uio_pipes.base.errors import UioError
from uio_pipes.prep.packing.grouping import Split
from uio_pipes.prep.writing.folder import Folder
from uio_pipes.prep.writing.locks import taken

__all__ = ["Finished", "Journal", "OtherPacking", "note"]

NAME = "pack.journal"
SETTINGS = f"{NAME}/settings.json"
RETRIED = frozenset(["missing_file", "unreadable_file", "unopenable", "changed_file"])


class OtherPacking(UioError):
    """The folder holds shards of another list or other settings, or another process packs into it."""


@dataclass(frozen=True)
class Finished:
    """One shard. No file belongs to one whose utterances all failed. ``frames``: of 10 ms."""

    shard: str
    bytes: int
    utterances: int
    frames: int = 0
    crc32: str = ""
    failed: list[list[str]] = field(default_factory=list)  # key, reason, detail


def note(folder: Folder, done: Finished, mark: str) -> None:
    """Note a shard that is in its place, from whichever process wrote it; ``mark`` as of :meth:`Folder.staged`."""
    folder.write(f"{NAME}/{done.shard}.json", json.dumps(asdict(done), ensure_ascii=False).encode(), mark)


class Journal:
    """The journal of one folder of shards; holds a lock on one share of it until closed."""

    def __init__(self, folder: Folder, split: Split) -> None:
        self.folder, self.mark, self.finished = folder, str(split), dict[str, Finished]()
        self._lock: TextIO | None = None
        if folder.path is not None:
            (folder.path / NAME).mkdir(parents=True, exist_ok=True)
            self._lock = (folder.path / NAME / f"{split}.lock").open("w")
            if not taken(self._lock.fileno()):
                self._lock.close()
                raise OtherPacking(f"another process packs into {folder.url}; wait for it, or end it")
            folder.clean(self.mark)

    def take_over(self, settings: dict[str, Any]) -> None:
        """Read what is there. Raises: OtherPacking if it is of another packing."""
        name, settings = SETTINGS, json.loads(json.dumps(settings))
        if not self.folder.exists(name):
            self.folder.write(name, json.dumps(settings, indent=1).encode(), self.mark)
        elif (before := json.loads(self.folder.read([name])[0])) != settings:
            changed = [f"{key} {before.get(key)!r} -> {value!r}" for key, value in settings.items()
                       if before.get(key) != value]  # fmt: skip
            raise OtherPacking(
                f"{self.folder.url} holds shards packed otherwise ({', '.join(changed)}); choose another folder, or "
                "delete this one yourself"
            )
        self.refresh()

    def refresh(self) -> None:
        """Read what other jobs have finished meanwhile. A shard counts if it is there, and as long as it should be."""
        sizes = self.folder.sizes((".tar", ".tar.zst", ".bin", ".json"))
        names = [note for note in sorted(sizes) if note.startswith(f"{NAME}/") and note != SETTINGS]
        for data in self.folder.read(names):
            done = Finished(**json.loads(data))
            file = done.shard if done.shard.endswith((".tar", ".tar.zst")) else f"{done.shard}/audio.bin"
            if not done.utterances or sizes.get(file) == done.bytes:
                self.finished[done.shard] = done

    def add(self, done: Finished) -> None:
        """Note a shard that is in its place."""
        self.finished[done.shard] = done
        note(self.folder, done, self.mark)

    def settled(self, retry_failed: bool = False) -> set[str]:
        """Shards that need no more work: files that were not there, or out of reach, may be there the next time."""
        return {
            name
            for name, done in self.finished.items()
            if not any(retry_failed or reason in RETRIED for _, reason, _ in done.failed)
        }

    def failures(self, shards: set[str]) -> Iterator[list[str]]:
        """Key, reason and detail of each utterance of ``shards`` that failed, shard by shard."""
        for name, done in sorted(self.finished.items()):
            if name in shards:
                yield from done.failed

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.close()
