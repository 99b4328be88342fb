"""The files below a folder: recordings and texts, those in archives too, each once, and the split that each is of."""

from __future__ import annotations

import gzip
import os
import re
import stat
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.archives.archive import is_archive, is_hidden
from uio_pipes.formats.archives.directory import AUDIO
from uio_pipes.formats.archives.reading import open_reader
from uio_pipes.io.access import PLAIN

_LARGE = 1 << 26  # bytes of a member of an archive above which it is no table
_SPLIT = re.compile(
    r"(?<![a-z])(?:(train)(?:ing)?|(dev)(?:el(?:opment)?)?|(val)(?:id(?:ation)?)?|(test)(?:ing)?|(eval)(?:uation)?)"
    r"(?:set|data|list)?(?![a-z])|(?<![a-z])(?:(trn)(?=\.)|(tst)(?![a-z]))"
)
_NAMED = {"trn": "train", "tst": "test", "val": "dev", "eval": "test"}
_NO_TABLES = re.compile(
    r"(?i)(?:read.?me|licen[cs]e|change(?:log|s)|copying|authors|citation)\b.*"
    r"|.*\.(?:md|rst|html?|pdf|py|sh|pl|c|cc|h|css|js|npy|pt|bin|idx|png|jpe?g|toml|lock|log|md5|sha\d*|parquet|arrow)"
    r"|utt2\w+|spk2\w+|reco2\w+|feats\.scp|cmvn\.\w+"
)
_ENDING = re.compile(r"(?s)(.+?)((?:\.[a-zA-Z]{3,12})?\.\w{1,10}(?:\.gz)?)?")
_CODES = (  # with the characters that most of such a text is of
    ("cp949", "[\uac00-\ud7a3]", 0.8),
    ("shift_jis", "[\u3040-\u30ff]", 0.2),
    ("gb18030", "[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef]", 0.8),
)


@cache
def split_of(*names: str) -> str:
    """Return "train", "dev" or "test" by the first of these names that tells it; "" if none does."""
    words = (word for name in names for found in [_SPLIT.search(name.lower())] if found for word in found.groups())
    return next((_NAMED.get(word, word) for word in words if word), "")


def wanted_split(splits: Collection[str], part: str) -> str:
    """Return the split that is wanted of these: ``part``, or else that of training, or what is in none."""
    return part or next((split for split in ("train", "", "dev", "test") if split in splits), "")


def wanted_of(names: Sequence[str], part: str) -> list[str]:
    """Return the paths of the split that is wanted."""
    splits = [split_of(*reversed(name.split("/"))) for name in names]
    return [name for name, split in zip(names, splits, strict=True) if split == wanted_split(splits, part)]


class FoundFile(NamedTuple):
    """A recording or a text below the folder ``root``, or in an ``archive`` there, where ``data`` are those of a text.

    ``stem`` and ``ending``: its name, the latter in small letters, of a text as in ``.trans.txt``; ``split``: what its
    folders tell, of a text its own name first.
    """

    root: str
    path: str
    folder: str
    stem: str
    ending: str
    split: str
    archive: str = ""
    data: bytes | None = None

    @classmethod
    def at(cls, root: str, path: str, archive: str = "") -> FoundFile:
        folder, _, name = path.rpartition("/")
        stem, _, ending = name.rpartition(".")
        split = split_of(*folder.split("/"), *archive.split("/"))
        if ending.lower() not in AUDIO:
            split = split_of(name) or split
            stem, ending = _ENDING.fullmatch(name).groups("")  # type: ignore[union-attr]  # matches anything
        return cls(root, path, folder, stem, ending.lower(), split, archive)

    @property
    def place(self) -> str:
        return os.path.join(self.root, self.path)

    def text(self, limit: int = -1) -> str:
        """Return its content, or about the first ``limit`` bytes; "" of what is no text. Raises: ListError."""
        data = self.data
        if data is None:
            try:
                with gzip.open(self.place) if self.path.endswith(".gz") else open(self.place, "rb") as file:
                    data = file.read(limit)
            except (OSError, EOFError, zlib.error) as error:
                problem = f"{self.path} cannot be read ({error}): repair it, or move it out of the folder"
                raise ListError(problem) from error
        if 0 <= limit <= len(data):
            data = data[: data.rfind(b"\n", 0, limit) + 1] or data[:limit]
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return data.decode("utf-16", "replace")
        with suppress(UnicodeDecodeError):
            return "" if b"\0" in data else data.decode("utf-8-sig")
        for code, usual, least in _CODES:
            with suppress(UnicodeDecodeError):
                text = data.decode(code)
                foreign = "".join(character for character in text if character > "\x7f")
                if len(re.findall(usual, foreign)) >= max(1, least * len(foreign)):
                    return text
        return data.decode("latin-1")


