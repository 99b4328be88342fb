"""The kind of data at a path: a list, a shard, an index, a data folder, or something for another command."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass

from uio_pipes.audio.sniff import sniff
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.formats.lists.table import ARCHIVES, expand
from uio_pipes.formats.parquet.table import SUFFIXES
from uio_pipes.formats.tar.index import MAGIC
from uio_pipes.formats.tar.index_files import SUFFIX
from uio_pipes.formats.touch.entries import names_folder, with_all_pairs
from uio_pipes.io.access import PLAIN
from uio_pipes.io.opening import is_local
from uio_pipes.io.stream import open_source
from uio_pipes.pipeline import Pipeline
from uio_pipes.starts.lists import from_raw_list, from_shard_list

HEAD = 1 << 16
RAW, CUTS, NEMO, TEXT = "raw list", "Lhotse's cuts", "NeMo manifest", "text in JSON lines"
_SHAR = re.compile(r"cuts(?:\.[^/]*)?\.jsonl(?:\.gz)?")
_CUT = re.compile(r'"type": ?"(?:Mono|Multi|Mixed|Padding)?Cut"')
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
    if path.endswith(SUFFIXES):
        return _parquet(path, "Parquet file")
    if os.path.basename(path) in NAMED:
        folder = os.path.dirname(path) or "."
        raise ListError(f"{path} is one of Kaldi's tables: name its folder (uio inspect {folder})")
    head = _head(next(expand(path, PLAIN)))
    if head.startswith(MAGIC):
        return _sidecar(path)
    if path.endswith((".yaml", ".yml")):
        return _mix(path, head)
    _refuse(path, head)
    first = _first(head)
    if not first:
        raise ListError(f"{path} is empty: a list has a path or a JSON object a line")
    if not (kind := _kind(first)):
        return _list(path, first)
    if '"reason"' in first and '"wav"' not in first:
        raise ListError(f"{path} is a quarantine file (failures with their origin): uio verify looks at it again")
    return Recognized(path, kind, _of_lines(path, kind, first, allow_pipes))


def _of_lines(path: str, kind: str, first: str, allow_pipes: bool) -> Pipeline:
    """Return the pipeline of JSON lines."""
    from uio_pipes.starts.others import from_lhotse_cuts
    from uio_pipes.starts.text import from_jsonl

    if kind == CUTS:
        return from_lhotse_cuts(path, allow_pipes=allow_pipes)
    if kind == NEMO:
        return _nemo(path, first)
    return from_jsonl(path) if kind == TEXT else from_raw_list(path)


def reads_records(path: str) -> bool:
    """Return whether this is a folder, or a file of utterances that has no lines of WeNet's. Raises: ListError."""
    if os.path.isdir(path) or path.endswith(SUFFIXES):
        return True
    if path.endswith((".yaml", ".yml")):
        raise ListError(f"{path} describes a mix: name what its sources name")
    if path.endswith((*ARCHIVES, SUFFIX)) or path.lstrip().startswith("{"):
        return False
    try:
        return _kind(_first(_head(next(expand(path, PLAIN))))) not in ("", RAW)
    except ListError:
        return False


def _kind(line: str) -> str:
    """Return the kind of a file of JSON lines by its first; "" for a file of another kind."""
    if not line.startswith("{"):
        return ""
    if '"supervisions"' in line or _CUT.search(line) is not None:
        return CUTS
    if '"audio_filepath"' in line:
        return NEMO
    return TEXT if '"text"' in line and not any(f'"{name}"' in line for name in ("wav", "feat", "recording")) else RAW


def _first(head: bytes) -> str:
    """Return the first line that is neither blank nor a comment, without the blanks around it."""
    return next((line.strip() for line in head.decode("utf-8", "replace").splitlines() if _counts(line)), "")


def _nemo(path: str, first: str) -> Pipeline:
    """Return the pipeline of a manifest, with the tars beside it if its rows are in tars."""
    from uio_pipes.starts.nemo import from_nemo

    if '"shard_id"' not in first:
        return from_nemo(path)
    folder = os.path.dirname(is_local(path) or path)
    for near in (folder, os.path.dirname(folder)):  # sharded manifests are in a folder of their own
        if tars := sorted(glob.glob(os.path.join(glob.escape(near), "audio*_*.tar"))):
            return from_nemo(path, tars)
    raise ListError(
        f"{path} is a NeMo manifest whose rows are in tars, but there is no audio_0.tar, … beside it or above: give "
        "both to uio.from_nemo in a Python file (uio simulate and uio bench take that)"
    )


