"""The kind of data at a path: a list, a shard, an index, a data folder, or something for another command."""

from __future__ import annotations

import os
from dataclasses import dataclass

from uio_pipes.audio.sniff import sniff
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.table import ARCHIVES
from uio_pipes.formats.tar.index import MAGIC
from uio_pipes.formats.tar.index_files import SUFFIX
from uio_pipes.io.opening import is_local, open_binary
from uio_pipes.pipeline import Pipeline
from uio_pipes.starts.lists import from_raw_list, from_shard_list

HEAD = 1 << 16
NAMED = {"wav.scp": "Kaldi's", "feats.scp": "Kaldi's", "segments": "Kaldi's", "utt2spk": "Kaldi's", "text": "Kaldi's"}


@dataclass(frozen=True)
class Recognized:
    """A path, its kind in words, and the pipeline of its utterances."""

    path: str
    kind: str
    pipeline: Pipeline


def recognize(path: str, allow_pipes: bool = False) -> Recognized:
    """Return the kind of data at ``path``; ``allow_pipes``: run the commands of a Kaldi folder.

    Raises: ListError for a path without utterances, saying what it is and the command for it.
    """
    local = is_local(path)
    if local is not None and os.path.isdir(local):
        return _folder(path, local, allow_pipes)
    if path.endswith(ARCHIVES):
        return Recognized(path, "tar shard", from_shard_list(path))
    if os.path.basename(path) in NAMED:
        folder = os.path.dirname(path) or "."
        raise ListError(f"{path} is one of Kaldi's tables: name its folder (uio inspect {folder})")
    head = _head(path)
    if head.startswith(MAGIC):
        return _sidecar(path)
    _refuse(path, head)
    first = next((line for line in head.decode("utf-8", "replace").splitlines() if _counts(line)), "")
    if not first:
        raise ListError(f"{path} is empty: a list has a path or a JSON object a line")
    if not first.lstrip().startswith("{"):
        return _list(path, first.strip())
    if '"reason"' in first and '"wav"' not in first:
        raise ListError(f"{path} is a quarantine file (failures with their origin): uio verify looks at it again")
    return Recognized(path, "raw list", from_raw_list(path))


def _counts(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _head(path: str) -> bytes:
    try:
        with open_binary(path) as file:
            return bytes(file.read(HEAD))
    except DataError as error:
        raise ListError(f"{path}: {error.message}") from error


def _folder(path: str, local: str, allow_pipes: bool) -> Recognized:
    names = set(os.listdir(local))
    if {"metainfo.idx", "metainfo.bin"} & names:
        from uio_pipes.starts.records import from_indexed

        return Recognized(path, "TouchDataset folder", from_indexed(path))
    if {"wav.scp", "feats.scp"} & names:
        from uio_pipes.starts.records import from_kaldi

        return Recognized(path, "Kaldi data folder", from_kaldi(path, allow_pipes=allow_pipes))
    if written := sorted({"data.list", "shards.list"} & names):
        raise ListError(f"{path} is a folder with a list: name that, {os.path.join(path, written[0])}")
    if any(name.endswith(ARCHIVES) for name in names):
        raise ListError(f"{path} is a folder with shards: name them by a glob in quotes ('{path.rstrip('/')}/*.tar')")
    raise ListError(
        f"{path} is a folder, but neither a TouchDataset (metainfo.idx, …) nor a Kaldi folder (wav.scp, …): "
        "name a list, a shard or one of those"
    )


def _sidecar(path: str) -> Recognized:
    from uio_pipes.starts.records import from_tar_index

    if not path.endswith(SUFFIX):
        raise ListError(f"{path} is a tar index under another name; rename it to SHARD{SUFFIX} beside its shard")
    return Recognized(path, "index of a tar shard", from_tar_index(path.removesuffix(SUFFIX)))


def _list(path: str, first: str) -> Recognized:
    parts = first.split()
    if len(parts) == 2 and "+" in parts[1] and "." not in parts[1]:
        from uio_pipes.starts.records import from_indexed

        return Recognized(path, "list of TouchDataset folders", from_indexed(path))
    if len(parts) > 1 and not first.split(None, 1)[0].endswith(ARCHIVES) and not first.endswith(ARCHIVES):
        raise ListError(
            f"{path} is a text file of another kind (first line {first[:60]!r}): a list has a path of a shard or a "
            "JSON object a line; a Kaldi folder is named as a folder"
        )
    return Recognized(path, "shard list", from_shard_list(path))


def _refuse(path: str, head: bytes) -> None:
    if kind := sniff(head):
        raise ListError(f"{path} is an audio file ({kind}): inspect takes what lists it, or a shard of such files")
    if head.startswith(b"PK\x03\x04") and b"data.pkl" in head:
        raise ListError(f"{path} is a file of torch.save: uio state show prints what a loader's state in it says")
    if head[257:262] == b"ustar":
        raise ListError(f"{path} is a tar without the suffix: shards must end in one of {' '.join(ARCHIVES)}")
    if path.endswith((".yaml", ".yml")):
        raise ListError(f"{path} is a configuration: uio simulate --conf takes it")
    if path.endswith(".py"):
        raise ListError(f"{path} is a Python file: uio simulate and uio bench run the pipeline in it")
    if head.lstrip().startswith(b'{"meta"'):
        raise ListError(f"{path} is a loader's state: uio state show prints what is in it")
    if b"\0" in head:
        raise ListError(f"{path} is neither text nor any of the kinds of data that uio_pipes reads")
