"""Pipelines that begin with Lhotse's cuts or a Lhotse Shar, or with any Python object."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchdata.nodes import BaseNode

from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.base.urls import AnyPath
from uio_pipes.formats.audio_value import UNDECODED
from uio_pipes.formats.lhotse.cut import pairs_of, unread
from uio_pipes.formats.shar.shards import Sources
from uio_pipes.io.access import Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.datasets_private import decoded_columns, unknown_columns
from uio_pipes.sources.from_iterable import FromIterable, is_indexed
from uio_pipes.sources.lhotse_cuts import ListCuts
from uio_pipes.sources.lhotse_shar import LoadFromShar
from uio_pipes.sources.list_shar import ListShar


def from_lhotse_cuts(
    paths: AnyPath | Iterable[AnyPath],
    *,
    shuffle: bool = False,
    fields: Mapping[str, str | None] | None = None,
    allow_pipes: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Start a pipeline from the cuts of Lhotse's manifests, which are read without Lhotse and in any order.

    Utterances have the fields ``key`` (the cut's id), ``txt``, ``speaker``, ``language``, ``gender`` and custom fields
    of its supervisions as far as they agree, ``wav`` or ``feat``, ``start`` and ``end`` in seconds if the cut is a
    part of its recording, the cut's custom fields, and ``supervisions`` as they are. The texts of several supervisions
    are joined by a blank; ``.segments(field="supervisions")`` cuts an utterance for each. Custom recordings and arrays
    are read when touched, and are cut along. Manifests give all lengths: nothing else is opened to plan.

    Args:
        paths: manifest(s) of cuts (``cuts.jsonl``, ``cuts.jsonl.gz``, …), globs, braces, URLs. Relative paths in them
            start at the working directory, as in Lhotse.
        shuffle: whether to deal the cuts in another order in each epoch. Default: False.
        fields: names that the fields have in the cuts, by ours: ``{"wav": "target_recording"}``; None leaves a field
            out, and it is not read: ``{"feat": None}``. Default: None, all of them under their own names.
        allow_pipes: whether to run the commands that recordings may have in place of paths; they run without a shell.
            Default: False.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a manifest is missing or damaged, or does not hold cuts.
    """
    name = "from_lhotse_cuts"
    given = _paths(paths) if isinstance(paths, (str, os.PathLike, Iterable)) else ()
    require(bool(given) and all(given), name, "paths must be manifests of cuts", paths, "try 'cuts.jsonl.gz'")
    access = Access.of(name, storage_options)
    listed = ListCuts(given, shuffle, pairs_of(name, fields), allow_pipes, access)
    return Pipeline((listed,)).sharding_filter().load_records()


