"""Pipelines that begin with Parquet files, such as data sets of Hugging Face's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.urls import AnyPath
from uio_pipes.formats.naming import names_of
from uio_pipes.io.access import CACHE_SIZE, Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.parquet import ListParquet, LoadFromParquet

_STAGE = "from_parquet"


def from_parquet(
    paths: AnyPath | Iterable[AnyPath],
    *,
    shuffle: bool = False,
    fields: Mapping[str, str] | None = None,
    columns: Iterable[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: AnyPath | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from Parquet files with an utterance a row: ``uio.from_parquet("hf://datasets/…/*.parquet")``.

    Audio is a column of bytes, of ``{"bytes", "path"}`` (as Hugging Face stores it), of paths, or of lists of samples.
    The footers give the number of utterances, so that the length of an epoch is known before it begins, and any
    number of lanes get equally many. Of each row group only the columns that are needed are read, while the one before
    it is in use; columns of bytes other than the audio are read when they are touched. A column ``duration`` (seconds)
    gives the lengths, otherwise the audio's header does. Needs ``pip install 'uio_pipes[parquet]'``, and
    ``hf://`` also ``pip install huggingface_hub``.

    Args:
        paths: files, globs, ``{a,b}`` braces and URLs, or list files with one of these a line. Give one, or several in
            a list.
        shuffle: whether to deal the row groups, and the rows within each, in another order in each epoch. Add
            ``.shuffle(…)`` to mix rows of several row groups. Default: False.
        fields: our names of fields, with those of their columns, as in ``{"wav": "speech", "txt": "sentence"}``.
            Default: None, the columns have ours, or those that are usual at Hugging Face: ``audio`` for ``wav``,
            ``text`` for ``txt``, ``id`` for ``key``. Without a column for it, ``key`` is made of the file's name and
            the number of the row.
        columns: names of the other columns to read. Default: None, all of them.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote files. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: an argument breaks a rule, or pyarrow is not installed.
        ListError: when the pipeline runs, if a file is missing, its footer is damaged, or its columns are not those
            that were named, or not those of the first file.
    """
    if find_spec("pyarrow") is None:
        raise PipelineError("from_parquet needs pyarrow: pip install 'uio_pipes[parquet]'")
    given: list[Any] = list(paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    ok = bool(given) and all(isinstance(p, (str, os.PathLike)) and os.fspath(p) for p in given)
    require(ok, _STAGE, "paths must be a path or URL, or several", paths, "name a file, or *.parquet")
    require(isinstance(shuffle, bool), _STAGE, "shuffle must be True or False", shuffle, "choose one")
    names_of(_STAGE, fields)
    kept = None if columns is None else tuple(columns)
    ok = not isinstance(columns, str) and all(isinstance(name, str) for name in kept or ())
    require(ok, _STAGE, "columns must be names of columns", columns, 'as in ["speaker_id"]')
    access = Access.of(_STAGE, storage_options, cache, cache_size)
    stage = ListParquet(tuple(map(os.fspath, given)), shuffle, kept, access, fields)
    return Pipeline((stage,)).sharding_filter()._then(LoadFromParquet())
