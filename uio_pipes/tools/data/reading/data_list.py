"""A data list of a trainer: its kind by its first lines, its utterances; missing ones with a hint at the name that was
probably meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import is_named
from uio_pipes.formats.advice import usual_of
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.formats.lists.table import expand
from uio_pipes.formats.naming import LOOKED_AT, renamed
from uio_pipes.formats.tar.checks import SUFFIX
from uio_pipes.io.access import PLAIN
from uio_pipes.io.folders import meant
from uio_pipes.io.opening import open_binary
from uio_pipes.io.stream import open_source
from uio_pipes.sources.kaldi.tables import KaldiLines, is_folder
from uio_pipes.sources.nemo.table import expanded
from uio_pipes.sources.parquet.table import SUFFIXES
from uio_pipes.sources.touchdataset.folder import METAINFO, TOKENS, names_folder
from uio_pipes.tools.data.common import near

if TYPE_CHECKING:
    import uio_pipes as uio


def read_lines(url: str) -> Iterator[bytes]:
    """Yield the lines of a local or remote file. Raises: ListError with a suggestion."""
    try:
        with open_binary(url) as file:
            yield from file
    except DataError as error:
        raise _unreadable(url, error) from error
    except OSError as error:
        raise ListError(f"cannot read {url}: {error}") from error


def read_table(url: str, least: int, most: int | None = None) -> KaldiLines:
    """Read one of Kaldi's tables; ``least``, ``most``: words after the key. Raises: ListError."""
    return read_tables([url], least, most)


def read_tables(urls: Sequence[str], least: int, most: int | None = None) -> KaldiLines:
    """As :func:`read_table`, for a table in several files."""
    return KaldiLines.joined([(url, b"".join(read_lines(url))) for url in urls], least, most)


def exists(url: str) -> bool:
    """Return whether there is such a file. Raises: ListError if that cannot be found out."""
    try:
        open_binary(url).close()
    except DataError as error:
        if error.reason == "missing_file":
            return False
        raise _unreadable(url, error) from error
    return True


def _unreadable(url: str, error: DataError) -> ListError:
    if error.reason == "missing_file":
        parent, name = os.path.split(url)
        hint = " (a Kaldi folder has wav.scp and text)" if os.path.isdir(parent) and name in ("text", "wav.scp") else ""
        if hint and name == "text" and (theirs := usual_of("txt", os.listdir(parent))):
            hint = f": if {theirs} is meant, add --text {os.path.join(parent, theirs)}"
        return ListError(f"there is no {url}{near(url)}{hint}")
    if os.path.isdir(url):
        return ListError(f"{url} is a folder, where a list is wanted: uio inspect {url} shows what is in it")
    return ListError(f"cannot read {url}: {error.message}{meant(url)}")


HEAD = 1 << 16
SCP = ".scp"  # of Kaldi's tables that name audio or features
RAW, CUTS, NEMO, JSONL = "raw list", "Lhotse's cuts", "NeMo manifest", "text in JSON lines"
TEXT, PAIRS, CONVERSATIONS = "lines of text", "text files side by side", "conversations in JSON lines"
_CUT = re.compile(r'"type": ?"(?:Mono|Multi|Mixed|Padding)?Cut"')
_NAME = re.compile(r'"([^"\\]+)" ?:')
_OF_NEMO = frozenset(["audio_filepath", "audio_filename", "audio_file"])
LIST_OF_OBJECTS = re.compile(r'"([^"\\]+)" ?: ?\[\s*\{')
_IN_LINES = frozenset(["supervisions", "messages", "conversations"])  # such lists in the lines of manifests
_CORPUS = re.compile(r"[^/\\:]*\w[^:]*:(?!//)")
GivenNames = Mapping[str, str] | None


def names_corpus(path: str) -> bool:
    """Return whether this is a corpus in a folder, as ``librispeech:FOLDER``."""
    if not _CORPUS.match(path):
        return False
    from uio_pipes.tools.data.corpora import named_corpus  # only here: its sources need torch

    return named_corpus(path) is not None


