"""Hugging Face's ``datasets`` as ``from_iterable`` meets them, without importing the package.

Their own state leaves out what a shuffle buffer holds ("examples from shuffle buffers are lost when resuming", says
``IterableDataset.state_dict``), and only the inside of the object shows that there is one. What is used of it, and of
torch's, is pinned by ``tests/interop/test_datasets.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data._utils import worker

_INSIDE = "_ex_iterable"
_BUFFER = "BufferShuffledExamplesIterable"


def decoded_columns(items: Any) -> list[str]:
    """Return the columns that a dataset would decode as audio whenever an item is touched."""
    features = getattr(items, "features", None)
    columns = features.items() if isinstance(features, Mapping) else ()
    return [name for name, f in columns if type(f).__name__ == "Audio" and getattr(f, "decode", False)]


def unknown_columns(items: Any, fields: Mapping[str, str] | None) -> list[str]:
    """Return the names in ``fields`` of columns that a dataset, which knows its columns, does not have."""
    known = getattr(items, "column_names", None)
    return [theirs for theirs in (fields or {}).values() if theirs not in known] if isinstance(known, list) else []


def loses_items(items: Any) -> bool:
    """Return whether the state of an ``IterableDataset`` leaves items out: it has a shuffle buffer."""
    inner = getattr(items, _INSIDE, None)
    return inner is not None and any(type(i).__name__ == _BUFFER and i.buffer_size > 1 for i in _iterables(inner))


def way_of_next(items: Any) -> Callable[[Iterator[Any]], Any]:
    """Return ``next``, and for an ``IterableDataset`` of theirs one that hides that we are in a worker of a DataLoader:
    there it would yield a share of its items, and shuffle them by other numbers, while lanes share all items out."""
    return _unshared if hasattr(items, _INSIDE) else next


def _unshared(iterator: Iterator[Any]) -> Any:
    info, worker._worker_info = worker._worker_info, None
    try:
        return next(iterator)
    finally:
        worker._worker_info = info


def _iterables(outer: Any) -> Iterator[Any]:
    yield outer
    for inner in (getattr(outer, "ex_iterable", None), *(getattr(outer, "ex_iterables", None) or ())):
        if inner is not None:
            yield from _iterables(inner)
