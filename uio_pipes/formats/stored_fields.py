"""Lossless conversion of the fields of an utterance to bytes and back: numbers, texts, bytes, arrays, timelines, and
lists and dicts of them. A JSON header describes them, and the arrays follow as they are in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import starmap
from typing import Any

import numpy as np
import torch

from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.base.errors import DataError
from uio_pipes.io.opened_ahead import LocalPath

_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_ALIGNED = 64  # bytes at which arrays begin
_ARRAY, _TENSOR, _BYTES, _TUPLE, _DICT, _TIMELINE = "array", "tensor", "bytes", "tuple", "dict", "timeline"


def dumps(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of fields. Raises: TypeError naming a value that is none of the kinds that can be kept."""
    blobs: list[Any] = []
    header = json.dumps({name: _described(one, blobs) for name, one in value.items()}).encode()
    begin = -(-(8 + len(header)) // _ALIGNED) * _ALIGNED
    return b"".join([len(header).to_bytes(8, "little"), header.ljust(begin - 8, b"\0"), *blobs])


def loads(data: bytearray) -> dict[str, Any]:
    """Return the fields from which :func:`dumps` made ``data``; arrays and tensors share its memory."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    blobs = memoryview(data)[-(-(8 + size) // _ALIGNED) * _ALIGNED :]
    return {name: _made(one, blobs) for name, one in header.items()}


def record_of(data: bytearray, path: str, offset: int) -> dict[str, Any]:
    """Return the fields of a record of a cache. Raises: DataError ``damaged_cache`` for one that no cache has made."""
    with suppress(Exception):
        found = loads(data)
        if all(isinstance(name, str) for name in found[""]) and not path_in(found):
            return found
    message = "a record of the cache is damaged (it does not hold fields): it is not used"
    raise DataError("damaged_cache", message, url=path, offset=offset)


def path_in(fields: Mapping[str, Any]) -> str:
    """Return a field that is a path instead of what is there, which may change, or be any file of this machine."""
    for name in ("wav", "feat"):
        value = fields.get(name)
        if any(isinstance(one, str) for one in (value if isinstance(value, (list, tuple)) else [value])):
            return name
    return ""


def raw(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor on the CPU, in order and without a copy where it lies so."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if not flat.numel():
        return b""
    flat = flat if flat.stride(0) == 1 else flat.clone(memory_format=torch.contiguous_format)  # a single number
    return flat.view(torch.uint8).numpy().data


def _described(value: Any, blobs: list[Any]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str, LocalPath):
        return value
    if kind is list:
        return [_described(one, blobs) for one in value]
    if kind is tuple:
        return {_TUPLE: [_described(one, blobs) for one in value]}
    if kind is dict and all(type(name) is str for name in value):
        return {_DICT: {name: _described(one, blobs) for name, one in value.items()}}
    if kind is Timeline:
        return {_TIMELINE: _described([[*map(tuple, value.events)], *list(vars(value).values())[1:]], blobs)}
    if kind is bytes:
        return {_BYTES: _placed(value, blobs)}
    if kind is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu":
        return {_TENSOR: [str(value.dtype).removeprefix("torch."), list(value.shape), *_placed(raw(value), blobs)]}
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return {_ARRAY: [value.dtype.str, list(value.shape), *_placed(value.tobytes(), blobs)]}
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return {_ARRAY: [value.dtype.str, None, *_placed(value.tobytes(), blobs)]}
    raise TypeError(f"{kind.__module__}.{kind.__qualname__}")


def _placed(raw: bytes | memoryview, blobs: list[Any]) -> list[int]:
    """Add bytes, and return where they begin and how many they are."""
    begin = sum(map(len, blobs))
    blobs += [raw, bytes(-len(raw) % _ALIGNED)]
    return [begin, len(raw)]


def _made(value: Any, blobs: memoryview) -> Any:
    if isinstance(value, list):
        return [_made(one, blobs) for one in value]
    if not isinstance(value, dict):
        return value
    (kind, given), *_ = value.items()
    if kind == _DICT:
        return {name: _made(one, blobs) for name, one in given.items()}
    if kind == _TIMELINE:
        events, *others = (_made(one, blobs) for one in given)
        return Timeline(tuple(starmap(Event, events)), *others)
    if kind == _TUPLE:
        return tuple(_made(one, blobs) for one in given)
    begin, size = given[-2:]
    raw = blobs[begin : begin + size]
    if kind == _BYTES:
        return bytes(raw)
    if kind == _ARRAY:
        array = np.frombuffer(raw, given[0])
        return array[0] if given[1] is None else array.reshape(given[1])
    dtype = _DTYPES[given[0]]
    return (torch.frombuffer(raw, dtype=dtype) if size else torch.empty(0, dtype=dtype)).reshape(given[1])
