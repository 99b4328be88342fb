"""Pipelines that begin with a Lhotse Shar, or with any Python object."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchdata.nodes import BaseNode

from uio_pipes.base.checks import require
from uio_pipes.formats.shar.shards import Sources
from uio_pipes.io.access import Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.from_iterable import FromIterable, is_indexed
from uio_pipes.sources.lhotse_shar import LoadFromShar
from uio_pipes.sources.list_shar import ListShar

Path = str | os.PathLike[str]


def from_lhotse_shar(
    source: Path | Mapping[str, Path | Iterable[Path]],
    *,
    shuffle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Pipeline:
    """Start a pipeline from the cuts of a Lhotse Shar.

    Utterances have the fields ``key`` (the cut's id), ``txt``, ``speaker`` and ``language`` of its supervisions,
    ``wav`` or ``feat``, custom fields under their names, and ``supervisions`` as they are.

    Args:
        source: the folder; or ``{"cuts": paths, "recording": paths, …}`` to read only those fields, where paths may
            have globs and braces, and be URLs.
        shuffle: whether to deal the shards in another order in each epoch. Default: False.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.

    Raises:
        PipelineError: ``source`` is neither a path nor such a dict.
        ListError: when the pipeline runs, if files are missing, or the shards of the fields do not pair.
    """
    access = Access.of("from_lhotse_shar", storage_options)
    listed = ListShar(_sources(source), shuffle, access)
    return Pipeline((listed,)).sharding_filter()._then(LoadFromShar(access))


def from_iterable(items: Iterable[Mapping[str, Any]]) -> Pipeline:
    """Start a pipeline from any Python object that yields utterances: a list, a ``Dataset``, an ``IterDataPipe``, a
    node.

    For several workers or ranks add ``.sharding_filter()``. ``print(pipeline)`` says how the object is resumed: a
    list, a map-style ``Dataset`` or another object with ``len`` and indexing at its number; one with ``state_dict``
    and ``load_state_dict`` (of the state between two items), or a ``torchdata.nodes.BaseNode``, by its own state;
    any other by skipping what was delivered.

    Args:
        items: the object. It yields mappings with ``key`` (if missing, the number of the utterance), ``txt``, and
            ``wav`` or ``feat``: ``wav`` is a path or URL, the bytes of an audio file, or samples as a tensor or
            array with ``sample_rate`` in Hz; ``feat`` (T, F) is a tensor, an array or a .npy file. It must yield
            the same in the same order each time; if it has ``set_epoch``, it may change with the epoch.

    Raises:
        PipelineError: ``items`` can be iterated only once, or not at all.
    """
    remedy = "pass a list, a Dataset, an IterDataPipe or an object with __iter__"
    ok = not isinstance(items, (str, bytes, Mapping, Pipeline)) and (isinstance(items, Iterable) or is_indexed(items))
    require(ok, FromIterable.name, "the argument must yield utterances (mappings)", items, remedy)
    once = isinstance(items, Iterator) and not isinstance(items, BaseNode)
    rule = "a generator or iterator can be iterated only once, but epochs and resuming need it again"
    require(not once, FromIterable.name, rule, items, f"{remedy} that makes it")
    return Pipeline((FromIterable(items),))


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
