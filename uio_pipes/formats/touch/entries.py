"""The data lists of TouchDatasets: folders, and the pairs of files that are read of each.

A line is ``FOLDER audio+metainfo``; other words name other pairs, ``NAME.bin`` and ``NAME.idx``. ``metainfo`` alone is
text, ``texttoken`` alone the ids of tokens, ``audio+video+metainfo`` has the bytes of a video file beside the audio.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import is_named
from uio_pipes.formats.lists.table import Table, expand
from uio_pipes.io.access import Access
from uio_pipes.io.remote import is_local

LISTS = (".list", ".lst", ".txt")  # a URL that ends so is a data list; any other one is a folder
AUDIO, METAINFO, TOKENS = "audio", "metainfo", "texttoken"
_OURS = frozenset(["key", "txt", "wav", "feat", "label", "start", "end", "duration", "sample_rate"])


class FolderEntry(NamedTuple):
    """A folder; the name of its metadata, "" if it has none; the names of the other pairs that are read."""

    folder: str
    metainfo: str
    others: tuple[str, ...] = (AUDIO,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all pairs, audio first, as a data list has them."""
        audio = tuple(name for name in self.others if name == AUDIO)
        rest = tuple(name for name in self.others if name != AUDIO)
        return (*audio, *((self.metainfo,) if self.metainfo else ()), *rest)


def folders(entries: tuple[str, ...], metainfo: str | None, access: Access) -> Iterator[FolderEntry]:
    """Yield each folder with what is read of it; ``metainfo``: another name of the metadata. Raises: ListError."""
    for name in (name for entry in entries for name in expand(entry, access)):
        path = is_local(name)
        if names_folder(name) and not os.path.exists(path or ""):
            yield parse_entry(name, repr(name), metainfo)
        elif os.path.isfile(path or "") or (path is None and is_named(name, LISTS)):
            table = Table((name,), access)
            yield from (parse_entry(table[i], table.place(i), metainfo) for i in range(len(table)))
        elif path is not None and not os.path.isdir(path):
            raise ListError(f"there is neither a folder nor a data list {name}; a TouchDataset is made by: uio convert")
        else:
            yield unnamed(name, metainfo)


def unnamed(folder: str, metainfo: str | None = None) -> FolderEntry:
    """Return what is read of a folder where nothing says it: audio and metadata, or in a local folder without audio
    the metadata or the tokens that are there."""
    pairs = pairs_of(folder)
    if pairs and not {f"{AUDIO}.bin", f"{AUDIO}.idx"} & set(os.listdir(is_local(folder) or ".")):
        if (metainfo or METAINFO) in pairs:
            return FolderEntry(folder, metainfo or METAINFO, ())
        if TOKENS in pairs:
            return FolderEntry(folder, "", (TOKENS,))
    return FolderEntry(folder, metainfo or METAINFO)


def with_all_pairs(folder: str) -> str:
    """Return the line of a data list that names all pairs in a local folder, of the metadata only the usual one."""
    entry = unnamed(folder)
    rest = (n for n in pairs_of(folder) if n not in entry.names and n not in _OURS and not n.startswith(METAINFO))
    return f"{folder} {'+'.join((*entry.names, *rest))}"


def pairs_of(folder: str) -> list[str]:
    """Return the names of all pairs of files in a local folder; of others nothing is known."""
    path = is_local(folder)
    names = set(os.listdir(path)) if path is not None and os.path.isdir(path) else set()
    pairs = sorted(name.removesuffix(".idx") for name in names if name.endswith(".idx") and not name.startswith("."))
    return [name for name in pairs if f"{name}.bin" in names]


def names_folder(line: str) -> bool:
    """Return whether a line names the folder of a TouchDataset with the pairs that are read as its last word."""
    return not line.startswith("{") and "." not in (word := _split(line)[1]) and bool(word)


def _split(line: str) -> tuple[str, str]:
    """Return the folder, and the last word if it names pairs of files."""
    folder, *words = line.rsplit(None, 1)
    word = words[0] if words else ""
    named = "/" not in word and ("+" in word or word in (AUDIO, TOKENS) or word.startswith(METAINFO))
    return (folder, word) if named or (word and word in pairs_of(folder)) else (line.strip(), "")


def parse_entry(line: str, place: str, metainfo: str | None = None) -> FolderEntry:
    """Parse a line of a data list, ``FOLDER NAME+NAME`` or only ``FOLDER``. Raises: ListError.

    The metadata is the pair whose name begins with ``metainfo``; of ``audio+NAME`` the second, whatever its name.
    """
    folder, word = _split(line)
    if not word:
        if line.startswith("{") or is_named(line, ".tar"):
            raise ListError(f"{place} is not a folder, but {line[:80]!r}; name a list of FOLDER audio+metainfo lines")
        return unnamed(folder, metainfo)
    names = word.split("+")
    if not all(names) or len(set(names)) < len(names):
        raise ListError(f"{place} says {word!r}; each name must be that of a pair of files, once: try audio+metainfo")
    found = [name for name in names if name.startswith(METAINFO)]
    if not found and len(names) == 2 and names[0] == AUDIO and names[1] != TOKENS:
        found = names[1:]
    others = tuple(name for name in names if name not in found)
    if len(found) > 1 or (not found and (AUDIO in names or TOKENS not in names)):
        raise ListError(
            f"{place} says {word!r}; exactly one of the names must be that of metadata (metainfo, metainfo_v2, …), "
            f"unless it is texttoken without audio: try {'+'.join((*others, METAINFO))}"
        )
    if wrong := _OURS.intersection(others):
        raise ListError(f"{place} says {word!r}; {min(wrong)!r} is a field of its own: give the files another name")
    return FolderEntry(folder, (metainfo or found[0]) if found else "", others)
