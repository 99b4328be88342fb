"""A data list of a trainer: its kind (raw or of shards), its first line, its utterances."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import is_named
from uio_pipes.formats.kaldi.files import is_folder
from uio_pipes.formats.lists.manifest import read_manifest
from uio_pipes.formats.lists.table import ARCHIVES
from uio_pipes.formats.touch.entries import METAINFO, TOKENS, names_folder
from uio_pipes.prep.reading.input_files import exists, read_lines
from uio_pipes.prep.reading.kinds import reads_records

if TYPE_CHECKING:
    import uio_pipes as uio

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