def reads_records(path: str, fields: GivenNames = None) -> bool:
    """Return whether this is a folder, or a file of utterances that has no lines of WeNet's."""
    if os.path.isdir(path) or names_corpus(path) or is_named(path, (*SUFFIXES, SCP, ".yaml", ".yml")):
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
    if is_document(path, lines):
        return True
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


def objects_of(lines: list[str]) -> list[dict[str, Any]]:
    """Return the JSON objects among the first lines of a list, of which the last may be cut off."""
    found = list[dict[str, Any]]()
    for line in lines[:LOOKED_AT]:
        with suppress(ValueError):
            found += [read] if isinstance(read := parse_json(line), dict) else []
    return found or [{}]


def lines_of(head: bytes) -> list[str]:
    """Return the lines that are neither blank nor comments, without the blanks around them."""
    lines = map(str.strip, head.decode("utf-8-sig", "replace").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def is_document(path: str, lines: list[str]) -> bool:
    """Return whether a file with these first lines is one JSON, not an object a line."""
    if not is_named(path, (".json", ".json.gz")) or not lines:
        return False
    inner = LIST_OF_OBJECTS.search(lines[0]) if len(lines) == 1 and lines[0][0] == "{" else None
    of_rows = inner is not None and inner[1] not in _IN_LINES and (lines[0][-1] != "}" or not kind_of(lines, None))
    return lines[0][0] == "[" or lines[0] == "{" or of_rows


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


DataType = Literal["raw", "shard"]


def data_type_of(url: str) -> DataType:
    """Return WeNet's ``data_type`` of a list. Raises: ListError if it is missing, empty or not a list."""
    return "shard" if is_archive(url) else data_type_by(url, first_line(url))


def data_type_by(url: str, first: str) -> DataType:
    """Return the ``data_type`` of the list ``url`` by its first line. Raises: ListError for any other line."""
    if first.startswith("{") and not is_named(first, ARCHIVES):
        return "raw"
    if is_named(first, ARCHIVES):
        return "shard"
    raise ListError(f"{url} is not a list: its first line is {first[:80]!r}, but a list has a JSON object, or the path "
                    "of a shard (….tar), a line")  # fmt: skip


def wenet_type_of(url: str) -> DataType | None:
    """Return the ``data_type`` of a list or shard of WeNet's; None for data of another kind. Raises: ListError."""
    return None if reads_records(url) or names_touchdataset(url) else data_type_of(url)


def names_touchdataset(url: str) -> bool:
    """Return whether this is the folder of a TouchDataset, or a data list of such folders. Raises: ListError."""
    if is_folder(url):
        return any(exists(f"{url.rstrip('/')}/{name}.idx") for name in (METAINFO, TOKENS))
    return not is_archive(url) and names_folder(first_line(url))


def is_archive(url: str) -> bool:
    """Return whether this names a shard itself, not a list."""
    return is_named(url, ARCHIVES)


def first_line(url: str) -> str:
    """Return the first line that is neither blank nor a comment. Raises: ListError if there is none."""
    for line in read_lines(url):
        if (text := line.strip()) and not text.startswith(b"#"):
            return text.decode("utf-8-sig", "replace")
    raise ListError(f"the list {url} is empty: it holds only blank lines and comments (#)")


def digest_of_list(url: str) -> str:
    """Return a hash of the list's own content."""
    digest = blake2b(digest_size=16)
    for line in read_lines(url):
        digest.update(line)
    return digest.hexdigest()


def count_utterances(url: str, data_type: DataType) -> int | None:
    """Count utterances for a progress bar, as far as the list or its manifest shows it; None if neither does."""
    if data_type == "raw":
        return sum(1 for _ in read_lines(url))
    entries = read_manifest(url)
    return None if entries is None else sum(entry.utterances for entry in entries.values())


def utterances_of(url: str, data_type: DataType) -> uio.Pipeline:
    """Return the pipeline of a list, whose utterances need no transcript."""
    import uio_pipes as uio

    return uio.from_raw_list(url, text=None) if data_type == "raw" else uio.from_shard_list(url, text=None)