def _counts(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _head(path: str) -> bytes:
    """Return the beginning of a file's content, decompressed."""
    try:
        source = open_source(path)
        try:
            head: bytes = source.read_upto(0, HEAD)
        finally:
            source.close()
    except DataError as error:
        raise ListError(f"{path}: {error.message}") from error
    return head


def _folder(path: str, local: str, allow_pipes: bool) -> Recognized:
    names = set(os.listdir(local))
    if {"metainfo.idx", "metainfo.bin", "texttoken.idx", "texttoken.bin"} & names:
        from uio_pipes.starts.records import from_indexed

        return Recognized(path, "TouchDataset folder", from_indexed(with_all_pairs(path)))
    if any(map(_SHAR.fullmatch, names)) and any(name.endswith(ARCHIVES) for name in names):
        from uio_pipes.starts.others import from_lhotse_shar

        return Recognized(path, "Lhotse Shar", from_lhotse_shar(path))
    if {"wav.scp", "feats.scp"} & names:
        from uio_pipes.starts.records import from_kaldi

        return Recognized(path, "Kaldi data folder", from_kaldi(path, allow_pipes=allow_pipes))
    if written := sorted({"data.list", "shards.list", "cuts.jsonl", "cuts.jsonl.gz"} & names):
        raise ListError(f"{path} is a folder with a list: name that, {os.path.join(path, written[0])}")
    if any(name.endswith(ARCHIVES) for name in names):
        raise ListError(f"{path} is a folder with shards: name them by a glob in quotes ('{path.rstrip('/')}/*.tar')")
    if any(name.endswith(SUFFIXES) for name in names):
        glob = f"{path.rstrip('/')}/*.parquet"
        raise ListError(f"{path} is a folder with Parquet files: name them by a glob in quotes ('{glob}')")
    raise ListError(
        f"{path} is a folder, but neither a TouchDataset (metainfo.idx, …), a Kaldi folder (wav.scp, …) nor a Shar: "
        "name a list, a shard or one of those"
    )


def _parquet(path: str, kind: str) -> Recognized:
    from uio_pipes.starts.parquet import from_parquet

    return Recognized(path, kind, from_parquet(path))


def _sidecar(path: str) -> Recognized:
    from uio_pipes.starts.records import from_tar_index

    if not path.endswith(SUFFIX):
        raise ListError(f"{path} is a tar index under another name; rename it to SHARD{SUFFIX} beside its shard")
    return Recognized(path, "index of a tar shard", from_tar_index(path.removesuffix(SUFFIX)))


def _mix(path: str, head: bytes) -> Recognized:
    from uio_pipes.starts.config import from_config

    if not any(line.startswith((b"sources:", b"input_cfg:", b"- ")) for line in head.splitlines()):
        raise ListError(f"{path} is a configuration, but has no sources: uio simulate --conf takes that of a trainer")
    return Recognized(path, "mix of sources", from_config(path))


def _list(path: str, first: str) -> Recognized:
    parts = first.split()
    if names_folder(first):
        from uio_pipes.starts.records import from_indexed

        return Recognized(path, "list of TouchDataset folders", from_indexed(path))
    if first.endswith(SUFFIXES):
        return _parquet(path, "list of Parquet files")
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
    if head.startswith(b"PAR1"):
        raise ListError(f"{path} is a Parquet file without the suffix: its name must end in .parquet")
    if head[257:262] == b"ustar":
        raise ListError(f"{path} is a tar without the suffix: shards must end in one of {' '.join(ARCHIVES)}")
    if path.endswith(".py"):
        raise ListError(f"{path} is a Python file: uio simulate and uio bench run the pipeline in it")
    if head.lstrip().startswith(b'{"meta"'):
        raise ListError(f"{path} is a loader's state: uio state show prints what is in it")
    if b"\0" in head:
        raise ListError(f"{path} is neither text nor any of the kinds of data that uio_pipes reads")
