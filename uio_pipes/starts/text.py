"""Pipelines of text without audio: lines of text files, pairs of them, JSON lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from uio_pipes.base.checks import require
from uio_pipes.base.urls import AnyPath
from uio_pipes.formats.naming import names_of, transcript
from uio_pipes.io.access import Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.text import ListJsonl, ListText

Paths = AnyPath | Iterable[AnyPath]


def from_text(
    paths: Paths | Mapping[str, Paths],
    *,
    shuffle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Start a pipeline from text files, plain or compressed: each line is an utterance with ``txt``.

    The ``key`` is ``FILE:LINE``, such as ``train.zh:17``. A line keeps its blanks and may begin with ``#``; only the
    line end is taken off. Blank lines are left out and counted as ``blank_line``: of files that are read side by side,
    the same lines of all of them, so that pairs stay aligned. A line that is not UTF-8 is the failure ``bad_text``.

    Args:
        paths: text file(s): a path, URL, glob or ``{a,b}`` braces, or several in a list. For files that are read side
            by side, line by line, give a dict of them by the names of fields: ``{"txt": "train.zh", "target":
            "train.en"}``; several files of each are paired in their order.
        shuffle: whether to deal the lines in another order in each epoch: a random order of all, without a buffer.
            Default: False.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a file is missing or empty, or files that are read side by side have
            unequal numbers of lines.
    """
    given: Mapping[str, Any] = paths if isinstance(paths, Mapping) else {"txt": paths}
    ok = bool(given) and "key" not in given and all(isinstance(name, str) and name for name in given)
    require(ok, "from_text", "files must be given by names of fields", paths, 'as in {"txt": "train.zh", "target": …}')
    columns = tuple((name, _paths("from_text", entries)) for name, entries in given.items())
    return _loaded(ListText(columns, shuffle, Access.of("from_text", storage_options)))


def from_jsonl(
    paths: Paths,
    *,
    text: str = "text",
    fields: Mapping[str, str] | None = None,
    shuffle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Start a pipeline from JSON lines with a text, plain or compressed: each object is an utterance with ``txt``.

    All names of an object are kept as fields. The ``key`` is the object's ``key``, or its ``id``, or ``FILE:LINE``. An
    object without a text is the failure ``missing_text``. For lines that name audio, use :func:`from_raw_list`.

    Args:
        paths: JSONL file(s): a path, URL, glob or ``{a,b}`` braces, or several in a list.
        text: the name that holds the text. Default: "text".
        fields: names of other fields by ours: ``{"key": "doc_id", "lang": "language"}``. Default: None, all names are
            those of the file.
        shuffle: whether to deal the lines in another order in each epoch: a random order of all, without a buffer.
            Default: False.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a file is missing, empty, or not of JSON lines.
    """
    ok = isinstance(text, str) and bool(text)
    require(ok, "from_jsonl", "text must be the name of the text", text, 'as in text="content"')
    given = dict(names_of("from_jsonl", fields))
    names = tuple({"txt": transcript("from_jsonl", text, given, "text"), **given}.items())
    access = Access.of("from_jsonl", storage_options)
    return _loaded(ListJsonl(_paths("from_jsonl", paths), names, shuffle, access))


def _loaded(listing: ListText | ListJsonl) -> Pipeline:
    return Pipeline((listing,)).sharding_filter().load_records()


def _paths(start: str, paths: Any) -> tuple[str, ...]:
    given = [paths] if isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Iterable) else list(paths)
    ok = bool(given) and all(isinstance(p, (str, os.PathLike)) and os.fspath(p).strip() for p in given)
    require(ok, start, "paths must be a path, or several in a list", paths, "name a file")
    return tuple(os.fspath(p) for p in given)