def from_lhotse_shar(
    source: AnyPath | Mapping[str, AnyPath | Iterable[AnyPath]],
    *,
    shuffle: bool = False,
    fields: Mapping[str, str | None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Start a pipeline from the cuts of a Lhotse Shar.

    Utterances have the same fields as those of :func:`from_lhotse_cuts`.

    Args:
        source: the folder; or ``{"cuts": paths, "recording": paths, …}`` to read only those fields, where paths may
            have globs and braces, and be URLs.
        shuffle: whether to deal the shards in another order in each epoch. Default: False.
        fields: names that the fields have in the Shar, by ours: ``{"wav": "target_recording"}``; None leaves a field
            out, and its files are not opened: ``{"feat": None}``. Default: None, all of them under their own names.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        PipelineError: ``source`` is neither a path nor such a dict.
        ListError: when the pipeline runs, if files are missing, or the shards of the fields do not pair.
    """
    access = Access.of("from_lhotse_shar", storage_options)
    pairs = pairs_of("from_lhotse_shar", fields)
    listed = ListShar(_sources(source), shuffle, unread(pairs), access)
    return Pipeline((listed,)).sharding_filter()._then(LoadFromShar(pairs, access))


def from_iterable(items: Iterable[Mapping[str, Any]], *, fields: Mapping[str, str] | None = None) -> Pipeline:
    """Start a pipeline from any Python object that yields utterances: a list, a ``Dataset``, an ``IterDataPipe``, a
    node.

    For several workers or ranks add ``.sharding_filter()``. ``print(pipeline)`` says how the object is resumed: a
    list, a map-style ``Dataset`` or another object with ``len`` and indexing at its number; one with ``state_dict``
    and ``load_state_dict`` (of the state between two items), or a ``torchdata.nodes.BaseNode``, by its own state;
    any other by skipping what was delivered, and so is an ``IterableDataset`` of Hugging Face's with a shuffle
    buffer, which its own state leaves out.

    Args:
        items: the object. It yields mappings with ``key`` (if missing, the number of the utterance), ``txt``, and
            ``wav`` or ``feat``: ``wav`` is a path or URL, the bytes of an audio file, ``{"bytes", "path"}`` as Hugging
            Face's datasets yield of an undecoded ``Audio`` feature, or samples as a tensor or array with
            ``sample_rate`` in Hz (or ``{"array", "sampling_rate"}``); ``feat`` (T, F) is a tensor, an array or a
            .npy file. It must yield
            the same in the same order each time; if it has ``set_epoch``, it may change with the epoch.
        fields: our names of fields whose names in the mappings are others, as in ``{"wav": "audio", "txt":
            "text"}``. Default: None, all have ours.

    Raises:
        PipelineError: ``items`` can be iterated only once, or not at all, or is a dataset that decodes its audio, has
            all its splits, or lacks a column that ``fields`` names.
    """
    if isinstance(items, Mapping) and hasattr(items, "column_names"):  # a DatasetDict
        rule = "items must be one split of a data set, not a dict of them"
        raise PipelineError(
            f"{FromIterable.name}: {rule}; choose one of {', '.join(items)}: data[{next(iter(items), 'train')!r}]"
        )
    remedy = "pass a list, a Dataset, an IterDataPipe or an object with __iter__"
    if isinstance(items, Mapping):
        remedy = f"choose one of its values, such as data[{next(iter(items), 'train')!r}]"
    ok = not isinstance(items, (str, bytes, Mapping, Pipeline)) and (isinstance(items, Iterable) or is_indexed(items))
    require(ok, FromIterable.name, "the argument must yield utterances (mappings)", items, remedy)
    once = isinstance(items, Iterator) and not isinstance(items, BaseNode)
    rule = "a generator or iterator can be iterated only once, but epochs and resuming need it again"
    require(not once, FromIterable.name, rule, items, f"{remedy} that makes it")
    decoded = decoded_columns(items)
    rule = "a dataset must leave its audio undecoded, or all of it is decoded whenever an item is touched"
    require(not decoded, FromIterable.name, rule, decoded, UNDECODED)
    stage = FromIterable(items, fields)
    if unknown := unknown_columns(items, fields):
        there = ", ".join(items.column_names)  # type: ignore[attr-defined]
        raise PipelineError(f"{stage.name}: the data set has no column {unknown[0]!r}, only {there}: correct fields=")
    return Pipeline((stage,))


def _sources(source: object) -> str | Sources:
    if isinstance(source, (str, os.PathLike)) and os.fspath(source):
        return str(os.fspath(source))
    rule = 'source must be a folder, or paths by field, {"cuts": …, "recording": …}'
    ok = isinstance(source, Mapping) and "cuts" in source and len(source) > 1
    require(ok, "from_lhotse_shar", rule, source, "name the folder that SharWriter wrote")
    assert isinstance(source, Mapping)
    return tuple((str(name), _paths(paths)) for name, paths in source.items())


def _paths(paths: Any) -> tuple[str, ...]:
    one = isinstance(paths, (str, os.PathLike))
    return tuple(str(os.fspath(path)) for path in ([paths] if one else paths))
