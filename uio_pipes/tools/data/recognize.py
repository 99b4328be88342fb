"""The kind of data at a path: a list, a shard, an index, a data folder, something for another command, or what no
source reads by itself."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from inspect import signature
from typing import Any

from uio_pipes.audio.containers import sniff
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.json_text import parse_json
from uio_pipes.base.urls import folder_of, is_named, name_of, path_of, suffix_of
from uio_pipes.formats.advice import guessed, named_otherwise, usual_of
from uio_pipes.formats.lists.lines import ARCHIVES
from uio_pipes.formats.lists.table import ItemTable
from uio_pipes.formats.tables.description import Table
from uio_pipes.formats.tar.checks import SUFFIX
from uio_pipes.formats.tar.fields import member_of, payloads_under
from uio_pipes.formats.tar.index import MAGIC
from uio_pipes.formats.tar.reader import AUDIO_SUFFIXES, TarReader
from uio_pipes.io.access import PLAIN
from uio_pipes.io.opening import is_local
from uio_pipes.io.stream import open_source
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.config import from_config
from uio_pipes.sources.conversations import from_conversations
from uio_pipes.sources.corpora.card import largest
from uio_pipes.sources.corpora.source import from_corpus, reading
from uio_pipes.sources.kaldi.source import from_kaldi
from uio_pipes.sources.lhotse.shar import from_lhotse_shar
from uio_pipes.sources.lhotse.source import from_lhotse_cuts
from uio_pipes.sources.lists import from_raw_list, from_shard_list
from uio_pipes.sources.nemo.source import from_nemo
from uio_pipes.sources.parquet.source import from_parquet
from uio_pipes.sources.parquet.table import SUFFIXES
from uio_pipes.sources.table.source import from_table
from uio_pipes.sources.tar_index import from_tar_index
from uio_pipes.sources.text import from_jsonl, from_text
from uio_pipes.sources.touchdataset.folder import names_folder, with_all_pairs
from uio_pipes.sources.touchdataset.source import from_indexed
from uio_pipes.tools.data.corpora import named_corpus
from uio_pipes.tools.data.reading.data_list import (
    CONVERSATIONS,
    CUTS,
    JSONL,
    NEMO,
    PAIRS,
    RAW,
    SCP,
    TEXT,
    GivenNames,
    has_shards,
    head_of,
    is_document,
    is_line,
    kind_of,
    lines_of,
    names_in,
    objects_of,
)
from uio_pipes.tools.data.reading.foreign import foreign_folder, rows_of, table_of

_LOOKED_AT = 4  # utterances of a shard
_OF_AUDIO = "of audio files, name their folder: uio start"
_SHAR = re.compile(r"cuts(?:\.[^/]*)?\.jsonl(?:\.gz)?")
_PATH = re.compile(r"\S+://\S+|[!-~]*/[!-~]*|\S*/[^/\s]*\.\w{1,5}")  # and no text, which may have a slash
ROWS = tuple(f"{form}{packed}" for form in (".tsv", ".csv") for packed in ("", ".gz", ".zst"))
ANNOTATIONS = (".stm", ".TextGrid", ".textgrid", ".segments.xml")
TABLES = ("segments", "utt2spk", "text")  # of Kaldi's, which name no audio
SILENT, TEXTS = (" without transcripts", ""), (None, "txt")  # by whether there are transcripts


@dataclass(frozen=True)
class Recognized:
    """A path, its kind in words, the pipeline of its utterances, and the Python that begins it (to be shuffled).

    ``held``: whether it is a part of a corpus that another part, which is there, holds.
    """

    path: str
    kind: str
    pipeline: Pipeline
    call: str = ""
    held: bool = False

    @property
    def lacks(self) -> str:
        """What an utterance lacks to be worked on as one recording or its features; "" if nothing."""
        if self.kind == CONVERSATIONS:
            return "no utterances of one recording each"
        return "no audio" if self.kind in (JSONL, TEXT, PAIRS) else ""


def begun(path: str, kind: str, start: Callable[..., Pipeline], *given: Any, **options: Any) -> Recognized:
    """Return data of a kind, whose pipeline begins by ``start(*given, **options)``, a function of ``uio_pipes``."""
    known = signature(start).parameters
    told = {name: value for name, value in options.items() if name not in known or value != known[name].default}
    if "shuffle" in known:
        told["shuffle"] = True
    arguments = [_literal(value) for value in given if value is not None]
    arguments += [f"{name}={_literal(value)}" for name, value in told.items()]
    call = f"uio.{start.__name__}({', '.join(arguments)})"
    return Recognized(path, kind, start(*given, **options), call)


def _literal(value: Any) -> str:
    """Return a value as Python, a text in double quotes as the formatters have it."""
    if isinstance(value, Table):
        path = os.fspath(value.paths[0])  # type: ignore[index]  # a tuple of texts, once it is made
        given = [(one.name, getattr(value, one.name)) for one in dataclass_fields(value)[1:]]
        more = [f", {name}={_literal(own)}" for name, own in given if own != getattr(Table(path), name)]
        return f"uio.Table({_literal(path)}{''.join(more)})" if more else _literal(path)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(name)}: {_literal(own)}' for name, own in value.items())}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def recognize(path: str, allow_pipes: bool = False, fields: GivenNames = None) -> Recognized:
    """Return the kind of data at ``path``: a path, URL or glob, a line of a TouchDataset's list, files that are read
    side by side (``{"txt": "train.zh", "target": "train.en"}``), or a published corpus (``librispeech:FOLDER``).

    ``allow_pipes``: run the commands of a Kaldi folder; ``fields``: names that fields have in the data, by ours.

    Raises: ListError for a path without utterances, saying what it is and the command for it.
    """
    if (corpus := named_corpus(path)) is not None:
        there = corpus.found()
        options = {name: values[0] if len(values) == 1 else values for name, values in corpus.wanted.items()}
        return begun(path, corpus.kind(there), from_corpus, corpus.name, corpus.folder, fields=fields, **options)
    local = is_local(path)
    if local is not None and os.path.isdir(local):
        return _folder(path, local, allow_pipes, fields)
    if path.startswith("{"):
        return _object(path, fields)
    if names_folder(path):
        return begun(path, "TouchDataset folder", from_indexed, path, fields=fields)
    if is_named(path, ARCHIVES):
        return _shards(path, "tar shard", fields)
    if is_named(path, SUFFIXES):
        return begun(path, "Parquet file", from_parquet, path, fields=fields)
    if is_named(path, (SCP,)):
        return begun(path, "Kaldi's scp", from_kaldi, path, allow_pipes=allow_pipes, fields=fields)
    if name_of(path) in TABLES:
        folder = folder_of(path) or "."
        raise ListError(f"{path} is one of Kaldi's tables: name its folder (uio inspect {folder})")
    head = head_of(path)
    if head.startswith(MAGIC):
        return _sidecar(path, fields)
    if is_named(path, (".yaml", ".yml")):
        return _mix(path, head, fields)
    _refuse(path, head)
    if not (lines := lines_of(head)):
        raise ListError(f"{path} is empty: a list has a path or a JSON object a line")
    if is_named(path, ANNOTATIONS) or is_document(path, lines):
        return _rows(path, *rows_of(path, "\n".join(lines), fields))
    return _json(path, lines, allow_pipes, fields) if lines[0].startswith("{") else _list(path, lines, fields)


def by_rows(path: str) -> bool:
    """Return whether these are utterances that a table or a published corpus describes."""
    return named_corpus(path) is not None or is_named(path, (*ROWS, *ANNOTATIONS, *SUFFIXES))


def recognize_parts(path: str, allow_pipes: bool = False, fields: GivenNames = None) -> Iterator[Recognized]:
    """Yield what :func:`recognize` returns; of a corpus, each part that is there. Raises: ListError, PipelineError."""
    if (corpus := named_corpus(path)) is None:
        yield recognize(path, allow_pipes, fields)
        return
    parts = dict(corpus.parts())
    apart = largest(corpus.card, [*parts])
    for part, there in parts.items():
        kind, held = corpus.kind(there, part), part not in apart
        yield Recognized(path, kind, reading(corpus.card, there, fields), held=held)


def _json(path: str, lines: list[str], allow_pipes: bool, fields: GivenNames) -> Recognized:
    """Return what JSON lines are. Raises: ListError."""
    kind, names = kind_of(lines, fields), names_in(lines[0], fields)
    if kind in ("", JSONL) and "wav" in guessed(records := objects_of(lines)):
        lacking = [ours for ours in ("key", "wav", "txt") if ours not in names]
        told = named_otherwise(lacking[0], records[0], *lacking[1:], given=fields, others=records[1:])
        raise ListError(f"{path} has JSON objects that name audio by other names than ours: {told}")
    if {"reason", "member"} <= names:
        raise ListError(f"{path} is a quarantine file (failures with their origin): uio verify --confirm takes it")
    if not kind:
        shown = ", ".join(sorted(names)[:12])
        raise ListError(
            f"{path} has JSON objects with other names than ours ({shown}): say which is which, as in "
            "--fields txt=content for texts, or --fields key=id,wav=path,txt=words for audio"
        )
    if kind == CUTS:
        return begun(path, kind, from_lhotse_cuts, path, fields=fields, allow_pipes=allow_pipes)
    if kind == NEMO:
        return begun(path, kind, from_nemo, path, _tars_of(path, lines), fields=fields)
    if kind in (CONVERSATIONS, JSONL):
        start = from_conversations if kind == CONVERSATIONS else from_jsonl
        return begun(path, kind, start, path, fields=fields)
    said = any("txt" in names_in(line, fields) for line in lines)
    return begun(path, kind + SILENT[said], from_raw_list, path, fields=fields, text=TEXTS[said])


def _tars_of(path: str, lines: list[str]) -> list[str] | None:
    """Return the tars beside a manifest, if its rows are in tars. Raises: ListError if there are none."""
    if '"shard_id"' not in lines[0]:
        return None
    folder = folder_of(is_local(path) or path)
    for near in (folder, os.path.dirname(folder)):  # sharded manifests are in a folder of their own
        if tars := sorted(glob.glob(os.path.join(glob.escape(near), "audio*_*.tar"))):
            return tars
    raise ListError(
        f"{path} is a NeMo manifest whose rows are in tars, but there is no audio_0.tar, … beside it or above: give "
        "both to uio.from_nemo in a Python file (uio simulate and uio bench take that)"
    )


def _object(path: str, fields: GivenNames) -> Recognized:
    """Return what a JSON object in the place of a path is: one utterance, or text files by the names of fields."""
    if is_line(path, fields):
        return begun(path, RAW, from_raw_list, path, fields=fields)
    return _text(path, PAIRS, parse_json(path), fields)


def _text(path: str, kind: str, files: Any, fields: GivenNames) -> Recognized:
    _unnamed(path, kind, fields)
    return begun(path, kind, from_text, files)


def _unnamed(path: str, kind: str, fields: GivenNames) -> None:
    """Raises: ListError if names were given for data without any."""
    if fields:
        raise ListError(f"{path} is a {kind}, where fields have no names: leave --fields out")


def _folder(path: str, local: str, allow_pipes: bool, fields: GivenNames) -> Recognized:
    names = set(os.listdir(local))
    if {"metainfo.idx", "metainfo.bin", "texttoken.idx", "texttoken.bin"} & names:
        return begun(path, "TouchDataset folder", from_indexed, with_all_pairs(path), fields=fields)
    if any(map(_SHAR.fullmatch, names)) and any(name.endswith(ARCHIVES) for name in names):
        return begun(path, "Lhotse Shar", from_lhotse_shar, path, fields=fields)
    if {"wav.scp", "feats.scp"} & names:
        theirs = None if "text" in names else usual_of("txt", names)
        kind = "Kaldi data folder" + (f", {theirs} taken as text" if theirs else "")
        text = os.path.join(path, theirs) if theirs else None
        return begun(path, kind, from_kaldi, path, text=text, allow_pipes=allow_pipes, fields=fields)
    if what := foreign_folder(path, names):
        raise ListError(f"{path} is {what}")
    if written := sorted({"data.list", "shards.list", "cuts.jsonl", "cuts.jsonl.gz"} & names):
        raise ListError(f"{path} is a folder with a list: name that, {os.path.join(path, written[0])}")
    if any(name.endswith(ARCHIVES) for name in names):
        raise ListError(f"{path} is a folder with shards: name them by a glob in quotes ('{path.rstrip('/')}/*.tar')")
    if any(name.endswith(SUFFIXES) for name in names):
        glob = f"{path.rstrip('/')}/*.parquet"
        raise ListError(f"{path} is a folder with Parquet files: name them by a glob in quotes ('{glob}')")
    raise ListError(
        f"{path} is a folder, but neither a TouchDataset (metainfo.idx, …), a Kaldi folder (wav.scp, …) nor a Shar: "
        "name a list, a shard or one of those; of a folder of audio files, uio start makes a list"
    )


def _shards(path: str, kind: str, fields: GivenNames) -> Recognized:
    said = _holds_texts(path, fields)
    return begun(path, kind + SILENT[said], from_shard_list, path, fields=fields, text=TEXTS[said])


def _sidecar(path: str, fields: GivenNames) -> Recognized:
    if not is_named(path, SUFFIX):
        raise ListError(f"{path} is a tar index under another name; rename it to SHARD{SUFFIX} beside its shard")
    shard = path_of(path).removesuffix(SUFFIX) + path[len(path_of(path)) :]
    return begun(path, "index of a tar shard", from_tar_index, shard, fields=fields)


def _mix(path: str, head: bytes, fields: GivenNames) -> Recognized:
    if not any(line.startswith((b"sources:", b"input_cfg:", b"- ")) for line in head.splitlines()):
        raise ListError(f"{path} is a configuration, but has no sources: uio simulate --conf takes that of a trainer")
    _unnamed(path, "mix of sources", fields)
    return begun(path, "mix of sources", from_config, path)


def _list(path: str, lines: list[str], fields: GivenNames) -> Recognized:
    first = lines[0]
    if names_folder(first):
        return begun(path, "list of TouchDataset folders", from_indexed, path, fields=fields)
    if is_named(first, SUFFIXES):
        return begun(path, "list of Parquet files", from_parquet, path, fields=fields)
    if has_shards(lines):
        return _shards(path, "shard list", fields)
    if any(line.startswith('{"') for line in lines):
        raise ListError(f"{path} has lines of several kinds: {first[:60]!r} is no JSON object, as others of them are")
    if (found := table_of(path, lines, fields)) is not None:
        return _rows(path, *found)
    if _PATH.fullmatch(first):
        how = f"name the files themselves, as by a glob in quotes; names of shards end in one of {' '.join(ARCHIVES)}"
        if suffix_of(first) in AUDIO_SUFFIXES:
            near = os.path.join(folder_of(path), folder_of(first))
            how = f"{_OF_AUDIO} {near if os.path.isdir(near) else folder_of(first) or '.'}"
        raise ListError(f"{path} lists files that are no shards ({first[:60]}): {how}")
    return _text(path, TEXT, path, fields)


def _rows(path: str, table: Table, named: dict[str, str]) -> Recognized:
    shown = ", ".join(f"{ours}={theirs}" for ours, theirs in named.items())
    return begun(path, f"table ({shown})", from_table, table, fields=named)


def _refuse(path: str, head: bytes) -> None:
    if kind := sniff(head):
        how = f"name what lists it, or a shard of such files; {_OF_AUDIO} {folder_of(path) or '.'}"
        raise ListError(f"{path} is an audio file ({kind}): {how}")
    if head.startswith(b"PK\x03\x04") and b"data.pkl" in head:
        raise ListError(f"{path} is a file of torch.save: uio state show prints what a loader's state in it says")
    if head.startswith(b"PAR1"):
        raise ListError(f"{path} is a Parquet file without the suffix: its name must end in .parquet")
    if head[257:262] == b"ustar":
        raise ListError(f"{path} is a tar without the suffix: shards must end in one of {' '.join(ARCHIVES)}")
    if is_named(path, ".py"):
        raise ListError(f"{path} is a Python file: uio simulate and uio bench run the pipeline in it")
    if head.lstrip().startswith(b'{"meta"'):
        raise ListError(f"{path} is a loader's state: uio state show prints what is in it")
    if b"\0" in head:
        raise ListError(f"{path} is neither text nor any of the kinds of data that uio_pipes reads")


def _holds_texts(url: str, fields: Mapping[str, str] | None = None) -> bool:
    """Return False if none of the first utterances of the first shard has a transcript. Raises: ListError."""
    shard, suffix = ItemTable((url,), PLAIN)[0], member_of((fields or {}).get("txt", "txt"))
    seen = list[bool]()
    with (
        suppress(DataError, StopIteration),
        closing(TarReader(shard, open_source(shard, PLAIN), text="", payloads=payloads_under(fields))) as reader,
    ):
        while len(seen) < _LOOKED_AT:
            seen.append(suffix in reader.next().fields)
    return any(seen) or not seen
