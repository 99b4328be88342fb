"""The journal of a packing, a small file for each finished shard, and the manifest of a list of shards.

::

    OUT/pack.journal/settings.json                    what is packed, and how
                     10_500/data-00000.tar.json       {"shard": "10_500/data-00000.tar", "bytes": 123, "crc32": …}
                     1of8.lock                        held by the job that packs the first of eight shares

A shard is noted when it is in its place. Any number of jobs share a journal, on any file system; each packs
shards of its own.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from zlib import crc32

from uio_pipes.base.errors import UioError
from uio_pipes.base.processes import try_lock
from uio_pipes.base.urls import name_of, redact
from uio_pipes.formats.lists.manifest import VERSION, ShardEntry, manifest_path
from uio_pipes.formats.tar.reader import UNREADABLE
from uio_pipes.io.folders import Folder, entry_of, write_to

if TYPE_CHECKING:
    from uio_pipes.tools.data.placement import Split, To

NAME = "pack.journal"
SETTINGS = f"{NAME}/settings.json"
LIST = "list.jsonl"  # of a folder of audio files
_OPTIONS = {  # settings that are said in another way on the command line
    "size": "utterances in a part", "form": "--format", "sample_rate": "--resample", "groups": "--length-groups",
    "name": "names of parts", "needs_text": "--text",
}  # fmt: skip


class OtherPacking(UioError):
    """The folder holds shards of another list or other settings, or another process packs into it."""


@dataclass(frozen=True)
class Finished:
    """One finished shard; if all its utterances failed, there is no file. ``frames``: of 10 ms. ``first``: the key of
    its first utterance; ``dropped``: fields that it has no place for."""

    shard: str
    bytes: int
    utterances: int
    frames: int = 0
    crc32: str = ""
    failed: list[list[str]] = field(default_factory=list)  # key, reason, detail
    first: str = ""
    dropped: list[str] = field(default_factory=list)


def note(folder: Folder, done: Finished, mark: str) -> None:
    """Note a shard that is in its place, from whichever process wrote it; ``mark`` as of :meth:`Folder.staged`."""
    folder.write(f"{NAME}/{done.shard}.json", redact(json.dumps(asdict(done), ensure_ascii=False)).encode(), mark)


def write_failures(folder: Folder, failures: Iterable[list[str]]) -> None:
    """Write key, reason and detail of each utterance that failed to ``failed.jsonl``."""
    lines = (dict(zip(("key", "reason", "detail"), failure, strict=True)) for failure in failures)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    folder.write("failed.jsonl", redact(text).encode("utf-8", "backslashreplace"))


def _otherwise(before: dict[str, Any], settings: dict[str, Any]) -> str:
    """Return how a folder was written, in words of the command line."""
    names = [name for name in before | settings if before.get(name) != settings.get(name)]
    names = [name for name in names if name != "lengths"] or names  # which follow from all else
    changed = [
        f"the {name} {'have' if name == 'lengths' else 'has'} changed"
        if name in ("list", "lengths")
        else f"{_OPTIONS.get(name, f'--{name}')} {before.get(name)!r} -> {settings.get(name)!r}"
        for name in names
    ]
    return f"was written otherwise ({', '.join(changed)})"


class Journal:
    """The journal of one folder of shards; holds a lock on one share of it until closed."""

    def __init__(self, folder: Folder, split: Split) -> None:
        self.folder, self.mark, self.finished = folder, str(split), dict[str, Finished]()
        self._lock: TextIO | None = None
        if folder.path is not None:
            (folder.path / NAME).mkdir(parents=True, exist_ok=True)
            self._lock = (folder.path / NAME / f"{split}.lock").open("w")
            if not try_lock(self._lock.fileno()):
                self._lock.close()
                raise OtherPacking(f"another process packs into {folder.url}; wait for it, or end it")
            folder.clean(self.mark)

    def take_over(self, settings: dict[str, Any]) -> None:
        """Read the notes that are there. Raises: OtherPacking if they are of another packing."""
        name, settings = SETTINGS, json.loads(json.dumps(settings))
        if not self.folder.exists(name):
            self.folder.write(name, json.dumps(settings, indent=1).encode(), self.mark)
        elif (before := json.loads(self.folder.read([name])[0])) != settings:
            raise OtherPacking(
                f"{self.folder.url} {_otherwise(before, settings)}; choose another folder, or delete this one yourself"
            )
        self.refresh()

    def refresh(self) -> None:
        """Read the notes of other jobs too. A shard counts if its files are there and have the right size."""
        sizes = self.folder.sizes()
        audio = Counter[str]()  # bytes of audio in each folder that has a list
        for path, size in sizes.items():
            folder, _, name = path.rpartition("/")
            if name != LIST and f"{folder}/{LIST}" in sizes:
                audio[folder] += size
        names = [note for note in sorted(sizes) if note.startswith(f"{NAME}/") and note.endswith(".json")]
        for data in self.folder.read([name for name in names if name != SETTINGS]):
            done = Finished(**json.loads(data))
            file = sizes.get(done.shard, sizes.get(f"{done.shard}/audio.bin"))
            there = audio[done.shard] if f"{done.shard}/{LIST}" in sizes else file
            if not done.utterances or there == done.bytes:
                self.finished[done.shard] = done

    def add(self, done: Finished) -> None:
        """Note a shard that is in its place."""
        self.finished[done.shard] = done
        note(self.folder, done, self.mark)

    def settled(self, retry_failed: bool = False) -> dict[str, Finished]:
        """Return the shards that need no more work: missing files, or those out of reach, are tried again."""
        return {
            name: done
            for name, done in self.finished.items()
            if not any(retry_failed or reason in UNREADABLE for _, reason, _ in done.failed)
        }

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()


def write_list(list_path: str, folder: Folder, parts: Sequence[Finished], to: To) -> None:
    """Write the list of complete parts: of shards with a manifest before it, of a TouchDataset's folders, of all audio
    files, or of all cuts."""
    places = [entry_of(folder.join(done.shard), list_path) for done in parts]
    if to == "shards":
        write_manifest(list_path, zip(places, parts, strict=True))
    if to in ("shards", "indexed"):
        word = " audio+metainfo" if to == "indexed" else ""
        return write_to(list_path, "".join(f"{place}{word}\n" for place in places).encode())
    lines = folder.read([f"{done.shard}/{LIST}" for done in parts])
    if to == "raw":
        lines = [_lines_in(place, part) for place, part in zip(places, lines, strict=True)]
    data = b"".join(lines)
    return write_to(list_path, gzip.compress(data, mtime=0) if list_path.endswith(".gz") else data)


def _lines_in(place: str, lines: bytes) -> bytes:
    """Return the lines of a part's list, with its audio files in the folder ``place``."""
    objects = map(json.loads, lines.splitlines())
    named = ({**line, "wav": f"{place}/{name_of(line['wav'])}"} for line in objects)
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in named).encode()


def write_manifest(list_path: str | Path, shards: Iterable[tuple[str, Any]]) -> str:
    """Write the manifest of a local or remote list, completely or not at all; return its path. ``shards``: the lines of
    the list, each with a :class:`Finished`, or what has its counts."""
    path = manifest_path(str(list_path))
    entries = (ShardEntry(line, one.utterances, one.frames, one.bytes, one.crc32) for line, one in shards)
    lines = [json.dumps(entry._asdict(), ensure_ascii=False) + "\n" for entry in entries]
    body = "".join(lines).encode()
    head = {"manifest": VERSION, "shards": len(lines), "crc32": f"{crc32(body):08x}"}
    write_to(path, json.dumps(head).encode() + b"\n" + body)
    return path
