"""Pipelines whose utterances are read in any order: indexed tars, TouchDatasets, Kaldi tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from uio_pipes.base.checks import check_names, require
from uio_pipes.base.urls import AnyPath
from uio_pipes.io.access import CACHE_SIZE, Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.indexed import ListIndexed
from uio_pipes.sources.kaldi import ListKaldi
from uio_pipes.sources.list_files import ListFiles
from uio_pipes.sources.tar_index import ListTarIndex, OpenIndex
from uio_pipes.starts.lists import list_files


def from_tar_index(
    paths: Any,
    *,
    shuffle: bool = False,
    verify: Literal["crc"] | None = None,
    indexes: str | None = None,
    fields: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from tar shards that ``uio index`` has indexed; their utterances are read in any order.

    The samples are the same as those of ``from_shard_list``. Lengths, texts and keys are in the index: planning,
    filtering and restoring read nothing else, an epoch's length is known before it begins, shuffling needs no
    buffer, and there may be more lanes than shards.

    Args:
        paths: lists of shards, globs, or the shards themselves, as for :func:`list_files`.
        shuffle: whether to deal all utterances in another order in each epoch, with equal durations for the lanes.
            Default: False.
        verify: "crc" compares all bytes that are read with their CRC32 in the index. Default: None, no comparison.
        indexes: folder that ``uio index --into`` wrote to. Default: None, beside the shards.
        fields: our names of fields, with the suffixes of their members, or ``SUFFIX:NAME`` for a field of a member's
            JSON, as in ``{"txt": "trans", "speaker": "json:speaker"}``; dots lead into nested fields. Default: None,
            ours are the suffixes.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote shards. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        ListError: when the pipeline runs, if a shard has no index, or one of other bytes, or is compressed.
    """
    stage = ListTarIndex(
        _names(paths), shuffle, verify, indexes, Access.of("from_tar_index", storage_options, cache, cache_size), fields
    )
    return Pipeline((stage,)).sharding_filter().load_records()


