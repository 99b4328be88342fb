"""A data list as the trainer has it, raw or of shards: which of the two it is, and its utterances."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

from uio_pipes.base.errors import ListError
from uio_pipes.formats.kaldi.files import is_folder
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.formats.lists.table import ARCHIVES
from uio_pipes.formats.touch.table import METAINFO, names_folder
from uio_pipes.prep.reading.input_files import exists, read_lines

if TYPE_CHECKING:
    import uio_pipes as uio

__all__ = [
    "DataType",
    "count_utterances",
    "data_type_of",
    "digest_of_list",
    "first_line",
    "names_touchdataset",
    "utterances_of",
]

DataType = Literal["raw", "shard"]


def data_type_of(url: str) -> DataType:
    """WeNet's ``data_type`` of a list, by its first line. Raises: ListError if it is missing, empty or none."""
    if url.endswith(ARCHIVES):
        return "shard"
    first = first_line(url)
    if first.startswith("{") and not first.endswith(ARCHIVES):
        return "raw"
    if first.partition("?")[0].endswith(ARCHIVES):
        return "shard"
    raise ListError(f"{url} is no list: its first line is {first[:80]!r}, but a list has a JSON object, or the path of "
                    "a shard (….tar), a line")  # fmt: skip


def names_touchdataset(url: str) -> bool:
    """Whether this is the folder of a TouchDataset, or a data list of such folders. Raises: ListError."""
    if is_folder(url):
        return exists(f"{url.rstrip('/')}/{METAINFO}.idx")
    return not url.partition("?")[0].endswith(ARCHIVES) and names_folder(first_line(url))


def first_line(url: str) -> str:
    """The first that is neither blank nor a comment. Raises: ListError if there is none."""
    for line in read_lines(url):
        if (text := line.strip()) and not text.startswith(b"#"):
            return text.decode("utf-8-sig", "replace")
    raise ListError(f"the list {url} is empty: no line that is neither blank nor a comment (#)")


def digest_of_list(url: str) -> str:
    """A hash of the list's own content."""
    digest = blake2b(digest_size=16)
    for line in read_lines(url):
        digest.update(line)
    return digest.hexdigest()


def count_utterances(url: str, data_type: DataType) -> int | None:
    """How many there are, as far as the list or its manifest tells: for a progress bar."""
    if data_type == "raw":
        return sum(1 for _ in read_lines(url))
    entries = read_manifest(url)
    return None if entries is None else sum(entry.utterances for entry in entries.values())


def utterances_of(url: str, data_type: DataType) -> uio.Pipeline:
    """The pipeline of a list."""
    import uio_pipes as uio

    return uio.from_raw_list(url) if data_type == "raw" else uio.from_shard_list(url)
