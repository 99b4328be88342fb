"""The kind of data by its first lines, without opening anything else: no torch in here, dictionaries need none."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import is_named
from uio_pipes.formats.lists.table import ARCHIVES, expand
from uio_pipes.formats.naming import renamed
from uio_pipes.formats.nemo.paths import expanded
from uio_pipes.formats.parquet.table import SUFFIXES
from uio_pipes.formats.tar.index_files import SUFFIX
from uio_pipes.formats.touch.entries import names_folder
from uio_pipes.io.access import PLAIN
from uio_pipes.io.stream import open_source

HEAD = 1 << 16
SCP = ".scp"  # of Kaldi's tables that name audio or features
RAW, CUTS, NEMO, JSONL = "raw list", "Lhotse's cuts", "NeMo manifest", "text in JSON lines"
TEXT, PAIRS, CONVERSATIONS = "lines of text", "text files side by side", "conversations in JSON lines"
_CUT = re.compile(r'"type": ?"(?:Mono|Multi|Mixed|Padding)?Cut"')
_NAME = re.compile(r'"([^"\\]+)" ?:')
_OF_NEMO = frozenset(["audio_filepath", "audio_filename", "audio_file"])
GivenNames = Mapping[str, str] | None


def reads_records(path: str, fields: GivenNames = None) -> bool:
    """Return whether this is a folder, or a file of utterances that has no lines of WeNet's."""
    if os.path.isdir(path) or is_named(path, (*SUFFIXES, SCP, ".yaml", ".yml")):
        return True
    if path.startswith("{"):
        return not is_line(path, fields)
    if is_named(path, (*ARCHIVES, SUFFIX)):
        return False
    if names_folder(path):
        return True
    try:
        lines = lines_of(head_of(path))
    except ListError:
        return False
    if not lines or not lines[0].startswith("{"):
        return bool(lines) and not names_folder(lines[0]) and not has_shards(lines)
    return kind_of(lines, fields) != RAW


def kind_of(lines: list[str], fields: GivenNames) -> str:
    """Return the kind of JSON lines by the first of them that tells it; "" if none does.

    Lines that are damaged beyond recognition are those of a raw list, which counts them.
    """
    named = [(line, names_in(line, fields)) for line in lines if line.startswith("{")]
    return next(filter(None, (_kind_of(*each, fields) for each in named)), "" if any(n for _, n in named) else RAW)


def _kind_of(line: str, names: frozenset[str], fields: GivenNames) -> str:
    if names & {"wav", "feat"}:
        return RAW
    if "supervisions" in names or _CUT.search(line) is not None:
        return CUTS
    if names & _OF_NEMO:
        return NEMO
    if names & {"messages", "conversations"}:
        return CONVERSATIONS
    if "text" in names or ("txt" in names and "txt" in (fields or ())):
        return JSONL
    return RAW if names & {"key", "txt"} else ""


def names_in(line: str, fields: GivenNames) -> frozenset[str]:
    """Return our names of the fields of a JSON object, which may be damaged, or cut off where the head ends."""
    try:
        read = parse_json(line)
    except ValueError:
        read = dict.fromkeys(_NAME.findall(line))
    return frozenset(renamed(read, fields))


def lines_of(head: bytes) -> list[str]:
    """Return the lines that are neither blank nor comments, without the blanks around them."""
    lines = map(str.strip, head.decode("utf-8-sig", "replace").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_line(text: str, fields: GivenNames) -> bool:
    """Return whether a JSON object is a line of a raw list."""
    return bool(names_in(text, fields) & {"key", "wav", "feat"})


def has_shards(lines: list[str]) -> bool:
    """Return whether one of the lines is the path of a shard, alone or before the number of its utterances."""
    return any(is_named(line, ARCHIVES) or is_named(line.split(None, 1)[0], ARCHIVES) for line in lines)


def head_of(path: str) -> bytes:
    """Return the beginning of the first file's content, decompressed. Raises: ListError."""
    names = expanded([path], PLAIN) if "_OP_" in path else expand(path, PLAIN)
    try:
        source = open_source(next(names))
        try:
            head: bytes = source.read_upto(0, HEAD)
        finally:
            source.close()
    except DataError as error:
        raise ListError(f"{path}: {error.message}") from error
    return head