def open_index(
    paths: Any,
    *,
    verify: Literal["crc"] | None = None,
    indexes: str | None = None,
    fields: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OpenIndex:
    """Open indexed tar shards for random access: ``uio.open_index("shards.list")["BAC009S0002W0122"]["txt"]``.

    The result is a mapping of samples by key, whose fields are read when touched.

    Args:
        paths: lists of shards, globs, or the shards themselves, as for :func:`list_files`.
        verify: "crc" compares all bytes that are read with their CRC32 in the index. Default: None, no comparison.
        indexes: folder that ``uio index --into`` wrote to. Default: None, beside the shards.
        fields: our names of fields, with the suffixes of their members, or ``SUFFIX:NAME`` for a field of a member's
            JSON, as in ``{"txt": "trans", "speaker": "json:speaker"}``; dots lead into nested fields. Default: None,
            ours are the suffixes.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        ListError: a shard has no index, or one of other bytes, or is compressed.
    """
    access = Access.of("open_index", storage_options)
    return OpenIndex(ListTarIndex(_names(paths), False, verify, indexes, access, fields).table())


def _names(paths: Any) -> tuple[str, ...]:
    listed = list_files(paths).stages[0]
    assert isinstance(listed, ListFiles)
    return listed.paths


def from_indexed(
    dirs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    shuffle: bool = False,
    metainfo: str | None = None,
    verify: Literal["crc"] | None = None,
    indexes: str | os.PathLike[str] | None = None,
    texts: Sequence[str] | None = ("txt",),
    fields: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from TouchDatasets: folders with ``audio.bin``, ``audio.idx``, ``metainfo.bin``,
    ``metainfo.idx``.

    Utterances have the fields ``key``, ``txt``, ``wav``, ``sample_rate``, and whatever else the metadata holds
    (``speaker``, ``info``, …). Audio is read when the batch is made; of a segment (``start``, ``end``) only its own
    bytes. A data list may name other pairs of files: of ``FOLDER audio+video+metainfo`` each utterance has the bytes
    of its record as ``video``, read when touched; ``FOLDER metainfo`` gives texts without audio, ``FOLDER texttoken``
    the ids of tokens as ``label``. An entry without audio needs no ``key``: it then gets ``FOLDER:NUMBER``.

    Args:
        dirs: folder(s), data list(s) with ``FOLDER audio+metainfo`` per line, or such lines themselves, globs, braces,
            URLs (one that ends in .list, .lst or .txt is a data list, any other one a folder).
        shuffle: whether to deal the utterances in another order in each epoch: a random order of all, without a
            buffer. Default: False.
        metainfo: name of the metadata to read, such as "metainfo_v2". Default: None, the name that the data list
            says, or else "metainfo".
        verify: "crc" compares audio and metadata of each utterance with the CRC32s that the command ``uio index`` wrote
            (``bad_crc``). A recording is then read as a whole, once, before its first segment. Default: None, no
            comparison.
        indexes: folder that ``uio index --into`` wrote the checksums to. Default: None, they are beside the data.
        texts: names of the metadata's transcripts, such as ("txt", "whisper"), of which an utterance must have at least
            one; ``choose_text`` chooses among them. Dots lead into nested fields. Utterances with tokens need none, and
            with None no utterance does, as for pre-training. Default: ("txt",).
        fields: our names of fields whose names in the metadata, or of files, are others, as in ``{"txt": "text",
            "clip": "video"}``. Default: None, all have ours.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote files. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a folder or list is missing, damaged or of another kind.
    """
    given: list[Any] = [dirs] if isinstance(dirs, (str, os.PathLike)) else list(dirs)
    ok = bool(given) and all(isinstance(d, (str, os.PathLike)) and os.fspath(d).strip() for d in given)
    require(ok, "from_indexed", "dirs must be a folder or a data list, or several", dirs, "name a folder")
    access = Access.of("from_indexed", storage_options, cache, cache_size)
    into = None if indexes is None else os.fspath(indexes)
    if texts is not None:
        check_names("from_indexed", "texts", texts)
    dirs_, said = tuple(os.fspath(d) for d in given), None if texts is None else tuple(texts)
    stage = ListIndexed(dirs_, shuffle, metainfo, verify, into, said, access, fields)
    return Pipeline((stage,)).sharding_filter().load_records()


def from_kaldi(
    scp: AnyPath,
    text: AnyPath | None = None,
    *,
    segments: AnyPath | None = None,
    utt2spk: AnyPath | None = None,
    shuffle: bool = False,
    allow_pipes: bool = False,
    fields: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Start a pipeline from Kaldi's tables, whose utterances are read in any order.

    Args:
        scp: ``wav.scp`` (paths, URLs, ``.ark:offset`` of audio, pipes) or ``feats.scp`` (``.ark:offset``, with
            ``[first:last]`` rows if wanted), distinguished by what they point at; or a data folder, whose tables are
            used, and ``wav.scp`` if it has both. Relative paths in a table start at the working directory, as in
            Kaldi.
        text: table of ``KEY words …`` per line, for the field ``txt``. An utterance without a line is counted as
            ``missing_text``, a line without an utterance as ``missing_recording``. Default: None, the folder's own,
            or no text.
        segments: table of ``KEY RECORDING start end`` per line, in seconds; an end of -1 is the end of the
            recording. Default: None, the folder's own, or none.
        utt2spk: table of ``KEY SPEAKER`` per line, for the field ``speaker``. Default: None, the folder's own, or
            none.
        shuffle: whether to deal the utterances in another order in each epoch. Default: False.
        allow_pipes: whether to run the commands that ``wav.scp`` may have in place of paths (``sox … |``); they run
            without a shell. Default: False.
        fields: other names for fields by those that the tables give, as in ``{"words": "txt"}``. Default: None, no
            others.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        PipelineError: an argument is not a path.
        ListError: when the pipeline runs, if a table is missing or malformed, or a key stands in it twice.
    """
    named = {"scp": scp, "text": text, "segments": segments, "utt2spk": utt2spk}
    paths = {name: _path(name, value) for name, value in named.items() if value is not None or name == "scp"}
    stage = ListKaldi(
        **paths,
        shuffle=shuffle,
        allow_pipes=allow_pipes,
        access=Access.of("from_kaldi", storage_options),
        fields=fields,
    )
    return Pipeline((stage,)).sharding_filter().load_records()


def _path(name: str, value: object) -> str:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    require(bool(path), "from_kaldi", f"{name} must be a path or URL", value, "name a file")
    return str(path)