class Files:
    """What is below ``folder``: recordings, texts, and the paths of all files but recordings. Links and copies of what
    is in the folder of a split, too, count once.

    Raises: ListError if a recording has a name that is not UTF-8.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.names, self.texts = folder, list[str](), list[FoundFile]()
        every = dict[tuple[int, int], FoundFile]()
        for path, at in _walk(folder):
            one = FoundFile.at(folder, path)
            if one.ending in AUDIO:
                named_in_utf8(path)
                if (twin := every.setdefault(at, one)) is not one and one.split and not twin.split:
                    every[at] = one
            else:
                self.names.append(path)
                if not _NO_TABLES.fullmatch(path.rpartition("/")[2]) and not is_archive(path):
                    self.texts.append(one)
        self.recordings = sorted(every.values())

    def look_into_archives(self) -> None:
        """Add the recordings and texts that are in archives."""
        for archive in filter(is_archive, self.names):
            with closing(open_reader(os.path.join(self.folder, archive), PLAIN)) as reader:
                for member in _sound(reader):
                    one = FoundFile.at(self.folder, path := member.name.removeprefix("./"), archive)
                    if is_hidden(path) or path.endswith("/"):
                        continue
                    if one.ending in AUDIO:
                        self.recordings.append(one)
                    elif not _NO_TABLES.fullmatch(path.rpartition("/")[2]):
                        payload = member.payload
                        data = payload if isinstance(payload, bytes) else getattr(payload, "read", bytes)()
                        if len(data) <= _LARGE:
                            self.texts.append(one._replace(data=data))


def _walk(root: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the paths of files below a folder with their devices and numbers, each folder once, and none that is above
    it, whatever links say."""
    seen = {(at.st_dev, at.st_ino) for at in map(os.stat, Path(root).resolve().parents)}
    for place, folders, names in os.walk(root, followlinks=True):
        at = os.stat(place)
        if (at.st_dev, at.st_ino) in seen:
            folders.clear()
            continue
        seen.add((at.st_dev, at.st_ino))
        folders[:] = [name for name in folders if name[0] != "." and name != "__MACOSX"]
        folders.sort(key=lambda name: (os.path.islink(os.path.join(place, name)), name))
        inner = os.path.join(place, "")
        for name in sorted(names):
            with suppress(OSError):  # a link to nowhere
                if name[0] != "." and stat.S_ISREG((at := os.stat(inner + name)).st_mode):
                    yield f"{inner}{name}"[len(os.path.join(root, "")) :], (at.st_dev, at.st_ino)


def _sound(reader: Any) -> Iterator[Any]:
    while True:
        with suppress(DataError):
            try:
                yield reader.next()
            except StopIteration:
                return


def named_in_utf8(path: str) -> None:
    """Raises: ListError if a path is not UTF-8."""
    if not path.isascii() and path.encode(errors="replace").decode() != path:
        raise ListError(f"{path!r} is a name that is not UTF-8, which no list or script can hold: rename it")
