"""The lines of data lists with their places. No torch in here: packing reads lists too."""

from __future__ import annotations

import glob
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, repeat
from typing import ClassVar, TypeGuard

from braceexpand import braceexpand

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import is_named, path_of, redact, unsigned
from uio_pipes.formats.lists.lines import ARCHIVES, Lines
from uio_pipes.formats.lists.manifest import Manifest, ShardEntry
from uio_pipes.io.access import Access
from uio_pipes.io.opening import beside, is_local
from uio_pipes.io.transport import failure, filesystem


class Parts:
    """Items of several parts, numbered through all of them. ``sizes``: the number of items in each."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.firsts = [0, *accumulate(sizes)]  # the number of the first item of each part, and that of all items

    def __len__(self) -> int:
        return self.firsts[-1]

    def locate(self, number: int) -> tuple[int, int]:
        """Return the part that holds an item, and the item's number in it."""
        at = bisect_right(self.firsts, number) - 1
        return at, number - self.firsts[at]


class ItemTable(Parts):
    """Items of one or several lists, in their order. ``len(table)``, ``table[i]``, ``table.place(i)``."""

    weights = None  # lines give no lengths
    direct: ClassVar[tuple[str, ...]] = ARCHIVES  # a name that ends so is an item itself, not a list of items
    form: ClassVar[type[Lines]] = Lines

    def __init__(self, entries: tuple[str, ...], access: Access | None = None) -> None:
        self._access = access or Access()
        self._parts: list[Lines | list[str]] = []  # list files, and items that were named directly
        for entry in entries:
            for name in expand(entry, self._access):
                self._add(name)
        super().__init__(map(len, self._parts))
        if not len(self):
            raise ListError(f"nothing in {_names(entries)}: {self.form.empty}")

    def __getitem__(self, number: int) -> str:
        part, within = self.find(number)
        return self.item_of(part[within], part.name) if isinstance(part, Lines) else part[within]

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from (self.item_of(line, part.name) for line in part) if isinstance(part, Lines) else part

    def item_of(self, line: str, listed: str) -> str:
        """Return the item that a line of the list ``listed`` stands for."""
        return found_by(line, listed)

    def place(self, number: int) -> str:
        """Return the place of an item for messages: ``data.list, line 7``."""
        part, within = self.find(number)
        return part.place(within) if isinstance(part, Lines) else redact(part[within])

    def entries(self) -> Iterator[tuple[str, str]]:
        """Yield each item with its place."""
        return ((self[number], self.place(number)) for number in range(len(self)))

    @cached_property
    def digest(self) -> str:
        """A hash of all items, without credentials."""
        hashed, between = blake2b(digest_size=16), b""
        for part in self._parts:
            for text in part.texts() if isinstance(part, Lines) else ["\n".join(part)]:
                hashed.update(between + unsigned(text).encode("utf-8", "surrogateescape"))
                between = b"\n"
        return hashed.hexdigest()

    @property
    def files(self) -> list[Lines]:
        """The list files, in their order."""
        return [part for part in self._parts if isinstance(part, Lines)]

    @property
    def lists(self) -> list[str]:
        """The list files that contain shards."""
        return [part.name for part in self._parts if _holds_shards(part)]

    def of(self, name: str) -> list[str]:
        """Return the items of one list file."""
        return [item for part in self._parts if isinstance(part, Lines) and part.name == name for item in part]

    def expected(self, number: int) -> ShardEntry | None:
        """Return a shard's entry in the manifest beside its list; None without one. Raises: ListError."""
        part, within = self.find(number)
        manifest = self._manifests.get(id(part))
        return manifest.entry(within, part[within]) if manifest is not None else None

    def each_expected(self) -> Iterator[ShardEntry | None]:
        """Yield what :meth:`expected` returns of each item. Raises: ListError."""
        for part in self._parts:
            manifest = self._manifests.get(id(part))
            yield from manifest.each(part) if manifest is not None else repeat(None, len(part))

    @cached_property
    def _manifests(self) -> dict[int, Manifest]:
        found = ((id(part), Manifest.of(part.name, self._access)) for part in self._parts if _holds_shards(part))
        return {part: manifest for part, manifest in found if manifest is not None}

    def find(self, number: int) -> tuple[Lines | list[str], int]:
        """Return the part that holds an item, and the item's number in it."""
        at = bisect_right(self.firsts, number) - 1
        return self._parts[at], number - self.firsts[at]

    def _add(self, name: str) -> None:
        if is_named(name, self.direct) or name.startswith("{"):
            if not self._parts or isinstance(self._parts[-1], Lines):
                self._parts.append([])
            self._parts[-1].append(name)  # type: ignore[union-attr]
            return
        lines = self.form.known(name, self._access)
        if not len(lines):
            raise ListError(f"{lines.what} {name} is empty: it contains {lines.empty}")
        self._parts.append(lines)


def found_by(line: str, listed: str) -> str:
    """Return the line of the list ``listed`` with the path where its file is: see :func:`beside`. Others stay."""
    if line[0] == "{":
        return line
    folder, _, pairs = line.rpartition(" ")
    if folder and not {".", "/"} & set(pairs):  # of a TouchDataset: FOLDER audio+metainfo
        return f"{beside(folder, listed)} {pairs}"
    return beside(line, listed)


def _holds_shards(part: Lines | list[str]) -> TypeGuard[Lines]:
    return isinstance(part, Lines) and not part[0].startswith("{")


_BRACES = re.compile(r"[{}\\]")  # without them braceexpand, which takes 25 µs, changes nothing


def expand(entry: str, access: Access) -> Iterator[str]:
    """Expand braces, then globs, sorted; a name without either stays as it is."""
    if entry.lstrip().startswith('{"'):
        yield entry.strip()
        return
    try:
        names = list(braceexpand(entry)) if _BRACES.search(entry) else [entry]
    except ValueError as error:
        raise ListError(f"unbalanced braces in {entry!r}: {error}") from error
    for name in names:
        if (
            not glob.has_magic(path_of(name))
            or os.path.exists(is_local(name) or "")
            or ("?" in name and "://" in name and "*" not in name)
        ):
            yield name
            continue
        found = matching(name, access)
        if not found:
            raise ListError(f"no file matches {name!r}" + (f" (of {entry!r})" if name != entry else ""))
        yield from found


def matching(pattern: str, access: Access) -> list[str]:
    """Return the files and folders that match a glob, sorted. Raises: ListError if they cannot be looked up."""
    path = is_local(pattern)
    if path is not None:
        return sorted(glob.glob(path, recursive=True))
    try:
        fs, inner = filesystem(pattern, access)
        host = pattern.removesuffix(inner)  # it belongs to the file system, not to its paths: hdfs://host:port/path
        whole = host != pattern and "://" in host
        return sorted(host + p if whole else str(fs.unstrip_protocol(p)) for p in fs.glob(inner))
    except Exception as error:  # each fsspec backend raises classes of its own
        what = failure(error, pattern, access).message
    raise ListError(f"cannot look up {pattern!r}: {what}")


def _names(entries: tuple[str, ...]) -> str:
    names = ", ".join(str(e) for e in entries[:3]) or "the given list"
    return names + (f", … ({len(entries)} in all)" if len(entries) > 3 else "")
