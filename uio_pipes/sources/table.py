"""The lines of data lists, with where each came from: what all lanes of a process share."""

from __future__ import annotations

import glob
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from hashlib import blake2b
from typing import ClassVar

from braceexpand import braceexpand

from uio_pipes.errors import DataError, ListError
from uio_pipes.io.access import Access
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.io.redact import redact
from uio_pipes.io.transport import failure, filesystem
from uio_pipes.prep.manifest import read_manifest

__all__ = ["ARCHIVES", "Table", "expand"]

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")


LONGEST = 1 << 22  # characters of a line


class Table:
    """Items of one or several lists, in their order. ``len(table)``, ``table[i]``, ``table.place(i)``."""

    weights = None  # lines tell no lengths
    direct: ClassVar[tuple[str, ...]] = ARCHIVES  # what is named so is an item itself, not a list of items

    def __init__(self, entries: tuple[str, ...], access: Access | None = None) -> None:
        self._access = access or Access()
        self._items: list[str] = []
        self._lines = array("I")
        self._lists: list[str] = []
        self._firsts: list[int] = []
        self._expected: array[int] | None = None
        for entry in entries:
            self._add(entry)
        if not self._items:
            raise ListError(f"nothing in {_names(entries)}: no line that is neither blank nor a comment (#)")
        self.digest = blake2b(redact("\n".join(self._items)).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> str:
        return self._items[number]

    def place(self, number: int) -> str:
        """Where an item stands, for messages: ``data.list, line 7``."""
        at = bisect_right(self._firsts, number) - 1
        line = self._lines[number]
        name = redact(self._lists[at])
        return f"{name}, line {line}" if line else name

    @property
    def lists(self) -> list[str]:
        """The list files that hold shards."""
        return [name for name, first in zip(self._lists, self._firsts, strict=True) if self._holds_shards(first)]

    def of(self, name: str) -> list[str]:
        """The items of one list file."""
        bounds = zip(self._lists, self._firsts, [*self._firsts[1:], len(self._items)], strict=True)
        return [item for each, first, last in bounds if each == name for item in self._items[first:last]]

    def _holds_shards(self, first: int) -> bool:
        """Whether item ``first`` is a shard on a line of a list."""
        return bool(self._lines[first]) and not self._items[first].startswith("{")

    def expected(self, number: int) -> int | None:
        """Utterances of a shard as the manifest beside its list says; None without one. Raises: ListError."""
        if self._expected is None:
            self._expected = self._read_manifests()
        count = self._expected[number] if self._expected else -1
        return None if count < 0 else count

    def _read_manifests(self) -> array[int]:
        """-1 for what no manifest knows; empty if there is none at all."""
        counts = array("q")
        for at, name in enumerate(self._lists):
            first, last = self._firsts[at], self._firsts[at + 1] if at + 1 < len(self._firsts) else len(self._items)
            if not self._holds_shards(first):
                continue
            if (manifest := read_manifest(name, self._access)) is not None:
                counts = counts or array("q", [-1]) * len(self._items)
                for number in range(first, last):
                    if (shard := manifest.get(self._items[number])) is not None:
                        counts[number] = shard.utterances
        return counts

    def _add(self, entry: str) -> None:
        for name in expand(entry, self._access):
            self._begin(name)
            if _path(name).endswith(self.direct) or name.startswith("{"):
                self._append(name, 0)
            else:
                self._read(name)

    def _begin(self, name: str) -> None:
        if not self._lists or self._lists[-1] != name:
            self._lists.append(name)
            self._firsts.append(len(self._items))

    def _append(self, item: str, line: int) -> None:
        self._items.append(item)
        self._lines.append(line)

    def _read(self, name: str) -> None:
        before = len(self._items)
        if os.path.isdir(is_local(name) or ""):
            raise ListError(f"the list {name} is a folder; name a list file, or shards by a glob ({name}/*.tar)")
        try:
            with open_binary(name, self._access) as file:
                data = file.read()
        except DataError as error:
            raise ListError(f"cannot read the list {name}: {error.message}") from error
        for number, line in enumerate(_text(name, data).split("\n"), 1):
            if len(line) > LONGEST:
                raise ListError(
                    f"the list {name} is no list (line {number} has {len(line)} characters); it is a path, URL or JSON "
                    "object a line"
                )
            item = line.strip()
            if item and not item.startswith("#"):
                self._append(item, number)
        if len(self._items) == before:
            raise ListError(f"the list {name} is empty: no line that is neither blank nor a comment (#)")


def _path(name: str) -> str:
    """Without what follows the path in a URL: a signature, perhaps."""
    return name.partition("?")[0] if "://" in name else name


def _text(name: str, data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ListError(
            f"the list {name} is no UTF-8 text (line {line}); if it is a shard, its name must end in one of "
            f"{' '.join(ARCHIVES)}"
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise ListError(
            f"the list {name} is no text (a NUL in line {line}); a list is a path, URL or JSON object a line"
        )
    return text


def expand(entry: str, access: Access) -> Iterator[str]:
    """Braces first, then globs, sorted; a name without either is itself."""
    if entry.lstrip().startswith('{"'):
        yield entry.strip()
        return
    try:
        names = list(braceexpand(entry))
    except ValueError as error:
        raise ListError(f"unbalanced braces in {entry!r}: {error}") from error
    for name in names:
        if (
            not glob.has_magic(name)
            or os.path.exists(is_local(name) or "")
            or ("?" in name and "://" in name and "*" not in name)
        ):
            yield name
            continue
        found = _glob(name, access)
        if not found:
            raise ListError(f"no file matches {name!r}" + (f" (of {entry!r})" if name != entry else ""))
        yield from found


def _glob(pattern: str, access: Access) -> list[str]:
    path = is_local(pattern)
    if path is not None:
        return sorted(glob.glob(path, recursive=True))
    try:
        fs, inner = filesystem(pattern, access)
        return sorted(str(fs.unstrip_protocol(p)) for p in fs.glob(inner))
    except Exception as error:  # each fsspec backend raises classes of its own
        what = failure(error, pattern, access).message
    raise ListError(f"cannot look up {pattern!r}: {what}")


def _names(entries: tuple[str, ...]) -> str:
    names = ", ".join(str(e) for e in entries[:3]) or "the given list"
    return names + (f", … ({len(entries)} in all)" if len(entries) > 3 else "")
