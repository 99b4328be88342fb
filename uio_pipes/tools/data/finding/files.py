"""The files below a folder: recordings and texts, those in archives too, each once, and the split that each is of."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.archives.archive import is_archive, is_hidden
from uio_pipes.formats.archives.directory import AUDIO
from uio_pipes.formats.archives.reading import open_reader
from uio_pipes.io.access import PLAIN

HEAD = 1 << 16  # bytes, by which a text is told from other files
_LARGE = 1 << 26  # bytes of a member of an archive above which it is no table
_SPLITS = {"train": "train", "trn": "train", "tst": "test", "dev": "dev", "val": "dev", "test": "test", "eval": "test"}
_SPLIT = re.compile(
    r"(?<![a-z])(?:(train)(?:ing)?|(dev)(?:el(?:opment)?)?|(val)(?:id(?:ation)?)?|(test)(?:ing)?|(eval)(?:uation)?)"
    r"(?:set|data|list)?(?![a-z])|(?<![a-z])(?:(trn)|(tst))(?=\.)"
)
_NO_TABLES = re.compile(
    r"(?i)(?:read.?me|licen[cs]e|change(?:log|s)|copying|authors|citation)\b.*"
    r"|.*\.(?:md|rst|html?|pdf|py|sh|pl|c|cc|h|css|js|npy|pt|bin|idx|png|jpe?g|ya?ml|toml|lock|log|md5|sha\d*)"
    r"|utt2\w+|spk2\w+|reco2\w+|feats\.scp|cmvn\.\w+"
)
_CODES: tuple[tuple[str, str, float], ...] = (  # with the characters that most of such a text is of
    ("cp949", "[\uac00-\ud7a3]", 0.8),
    ("shift_jis", "[\u3040-\u30ff]", 0.2),
    ("gb18030", "[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef]", 0.8),
)


def split_of(*names: str) -> str:
    """Return "train", "dev" or "test" by the first of these names that tells it; "" if none does."""
    for name in names:
        if found := _SPLIT.search(name.lower()):
            return next(_SPLITS[word] for word in found.groups() if word)
    return ""


def split_of_audio(path: str) -> str:
    return split_of(*path.split("/")[:-1])


class AudioFile(NamedTuple):
    """A recording below the folder, or a member of an ``archive`` there, as its path has it."""

    path: str
    split: str
    archive: str = ""

    @property
    def stem(self) -> str:
        return self.path.rpartition("/")[2].rpartition(".")[0]


@dataclass(frozen=True)
class TextFile:
    """A file of text below the folder, or a member of an ``archive`` there. ``size``: in bytes."""

    path: str
    size: int
    read: Callable[[int], bytes] = field(compare=False, repr=False)
    archive: str = ""

    @cached_property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @cached_property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @cached_property
    def ending(self) -> str:
        """Its suffix, or its last two as in ``.trans.txt``, in small letters."""
        found = re.search(r"(?:\.[a-z]{3,12})?\.\w{1,10}(?:\.gz)?$", self.name.lower())
        return found[0] if found else ""

    @cached_property
    def stem(self) -> str:
        return self.name[: len(self.name) - len(self.ending)] or self.name

    @cached_property
    def split(self) -> str:
        """What its own name tells goes before what those of folders do."""
        return split_of(self.name) or split_of(*self.path.split("/")[:-1])

    def text(self, limit: int = -1) -> str:
        """Return its content, or about the first ``limit`` bytes; "" of what is no text. Raises: ListError."""
        try:
            data = self.read(limit)
        except (OSError, EOFError, zlib.error) as error:
            raise ListError(f"{self.path} cannot be read ({error}): repair it, or move it out of the folder") from error
        if 0 <= limit <= len(data):
            data = data[: data.rfind(b"\n") + 1] or data
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return data.decode("utf-16", "replace")
        if b"\0" in data:
            return ""
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return _decoded(data)


def _decoded(data: bytes) -> str:
    """Return a text that is not UTF-8, in the encoding whose usual characters most of it are."""
    for code, usual, least in _CODES:
        try:
            text = data.decode(code)
        except UnicodeDecodeError:
            continue
        foreign = [character for character in text if character > "\x7f"]
        if foreign and sum(map(len, re.findall(f"{usual}+", "".join(foreign)))) >= least * len(foreign):
            return text
    return data.decode("latin-1")


@dataclass
class Files:
    """What is below ``folder``: recordings, texts, and all other names."""

    folder: str
    recordings: list[AudioFile] = field(default_factory=list)
    texts: list[TextFile] = field(default_factory=list)
    archives: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def files_below(folder: str) -> Files:
    """Look through a folder. Links and copies of what is in the folder of a split, too, count once. Raises: OSError."""
    files, known = Files(folder), dict[tuple[int, int], str]()
    root = Path(folder).resolve()
    above = tuple((stat.st_dev, stat.st_ino) for stat in (place.stat() for place in (root, *root.parents)))
    for path, entry in _walk(Path(folder), "", above):
        suffix = entry.name.rpartition(".")[2].lower()
        if is_archive(entry.name):
            files.archives.append(path)
        elif suffix in AUDIO:
            named_in_utf8(path)
            stat = entry.stat()
            twin = known.setdefault((stat.st_dev, stat.st_ino), path)
            if twin != path and (split_of_audio(twin) or not split_of_audio(path)):
                continue
            known[stat.st_dev, stat.st_ino] = path
        elif _NO_TABLES.fullmatch(entry.name) or suffix in ("parquet", "arrow"):
            files.others.append(path)
        else:
            files.texts.append(TextFile(path, entry.stat().st_size, partial(_head_of, os.path.join(folder, path))))
    files.recordings = [AudioFile(path, split_of_audio(path)) for path in sorted(known.values())]
    return files


def named_in_utf8(path: str) -> None:
    """Raises: ListError if a path is not UTF-8."""
    if not path.isascii() and path.encode(errors="replace").decode() != path:
        raise ListError(f"{path!r} is a name that is not UTF-8, which no list or script can hold: rename it")


def look_into_archives(files: Files) -> None:
    """Add the recordings and texts that are in archives."""
    for path in files.archives:
        place, within = os.path.join(files.folder, path), split_of(*path.split("/"))
        with closing(open_reader(place, PLAIN)) as reader:
            while True:
                try:
                    member = reader.next()
                except StopIteration:
                    break
                except DataError:
                    continue
                name, suffix = member.name.removeprefix("./"), member.name.rpartition(".")[2].lower()
                if is_hidden(name) or name.endswith("/"):
                    continue
                if suffix in AUDIO:
                    files.recordings.append(AudioFile(name, split_of_audio(name) or within, path))
                elif not _NO_TABLES.fullmatch(name.rpartition("/")[2]):
                    payload = member.payload
                    data = payload if isinstance(payload, bytes) else getattr(payload, "read", bytes)()
                    if len(data) <= _LARGE:
                        files.texts.append(TextFile(name, len(data), partial(_part, data), path))


def _part(data: bytes, limit: int) -> bytes:
    return data if limit < 0 else data[:limit]


def _head_of(path: str, limit: int) -> bytes:
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        return file.read(limit)


def _walk(root: Path, below: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the files below a folder by their paths; of a link to a folder above, nothing."""
    for entry in sorted(os.scandir(root / below), key=lambda entry: entry.name):
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        if entry.is_dir():
            stat = entry.stat()
            if (stat.st_dev, stat.st_ino) not in above:
                yield from _walk(root, path, (*above, (stat.st_dev, stat.st_ino)))
        elif entry.is_file():
            yield path, entry
